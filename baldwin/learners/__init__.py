"""Improve parameters by gradient: learners that anyone may call, and the algorithm that trains them off-policy."""

from baldwin.learners.discrete_sac import DiscreteSAC
from baldwin.learners.learner import CriticConfig, Learner, LearnerConfig
from baldwin.learners.off_policy import OffPolicyAlgorithm, OffPolicyConfig, replay_columns
from baldwin.learners.sac import SAC, SACConfig, SACUpdateConfig
from baldwin.learners.spec import LearnerSpec
from baldwin.learners.td3 import TD3, TD3Config, TD3UpdateConfig

__all__ = [
    "SAC",
    "TD3",
    "CriticConfig",
    "DiscreteSAC",
    "Learner",
    "LearnerConfig",
    "LearnerSpec",
    "OffPolicyAlgorithm",
    "OffPolicyConfig",
    "SACConfig",
    "SACUpdateConfig",
    "TD3Config",
    "TD3UpdateConfig",
    "replay_columns",
]
