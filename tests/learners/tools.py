"""Small learners, and a memory to feed them."""

from __future__ import annotations

from typing import Any

import numpy as np
from torch import nn

from baldwin.learners import SAC, TD3, DiscreteSAC, Learner, SACUpdateConfig, TD3UpdateConfig, replay_columns
from baldwin.networks import PolicyConfig
from baldwin.observations import vector_spec
from baldwin.replay import ReplayBuffer

OBS, ACTIONS = 3, 2


def policy(**extra: Any) -> PolicyConfig:
    return PolicyConfig(**({"hidden": [8, 8], "activation": "relu", "init": "torch", "normalize_obs": False} | extra))


def td3(seed: int = 1, **extra: Any) -> TD3:
    return TD3(
        policy(),
        TD3UpdateConfig(**({"batch_size": 16, "threads": 1, "critic": {"hidden": [8, 8]}} | extra)),
        obs=vector_spec(OBS),
        n_actions=ACTIONS,
        seed=seed,
    )


def sac(seed: int = 1, **extra: Any) -> SAC:
    rule = SACUpdateConfig(**({"batch_size": 16, "threads": 1, "critic": {"hidden": [8, 8]}} | extra))
    return SAC(policy(head="gaussian"), rule, obs=vector_spec(OBS), n_actions=ACTIONS, seed=seed)


def discrete(seed: int = 1, **extra: Any) -> DiscreteSAC:
    rule = SACUpdateConfig(**({"batch_size": 16, "threads": 1, "critic": {"hidden": [8, 8]}} | extra))
    return DiscreteSAC(policy(), rule, obs=vector_spec(OBS), n_actions=ACTIONS, seed=seed)


class TwoLayers(nn.Sequential):
    """A user's own network, of the shape that the others have here."""

    def __init__(self, obs_size: int, action_size: int) -> None:
        super().__init__(nn.Linear(obs_size, 8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, action_size))


LEARNERS = {"td3": td3, "sac": sac, "discrete-sac": discrete}


def memory(learner: Learner, rows: int = 200, seed: int = 0) -> ReplayBuffer:
    rng = np.random.default_rng(seed)
    box = not isinstance(learner, DiscreteSAC)
    action = rng.uniform(-1, 1, (rows, ACTIONS)).astype(np.float32) if box else rng.integers(0, ACTIONS, rows)
    replay = ReplayBuffer(replay_columns(vector_spec(OBS), action[:0]), rows, seed=5)
    replay.add(
        {
            "obs/vector": rng.normal(size=(rows, OBS)).astype(np.float32),
            "action": action,
            "reward": rng.normal(size=rows).astype(np.float32),
            "next_obs/vector": rng.normal(size=(rows, OBS)).astype(np.float32),
            "terminated": rng.random(rows) < 0.1,
            "truncated": np.zeros(rows, np.bool_),
        }
    )
    return replay
