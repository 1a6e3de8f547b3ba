"""Where commands print, and how values look there."""

from __future__ import annotations

import sys
from typing import Any

from rich.console import Console

WIDTH = 160  # of a file or a pipe, which have none of their own
out = Console(soft_wrap=True, width=None if sys.stdout.isatty() else WIDTH)
err = Console(stderr=True, soft_wrap=True, width=None if sys.stderr.isatty() else WIDTH)


def readable(value: Any) -> str:
    """A value for people: rounded, with thousands separated, nested ones on lines of their own."""
    if isinstance(value, float):
        return f"{value:,.1f}" if abs(value) >= 100 else f"{value:.4g}"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, dict):
        return "  ".join(f"{k} {readable(v)}" for k, v in value.items())
    if isinstance(value, list):
        return "\n".join(readable(v) for v in value) or "none"
    return "-" if value is None else str(value)


def one_line(value: Any) -> str:
    """A hyper-parameter as `readable` text on one line; it may be a list of numbers."""
    return str(value) if isinstance(value, list) else readable(value)
