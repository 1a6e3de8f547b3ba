"""Work that an executor carries without knowing what it is."""

from __future__ import annotations

from dataclasses import dataclass

from baldwin.rollout.play import Plan
from baldwin.types import Outcome, Trial, Worker


@dataclass(frozen=True, slots=True)
class Evaluate:
    """Play the episodes of these trials."""

    trials: tuple[Trial, ...]
    plan: Plan

    @property
    def kind(self) -> str:
        """Training or evaluation."""
        return self.plan.purpose

    @property
    def tickets(self) -> tuple[int, ...]:
        """The trials it answers for."""
        return tuple(t.id for t in self.trials)

    def run(self, worker: Worker) -> list[Outcome]:
        """One outcome a trial."""
        return worker.evaluate(self.trials, self.plan)
