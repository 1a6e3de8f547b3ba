"""The command line."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from baldwin import __version__
from baldwin.cli.cluster import cluster
from baldwin.cli.console import Json, err, out
from baldwin.cli.importing import import_
from baldwin.errors import BaldwinError, UserError, pick
from baldwin.processes import run_behind_the_world, start_server

if TYPE_CHECKING:
    from baldwin.config import RunConfig

app = typer.Typer(
    help="Train policies by evolution, by gradient, and by both at once.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
RunDir = Annotated[Path, typer.Argument(metavar="DIR", help="A run directory.")]
Overrides = Annotated[
    list[str] | None,
    typer.Option(
        "-m", metavar="KEY=VALUE ...", help="Override keys, as in -m algorithm.lr=0.02 run.seed=3; values are YAML. May be repeated."
    ),
]
Algo = Annotated[str | None, typer.Option("--algo", metavar="NAME", help="A name from: baldwin list algorithms; default: es.")]
Env = Annotated[
    str | None, typer.Option("--env", metavar="ID", help="Any environment. Takes the algorithm's tuned section for it, if there is one.")
]
Files = Annotated[
    list[Path] | None, typer.Option("-c", metavar="FILE ...", help="YAML files, merged over the preset in this order. May be repeated.")
]
OutDir = Annotated[Path | None, typer.Option("--out", metavar="DIR", help="The run directory; default: a new one under run.out.")]
Seed = Annotated[int | None, typer.Option("--seed", metavar="N", min=0, help="The same as -m run.seed=N.")]
Trust = Annotated[bool, typer.Option("--trust", help="Import the classes that a config names, also if you did not write it.")]
Quiet = Annotated[bool, typer.Option("--quiet", help="No progress, only the summary.")]


def repeat_options(args: list[str]) -> list[str]:
    """`-m a=1 b=2` -> `-m a=1 -m b=2`, which is what the parser understands.

    A further value of -m has an '=', one of -c is a file or ends with .yaml: no preset does.
    """
    out: list[str] = []
    option = ""
    for previous, arg in zip(["", *args], args, strict=False):
        if arg.startswith("-"):
            option = arg if arg in ("-c", "-m") else ""
        elif previous not in ("-c", "-m") and option:
            further = "=" in arg if option == "-m" else arg.endswith((".yaml", ".yml")) or Path(arg).is_file()
            if further:
                out.append(option)
            else:
                option = ""
        out.append(arg)
    return out


@app.command()
def train(
    preset: Annotated[
        str | None, typer.Argument(metavar="PRESET", help="A name from: baldwin list presets. Or leave it out and give --env, -c or -m.")
    ] = None,
    algo: Algo = None,
    env: Env = None,
    files: Files = None,
    overrides: Overrides = None,
    out_dir: OutDir = None,
    seed: Seed = None,
    seeds: Annotated[
        str | None,
        typer.Option("--seeds", metavar="LIST", help="Several runs side by side, as in 1-5 or 1,3,7; compare then groups them."),
    ] = None,
    quiet: Quiet = False,
    schema: Annotated[bool, typer.Option("--schema", help="Print the JSON schema of the config and exit.")] = False,
) -> None:
    """Train; Ctrl-C saves and says how to go on."""
    if preset is None and env is None and not files and not overrides and not schema:
        raise UserError("train needs a PRESET, --algo and --env, -c FILE or -m env.id=...: see baldwin list presets")
    if not schema and seeds is None and not any("executor.name" in text for text in overrides or ()):
        start_server()
    from baldwin.config import config_schema, load_config

    if schema:
        print(json.dumps(config_schema(), indent=1))
        return
    from baldwin.runs.run import start

    chosen = [*(overrides or ()), *([f"run.seed={seed}"] if seed is not None else [])]

    def load(*more: str) -> RunConfig:
        return load_config(preset, files or (), [*chosen, *more], algorithm=algo, env=env)

    if seeds is None:
        _train(lambda: start(_single(load()), out_dir), quiet)
        return
    from baldwin.runs.seeds import parse_seeds, train_seeds

    if seed is not None:
        raise UserError(f"expected --seed or --seeds, not both; got {seed} and {seeds}. Leave one out")
    configs = [_single(load(f"run.seed={number}")) for number in parse_seeds(seeds)]
    runs, interrupted = train_seeds(configs, out_dir, lambda line: None if quiet else out.print(line, markup=False, highlight=False))
    done = [run.path for run in runs if run.done and run.path]
    if done:
        compare(done)
    for run in runs:
        if not run.done:
            err.print(f"{'' if interrupted else 'error: '}seed {run.config.run.seed}: {run.ending}", markup=False, highlight=False)
    if len(done) < len(runs):
        raise typer.Exit(130 if interrupted else 1)


@app.command()
def evolve(
    preset: Annotated[
        str | None,
        typer.Argument(metavar="PRESET", help="A preset with a population, from: baldwin list presets. Or give --env, -c or -m."),
    ] = None,
    algo: Algo = None,
    env: Env = None,
    files: Files = None,
    overrides: Overrides = None,
    out_dir: OutDir = None,
    seed: Seed = None,
    quiet: Quiet = False,
) -> None:
    """Train many members with hyper-parameters of their own: PBT, NSGA-II and others. Ranges stand in place of values: algorithm.lr={log: [1e-5, 1e-2]}."""
    if preset is None and env is None and not files and not overrides:
        raise UserError("evolve needs a PRESET with a population, or --env and -m population.name=pbt: see baldwin list populations")
    start_server()
    from baldwin.config import load_config
    from baldwin.runs.run import start

    chosen = [*(overrides or ()), *([f"run.seed={seed}"] if seed is not None else [])]
    config = load_config(preset, files or (), chosen, algorithm=algo, env=env)
    if config.population is None:
        raise UserError(
            "evolve needs a population: section, as in -m population.name=pbt. Without one, baldwin train trains a single policy"
        )
    _train(lambda: start(config, out_dir), quiet)


@app.command()
def sweep(
    preset: Annotated[
        str | None, typer.Argument(metavar="[PRESET|DIR]", help="A preset; or the directory of a sweep, to see its table again.")
    ] = None,
    algo: Algo = None,
    env: Env = None,
    files: Files = None,
    overrides: Overrides = None,
    trials: Annotated[int, typer.Option(min=1, help="Sets of hyper-parameters.")] = 20,
    seeds: Annotated[int, typer.Option(min=1, help="Runs of each; the median counts.")] = 3,
    steps: Annotated[int | None, typer.Option(min=1, help="Environment steps of each run; default: those of the preset.")] = None,
    sampler: Annotated[str, typer.Option(metavar="NAME", help="random, grid; by Optuna: tpe, cma-es, gp, qmc.")] = "random",
    pruner: Annotated[str, typer.Option(metavar="NAME", help="none; by Optuna: median, halving, hyperband.")] = "none",
    rungs: Annotated[int, typer.Option(min=1, help="Evaluations of a run; a pruner decides after each.")] = 1,
    out_dir: OutDir = None,
    seed: Seed = None,
    plot: Annotated[Path | None, typer.Option(metavar="FILE", help="Draw parallel coordinates and importances.")] = None,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Compare values of hyper-parameters by independent runs: -m 'algorithm.lr={log: [1e-5, 1e-2]}'. Ctrl-C saves; baldwin resume DIR goes on."""
    from baldwin.runs.sweeps import plot_sweep, sweep_table

    if preset is not None and (Path(preset) / "config.yaml").is_file():
        directory = Path(preset)
    else:
        start_server()
        from baldwin.config import load_config
        from baldwin.runs.run import start

        own = ["name=sweep", f"trials={trials}", f"seeds={seeds}", f"rungs={rungs}", f"sampler={sampler}", f"pruner={pruner}"]
        chosen = [*(f"population.{text}" for text in own), "run.checkpoint_every=1", f"run.evaluate_every={10**9}"]
        chosen += [*(overrides or ()), *([f"run.seed={seed}"] if seed is not None else [])]
        config = load_config(preset, files or (), chosen, algorithm=algo, env=env)
        budget = steps or config.stop.env_steps or config.stop.learning_steps
        if budget and not any(text.startswith("population.steps=") for text in overrides or ()):
            config = load_config(preset, files or (), [*chosen, f"population.steps={budget}"], algorithm=algo, env=env)
        count = getattr(config.population, "trial_count", trials)
        stop = config.stop.model_copy(update={"generations": count, "env_steps": None, "learning_steps": None, "score": None})
        run = start(config.model_copy(update={"stop": stop}), out_dir)
        directory = run.directory.path
        _train(lambda: run, quiet or as_json, summary=False)
    rows = sweep_table(directory)
    if plot:
        plot_sweep(directory, plot)
    if as_json:
        print(json.dumps(rows))
        return
    names = list(rows[0]["hyperparameters"]) if rows else []
    table = Table("trial", "median", "min", "max", "env steps", "", *names)
    for row in rows:
        known = [score for score in row["scores"] if score is not None]
        numbers = [row["median"], min(known, default=None), max(known, default=None)]
        values = (_readable(row["hyperparameters"][name]) for name in names)
        table.add_row(str(row["trial"]), *map(_readable, numbers), f"{row['env_steps']:,}", "pruned" if row["pruned"] else "", *values)
    out.print(table, markup=False)
    out.print(f"run directory: {directory}" + (f"\npicture: {plot}" if plot else ""), markup=False)


