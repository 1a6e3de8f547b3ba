"""Everything in this process: the debugger's friend, and the reference for the others."""

from __future__ import annotations

import time

from baldwin.executors.config import ExecutorConfig, WorkerFactory, deadline, run_job
from baldwin.types import Arrays, Job, Result


class InlineExecutor:
    """Runs a job when someone waits for it."""

    workers = 1

    def __init__(self, make_worker: WorkerFactory, config: ExecutorConfig | None = None) -> None:
        self._config = config or ExecutorConfig(name="inline")
        self._worker = make_worker()
        self._queue: list[Job] = []

    @property
    def slots(self) -> int:
        """One job at a time."""
        return 1 - len(self._queue)

    def share(self, key: str, version: int, arrays: Arrays) -> None:
        """Hand it to the worker."""
        self._worker.receive(key, version, arrays)

    def submit(self, job: Job) -> None:
        """Keep it for `wait`."""
        self._queue.append(job)

    def wait(self) -> list[Result]:
        """Run what was submitted."""
        queue, self._queue = self._queue, []
        results = []
        for job in queue:
            started = time.monotonic()
            with deadline(self._config.timeout, "a job"):
                outcomes, cpu = run_job(job, self._worker)
            results.append(Result(job, outcomes, 0, started, time.monotonic(), cpu))
        return results

    def close(self) -> None:
        """Free the environments."""
        self._worker.close()
