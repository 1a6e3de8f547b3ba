"""Legal actions at random, for environments that are tried out."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from baldwin.envs.vector_env import EnvSpec
from baldwin.observations import ACTION_MASK, Observation


def random_action(env_spec: EnvSpec, obs: Observation) -> NDArray[Any]:
    """A legal action [1, ...] for an observation [1, ...], by the action space's own generator."""
    space = env_spec.action_space
    action = space.sample(_space_mask(space, iter(obs[ACTION_MASK][0].tolist()))) if ACTION_MASK in obs else space.sample()
    return np.array([None, action], object)[1:] if isinstance(action, dict | tuple) else np.stack([action])


def _space_mask(space: gym.Space[Any], flags: Iterator[bool]) -> Any:
    """The next flags of a flat mask in the form that Gymnasium's `sample` takes."""
    if isinstance(space, spaces.Dict):
        return {name: _space_mask(part, flags) for name, part in space.spaces.items()}
    if isinstance(space, spaces.Tuple):
        return tuple(_space_mask(part, flags) for part in space.spaces)
    if isinstance(space, spaces.Discrete):
        return np.fromiter(islice(flags, int(space.n)), np.int8)
    if isinstance(space, spaces.MultiDiscrete):
        return tuple(np.fromiter(islice(flags, int(n)), np.int8) for n in space.nvec)
    if isinstance(space, spaces.MultiBinary):
        return np.array([2 if flag else 0 for flag in islice(flags, int(np.prod(space.shape)))], np.int8).reshape(space.shape)
    return None
