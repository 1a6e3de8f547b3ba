"""Where jobs run. Executors carry jobs and shared arrays, and know nothing of what either means."""

from __future__ import annotations

from baldwin.executors.config import EXECUTORS, ExecutorConfig, WorkerFactory
from baldwin.executors.inline import InlineExecutor
from baldwin.executors.process import ProcessExecutor
from baldwin.executors.ray import RayExecutor
from baldwin.executors.virtual import VirtualExecutor
from baldwin.types import Executor

__all__ = ["EXECUTORS", "ExecutorConfig", "InlineExecutor", "ProcessExecutor", "RayExecutor", "VirtualExecutor", "make_executor"]


def make_executor(config: ExecutorConfig, make_worker: WorkerFactory) -> Executor:
    """The executor that the config names."""
    return EXECUTORS.find(config.name)(make_worker, config)
