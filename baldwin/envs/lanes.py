"""What every simulator looks like from above."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Protocol

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field

Ids = NDArray[np.int32]


class EnvConfig(BaseModel):
    """Which environment, and who simulates it."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    id: str = Field(description="A Gymnasium id, package.module:EnvId or package.module:EnvClass")
    backend: Literal["auto", "gymnasium", "envpool", "mujoco"] = Field("auto", description="auto takes the fastest that has the id")
    kwargs: dict[str, Any] = Field(default_factory=dict, description="Passed to the environment")
    islands: bool = Field(
        True,
        description="mujoco: false skips the search for constraint islands: some 7 % faster, but a robot that lies still may differ from "
        "Gymnasium's by 1e-12",
    )
    max_episode_steps: int | None = Field(None, gt=0, description="Overrides the environment's own time limit")


@dataclass(frozen=True, slots=True)
class World:
    """What a policy and a rollout need to know of an environment."""

    obs_size: int  # after flattening
    obs_space: gym.Space[Any]
    action_space: gym.Space[Any]
    max_episode_steps: int | None
    backend: str


class Steps(NamedTuple):
    """One step of k lanes. A finished lane shows its last observation, never that of a reset."""

    obs: NDArray[Any]  # [k, obs_size]
    reward: NDArray[Any]  # [k]
    terminated: NDArray[np.bool_]  # [k]
    truncated: NDArray[np.bool_]  # [k]; only by the environment itself: the rollout keeps the time limit


class Lanes(Protocol):
    """Copies of one environment. Episode k of a lane is a pure function of (the lane's seed, k, the actions).

    Equal seeds give equal starts in any two lanes: that is how the members of a pair meet the same world.
    """

    width: int
    failures: dict[int, str]  # lane -> why it broke, until someone takes it out

    def open(self, seeds: NDArray[np.int64], skip: int) -> None:
        """Give each lane its seed [width]; the next reset of each is its episode number `skip`."""

    def reset(self, ids: Ids) -> NDArray[Any]:
        """Begin the next episode on these lanes: observations [k, obs_size]."""

    def step(self, actions: NDArray[Any], ids: Ids) -> Steps:
        """Act on these lanes."""

    def close(self) -> None:
        """Free the simulators."""
