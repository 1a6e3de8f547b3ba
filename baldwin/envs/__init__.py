"""Environments: several copies of one, stepped side by side, whichever simulator serves them."""

from baldwin.envs import classic_control, envpool, gymnasium, mujoco, pong_backend  # noqa: F401 - they register themselves
from baldwin.envs.asynchronous import Player, check_alike
from baldwin.envs.backends import (
    check_env,
    choose_backend,
    list_envs,
    make_players_env,
    make_render_env,
    make_resumable_env,
    make_vector_env,
)
from baldwin.envs.gymnasium import close_quietly, list_players, total_reward
from baldwin.envs.sampling import random_action
from baldwin.envs.vector_env import (
    BACKENDS,
    Backend,
    EnvConfig,
    EnvSpec,
    Ids,
    LiveEnv,
    OpponentEnv,
    OpponentPolicies,
    OtherPlayers,
    StepResult,
    TurnEnv,
    VectorEnv,
)

__all__ = [
    "BACKENDS",
    "Backend",
    "EnvConfig",
    "EnvSpec",
    "Ids",
    "LiveEnv",
    "OpponentEnv",
    "OpponentPolicies",
    "OtherPlayers",
    "Player",
    "StepResult",
    "TurnEnv",
    "VectorEnv",
    "check_alike",
    "check_env",
    "choose_backend",
    "close_quietly",
    "list_envs",
    "list_players",
    "make_players_env",
    "make_render_env",
    "make_resumable_env",
    "make_vector_env",
    "random_action",
    "total_reward",
]