@app.command()
def resume(directory: RunDir, overrides: Overrides = None, trust: Trust = False, quiet: Quiet = False) -> None:
    """Continue a run exactly where it stopped, also after kill -9. -m may change stop, run and executor."""
    start_server()
    from baldwin.runs.resume import resume as resume_run
    from baldwin.runs.run import Run

    def prepare() -> Run:
        run, warnings = resume_run(directory, overrides or (), trust)
        for text in warnings:
            err.print(f"warning: {text}", markup=False)
        return run

    _train(prepare, quiet)


def _single(config: RunConfig) -> RunConfig:
    """Refuse a config with a population, unless it only replays a schedule."""
    if config.population and config.population.name != "schedule":
        searched = ", ".join(config.population.search)
        raise UserError(
            f"this config has a population ({config.population.name}{f' over {searched}' if searched else ''}): baldwin evolve trains it. "
            "To train a single policy: -m population=null"
        )
    return config


def _train(prepare: Callable[[], Any], quiet: bool, summary: bool = True) -> None:
    from baldwin.runs.interrupt import Signals
    from baldwin.runs.progress import make_progress
    from baldwin.runs.report import plot_run
    from baldwin.runs.run import train as train_run

    run = prepare()
    if run.parts.env_spec.live:
        run_behind_the_world()
    path = run.directory.path
    with Signals.held() as signals:
        try:
            with make_progress(run.config, out, quiet) as progress:
                if not quiet:
                    out.print(f"run directory: {path}", markup=False, highlight=False)
                train_run(run, [progress], signals)
        except KeyboardInterrupt:
            plot_run(run.directory)
            err.print(f"stopped at generation {run.algorithm.version}; saved. Go on with: baldwin resume {path}", markup=False)
            raise typer.Exit(130) from None
    curve = plot_run(run.directory)
    if not summary:
        return
    out.print(
        f"done ({run.stopped_by}): score {run.score:.2f} at generation {run.algorithm.version}, {run.algorithm.env_steps:,} env steps, "
        f"{run.last.get('wall_seconds', run.clock.wall):.1f} s\nparams_sha256 {run.params_sha256()}\ncurve: {curve}\nwatch it: baldwin render {path}",
        markup=False,
        highlight=False,
    )


