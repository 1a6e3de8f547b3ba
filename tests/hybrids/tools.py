"""Hybrids on the Chase toy, driven by hand."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from baldwin.config.load import validate
from baldwin.executors import ExecutorConfig, make_executor
from baldwin.hybrids import AsynchronousHybrid, SynchronousHybrid
from baldwin.runs.build import Parts, build
from baldwin.runs.loop import Told, loop
from baldwin.types import Result

SMALL_LEARNER = {"batch_size": 16, "gamma": 0.8, "actor_lr": 3e-3, "critic_lr": 3e-3, "critic": {"hidden": [8]}}
SMALL: dict[str, Any] = {"start_steps": 100, "buffer_size": 3000, "checkpoint_slack": 3000, "learner": SMALL_LEARNER}


def made(name: str, env_name: str = "Chase", kwargs: dict[str, Any] | None = None, **settings: Any) -> Parts:
    """The parts of a run of this hybrid."""
    env = {"id": f"tests.toys.worlds:{env_name}", "kwargs": kwargs or {}}
    run = {"seed": 3, "keep": 2, "checkpoint_every": 1}
    return build(validate({"algorithm": {"name": name, **SMALL, **settings}, "policy": {"hidden": [8]}, "env": env, "run": run}))


def asynchronous(name: str = "aes-rl", **settings: Any) -> tuple[AsynchronousHybrid, Any]:
    parts = made(name, **{"critic_steps_per_job": 20, "steps_per_epoch": 50, **settings})
    assert isinstance(parts.algorithm, AsynchronousHybrid)
    return parts.algorithm, parts.worker_spec


def generations(name: str = "cem-rl", **settings: Any) -> tuple[SynchronousHybrid, Any]:
    parts = made(name, **settings)
    assert isinstance(parts.algorithm, SynchronousHybrid)
    return parts.algorithm, parts.worker_spec


def results(algorithm: Any, spec: Any, versions: int, **executor: Any) -> Iterator[Result]:
    """What comes back, told, until so many versions are made."""
    running = make_executor(ExecutorConfig(**{"name": "inline", **executor}), spec)
    for event in loop(algorithm, running):
        if isinstance(event, Told):
            yield event.result
        if algorithm.version >= versions:
            return


def next_job(algorithm: Any, worker: Any) -> Any:
    """One job for a worker that has all that was published."""
    for shared in algorithm.publish():
        worker.receive(shared)
    return algorithm.ask(1)[0]
