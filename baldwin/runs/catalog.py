"""What there is to choose from."""

from __future__ import annotations

from collections.abc import Callable
from fnmatch import fnmatch

from baldwin.config import ALGORITHM_CONFIGS, list_presets
from baldwin.envs import list_envs

Rows = list[tuple[str, str]]


def presets() -> Rows:
    """Presets with their first line."""
    return list(list_presets().items())


def algorithms() -> Rows:
    """Algorithms with the first sentence of their config."""
    return [(name, (model.__doc__ or "").split("\n")[0]) for name, model in ALGORITHM_CONFIGS.items()]


def matching(rows: Rows, pattern: str) -> Rows:
    """The rows whose name matches; a pattern without wildcards matches anywhere."""
    wild = pattern if any(c in pattern for c in "*?[") else f"*{pattern}*"
    return [(name, note) for name, note in rows if fnmatch(name.lower(), wild.lower())]


CATALOGS: dict[str, Callable[[], Rows]] = {"presets": presets, "algorithms": algorithms, "envs": list_envs}
