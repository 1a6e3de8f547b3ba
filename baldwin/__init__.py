"""Baldwin trains policies by evolution, by gradient, and by both at once."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from baldwin.config import load_config
    from baldwin.runs.history import load_policy
    from baldwin.runs.loop import loop
    from baldwin.runs.resume import resume
    from baldwin.runs.run import start, train

__version__ = "0.11.0"
__all__ = ["load_config", "load_policy", "loop", "resume", "start", "train"]

_HOMES = {
    "load_config": "baldwin.config",
    "load_policy": "baldwin.runs.history",
    "loop": "baldwin.runs.loop",
    "resume": "baldwin.runs.resume",
    "start": "baldwin.runs.run",
    "train": "baldwin.runs.run",
}


def __getattr__(name: str) -> Any:
    """Load a public name when it is first used, so that importing the package stays light."""
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'baldwin' has no attribute {name!r}")
