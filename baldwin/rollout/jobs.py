"""Whole episodes as a job for an executor."""

from __future__ import annotations

from dataclasses import dataclass

from baldwin.rollout.episodes import RolloutSpec
from baldwin.rollout.worker import WorkerSpec
from baldwin.types import CENTER, Arrays, Outcome, Shared, Trial, Worker


@dataclass(frozen=True, slots=True)
class RolloutJob:
    """Play the episodes of these trials."""

    trials: tuple[Trial, ...]
    spec: RolloutSpec
    stream: None = None

    @property
    def kind(self) -> str:
        """The name of these jobs in the timeline: train, evaluate or mean."""
        return self.spec.purpose

    @property
    def tickets(self) -> tuple[int, ...]:
        """The ids of its trials, each of which gets an outcome."""
        return tuple(t.id for t in self.trials)

    def run(self, worker: Worker) -> list[Outcome]:
        """One outcome per trial."""
        return worker.evaluate(self.trials, self.spec)


@dataclass(frozen=True, slots=True)
class OwnWorkerJob:
    """Play the episodes of another job on a worker made for them: in another environment, or with another network, than the executor's."""

    job: RolloutJob
    make_worker: WorkerSpec
    policy: Arrays  # the center that the job's trials name
    stream: None = None

    @property
    def kind(self) -> str:
        """That of the other job."""
        return self.job.kind

    @property
    def tickets(self) -> tuple[int, ...]:
        """Those of the other job."""
        return self.job.tickets

    def run(self, worker: Worker) -> list[Outcome]:
        """One outcome per trial, in order."""
        own = self.make_worker()
        try:
            own.receive(Shared(CENTER, self.job.spec.version, self.policy, self.job.spec.version))
            return self.job.run(own)
        finally:
            own.close()
