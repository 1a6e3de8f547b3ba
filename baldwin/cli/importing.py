"""baldwin import: configs of other programs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Column, Table

from baldwin.cli.console import err
from baldwin.errors import StorageError, UserError, clean_text


def import_(
    kind: Annotated[
        str,
        typer.Argument(metavar="asac|aesrl|zoo", help="Whose file it is: Advanced-Soft-Actor-Critic's, AES-RL's or RL Baselines3 Zoo's."),
    ],
    file: Annotated[Path, typer.Argument(metavar="FILE", help="asac: YAML; aesrl: JSON; zoo: YAML, one algorithm's entries.")],
    env: Annotated[
        str | None, typer.Option("--env", metavar="ID", help="zoo: the entry of the file. Otherwise: an environment instead of the file's.")
    ] = None,
    algo: Annotated[str | None, typer.Option("--algo", metavar="NAME", help="zoo: the file's algorithm; default: the file's name.")] = None,
    section: Annotated[
        str | None, typer.Option("--section", metavar="NAME", help="asac: a named config of the file; default: default.")
    ] = None,
    out_file: Annotated[
        Path | None, typer.Option("--out", metavar="FILE", help="Where the config goes; default: it is printed on stdout.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the config and what became of each key as JSON on stdout.")] = False,
) -> None:
    """Convert a config of another program: YAML on stdout or in --out; on stderr, what each key became or why it is not there."""
    from baldwin.config.importers import import_config, render_config

    imported = import_config(kind, file, env=env, algorithm=algo, section=section)
    text = render_config(imported, kind, file)
    if out_file is not None:
        _write(out_file, text)
    if as_json:
        print(json.dumps({"config": imported.tree, "keys": [row.as_dict() for row in imported.rows]}))
        return
    if out_file is None:
        print(text, end="")
    table = Table(*(Column(name, overflow="fold") for name in ("key", "from", "value", "became", "remark")))
    for row in imported.rows:
        became = "\n".join(f"{key}={_shown(value)}" for key, value in row.became.items())
        table.add_row(row.key, row.origin, clean_text(_shown(row.value), 60), became or "-", row.note)
    err.print(table, markup=False)
    if out_file is not None:
        err.print(f"config: {out_file}  train: baldwin train -c {out_file}", markup=False, highlight=False)


def _shown(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _write(path: Path, text: str) -> None:
    try:
        with open(path, "x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError as error:
        raise UserError(f"--out {path} exists already: expected a new file. Choose another name, or remove it") from error
    except (OSError, ValueError) as error:
        raise StorageError(f"cannot write {path}: {getattr(error, 'strerror', None) or error}") from error
