"""Hybrids on the Chase toy, driven by hand."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from baldwin.config.load import validate
from baldwin.executors import ExecutorConfig, make_executor
from baldwin.hybrids import Asynchronous, Generations
from baldwin.runs.build import Parts, build
from baldwin.runs.loop import Told, loop
from baldwin.types import Result

HALF = {"batch": 16, "gamma": 0.8, "actor_lr": 3e-3, "critic_lr": 3e-3, "critic": {"hidden": [8]}}
SMALL: dict[str, Any] = {"start_steps": 100, "capacity": 3000, "surplus": 3000, "learner": HALF}


def made(name: str, env_spec: str = "Chase", kwargs: dict[str, Any] | None = None, **settings: Any) -> Parts:
    """The parts of a run of this hybrid."""
    env = {"id": f"tests.toys.worlds:{world}", "kwargs": kwargs or {}}
    run = {"seed": 3, "keep": 2, "checkpoint_every": 1}
    return build(validate({"algorithm": {"name": name, **SMALL, **settings}, "policy": {"hidden": [8]}, "env": env, "run": run}))


def asynchronous(name: str = "aes-rl", **settings: Any) -> tuple[Asynchronous, Any]:
    parts = made(name, **{"critic_chunk": 20, "round": 50, **settings})
    assert isinstance(parts.algorithm, Asynchronous)
    return parts.algorithm, parts.recipe


def generations(name: str = "cem-rl", **settings: Any) -> tuple[Generations, Any]:
    parts = made(name, **settings)
    assert isinstance(parts.algorithm, Generations)
    return parts.algorithm, parts.recipe


def results(algorithm: Any, recipe: Any, versions: int, **executor: Any) -> Iterator[Result]:
    """What comes back, told, until so many versions are made."""
    running = make_executor(ExecutorConfig(**{"name": "inline", **executor}), recipe)
    for event in loop(algorithm, running):
        if isinstance(event, Told):
            yield event.result
        if algorithm.version >= versions:
            return
