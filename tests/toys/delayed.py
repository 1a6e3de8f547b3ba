"""Environments that need memory, several discounts, or the length of a step."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces


class Recall(gym.Env[np.ndarray, Any]):
    """A sign is shown at the first step only; the last action must repeat it. Chance is 0."""

    def __init__(self, length: int = 5, box: bool = False) -> None:
        """`box`: an action is a number from -1 to 1; the last one is paid times the sign."""
        self.observation_space = spaces.Box(-1, 1, (2,), np.float32)
        self.action_space = spaces.Box(-1, 1, (1,), np.float32) if box else spaces.Discrete(2)
        self._length, self._box = length, box

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        self._sign, self._steps = int(self.np_random.integers(2)), 0
        return np.array([2 * self._sign - 1, 0], np.float32), {}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        self._steps += 1
        over = self._steps == self._length
        answer = float(action[0]) if self._box else 2.0 * int(action) - 1
        reward = answer * (2 * self._sign - 1) if over else 0.0
        return np.array([0, self._steps == self._length - 1], np.float32), reward, over, False, {}


class Alternate(gym.Env[np.ndarray, Any]):
    """Every action must differ from the one before; the observation says nothing. A policy that knows nothing else gets -9 of 9."""

    def __init__(self, box: bool = False) -> None:
        """`box`: an action is a number, of which the sign counts."""
        self.observation_space = spaces.Box(0, 1, (1,), np.float32)
        self.action_space = spaces.Box(-2, 2, (1,), np.float32) if box else spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        self._last: bool | None = None
        self._steps = 0
        return np.ones(1, np.float32), {}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        now = bool(np.ravel(action)[0] > 0)
        reward = 0.0 if self._last is None else 1.0 if now != self._last else -1.0
        self._last = now
        self._steps += 1
        return np.ones(1, np.float32), reward, self._steps == 10, False, {}


class TwoRewards(gym.Env[np.ndarray, Any]):
    """Three actions at the first step. One pays 1 at once; one pays 3 after ten steps; one pays 2 at once and costs 9 a step later.

    `soon` is what is paid at once, `late` what follows. With a discount of 0.1 on everything the trap pays best, with 1 on everything the
    noise of `late` hides it; each component with its own discount finds the patient action.
    """

    def __init__(self, vector: bool = False) -> None:
        self.observation_space = spaces.Box(0, 1, (2,), np.float32)
        self.action_space = spaces.Discrete(3)
        self._vector = vector

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        self._steps, self._chosen = 0, 0
        return self._see(), {}

    def step(self, action: Any) -> tuple[np.ndarray, Any, bool, bool, dict[str, Any]]:
        if self._steps == 0:
            self._chosen = int(action)
        soon = (1.0, 0.0, 2.0)[self._chosen] if self._steps == 0 else 0.0
        late = 3.0 if self._chosen == 1 and self._steps == 9 else -9.0 if self._chosen == 2 and self._steps == 1 else 0.0
        self._steps += 1
        over = self._steps == 10
        if self._vector:
            return self._see(), np.array([soon, late], np.float32), over, False, {}
        return self._see(), soon + late, over, False, {"reward": {"soon": soon, "late": late}}

    def _see(self) -> np.ndarray:
        return np.array([self._steps == 0, self._steps / 10], np.float32)


class Skips(gym.Env[np.ndarray, Any]):
    """At the first step: 1 after one frame, or 1.5 after ten. The world says how many frames a step took."""

    def __init__(self, says: bool = True) -> None:
        self.observation_space = spaces.Box(0, 1, (1,), np.float32)
        self.action_space = spaces.Discrete(2)
        self._says = says

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        self._steps = 0
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        if self._steps == 0:
            self._chosen = int(action)
        self._steps += 1
        over = self._steps == 2
        reward = (1.0, 1.5)[self._chosen] if over else 0.0
        info = {"elapsed": 10 if self._chosen else 1} if self._says else {}
        return np.array([self._steps / 2], np.float32), reward, over, False, info


class Changes(TwoRewards):
    """Gives other reward components at its third step than before."""

    def step(self, action: Any) -> tuple[np.ndarray, Any, bool, bool, dict[str, Any]]:
        obs, reward, terminated, truncated, info = super().step(action)
        return obs, reward, terminated, truncated, {"reward": {"goal": 1.0}} if self._steps == 3 else info


class BlindCliffwalk(gym.Env[np.ndarray, Any]):
    """States in a row: one action leads to the next, the other ends the episode; only the last step pays. As in arXiv 1511.05952, Section 3.1."""

    def __init__(self, states: int = 8) -> None:
        self.observation_space = spaces.Box(0, 1, (states,), np.float32)
        self.action_space = spaces.Discrete(2)
        self._states = states

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        self._at = 0
        return self._see(), {}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        on = action == self._at % 2  # neither action is the right one everywhere
        last = self._at == self._states - 1
        self._at = min(self._at + 1, self._states - 1)
        return self._see(), float(on and last), bool(last or not on), False, {}

    def _see(self) -> np.ndarray:
        return np.eye(self._states, dtype=np.float32)[self._at]


class Dart(gym.Env[np.ndarray, Any]):
    """One throw: choose the board that shines, and hit its middle, which lies elsewhere on each. A choice and a number that only pay together."""

    def __init__(self, masked: bool = False) -> None:
        self.observation_space = spaces.Box(-1, 1, (3,), np.float32)
        self.action_space = spaces.Dict({"aim": spaces.Box(-2, 2, (1,), np.float32), "board": spaces.Discrete(3)})
        self._masked = masked

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        self._board = int(self.np_random.integers(3))
        return np.eye(3, dtype=np.float32)[self._board], self._info()

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        middle = (-1.5, 0.5, 1.5)[self._board]
        reward = 1.0 - min(1.0, abs(float(action["aim"][0]) - middle)) if int(action["board"]) == self._board else 0.0
        return np.zeros(3, np.float32), reward, True, False, self._info()

    def _info(self) -> dict[str, Any]:
        return {"action_mask": {"board": np.arange(3) <= self._board}} if self._masked else {}


class Chain(gym.Env[np.ndarray, Any]):
    """Rooms in a row: one action leads on, the other to the first room, where the episode ends; only the last room pays.

    Chance never gets so far.
    """

    def __init__(self, rooms: int = 30) -> None:
        self.observation_space = spaces.Box(0, 1, (rooms,), np.float32)
        self.action_space = spaces.Discrete(2)
        self._rooms = rooms

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        self._at = 0
        return self._see(), {}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        forward = int(action) == self._at % 2  # the way on is not always the same action
        self._at = self._at + 1 if forward else 0
        found = self._at == self._rooms - 1
        return self._see(), float(found), found or not forward, False, {}

    def _see(self) -> np.ndarray:
        return np.eye(self._rooms, dtype=np.float32)[self._at]
