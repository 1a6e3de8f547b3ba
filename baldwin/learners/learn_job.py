"""One update of a policy-gradient learner as a job, so that collecting goes on meanwhile."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from baldwin.algorithm import BuildContext
from baldwin.envs import EnvSpec
from baldwin.learners.experience import Experience
from baldwin.learners.policy_gradient import PolicyGradientConfig, PolicyGradientLearner
from baldwin.networks import ActionMap, PolicyConfig
from baldwin.ops.moments import Moments
from baldwin.processes import call_at_lower_priority
from baldwin.types import (
    Arrays,
    Outcome,
    Worker,
    flatten_tree,
    unflatten_tree,
)

METRIC = "metric/"
"""Prefix of what an update reports, among the arrays of its outcome."""


@dataclass(frozen=True, slots=True)
class PolicyGradientSpec:
    """All that it takes to make a learner, in any process."""

    policy: PolicyConfig
    config: PolicyGradientConfig
    env: EnvSpec
    rewards: dict[str, float]
    seed: int

    def make(self, params: NDArray[np.float32] | None = None) -> PolicyGradientLearner:
        """A new learner, with these parameters [D] or fresh ones."""
        actions = ActionMap(self.env.action_space, self.policy.squash, self.policy.head)
        return self.config.make_learner(self.policy, obs=self.env.obs, actions=actions, rewards=self.rewards, seed=self.seed, params=params)


@dataclass(frozen=True, slots=True)
class LearnJob:
    """One update as a job, so that collecting goes on meanwhile. Carries the learner's state: nobody else needs its optimiser."""

    ticket: int
    learner: PolicyGradientSpec
    state: Arrays  # a flattened `state_dict`
    experience: Experience
    obs_moments: NDArray[np.float64]
    env_steps: int
    stream: None = None

    @property
    def kind(self) -> str:
        """The name of these jobs in the timeline: learn."""
        return "learn"

    @property
    def tickets(self) -> tuple[int, ...]:
        """Its ticket: such a job has one outcome."""
        return (self.ticket,)

    def run(self, worker: Worker | None) -> list[Outcome]:
        """The learner after the update, as derived arrays: the journal leaves them out. A live world that shares the machine goes first.

        Raises:
            Diverged: a loss is not finite.
        """
        return call_at_lower_priority(self._update) if self.learner.env.live else self._update()

    def _update(self) -> list[Outcome]:
        state = unflatten_tree(self.state)
        learner = self.learner.make(state["params"])
        learner.load_state_dict(state)
        learner.normalize(Moments.unpack(self.obs_moments))
        before = learner.updates
        metrics = learner.update(self.experience, self.env_steps)
        arrays = {METRIC + name: np.array(value) for name, value in metrics.items()}
        return [Outcome(self.ticket, 0.0, arrays=arrays, derived=flatten_tree(learner.state_dict()), critic_steps=learner.updates - before)]


def policy_gradient_spec(config: PolicyGradientConfig, context: BuildContext) -> PolicyGradientSpec:
    """All that it takes to make the learner of a config, anywhere."""
    return PolicyGradientSpec(context.policy, config, context.env, context.reward_weights, context.seed)
