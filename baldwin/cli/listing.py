"""baldwin list: what there is to choose from."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from baldwin.cli.options import Json
from baldwin.errors import pick


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