@app.command()
def evaluate(
    directory: RunDir,
    episodes: Annotated[int, typer.Option(min=1, help="Episodes to play.")] = 100,
    seed: Annotated[int, typer.Option(min=0, help="Of the episodes' seeds; training never sees them.")] = 0,
    checkpoint: Annotated[int | None, typer.Option(metavar="K", min=0, help="The generation; default: the newest checkpoint.")] = None,
    member: Annotated[
        str | None,
        typer.Option(
            metavar="best|K|NAME|front", help="Of a population: the best member, that of this number or group, or all of the front."
        ),
    ] = None,
    all_players: Annotated[bool, typer.Option("--all-players", help="The policy plays all players of a match.")] = False,
    trust: Trust = False,
    as_json: Json = False,
) -> None:
    """Play the greedy policy on held-out seeds: mean, std, IQM, 95 % confidence interval."""
    from baldwin.runs.evaluation import evaluate_run

    if member == "front":
        from baldwin.runs.members import front

        rows = {number: evaluate_run(directory, episodes, seed, None, trust, str(number)) for number in front(directory)}
        if as_json:
            print(json.dumps([{"member": number, **row.as_dict()} for number, row in rows.items()]))
        else:
            for number, row in rows.items():
                out.print(f"member {number}: mean {row.mean:.2f}  std {row.std:.2f}", highlight=False, markup=False)
        return
    found = evaluate_run(directory, episodes, seed, checkpoint, trust, member, all_players)
    if as_json:
        print(json.dumps(found.as_dict()))
        return
    out.print(
        f"generation {found.generation}, {found.episodes} episodes\nmean {found.mean:.2f}  std {found.std:.2f}  IQM {found.iqm:.2f}  "
        f"95 % CI [{found.ci[0]:.2f}, {found.ci[1]:.2f}]  min {found.min:.2f}  max {found.max:.2f}  length {found.length:.1f}",
        highlight=False,
        markup=False,
    )


