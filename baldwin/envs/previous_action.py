"""The action before as a sensor of its own, so that policies know what they really did: exploration and clipping included."""

from __future__ import annotations

from typing import Any

import gymnasium as gym

from baldwin.errors import EnvironmentFailure
from baldwin.observations import PREVIOUS_ACTION, flat_action, no_action, with_previous_action, with_previous_action_space


class PreviousAction(gym.Wrapper[Any, Any, Any, Any]):
    """Observations become a Dict with one sensor more, `previous_action`: zeros at the start of an episode."""

    def __init__(self, env: gym.Env[Any, Any]) -> None:
        """Raises EnvironmentFailure if the environment has a sensor of that name."""
        super().__init__(env)
        inner = env.observation_space
        if isinstance(inner, gym.spaces.Dict) and PREVIOUS_ACTION in inner.spaces:
            raise EnvironmentFailure(
                f"env.previous_action: the environment has a sensor {PREVIOUS_ACTION!r} already. Leave the setting out"
            )
        self.observation_space = with_previous_action_space(inner, env.action_space)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin an episode: no action has been taken, so that the sensor shows zeros."""
        obs, info = self.env.reset(seed=seed, options=options)
        return with_previous_action(obs, no_action(self.env.action_space)), info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """One step; the observation after it shows this action."""
        obs, reward, terminated, truncated, info = self.env.step(action)
        return with_previous_action(obs, flat_action(self.env.action_space, action)), reward, terminated, truncated, info
