"""baldwin show, compare, league, lineage and timeline: tables and pictures of runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from baldwin.cli.console import one_line, out, readable
from baldwin.cli.options import Json, RunDir


def show(directory: RunDir, as_json: Json = False) -> None:
    """Show what a run is and how far it got."""
    from baldwin.runs.report import describe_run

    found = describe_run(directory)
    if as_json:
        print(json.dumps(found))
        return
    table = Table(show_header=False, box=None)
    for name, value in found.items():
        table.add_row(name, readable(value))
    out.print(table, markup=False)


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
            "  ".join(f"{key} {one_line(value)}" for key, value in record["hyperparameters"].items()),
        )
    out.print(f"{len(found)} rounds; the line of the best member:", markup=False)
    out.print(table, markup=False)
    for what, path in (("picture", plot), ("schedule", schedule)):
        if path:
            out.print(f"{what}: {path}", markup=False)


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
