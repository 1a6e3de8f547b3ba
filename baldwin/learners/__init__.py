"""Improve parameters by gradient: learners that anyone may call, and the algorithm that trains them off-policy."""

from baldwin.learners.discrete_sac import DiscreteSAC
from baldwin.learners.learner import Learner, LearnerConfig
from baldwin.learners.off_policy import OffPolicy, OffPolicyConfig, replay_columns
from baldwin.learners.recipe import Recipe
from baldwin.learners.sac import SAC, SACConfig, SACRule
from baldwin.learners.td3 import TD3, TD3Config, TD3Rule

__all__ = [
    "SAC",
    "TD3",
    "DiscreteSAC",
    "Learner",
    "LearnerConfig",
    "OffPolicy",
    "OffPolicyConfig",
    "Recipe",
    "SACConfig",
    "SACRule",
    "TD3Config",
    "TD3Rule",
    "replay_columns",
]
