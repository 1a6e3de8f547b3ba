"""The jobs of hybrids: training the critics, and improving an individual before it plays.

Both are pure functions of what they carry and of the shared critics that they name. The replay buffer they sample from
travels by name where workers see its files, and by value where not.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from baldwin.errors import Diverged
from baldwin.learners import Learner, LearnerSpec
from baldwin.ops.moments import Moments
from baldwin.replay import ReplayView
from baldwin.rollout import CollectJob
from baldwin.types import Arrays, Outcome, Worker, flatten_tree, unflatten_tree

CRITIC = "critic"
"""The key under which critics are shared, for updates of actors."""
METRIC = "metric/"  # prefix of an outcome's arrays that are only reported


@dataclass(frozen=True, slots=True)
class TrainCritic:
    """Critic updates against each of these target policies in turn. Carries the critics: nobody else needs their optimiser."""

    ticket: int
    learner: LearnerSpec
    critic: Arrays  # a flattened `critic_state`
    target_policies: NDArray[np.float32]  # [n, D]
    steps: int  # against each of them
    view: ReplayView
    obs_moments: NDArray[np.float64]
    stream: None = None

    @property
    def kind(self) -> str:
        """The name of these jobs in the timeline: critic."""
        return "critic"

    @property
    def tickets(self) -> tuple[int, ...]:
        """Its ticket: such a job has one outcome."""
        return (self.ticket,)

    def run(self, worker: Worker | None = None) -> list[Outcome]:
        """The trained critics, as derived arrays: the journal leaves them out.

        Raises:
            Diverged: a loss or a parameter is not finite.
        """
        learner = make_learner(self.learner, self.ticket, self.obs_moments)
        learner.load_critic_state(unflatten_tree(self.critic))
        sampler = self.view.sampler(self.learner.seed, self.ticket)
        reports = [learner.train_critic(sampler, self.steps, policy) for policy in self.target_policies]
        check_finite(learner.critic.vectors(), "the critics")
        metrics = {METRIC + name: np.array(np.mean([m[name] for m in reports])) for name in reports[0] if not name.startswith("actor")}
        derived = flatten_tree(learner.critic_state())
        return [Outcome(self.ticket, 0.0, arrays=metrics, derived=derived, critic_steps=self.steps * len(self.target_policies))]


@dataclass(frozen=True, slots=True)
class ImproveAndEvaluate:
    """Actor updates against the shared critics of a version, then an episode. Without updates, only the episode."""

    learner: LearnerSpec
    episode: CollectJob
    steps: int = 0
    critic_version: int = 0
    view: ReplayView | None = None
    stream: None = None

    @property
    def kind(self) -> str:
        """random: random actions; rl: improved by gradient; es: as drawn."""
        return "random" if self.episode.explore == "random" else "rl" if self.steps else "es"

    @property
    def tickets(self) -> tuple[int, ...]:
        """The ticket of the episode."""
        return self.episode.tickets

    def run(self, worker: Worker) -> list[Outcome]:
        """The episode; with the parameters that played it, if they changed.

        Raises:
            Diverged: a loss or a parameter is not finite.
        """
        if not self.steps or self.view is None:
            return self.episode.run(worker)
        ticket = self.episode.ticket
        learner = make_learner(self.learner, ticket, self.episode.obs_moments)
        learner.load_frozen_critic(worker.shared(CRITIC, self.critic_version))
        learner.set_actor(np.asarray(self.episode.params))
        report = learner.train_actor(self.view.sampler(self.learner.seed, ticket), self.steps)
        params = check_finite(learner.actor_vectors()[0], "the individual")
        (played,) = replace(self.episode, params=params).run(worker)
        arrays = {**played.arrays, "params": params, METRIC + "actor_loss": np.array(report["actor_loss"])}
        return [replace(played, arrays=arrays, actor_steps=self.steps)]


def make_learner(spec: LearnerSpec, ticket: int, obs_moments: NDArray[np.float64]) -> Learner:
    """A learner with the random numbers of a ticket."""
    learner = spec.make(ticket)
    learner.normalize(Moments.unpack(obs_moments))
    return learner


def check_finite(parameters: NDArray[np.float32], whose: str) -> NDArray[np.float32]:
    """The parameters; losses are checked when all updates are made; this is for what the last one left.

    Raises:
        Diverged: some are not finite.
    """
    if not np.isfinite(parameters).all():
        raise Diverged(f"{whose} came out of the gradient steps with parameters that are not numbers. Lower the learning rates")
    return parameters
