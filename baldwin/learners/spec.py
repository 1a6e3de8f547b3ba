"""All that it takes to make a learner, in any process."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from baldwin.learners.learner import Learner
from baldwin.learners.replay_learner import LearnerConfig
from baldwin.networks import PolicyConfig
from baldwin.observations import ObservationSpec
from baldwin.ops import seeds


class UpdateConfig(Protocol):
    """The config of an update rule, which knows its learner."""

    def make_learner(self, policy: PolicyConfig, *, obs: ObservationSpec, n_actions: int, discrete: bool, seed: int) -> Learner:
        """A new learner with fresh networks for these observations and actions, and random numbers of this seed."""

    def resolved(self) -> LearnerConfig:
        """The same with `auto` replaced by what it means on this machine."""


@dataclass(frozen=True, slots=True)
class LearnerSpec:
    """Travels with jobs that train."""

    policy: PolicyConfig
    config: UpdateConfig
    obs: ObservationSpec
    n_actions: int
    discrete: bool
    seed: int

    def make(self, ticket: int | None = None) -> Learner:
        """A new learner, with the random numbers of the run or of one ticket."""
        seed = self.seed if ticket is None else seeds.mix(self.seed, ticket)
        return self.config.make_learner(self.policy, obs=self.obs, n_actions=self.n_actions, discrete=self.discrete, seed=seed)
