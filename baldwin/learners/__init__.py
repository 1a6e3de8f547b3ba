"""Improve parameters by gradient: learners that anyone may call, and the algorithm that trains them off-policy."""

from baldwin.learners.a2c import A2C, A2CConfig
from baldwin.learners.a3c import A3C, A3CConfig
from baldwin.learners.buffers import replay_columns
from baldwin.learners.discrete_sac import DiscreteSAC
from baldwin.learners.dqn import DQN, DQNConfig
from baldwin.learners.impala import IMPALA, IMPALAConfig
from baldwin.learners.learner import ActorCriticConfig, CriticConfig, Learner
from baldwin.learners.off_policy import OffPolicyAlgorithm
from baldwin.learners.off_policy_config import OffPolicyConfig
from baldwin.learners.ppo import PPO, PPOConfig
from baldwin.learners.reinforce import REINFORCE, REINFORCEConfig
from baldwin.learners.replay_learner import LearnerConfig, ReplayLearner
from baldwin.learners.sac import SAC, SACConfig, SACUpdateConfig
from baldwin.learners.spec import LearnerSpec
from baldwin.learners.td3 import TD3, TD3Config, TD3UpdateConfig

__all__ = [
    "A2C",
    "A3C",
    "DQN",
    "IMPALA",
    "PPO",
    "REINFORCE",
    "SAC",
    "TD3",
    "A2CConfig",
    "A3CConfig",
    "ActorCriticConfig",
    "CriticConfig",
    "DQNConfig",
    "DiscreteSAC",
    "IMPALAConfig",
    "Learner",
    "LearnerConfig",
    "LearnerSpec",
    "OffPolicyAlgorithm",
    "OffPolicyConfig",
    "PPOConfig",
    "REINFORCEConfig",
    "ReplayLearner",
    "SACConfig",
    "SACUpdateConfig",
    "TD3Config",
    "TD3UpdateConfig",
    "replay_columns",
]
