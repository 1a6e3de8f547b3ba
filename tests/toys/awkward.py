"""Environments and networks as users bring them: of an old interface, without spaces, that cannot be closed, and so on."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import torch
from gymnasium import spaces

from tests.toys.worlds import Chase


class Unclosable(Chase):
    def close(self) -> None:
        raise RuntimeError("the door is stuck")


class NoObservationSpace(Chase):
    def __init__(self) -> None:
        super().__init__()
        del self.observation_space


class NotAnEnv:
    def __init__(self, **kwargs: Any) -> None:
        raise AssertionError("called before it was checked")


def make_env(**kwargs: Any) -> Chase:
    raise AssertionError("called before it was checked")


class EmptyObservation(Chase):
    def __init__(self) -> None:
        super().__init__()
        self.observation_space = spaces.Box(-1, 1, (0,), np.float32)


class TextObservation(Chase):
    def __init__(self) -> None:
        super().__init__()
        self.observation_space = spaces.Dict({"at": spaces.Box(-1, 1, (2,)), "mission": spaces.Text(20)})


class OldReset(Chase):
    def reset(self, **kwargs: Any) -> Any:
        return super().reset(**kwargs)[0]


class OldStep(Chase):
    def step(self, action: np.ndarray) -> Any:
        obs, reward, terminated, truncated, info = super().step(action)
        return obs, reward, terminated or truncated, info


class Endless(Chase):
    def step(self, action: np.ndarray) -> Any:
        obs, reward, _, _, info = super().step(action)
        return obs, reward, False, False, info


class SpeechlessError(Exception):
    def __str__(self) -> str:
        raise ValueError("no words")


class Speechless(Chase):
    def step(self, action: np.ndarray) -> Any:
        raise SpeechlessError


class Talkative(Chase):
    def step(self, action: np.ndarray) -> Any:
        raise RuntimeError("\x1b[31mred\x07\r\n" + "blah " * 1000)


class Silent(Chase):
    def step(self, action: np.ndarray) -> Any:
        raise RuntimeError


class Fragile(Chase):
    """Fails in two steps of a hundred."""

    def step(self, action: np.ndarray) -> Any:
        if self.np_random.random() < 0.02:
            raise RuntimeError("it came loose")
        return super().step(action)


class Undrawable(Chase):
    metadata = {"render_modes": ["human"]}  # noqa: RUF012 - Gymnasium's own way

    def __init__(self, render_mode: str | None = None) -> None:
        super().__init__()


class Branching(torch.nn.Module):
    """Looks at the values before it decides what to compute."""

    def __init__(self, n_inputs: int, n_outputs: int) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(n_inputs, n_outputs)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out = self.layer(x)
        return out if out.sum() > 0 else -out


gym.register("AwkwardChase-v0", entry_point="tests.toys.worlds:Chase")


class Quitter(Chase):
    """Wants to end the process, in a few episodes."""

    def __init__(self, how: str) -> None:
        super().__init__()
        self._how = how

    def step(self, action: np.ndarray) -> Any:
        if self._goal[0] > 0.95:
            raise {"SystemExit": SystemExit, "KeyboardInterrupt": KeyboardInterrupt}[self._how]
        return super().step(action)
