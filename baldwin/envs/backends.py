"""Which backend serves an environment, and a check of it before a run starts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import gymnasium as gym
import numpy as np

from baldwin.envs import gymnasium
from baldwin.envs.match_env import Choose
from baldwin.envs.sampling import random_action
from baldwin.envs.separate import SeparateEnvs
from baldwin.envs.vector_env import AUTO, BACKENDS, EnvConfig, EnvSpec, OtherPlayers, VectorEnv
from baldwin.errors import EnvironmentFailure, nearest
from baldwin.observations import Observation


def choose_backend(config: EnvConfig) -> str:
    """The backend that `auto` stands for: of those that serve the environment, the one with the highest priority."""
    if config.backend != AUTO:
        return config.backend
    if config.previous_action:
        return "gymnasium"  # a wrapper adds the sensor
    by_priority = sorted(BACKENDS, key=lambda name: -BACKENDS[name].priority)
    return next(name for name in by_priority if BACKENDS[name].serves(config))  # asking EnvPool imports it, which takes a second


def describe(config: EnvConfig) -> EnvSpec:
    """What a policy and a rollout need to know of the environment.

    Raises:
        EnvironmentFailure: it cannot be used, or `reward_weights` names a component that it does not give.
    """
    backend = BACKENDS.find(choose_backend(config))
    env_spec = backend.describe(config)
    key = "self_play" if config.self_play else "players"
    if (config.self_play or config.players) and (backend.make_self_play is None or env_spec.players < 2):
        raise EnvironmentFailure(f"env.{key}: environment {config.id!r} has one player: there is nobody to play with")
    for name in config.reward_weights:
        if name not in env_spec.rewards:
            there = f"it gives {', '.join(env_spec.rewards)}" if env_spec.rewards else "it gives one number"
            raise EnvironmentFailure(
                f"env.reward_weights: environment {config.id!r} has no reward component {name!r}; {there}.{nearest(name, env_spec.rewards)}"
            )
    return env_spec


def make_vector_env(config: EnvConfig, env_spec: EnvSpec, width: int) -> VectorEnv:
    """Copies of the environment, by the backend that it was described with."""
    return BACKENDS.find(env_spec.backend).make(config, env_spec, width)


def make_players_env(config: EnvConfig, env_spec: EnvSpec, width: int, others: Sequence[OtherPlayers] = ()) -> VectorEnv:
    """The players of matches that the policy plays, side by side: copies m * P to m * P + P - 1 are those of match m.

    Raises:
        EnvironmentFailure: it is no world of several players.
    """
    make = BACKENDS.find(env_spec.backend).make_self_play
    if make is None:
        raise EnvironmentFailure(f"environment {config.id!r} has one player: there is nobody to play with")
    return make(config, env_spec, width, others)


def make_resumable_env(
    config: EnvConfig, env_spec: EnvSpec, width: int, opponents: bool = False, others: Sequence[OtherPlayers] = ()
) -> VectorEnv:
    """Copies of which every single episode is a pure function of (seed, number, actions), whatever the other copies do.

    `opponents`: members of a pool play the other players; `others`: frozen policies do.
    """
    backend = BACKENDS.find(env_spec.backend)
    if opponents and backend.make_with_opponents:
        return backend.make_with_opponents(config, env_spec, width)
    if config.self_play or config.players:
        return make_players_env(config, env_spec, width, others)
    if backend.independent_episodes(config):
        return make_vector_env(config, env_spec, width)
    return SeparateEnvs([make_vector_env(config, env_spec, 1) for _ in range(width)])


def make_render_env(config: EnvConfig, opponents: Mapping[str, Choose] | None = None) -> gym.Env[Any, Any]:
    """One Gymnasium environment that renders RGB arrays, through a camera that follows the robot where the model has one.

    `opponents`: who plays other players of a match, by name.
    """
    try:
        env = gymnasium.make_env(config, render_mode="rgb_array", **({"opponents": opponents} if opponents else {}))
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
