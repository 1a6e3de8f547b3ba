"""Everything in this process: the debugger's friend, and the reference for the others."""

from __future__ import annotations

import time

from baldwin.executors.config import DeadlinePassed, ExecutorConfig, WorkerFactory, deadline, run_job
from baldwin.types import Arrays, Job, Metrics, Result, failed


class InlineExecutor:
    """Runs a job when someone waits for it."""

    def __init__(self, make_worker: WorkerFactory, config: ExecutorConfig | None = None) -> None:
        self._config = config or ExecutorConfig(name="inline")
        self._make_worker = make_worker
        self._worker = make_worker()
        self._shares: dict[str, tuple[int, Arrays]] = {}
        self._queue: list[Job] = []

    @property
    def workers(self) -> int:
        """This process."""
        return 1

    @property
    def slots(self) -> int:
        """One job at a time."""
        return 1 - len(self._queue)

    def share(self, key: str, version: int, arrays: Arrays) -> None:
        """Hand it to the worker."""
        self._shares[key] = (version, arrays)
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
            try:
                with deadline(self._config.timeout, "the job"):
                    outcomes, _ = run_job(job, self._worker)
            except DeadlinePassed as error:
                outcomes = failed(job, str(error))
                self._replace()
            results.append(Result(job, outcomes, 0, started, time.monotonic(), 0.0))
        return results

    def _replace(self) -> None:
        """A worker that was broken off in the middle of something is not to be trusted any more."""
        self._worker.close()
        self._worker = self._make_worker()
        for key, (version, arrays) in self._shares.items():
            self._worker.receive(key, version, arrays)

    def report(self) -> Metrics:
        """Nothing ever happens here."""
        return {}

    def close(self) -> None:
        """Free the environments."""
        self._worker.close()
