"""Where commands print, and the options that several of them have."""

from __future__ import annotations

import sys
from typing import Annotated

import typer
from rich.console import Console

WIDE = None if sys.stdout.isatty() else 160  # a file or a pipe has no width of its own
out, err = Console(soft_wrap=True, width=WIDE), Console(stderr=True, soft_wrap=True)

Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
