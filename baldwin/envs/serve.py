"""Which backend serves an environment, and a first look at it before a run starts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np

from baldwin.envs import envpool, gymnasium, mujoco
from baldwin.envs.lanes import EnvConfig, Lanes, World
from baldwin.errors import EnvironmentFailure

_BACKENDS: dict[str, tuple[Callable[[EnvConfig], World], Callable[[EnvConfig, World, int], Lanes]]] = {
    "gymnasium": (gymnasium.describe, gymnasium.GymnasiumLanes),
    "envpool": (envpool.describe, envpool.EnvPoolLanes),
    "mujoco": (mujoco.describe, mujoco.MujocoLanes),
}


def choose_backend(config: EnvConfig) -> str:
    """The backend that `auto` stands for: mujoco for the robots it knows, EnvPool where it can seed every episode, else Gymnasium."""
    if config.backend != "auto":
        return config.backend
    if mujoco.available(config):
        return "mujoco"
    family = envpool.ids().get(config.id)
    return "envpool" if family in envpool.RESETS_ONLY or (family and config.id not in gym.registry) else "gymnasium"


def describe(config: EnvConfig) -> World:
    """What a policy and a rollout need to know of the environment."""
    return _BACKENDS[choose_backend(config)][0](config)


def make_lanes(config: EnvConfig, world: World, width: int) -> Lanes:
    """Copies of the environment, by the backend that the world was described with."""
    return _BACKENDS[world.backend][1](config, world, width)


def make_filmed(config: EnvConfig) -> gym.Env[Any, Any]:
    """One Gymnasium environment that draws pictures; where the model has a camera that follows the robot, through that one."""
    env = gymnasium.make_env(config, render_mode="rgb_array")
    renderer = getattr(env.unwrapped, "mujoco_renderer", None)
    if renderer is not None and not {"camera_id", "camera_name"} & set(config.kwargs):
        from mujoco import mj_name2id, mjtObj

        renderer.camera_id = mj_name2id(renderer.model, mjtObj.mjOBJ_CAMERA, "track")  # -1, a free camera, if there is none
    return env


def probe(config: EnvConfig) -> World:
    """Describe the environment and play one step of it, so that what cannot work is said before a run starts.

    Raises:
        EnvironmentFailure: it raises, or returns what its spaces forbid.
    """
    world = describe(config)
    lanes = make_lanes(config, world, 1)
    lane = np.zeros(1, np.int32)
    lanes.open(np.zeros(1, np.int64), 0)
    try:
        obs = lanes.reset(lane)
        _raise(lanes, obs, config)
        world.action_space.seed(0)
        obs = lanes.step(np.stack([world.action_space.sample()]), lane).obs
        _raise(lanes, obs, config)
    finally:
        lanes.close()
    return world


def _raise(lanes: Lanes, obs: Any, config: EnvConfig) -> None:
    if lanes.failures:
        raise EnvironmentFailure(next(iter(lanes.failures.values())))
    if not np.isfinite(obs).all():
        raise EnvironmentFailure(
            f"environment {config.id!r} returned an observation that is not finite: {obs[0]}. Expected finite numbers."
        )


def list_envs() -> list[tuple[str, str]]:
    """(id, backend that would serve it), by name."""
    return [(name, choose_backend(EnvConfig(id=name))) for name in sorted({*gym.registry, *envpool.ids()})]
