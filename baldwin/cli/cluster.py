"""baldwin cluster: a look at a Ray cluster."""

from __future__ import annotations

import json
from typing import Annotated

import typer
from rich.table import Table

from baldwin.cli.console import out
from baldwin.cli.options import Json

cluster = typer.Typer(help="Look at a Ray cluster.", no_args_is_help=True, rich_markup_mode=None)


@cluster.callback()
def _cluster() -> None:
    """Look at a Ray cluster."""


@cluster.command()
def status(
    address: Annotated[str, typer.Option(help="auto finds the one on this machine; or host:port.")] = "auto", as_json: Json = False
) -> None:
    """Nodes, the workers of every run on them, their speed, retries and failures."""
    from baldwin.runs.cluster import cluster_status

    found = cluster_status(address)
    if as_json:
        print(json.dumps(found))
        return
    nodes = Table("node", "alive", "CPUs", title=f"{found['cpus']:g} CPUs, {found['cpus_free']:g} free")
    for n in found["nodes"]:
        nodes.add_row(n["node"], "yes" if n["alive"] else "no", f"{n['cpus']:g}")
    out.print(nodes, markup=False)
    for run in found["runs"]:
        counts = ", ".join(f"{name.replace('_', ' ')} {value:,.0f}" for name, value in run["counts"].items())
        workers = Table("worker", "node", "pid", "state", "jobs", "env steps", "steps/s", "retries", title=f"driver {run['pid']}: {counts}")
        for w in run["workers"]:
            speed = f"{w['steps_per_second']:,.0f}"
            cells = [
                str(w["worker"]),
                w["node"],
                str(w["pid"]),
                w["state"],
                str(w["jobs"]),
                f"{w['env_steps']:,}",
                speed,
                str(w["retries"]),
            ]
            workers.add_row(*cells)
        out.print(workers, markup=False)
        for w in run["workers"]:
            if w["reason"]:
                out.print(f"worker {w['worker']} gets no work: {w['reason']}", markup=False)
    if not found["runs"]:
        out.print("no run of Baldwin's is using it now", markup=False)
