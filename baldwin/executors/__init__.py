"""Where work happens. They carry jobs and shared arrays, and know nothing of what either means."""

from __future__ import annotations

from collections.abc import Callable

from baldwin.executors.config import ExecutorConfig, WorkerFactory
from baldwin.executors.inline import InlineExecutor
from baldwin.executors.process import ProcessExecutor
from baldwin.executors.ray import RayExecutor
from baldwin.executors.virtual import VirtualExecutor
from baldwin.types import Executor

__all__ = ["EXECUTORS", "ExecutorConfig", "InlineExecutor", "ProcessExecutor", "RayExecutor", "VirtualExecutor", "make_executor"]

EXECUTORS: dict[str, Callable[[WorkerFactory, ExecutorConfig], Executor]] = {
    "inline": InlineExecutor,
    "process": ProcessExecutor,
    "virtual": VirtualExecutor,
    "ray": RayExecutor,
}


def make_executor(config: ExecutorConfig, make_worker: WorkerFactory) -> Executor:
    """The executor that the config names."""
    return EXECUTORS[config.name](make_worker, config)
