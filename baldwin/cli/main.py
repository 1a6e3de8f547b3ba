"""The command line: its commands, and what their errors print and return."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from baldwin import __version__
from baldwin.cli.cluster import cluster
from baldwin.cli.console import err
from baldwin.cli.importing import import_
from baldwin.cli.listing import list_
from baldwin.cli.options import repeat_options
from baldwin.cli.policies import evaluate, render, replay
from baldwin.cli.reports import compare, league, lineage, show, timeline
from baldwin.cli.sweep import sweep
from baldwin.cli.train import evolve, resume, train
from baldwin.errors import BaldwinError, UserError

app = typer.Typer(
    help="Train policies by evolution, by gradient, and by both at once.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
for command in (train, evolve, sweep, resume, evaluate, render, replay, show, compare, league, lineage, timeline):
    app.command()(command)
app.command("list")(list_)
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
