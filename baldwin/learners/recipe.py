"""All it takes to make a learner, anywhere."""

from __future__ import annotations

from dataclasses import dataclass

from baldwin.learners.discrete_sac import DiscreteSAC
from baldwin.learners.learner import Learner
from baldwin.learners.sac import SAC, SACRule
from baldwin.learners.td3 import TD3, TD3Rule
from baldwin.ops import seeds
from baldwin.policies import PolicyConfig


@dataclass(frozen=True, slots=True)
class Recipe:
    """Picklable, and small."""

    policy: PolicyConfig
    rule: TD3Rule | SACRule
    obs_size: int
    actions: int
    discrete: bool
    seed: int

    def learner(self, ticket: int | None = None) -> Learner:
        """A new one; with the random numbers of the run, or of one ticket."""
        seed = self.seed if ticket is None else seeds.mix(self.seed, ticket)
        if isinstance(self.rule, TD3Rule):
            return TD3(self.policy, self.rule, obs_size=self.obs_size, actions=self.actions, seed=seed)
        return (DiscreteSAC if self.discrete else SAC)(self.policy, self.rule, obs_size=self.obs_size, actions=self.actions, seed=seed)
