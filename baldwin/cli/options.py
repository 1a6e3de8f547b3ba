"""Options that several commands have, and how one option takes several values."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

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
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


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
