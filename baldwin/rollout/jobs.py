"""Whole episodes as a job for an executor."""

from __future__ import annotations

from dataclasses import dataclass

from baldwin.rollout.episodes import RolloutSpec
from baldwin.types import Outcome, Trial, Worker


@dataclass(frozen=True, slots=True)
class RolloutJob:
    """Play the episodes of these trials."""

    trials: tuple[Trial, ...]
    spec: RolloutSpec
    stream: None = None

    @property
    def kind(self) -> str:
        """train, evaluate or mean."""
        return self.spec.purpose

    @property
    def tickets(self) -> tuple[int, ...]:
        """The ids of its trials, each of which gets an outcome."""
        return tuple(t.id for t in self.trials)

    def run(self, worker: Worker) -> list[Outcome]:
        """One outcome per trial."""
        return worker.evaluate(self.trials, self.spec)
