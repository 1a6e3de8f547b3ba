"""The universal backend: any Gymnasium environment, one object per copy, all in this process."""

from __future__ import annotations

import copy
import importlib
from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from baldwin.envs.vector_env import BACKENDS, Backend, EnvConfig, EnvSpec, Ids, StepResult
from baldwin.errors import EnvironmentFailure, missing_extra, nearest
from baldwin.ops.seeds import mix

EXTRA_OF_MODULE = {"mujoco": "mujoco", "pygame": "classic", "ale_py": "atari", "Box2D": "box2d"}


def maker(config: EnvConfig) -> tuple[Callable[..., gym.Env[Any, Any]], int | None]:
    """How to make one environment without wrappers that only cost time, and its own time limit.

    Raises:
        EnvironmentFailure: nothing of that name can be found.
    """
    module_name, _, name = config.id.rpartition(":")
    if module_name:
        try:
            module = importlib.import_module(module_name)
        except Exception as error:
            raise EnvironmentFailure(
                f"env.id {config.id!r}: cannot import {module_name!r} ({type(error).__name__}: {error}). Expected package.module:EnvClass or package.module:EnvId; "
                "run from the folder that holds the package, or install it."
            ) from error
        if name not in gym.registry:
            entry = getattr(module, name, None)
            if not callable(entry):
                known = [n for n in vars(module) if isinstance(getattr(module, n), type)]
                raise EnvironmentFailure(
                    f"env.id {config.id!r}: {module_name!r} has no class {name!r} and registers no such id.{nearest(name, known)}"
                )
            return lambda **kw: entry(**config.kwargs, **kw), config.max_episode_steps
    try:
        spec = copy.deepcopy(gym.spec(name))
    except gym.error.Error as error:
        raise EnvironmentFailure(
            f"no environment {name!r} is registered with Gymnasium.{nearest(name, gym.registry)} (baldwin list envs)"
        ) from error
    limit = config.max_episode_steps or spec.max_episode_steps
    spec.order_enforce = False
    return lambda **kw: gym.make(spec, max_episode_steps=-1, disable_env_checker=True, **{**config.kwargs, **kw}), limit


def make_env(config: EnvConfig, **kwargs: Any) -> gym.Env[Any, Any]:
    """One environment.

    Raises:
        MissingExtra: its simulator is not installed.
        EnvironmentFailure: it cannot be made.
    """
    make, _ = maker(config)
    try:
        return make(**kwargs)
    except (gym.error.DependencyNotInstalled, ModuleNotFoundError) as error:
        text = f"{error} {error.__cause__}"
        for module, extra in EXTRA_OF_MODULE.items():
            if module.lower() in text.lower():
                raise missing_extra(extra, f"environment {config.id!r}") from error
        raise EnvironmentFailure(f"environment {config.id!r} needs a package that is not installed: {error}") from error
    except Exception as error:
        raise EnvironmentFailure(
            f"environment {config.id!r} could not be made: {type(error).__name__}: {error}. Check env.kwargs."
        ) from error


def describe(config: EnvConfig) -> EnvSpec:
    """The spaces and the time limit of an environment."""
    _, limit = maker(config)
    env = make_env(config)
    try:
        return EnvSpec(flat_size(env.observation_space, config), env.observation_space, env.action_space, limit, "gymnasium")
    finally:
        env.close()


def flat_size(space: gym.Space[Any], config: EnvConfig) -> int:
    """How many numbers an observation has."""
    try:
        return int(np.prod(spaces.flatten_space(space).shape or ()))
    except (NotImplementedError, TypeError) as error:
        raise EnvironmentFailure(f"environment {config.id!r} has an observation space that cannot be flattened: {space}") from error


class GymnasiumVectorEnv:
    """One environment object per copy, made when first used; every episode has a seed of its own."""

    def __init__(self, config: EnvConfig, env_spec: EnvSpec, width: int) -> None:
        self.width = width
        self.failures: dict[int, str] = {}
        self._config, self._env_spec = config, env_spec
        self._envs: list[gym.Env[Any, Any] | None] = [None] * width
        self._seeds = np.zeros(width, np.int64)
        self._episode = np.zeros(width, np.int64)
        space = env_spec.obs_space
        self._flatten: Callable[[Any], Any] = (
            (lambda o: o) if isinstance(space, spaces.Box) and len(space.shape) == 1 else (lambda o: spaces.flatten(space, o))
        )
        self._shape = (env_spec.obs_size,)

    def open(self, seeds: NDArray[np.int64], first_episode: int) -> None:
        self._seeds[:] = seeds
        self._episode[:] = first_episode
        self.failures.clear()

    def reset(self, ids: Ids) -> NDArray[Any]:
        obs = np.full((len(ids), *self._shape), np.nan)
        for row, index in enumerate(ids.tolist()):
            seed = mix(int(self._seeds[index]), int(self._episode[index]))
            self._episode[index] += 1
            try:
                self._write_obs(obs, row, self._env(index).reset(seed=seed)[0])
            except Exception as error:
                self._discard(index, "reset", error)
        return obs

    def step(self, actions: NDArray[Any], ids: Ids) -> StepResult:
        k = len(ids)
        obs = np.empty((k, *self._shape))
        reward, terminated, truncated = np.zeros(k), np.zeros(k, np.bool_), np.zeros(k, np.bool_)
        envs = self._envs
        for row, index in enumerate(ids.tolist()):
            try:
                seen, reward[row], terminated[row], truncated[row], _ = envs[index].step(actions[row])
                self._write_obs(obs, row, seen)
            except Exception as error:
                obs[row], terminated[row] = np.nan, True
                self._discard(index, "step", error)
        return StepResult(obs, reward, terminated, truncated)

    def close(self) -> None:
        for env in self._envs:
            if env is not None:
                env.close()
        self._envs = [None] * self.width

    def _env(self, index: int) -> gym.Env[Any, Any]:
        env = self._envs[index]
        if env is None:
            env = self._envs[index] = make_env(self._config)
        return env

    def _write_obs(self, obs: NDArray[Any], row: int, seen: Any) -> None:
        seen = self._flatten(seen)
        if np.shape(seen) != self._shape:
            raise ValueError(shape_message(self._shape, np.shape(seen)))
        obs[row] = seen

    def _discard(self, index: int, verb: str, error: Exception) -> None:
        """Drop an environment that failed; its next episode gets a new one."""
        self.failures.setdefault(index, f"environment {self._config.id!r} failed in {verb}(): {type(error).__name__}: {error}")
        self._envs[index] = None


def shape_message(expected: tuple[int, ...], got: tuple[int, ...]) -> str:
    """The error for an observation that its space forbids."""
    return f"expected an observation of shape {expected}, as observation_space says; got {got}. Make the two agree in the environment."


BACKENDS.add("gymnasium", Backend(describe, GymnasiumVectorEnv, priority=0, serves=lambda config: True))
