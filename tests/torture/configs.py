"""Valid configs with something changed: the parts of a run, or a message."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from baldwin.algorithm import ALGORITHMS
from baldwin.config import load_config
from baldwin.config.load import validate
from baldwin.errors import BaldwinError
from baldwin.runs.build import build
from baldwin.runs.run import resolved

VALUES: list[Any] = [
    None, True, 0, 1, -1, 2, 7, 1e-300, 1e300, float("inf"), float("nan"), 10**20, 0.5, -0.5, "", "auto", "x", "1e9", "\0", "../x", "a:b", "os:system",
    [], [0], [-1], [1, 2], ["x"], {}, {"a": 1}, {"name": "td3"}, [[1]], "es", "sac", "é" * 50, "none", "tanh", "inline", "mlp", "module",
]  # fmt: skip
WORDS = ["lrr", "", "name", "id", "hidden", "\n", "a.b", "env", "0", "seed"]


def nodes(tree: Any, path: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    """The paths of all keys."""
    return [p for key, value in tree.items() for p in [(*path, key), *(nodes(value, (*path, key)) if isinstance(value, dict) else [])]]


def mutate(rng: np.random.Generator, tree: dict[str, Any]) -> str:
    """Change, remove or add a key."""
    path = nodes(tree)[int(rng.integers(len(nodes(tree))))]
    owner = tree
    for key in path[:-1]:
        owner = owner[key]
    kind = str(rng.choice(["set", "set", "set", "remove", "add"]))
    value = VALUES[int(rng.integers(len(VALUES)))]
    if kind == "remove":
        del owner[path[-1]]
    elif kind == "add":
        path = (*path[:-1], str(rng.choice(WORDS)))
        owner[path[-1]] = value
    else:
        owner[path[-1]] = value
    return f"{kind} {'.'.join(path)}={value!r}"


def mutated_config(rng: np.random.Generator, scratch: Path, references: Path) -> str:
    """A config of any algorithm, changed in one to three places, then built as for a run."""
    algorithm = str(rng.choice(sorted(ALGORITHMS)))
    env = "CartPole-v1" if algorithm in ("es", "sac") else "Pendulum-v1"
    tree = load_config(None, (), ["executor.timeout=20"], algorithm=algorithm, env=env).model_dump(mode="json")
    changes = [mutate(rng, tree) for _ in range(int(rng.integers(1, 4)))]
    try:
        build(resolved(validate(tree)), scratch)
    except BaldwinError as error:
        assert str(error).strip(), changes
        return f"{algorithm} refused: {', '.join(changes)}"
    except MemoryError:
        return f"{algorithm} too large: {', '.join(changes)}"
    return f"{algorithm} accepted: {', '.join(changes)}"
