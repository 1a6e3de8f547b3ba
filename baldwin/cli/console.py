"""Where commands print, and the options that several of them have."""

from __future__ import annotations

import sys
from typing import Annotated

import typer
from rich.console import Console

WIDTH = 160  # of a file or a pipe, which have none of their own
out = Console(soft_wrap=True, width=None if sys.stdout.isatty() else WIDTH)
err = Console(stderr=True, soft_wrap=True, width=None if sys.stderr.isatty() else WIDTH)

Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
