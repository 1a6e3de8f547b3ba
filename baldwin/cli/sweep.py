"""baldwin sweep: independent runs over values of hyper-parameters."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from baldwin.cli.console import one_line, out, readable
from baldwin.cli.options import Algo, Env, Files, Json, OutDir, Overrides, Quiet, Seed
from baldwin.cli.train import train_and_report
from baldwin.processes import start_server


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
    from baldwin.runs.report import check_plot
    from baldwin.runs.sweeps import plot_sweep, sweep_table

    check_plot(plot)
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
        train_and_report(lambda: run, quiet or as_json, summary=False)
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
        values = (one_line(row["hyperparameters"][name]) for name in names)
        table.add_row(str(row["trial"]), *map(readable, numbers), f"{row['env_steps']:,}", "pruned" if row["pruned"] else "", *values)
    out.print(table, markup=False)
    out.print(f"run directory: {directory}" + (f"\npicture: {plot}" if plot else ""), markup=False)
