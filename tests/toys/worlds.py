"""Small Gymnasium environments that are easy, odd or broken."""

from __future__ import annotations

import time
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from gymnasium import spaces


class Chase(gym.Env[np.ndarray, np.ndarray]):
    """Move a point to a target: reward is minus the distance; ten steps, ended by the caller's clock."""

    def __init__(self, size: int = 2) -> None:
        self.observation_space = spaces.Box(-10, 10, (2 * size,), np.float32)
        self.action_space = spaces.Box(-1, 1, (size,), np.float32)
        self._size = size

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        self._at, self._goal = self.np_random.uniform(-1, 1, (2, self._size))
        self._steps = 0
        return self._see(), {}

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        self._at = self._at + 0.5 * np.asarray(action)
        self._steps += 1
        return self._see(), -float(np.abs(self._at - self._goal).sum()), False, self._steps >= 10, {}

    def _see(self) -> np.ndarray:
        return np.concatenate([self._at, self._goal]).astype(np.float32)


class DiscreteChase(Chase):
    """The same on a line, with five moves to choose from."""

    moves = (-0.5, -0.125, 0.0, 0.125, 0.5)

    def __init__(self, masked: bool = False) -> None:
        super().__init__(1)
        self.action_space = spaces.Discrete(len(self.moves))
        self._masked = masked

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict[str, Any]]:
        obs, _ = super().reset(seed=seed)
        return obs, self._info()

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        info = self._info()
        assert not self._masked or info["action_mask"][action], "an illegal action"
        obs, reward, terminated, truncated, _ = super().step(np.array([2 * self.moves[action]]))
        return obs, reward, terminated, truncated, self._info()

    def _info(self) -> dict[str, Any]:
        """Moves away from the target are illegal, where there is a mask."""
        if not self._masked:
            return {}
        towards = np.sign(self._goal[0] - self._at[0]) * np.array(self.moves) >= 0
        return {"action_mask": towards}


class Broken(Chase):
    """Goes wrong in a chosen way: at the first step, or in one episode out of three."""

    def __init__(self, how: str, always: bool = False) -> None:
        super().__init__()
        self._how, self._always = how, always

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        obs, reward, terminated, truncated, info = super().step(action)
        if self._always or (self._steps == 5 and self._goal[0] > 0.4):
            if self._how == "raise":
                raise RuntimeError("the wheel came off")
            if self._how == "hang":
                time.sleep(60)
            if self._how == "nan":
                return obs * np.nan, reward, terminated, truncated, info
            if self._how == "nan-reward":
                return obs, np.nan, terminated, truncated, info
            if self._how == "shape":
                return obs[:-1], reward, terminated, truncated, info
        return obs, reward, terminated, truncated, info


class Stuck(DiscreteChase):
    """Has no legal move after the fifth step, in one episode out of three."""

    def __init__(self, how: str) -> None:
        super().__init__(masked=True)
        self._how = how

    def _info(self) -> dict[str, Any]:
        info = super()._info()
        return {"action_mask": info["action_mask"] & False} if self._how and self._steps == 5 and self._goal[0] > 0.4 else info


class BreaksLater(Chase):
    """Its first step is fine, and no other."""

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        if self._steps == 1:
            raise RuntimeError("the wheel came off")
        return super().step(action)


class Uneven(Chase):
    """Episodes of 3 to 30 steps, whoever plays them."""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict[str, Any]]:
        seen = super().reset(seed=seed)
        self._end = int(self.np_random.integers(3, 31))
        return seen

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        obs, reward, _, _, info = super().step(action)
        return obs, reward, self._steps >= self._end, False, info


class Scribbler(Chase):
    """Writes into the action it is given."""

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        action *= 0.5
        return super().step(action)


class Choices(gym.Env[Any, Any]):
    """Dict observation, MultiDiscrete action: choose the numbers you are shown."""

    def __init__(self) -> None:
        self.observation_space = spaces.Dict({"left": spaces.Discrete(3), "right": spaces.Box(0, 1, (1,), np.float32)})
        self.action_space = spaces.MultiDiscrete([3, 2])

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self._steps = 0
        return self._show(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        reward = float(action[0] == self._left) + float(action[1] == self._right)
        self._steps += 1
        return self._show(), reward, self._steps >= 10, False, {}

    def _show(self) -> Any:
        self._left, self._right = int(self.np_random.integers(3)), int(self.np_random.integers(2))
        return {"left": self._left, "right": np.array([self._right], np.float32)}


class Mixed(gym.Env[Any, Any]):
    """Dict observation, nested Dict and Tuple action: name the number you are shown, and point at the target."""

    def __init__(self) -> None:
        self.observation_space = spaces.Dict({"number": spaces.Discrete(3), "target": spaces.Box(-1, 1, (2,), np.float32)})
        self.action_space = spaces.Dict(
            {"name": spaces.Discrete(3, start=1), "point": spaces.Tuple((spaces.Box(-1, 1, (2,), np.float32), spaces.MultiBinary(1)))}
        )

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self._steps = 0
        return self._show(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        assert self.action_space.contains(action), action
        where, side = action["point"]
        reward = (
            float(action["name"] == self._number + 1) - float(np.abs(where - self._target).mean()) + float(side[0] == (self._target[0] > 0))
        )
        self._steps += 1
        return self._show(), reward, self._steps >= 10, False, {}

    def _show(self) -> Any:
        self._number, self._target = int(self.np_random.integers(3)), self.np_random.uniform(-1, 1, 2).astype(np.float32)
        return {"number": self._number, "target": self._target}


class TinyNet(torch.nn.Module):
    """A user's own network."""

    def __init__(self, obs_size: int, action_size: int, width: int = 8) -> None:
        super().__init__()
        self.inner = torch.nn.Linear(obs_size, width)
        self.outer = torch.nn.Linear(width, action_size)
        self.gain = torch.nn.Parameter(torch.tensor(1.0))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.gain * self.outer(torch.relu(self.inner(x)))


gym.register("BaldwinChase-v0", entry_point="tests.toys.worlds:Chase", max_episode_steps=10)
