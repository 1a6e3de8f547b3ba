"""What there is to choose from."""

from __future__ import annotations

from collections.abc import Callable
from fnmatch import fnmatch

from baldwin.config import list_presets

Row = dict[str, str]


def presets() -> list[Row]:
    """Presets, with where their settings come from and whether they were measured."""
    return [
        {
            "name": p.name,
            "algorithm": p.algorithm,
            "env": p.env,
            "summary": p.summary,
            "source": p.source,
            "measured": p.measured,
            "about": p.about,
        }
        for p in list_presets().values()
    ]


def algorithms() -> list[Row]:
    """Algorithms of the registry, those of plugins included."""
    import baldwin.config.model  # noqa: F401 - imports every algorithm, which listing presets need not
    from baldwin.algorithm import ALGORITHMS

    return [
        {"name": name, "family": entry.family, "summary": entry.summary, "paper": entry.paper, "about": entry.summary}
        for name, entry in ALGORITHMS.items()
    ]


def populations() -> list[Row]:
    """Algorithms over members, those of plugins included."""
    from baldwin.populations import POPULATIONS

    return [{"name": name, "summary": entry.summary, "paper": entry.paper, "about": entry.summary} for name, entry in POPULATIONS.items()]


def envs() -> list[Row]:
    """Environments, with the backend that would serve each."""
    from baldwin.envs import list_envs

    return [{"name": name, "env": name, "backend": backend, "about": backend} for name, backend in list_envs()]


def matching(rows: list[Row], **patterns: str) -> list[Row]:
    """The rows whose fields match; a pattern without wildcards matches anywhere in a name, and exactly elsewhere."""

    def match(row: Row, field: str, pattern: str) -> bool:
        anywhere = field == "name" and not any(c in pattern for c in "*?[")
        return fnmatch(row.get(field, "").lower(), f"*{pattern}*".lower() if anywhere else pattern.lower())

    return [row for row in rows if all(match(row, field, pattern) for field, pattern in patterns.items())]


CATALOGS: dict[str, Callable[[], list[Row]]] = {"presets": presets, "algorithms": algorithms, "populations": populations, "envs": envs}
