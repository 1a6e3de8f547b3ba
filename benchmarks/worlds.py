"""Worlds that cost nothing, for simulated workers: only how long their episodes are matters."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces


class Clockwork(gym.Env[np.ndarray, np.ndarray]):
    """Episodes of `length` steps, or, if they vary, of anything from a tenth of that to nineteen tenths: the same on average."""

    def __init__(self, length: int = 50, varies: bool = False) -> None:
        self.observation_space = spaces.Box(-1, 1, (1,), np.float32)
        self.action_space = spaces.Box(-1, 1, (1,), np.float32)
        self._length, self._varies = length, varies

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        low, high = self._length // 10, self._length * 19 // 10
        self._left = int(self.np_random.integers(low, high + 1)) if self._varies else self._length
        return np.zeros(1, np.float32), {}

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        self._left -= 1
        return np.zeros(1, np.float32), -float(np.square(action).sum()), self._left <= 0, False, {}