@app.command()
def render(
    directory: RunDir,
    video: Annotated[Path | None, typer.Option(help="An .mp4 or .gif file; default: in the run directory.")] = None,
    episodes: Annotated[int, typer.Option(min=1, help="Episodes to film.")] = 1,
    generation: Annotated[
        int | None, typer.Option(metavar="K", min=0, help="Any generation, from the journal; default: the newest checkpoint.")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Of the episodes.")] = 0,
    member: Annotated[
        str | None, typer.Option(metavar="best|K|NAME", help="Of a population: the best member, or that of this number or group.")
    ] = None,
    trust: Trust = False,
) -> None:
    """Film the greedy policy; needs no screen."""
    from baldwin.runs.video import render_run

    with err.status("loading the policy") as status:
        path, returns = render_run(directory, video, episodes, generation, seed, trust, status.update, member)
    out.print(f"video: {path}  returns: {', '.join(f'{r:.1f}' for r in returns)}", markup=False, highlight=False)


@app.command()
def replay(
    directory: RunDir,
    generation: Annotated[int, typer.Option(metavar="K", min=0, help="The generation to rebuild.")],
    trust: Trust = False,
) -> None:
    """Rebuild the parameters of a generation from the reward journal alone and print their hash."""
    from baldwin.runs.checkpoint import policy_hash
    from baldwin.runs.directory import RunDirectory
    from baldwin.runs.history import rebuild

    print(policy_hash(rebuild(RunDirectory.find(directory), generation, trust)))


@app.command()
def show(directory: RunDir, as_json: Json = False) -> None:
    """Show what a run is and how far it got."""
    from baldwin.runs.report import describe_run

    found = describe_run(directory)
    if as_json:
        print(json.dumps(found))
        return
    table = Table(show_header=False, box=None)
    for name, value in found.items():
        table.add_row(name, _readable(value))
    out.print(table, markup=False)


def _readable(value: Any) -> str:
    """A value of `show` for people: rounded, with thousands separated, nested ones on lines of their own."""
    if isinstance(value, float):
        return f"{value:,.1f}" if abs(value) >= 100 else f"{value:.4g}"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, dict):
        return "  ".join(f"{k} {_readable(v)}" for k, v in value.items())
    if isinstance(value, list):
        return "\n".join(_readable(v) for v in value) or "none"
    return "-" if value is None else str(value)


@app.command()
def compare(
    directories: Annotated[list[Path], typer.Argument(metavar="DIR ...", help="Run directories; runs of one name are seeds of one thing.")],
    plot: Annotated[Path | None, typer.Option(metavar="FILE", help="Also draw the curves.")] = None,
    as_json: Json = False,
) -> None:
    """Final scores over seeds, IQM with bootstrap intervals, and curves against env steps and wall-clock."""
    from baldwin.runs.report import compare_runs, plot_groups

    groups = compare_runs(directories)
    rows = [group.row() for group in groups]
    if plot:
        plot_groups(groups, plot)
    if as_json:
        print(json.dumps(rows))
        return
    table = Table("run", "seeds", "IQM", "95 % CI", "median", "min", "max", "env steps", "learning steps", "seconds")
    for r in rows:
        numbers = (f"{r[k]:,.1f}" for k in ("median", "min", "max"))
        table.add_row(
            r["name"],
            str(r["seeds"]),
            f"{r['iqm']:,.1f}",
            f"[{r['ci'][0]:,.1f}, {r['ci'][1]:,.1f}]",
            *numbers,
            f"{r['env_steps']:,.0f}",
            f"{r['learning_steps']:,.0f}",
            f"{r['wall_seconds']:,.1f}",
        )
    out.print(table, markup=False)
    if plot:
        out.print(f"plot: {plot}", markup=False)


@app.command()
def league(
    directory: RunDir,
    plot: Annotated[Path | None, typer.Option(metavar="FILE", help="Draw who beats whom.")] = None,
    as_json: Json = False,
) -> None:
    """Who beats whom in a run with opponents: win rates, Elo, and the mixture that nobody beats."""
    from baldwin.runs.opponents import league_table, plot_league

    found = league_table(directory)
    if plot:
        plot_league(found, plot)
    if as_json:
        print(json.dumps(found))
        return
    table = Table("player", "Elo", "Nash", *(str(n) for n in range(len(found["players"]))))
    for n, name in enumerate(found["players"]):
        met = zip(found["win_rate"][n], found["games"][n], strict=True)
        table.add_row(f"{n} {name}", f"{found['elo'][n]:+.0f}", f"{found['nash'][n]:.2f}", *(f"{r:.2f}" if g else "" for r, g in met))
    out.print(table)
    if plot:
        out.print(f"picture: {plot}", markup=False)


