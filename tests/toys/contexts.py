"""What an algorithm is built in when there is no environment."""

from __future__ import annotations

import numpy as np
from gymnasium import spaces

from baldwin.algorithm import BuildContext
from baldwin.envs import EnvSpec
from baldwin.networks import ActionMap, PolicyConfig
from baldwin.observations import vector_spec


def toy_context(seed: int = 1, max_episode_steps: int | None = 1000) -> BuildContext:
    action = spaces.Box(-1, 1, (1,), np.float32)
    policy = PolicyConfig(hidden=[], normalize_obs=True)
    return BuildContext(EnvSpec(vector_spec(1), action, max_episode_steps, "gymnasium"), policy, ActionMap(action, "tanh"), seed)
