"""Which backend serves an environment, and a check of it before a run starts."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from baldwin.envs import gymnasium
from baldwin.envs.vector_env import AUTO, BACKENDS, EnvConfig, EnvSpec, VectorEnv
from baldwin.errors import EnvironmentFailure
from baldwin.observations import ACTION_MASK, Observation


def choose_backend(config: EnvConfig) -> str:
    """The backend that `auto` stands for: of those that serve the environment, the one with the highest priority."""
    if config.backend != AUTO:
        return config.backend
    by_priority = sorted(BACKENDS, key=lambda name: -BACKENDS[name].priority)
    return next(name for name in by_priority if BACKENDS[name].serves(config))  # asking EnvPool imports it, which takes a second


def describe(config: EnvConfig) -> EnvSpec:
    """What a policy and a rollout need to know of the environment."""
    return BACKENDS.find(choose_backend(config)).describe(config)


def make_vector_env(config: EnvConfig, env_spec: EnvSpec, width: int) -> VectorEnv:
    """Copies of the environment, by the backend that it was described with."""
    return BACKENDS.find(env_spec.backend).make(config, env_spec, width)


def make_render_env(config: EnvConfig) -> gym.Env[Any, Any]:
    """One Gymnasium environment that renders RGB arrays, through a camera that follows the robot where the model has one."""
    try:
        env = gymnasium.make_env(config, render_mode="rgb_array")
    except EnvironmentFailure as error:
        if "render_mode" not in str(error):
            raise
        raise EnvironmentFailure(f"the environment cannot draw: expected it to take render_mode='rgb_array'; {error}") from error
    renderer = getattr(env.unwrapped, "mujoco_renderer", None)
    if renderer is not None and not {"camera_id", "camera_name"} & set(config.kwargs):
        from mujoco import mj_name2id, mjtObj

        renderer.camera_id = mj_name2id(renderer.model, mjtObj.mjOBJ_CAMERA, "track")  # -1, a free camera, if there is none
    return env


def check_env(config: EnvConfig) -> EnvSpec:
    """Describe the environment and take one step in it, so that what cannot work is reported before a run starts.

    Raises:
        EnvironmentFailure: it raises, or returns what its spaces forbid.
    """
    env_spec = describe(config)
    env = make_vector_env(config, env_spec, 1)
    first = np.zeros(1, np.int32)
    env.open(np.zeros(1, np.int64), 0)
    try:
        obs = env.reset(first)
        _raise_if_broken(env, obs, config)
        env_spec.action_space.seed(0)
        _raise_if_broken(env, env.step(random_action(env_spec, obs), first).obs, config)
    finally:
        env.close()
    return env_spec


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


def _raise_if_broken(env: VectorEnv, obs: Observation, config: EnvConfig) -> None:
    if env.failures:
        raise EnvironmentFailure(next(iter(env.failures.values())))
    for sensor, array in obs.items():
        if not np.isfinite(array).all():
            raise EnvironmentFailure(
                f"environment {config.id!r} returned an observation that is not finite: {sensor} is {array[0]}. Expected finite numbers."
            )


def list_envs() -> list[tuple[str, str]]:
    """(id, backend that would serve it), by name."""
    names = {*gym.registry, *(name for backend in BACKENDS.values() for name in backend.list_ids())}
    return [(name, choose_backend(EnvConfig(id=name))) for name in sorted(names)]