@app.command()
def lineage(
    directory: RunDir,
    plot: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Draw the genealogy, the hyper-parameters of the winning line, and the front.")
    ] = None,
    schedule: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the winning line's schedule as a config for baldwin train -c FILE.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Who came from whom in a population, and with which hyper-parameters."""
    from baldwin.runs.lineage import best_state, plot_lineage, read_lineage, winning_line, write_schedule

    found = read_lineage(directory)
    if plot:
        plot_lineage(directory, plot)
    if schedule:
        write_schedule(directory, schedule)
    if as_json:
        print(json.dumps(found))
        return
    table = Table("round", "member", "operator", "parents", "score", "env steps", "hyper-parameters")
    for record in winning_line(found, best_state(directory)):
        table.add_row(
            str(record["round"]),
            str(record["member"]),
            record["operator"],
            ", ".join(map(str, record["parents"])),
            "-" if record["score"] is None else f"{record['score']:,.1f}",
            f"{record['env_steps']:,}",
            "  ".join(f"{key} {_readable(value)}" for key, value in record["hyperparameters"].items()),
        )
    out.print(f"{len(found)} rounds; the line of the best member:", markup=False)
    out.print(table, markup=False)
    for what, path in (("picture", plot), ("schedule", schedule)):
        if path:
            out.print(f"{what}: {path}", markup=False)


@app.command()
def timeline(
    directory: RunDir,
    plot: Annotated[Path | None, typer.Option(metavar="FILE", help="Where the picture goes; default: timeline.png in the run.")] = None,
    start: Annotated[float, typer.Option(metavar="SECONDS", help="Show what happened from then on.", min=0)] = 0.0,
    seconds: Annotated[float | None, typer.Option(metavar="SECONDS", help="For so long.", min=0.001)] = None,
    as_json: Json = False,
) -> None:
    """Who did what when: a picture of the jobs on every worker, and how long each was idle."""
    from baldwin.runs.directory import RunDirectory
    from baldwin.runs.timeline import plot_timeline, read_timeline

    run = RunDirectory.find(directory)
    found, target = read_timeline(directory).cut(start, seconds), plot or run.timeline
    plot_timeline(found, target, run.read_config().run.name or directory.name)
    if as_json:
        print(json.dumps(found.row()))
        return
    kinds = sorted({kind for busy in found.busy().values() for kind in busy})
    table = Table("worker", "idle", *(f"{kind}, s" for kind in kinds))
    for worker, busy in found.busy().items():
        table.add_row(str(worker), f"{found.idle()[worker]:.1%}", *(f"{busy.get(kind, 0.0):,.1f}" for kind in kinds))
    out.print(table, markup=False)
    out.print(f"picture: {target}", markup=False)


@app.command("list")
def list_(
    what: Annotated[str, typer.Argument(metavar="presets|algorithms|populations|envs", help="What to list.")],
    pattern: Annotated[str, typer.Argument(metavar="[PATTERN]", help="Only names that match; * and ? are wildcards.")] = "*",
    algo: Annotated[str, typer.Option("--algo", metavar="PATTERN", help="presets: only of these algorithms.")] = "*",
    env: Annotated[str, typer.Option("--env", metavar="PATTERN", help="presets: only for these environments.")] = "*",
    as_json: Json = False,
) -> None:
    """List presets, algorithms, populations, or environments with the backend that would serve each."""
    from baldwin.runs.catalog import CATALOGS, matching

    rows = matching(pick(CATALOGS, what, "list")(), name=pattern, algorithm=algo, env=env)
    if as_json:
        print(json.dumps(rows))
        return
    for row in rows:
        print(f"{row['name']:40} {row['about']}")


app.command("import")(import_)
app.add_typer(cluster, name="cluster")


@app.callback(invoke_without_command=True)
def version(show_version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False) -> None:
    """Train policies by evolution, by gradient, and by both at once."""
    if show_version:
        print(__version__)
        raise typer.Exit


def main() -> None:
    """Run the command line: exit 0 done, 2 the user's mistake, 130 Ctrl-C, 1 anything else."""
    try:
        app(args=repeat_options(sys.argv[1:]))
    except UserError as error:
        err.print(f"error: {error}", markup=False, highlight=False)
        sys.exit(2)
    except BaldwinError as error:
        err.print(f"error: {error}", markup=False, highlight=False)
        sys.exit(1)
    except MemoryError:
        err.print("error: out of memory. Use smaller networks, a smaller algorithm.buffer_size, or fewer executor.workers", markup=False)
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(130)
