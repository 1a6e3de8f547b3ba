"""Evaluations in which the policies of all groups of players play each other."""

from __future__ import annotations

from dataclasses import dataclass

from baldwin.networks import reference_of
from baldwin.parts import Sections
from baldwin.rollout import WorkerSpec
from baldwin.runs.build import evaluation_jobs
from baldwin.types import CENTER, Arrays, Job, Outcome, Shared, Worker


@dataclass(frozen=True, slots=True)
class EvaluateGroup:
    """Play the greedy policy of one group with those of the others, in a worker of its own."""

    spec: WorkerSpec  # with the policies of the others
    policy: Arrays
    jobs: tuple[Job, ...]

    @property
    def kind(self) -> str:
        """evaluate, for the timeline."""
        return "evaluate"

    @property
    def tickets(self) -> tuple[int, ...]:
        """One per episode."""
        return tuple(ticket for job in self.jobs for ticket in job.tickets)

    @property
    def stream(self) -> None:
        """Any worker will do."""

    def run(self, worker: Worker) -> list[Outcome]:
        """One outcome per episode."""
        own = self.spec()
        try:
            own.receive(Shared(CENTER, 0, self.policy, 0))
            return [outcome for job in self.jobs for outcome in job.run(own)]
        finally:
            own.close()


def evaluate_group(sections: Sections, policy: Arrays, episodes: int, seed: int, *path: int) -> EvaluateGroup:
    """The job for a group, on held-out seeds; with equal seeds, all groups play the same matches."""
    jobs = evaluation_jobs(0, sections.env_spec, len(policy["params"]), episodes, seed, *path)
    return EvaluateGroup(
        WorkerSpec(sections.env, sections.env_spec, sections.policy, reference_of(policy), sections.others), policy, tuple(jobs)
    )
