"""All jobs in this process: for debugging, and as the reference for the other executors."""

from __future__ import annotations

import time

from baldwin.executors.config import EXECUTORS, DeadlinePassed, ExecutorConfig, WorkerFactory, deadline, run_job
from baldwin.types import Job, Metrics, Result, Shared, failed


class InlineExecutor:
    """Runs a job when someone waits for it."""

    def __init__(self, make_worker: WorkerFactory, config: ExecutorConfig | None = None) -> None:
        self._config = config or ExecutorConfig(name="inline")
        self._make_worker = make_worker
        self._worker = make_worker()
        self._shared: list[Shared] = []  # for a worker that replaces this one
        self._queue: list[Job] = []

    @staticmethod
    def sees_files(config: ExecutorConfig) -> bool:
        """Workers are on this machine."""
        return True

    @property
    def workers(self) -> int:
        """Always one: the process of the caller."""
        return 1

    @property
    def slots(self) -> int:
        """1 if no job is queued, otherwise 0: it takes one job at a time."""
        return 1 - len(self._queue)

    def share(self, shared: Shared) -> None:
        """Hand the value to the worker."""
        kept = [s for s in self._shared if s.key != shared.key or (s.version >= shared.oldest and s.version != shared.version)]
        self._shared = [*kept, shared]
        self._worker.receive(shared)

    def submit(self, job: Job) -> None:
        """Keep the job for `wait`."""
        self._queue.append(job)

    def wait(self) -> list[Result]:
        """Run the submitted jobs and return their results."""
        queue, self._queue = self._queue, []
        results = []
        for job in queue:
            started = time.monotonic()
            try:
                with deadline(self._config.timeout, "the job"):
                    outcomes = run_job(job, self._worker)
            except DeadlinePassed as error:
                outcomes = failed(job, str(error))
                self._replace_worker()
            results.append(Result(job, outcomes, 0, started, time.monotonic(), 0.0))
        return results

    def _replace_worker(self) -> None:
        """After a job was interrupted, its environments are in an unknown state."""
        self._worker.close()
        self._worker = self._make_worker()
        for shared in self._shared:
            self._worker.receive(shared)

    def report(self) -> Metrics:
        """There is nothing to report of this process."""
        return {}

    def close(self) -> None:
        """Close the environments."""
        self._worker.close()


EXECUTORS.add("inline", InlineExecutor)
