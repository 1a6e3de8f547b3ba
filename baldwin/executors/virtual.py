"""Simulated workers: a seeded event queue with a cost model. Asynchrony becomes deterministic, and a thousand workers fit on a laptop."""

from __future__ import annotations

import heapq

from baldwin.executors.config import EXECUTORS, ExecutorConfig, WorkerFactory, run_job
from baldwin.ops import seeds
from baldwin.types import Job, Metrics, Result, Shared


class VirtualExecutor:
    """Runs each job at once and gives it back when its simulated worker would be done."""

    def __init__(self, make_worker: WorkerFactory, config: ExecutorConfig | None = None) -> None:
        self._config = config or ExecutorConfig(name="virtual")
        self._count = self._config.count
        self.now = 0.0  # simulated seconds
        self._worker = make_worker()
        self._idle = list(range(self._count))  # a heap: the lowest number works first
        self._flight: list[tuple[float, int, Result]] = []
        self._submitted = 0
        self._rng = seeds.generator(self._config.seed, seeds.Stream.VIRTUAL)

    @staticmethod
    def sees_files(config: ExecutorConfig) -> bool:
        """Workers are on this machine."""
        return True

    @property
    def workers(self) -> int:
        """The number of simulated workers."""
        return self._count

    @property
    def slots(self) -> int:
        """The idle simulated workers."""
        return len(self._idle)

    def share(self, shared: Shared) -> None:
        """Sharing takes no simulated time."""
        self._worker.receive(shared)

    def submit(self, job: Job) -> None:
        """Compute the result now; it arrives later."""
        worker = heapq.heappop(self._idle)
        outcomes = run_job(job, self._worker)
        steps = sum(o.env_steps for o in outcomes)
        cost = self._config.latency + steps * self._config.step_seconds
        cost += sum(o.critic_steps * self._config.critic_seconds + o.actor_steps * self._config.actor_seconds for o in outcomes)
        done = self.now + cost * float(self._rng.lognormal(0.0, self._config.jitter))
        self._submitted += 1
        heapq.heappush(self._flight, (done, self._submitted, Result(job, outcomes, worker, self.now, done, 0.0)))

    def wait(self) -> list[Result]:
        """Move the clock to the next arrival."""
        if not self._flight:
            return []
        self.now, _, result = heapq.heappop(self._flight)
        heapq.heappush(self._idle, result.worker)
        return [result]

    def report(self) -> Metrics:
        """Simulated workers never fail."""
        return {}

    def close(self) -> None:
        """Close the environments."""
        self._worker.close()


EXECUTORS.add("virtual", VirtualExecutor)
