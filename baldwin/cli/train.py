"""baldwin train, evolve and resume: what trains policies."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any

import typer

from baldwin.cli.console import err, out
from baldwin.cli.options import Algo, Env, Files, OutDir, Overrides, Quiet, RunDir, Seed, Trust
from baldwin.cli.reports import compare
from baldwin.errors import UserError
from baldwin.processes import lower_priority, start_server

if TYPE_CHECKING:
    from baldwin.config import RunConfig


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
        train_and_report(lambda: start(_single(load()), out_dir), quiet)
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
    train_and_report(lambda: start(config, out_dir), quiet)


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

    train_and_report(prepare, quiet)


def _single(config: RunConfig) -> RunConfig:
    """Refuse a config with a population, unless it only replays a schedule."""
    if config.population and config.population.name != "schedule":
        searched = ", ".join(config.population.search)
        raise UserError(
            f"this config has a population ({config.population.name}{f' over {searched}' if searched else ''}): baldwin evolve trains it. "
            "To train a single policy: -m population=null"
        )
    return config


def train_and_report(prepare: Callable[[], Any], quiet: bool, summary: bool = True) -> None:
    """Train the run that `prepare` returns, draw its curve, and print a summary.

    Raises:
        typer.Exit: 130 after Ctrl-C or SIGTERM; the run is saved.
    """
    from baldwin.runs.interrupt import Signals
    from baldwin.runs.progress import make_progress
    from baldwin.runs.report import plot_run
    from baldwin.runs.run import train as train_run

    run = prepare()
    if run.parts.env_spec.live:
        lower_priority()
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
