"""Groups of players, whose policies play each other: in evaluations while they train, and afterwards."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from baldwin.config import RunConfig
from baldwin.networks import reference_of
from baldwin.parts import Sections
from baldwin.populations.groups import GroupsConfig, frozen_players, group_sections
from baldwin.rollout import FrozenPlayers, WorkerSpec
from baldwin.runs.build import evaluation_jobs, probe_env
from baldwin.runs.directory import RunDirectory
from baldwin.runs.members import BEST, find_member, population_state, read_policy
from baldwin.types import CENTER, Arrays, Job, Metrics, Outcome, Shared, Worker


@dataclass(frozen=True, slots=True)
class EvaluateGroup:
    """Play the greedy policy of one group with those of the others, in a worker of its own."""

    spec: WorkerSpec  # with the policies of the others
    policy: Arrays
    jobs: tuple[Job, ...]

    @property
    def kind(self) -> str:
        """The name of these jobs in the timeline: evaluate."""
        return "evaluate"

    @property
    def tickets(self) -> tuple[int, ...]:
        """The tickets of all its evaluation jobs, one for each episode."""
        return tuple(ticket for job in self.jobs for ticket in job.tickets)

    @property
    def stream(self) -> None:
        """None: the job may run on any worker."""

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


def group_scores(names: Sequence[str], outcomes: Sequence[Outcome]) -> Metrics:
    """The mean return of each group over the episodes that did not fail; `outcomes`: as many of each, group by group."""
    count = len(outcomes) // len(names)
    returns = {name: [o.scalar for o in outcomes[n * count : (n + 1) * count] if not o.failed] for n, name in enumerate(names)}
    return {f"score/{name}": float(np.mean(own)) for name, own in returns.items() if own}


def group_at_play(directory: RunDirectory, config: RunConfig, which: str | None) -> tuple[RunConfig, tuple[FrozenPlayers, ...]]:
    """The config of a run as one of its groups has it, and the others' policies at the newest checkpoint. Without groups it is unchanged.

    `which`: a name or a number; default: the first group.

    Raises:
        UserError: there is no such group, or it has no checkpoint yet.
    """
    if not isinstance(config.population, GroupsConfig):
        return config, ()
    state, _ = population_state(directory)
    own = find_member(state, which or BEST)
    run = Sections(config.env, probe_env(config), config.policy, config.algorithm)
    sections = [group_sections(run, config.population, name) for name in state["names"]]
    others = [m for m in state["members"] if m["state_sha256"] and m["id"] != own["id"]]
    group = sections[own["id"]]
    return (
        config.model_copy(update={"env": group.env, "policy": group.policy, "algorithm": group.algorithm}),
        tuple(frozen_players(sections[m["id"]], read_policy(directory, m)) for m in others),
    )
