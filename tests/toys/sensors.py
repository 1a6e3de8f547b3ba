"""Environments that need eyes, a memory, or both."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces

Info = dict[str, Any]


class Recall(gym.Env[Any, Any]):
    """A cue at the first step says which of two doors is right at the last one; in between there is nothing to see."""

    def __init__(self, delay: int = 5) -> None:
        self.observation_space = spaces.Box(-1, 1, (2,), np.float32)  # cue, and whether the doors are here
        self.action_space = spaces.Discrete(2)
        self._delay = delay

    def reset(self, *, seed: int | None = None, options: Info | None = None) -> tuple[Any, Info]:
        super().reset(seed=seed)
        self._cue, self._steps = int(self.np_random.integers(2)), 0
        return np.array([2.0 * self._cue - 1, 0.0], np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, Info]:
        self._steps += 1
        if self._steps > self._delay:
            return np.zeros(2, np.float32), 1.0 if int(action) == self._cue else -1.0, True, False, {}
        return np.array([0.0, float(self._steps == self._delay)], np.float32), 0.0, False, False, {}


class Catch(gym.Env[Any, Any]):
    """A ball falls through a picture of 10 x 10; move the bat under it: +1, else -1 (bsuite's catch, with more columns)."""

    size = 10

    def __init__(self) -> None:
        self.observation_space: gym.Space[Any] = spaces.Box(0, 255, (self.size, self.size, 1), np.uint8)
        self.action_space = spaces.Discrete(3)

    def reset(self, *, seed: int | None = None, options: Info | None = None) -> tuple[Any, Info]:
        super().reset(seed=seed)
        self._ball, self._bat = [0, int(self.np_random.integers(self.size))], self.size // 2
        return self._picture(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, Info]:
        self._bat = int(np.clip(self._bat + int(action) - 1, 0, self.size - 1))
        self._ball[0] += 1
        over = self._ball[0] == self.size - 1
        reward = (1.0 if abs(self._ball[1] - self._bat) <= 1 else -1.0) if over else 0.0
        return self._picture(), reward, over, False, {}

    def _picture(self) -> Any:
        picture = np.zeros((self.size, self.size, 1), np.uint8)
        picture[self._ball[0], self._ball[1]] = 255
        picture[self.size - 1, self._bat] = 255
        return picture


class LookAndListen(gym.Env[Any, Any]):
    """Say on which side of the picture the light is, and whether the sound is high: 8 for both every time, 0 by one sensor, -4 by none."""

    def __init__(self) -> None:
        self.observation_space = spaces.Dict(
            {"camera": spaces.Box(0, 255, (1, 6, 6), np.uint8), "sound": spaces.Box(-1, 1, (1,), np.float32)}
        )
        self.action_space = spaces.Discrete(4)

    def reset(self, *, seed: int | None = None, options: Info | None = None) -> tuple[Any, Info]:
        super().reset(seed=seed)
        self._steps = 0
        return self._show(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, Info]:
        reward = 1.0 if int(action) == self._right else -1.0
        self._steps += 1
        return self._show(), reward, self._steps >= 8, False, {}

    def _show(self) -> Any:
        side, high = (int(n) for n in self.np_random.integers(2, size=2))
        self._right = 2 * side + high
        picture = np.zeros((1, 6, 6), np.uint8)
        picture[0, int(self.np_random.integers(6)), 3 * side : 3 * side + 3] = 255
        return {"camera": picture, "sound": np.array([2.0 * high - 1], np.float32)}


class OnlyLegal(gym.Env[Any, Any]):
    """Of five actions some are legal, each time others; an illegal one raises. The largest legal one pays."""

    def __init__(self, where: str = "info") -> None:
        number = spaces.Box(0, 1, (1,), np.float32)
        mask = spaces.Box(0, 1, (5,), np.int8)
        self._in_info = where == "info"
        self.observation_space: gym.Space[Any] = number if self._in_info else spaces.Dict({"action_mask": mask, "number": number})
        self.action_space = spaces.Discrete(5)

    def reset(self, *, seed: int | None = None, options: Info | None = None) -> tuple[Any, Info]:
        super().reset(seed=seed)
        self._steps = 0
        return self._show()

    def step(self, action: Any) -> tuple[Any, float, bool, bool, Info]:
        if not self._mask[int(action)]:
            raise ValueError(f"illegal action {action}: {self._mask}")
        reward = 1.0 if int(action) == np.flatnonzero(self._mask)[-1] else 0.0
        self._steps += 1
        obs, info = self._show()
        return obs, reward, self._steps >= 10, False, info

    def _show(self) -> tuple[Any, Info]:
        self._mask = (self.np_random.random(5) < 0.5).astype(np.int8)
        self._mask[int(self.np_random.integers(5))] = 1
        number = np.ones(1, np.float32)
        return (number, {"action_mask": self._mask}) if self._in_info else ({"action_mask": self._mask, "number": number}, {})


class Talks(gym.Env[Any, Any]):
    """Half of what it shows is text."""

    def __init__(self) -> None:
        self.observation_space = spaces.Dict({"mission": spaces.Text(20), "where": spaces.Box(-1, 1, (2,), np.float32)})
        self.action_space = spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Info | None = None) -> tuple[Any, Info]:
        super().reset(seed=seed)
        return {"mission": "go", "where": np.zeros(2, np.float32)}, {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, Info]:
        return {"mission": "go", "where": np.zeros(2, np.float32)}, 1.0, True, False, {}
