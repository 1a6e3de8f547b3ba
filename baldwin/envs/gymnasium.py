"""The universal backend: any Gymnasium environment, one object per copy, all in this process."""

from __future__ import annotations

import copy
import logging
from collections.abc import Callable, Iterator
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from baldwin.envs.vector_env import BACKENDS, Backend, EnvConfig, EnvSpec, Ids, StepResult
from baldwin.errors import EnvironmentFailure, clean_text, describe_exception, missing_extra, nearest
from baldwin.imports import find_class, import_module
from baldwin.ops.seeds import mix

log = logging.getLogger("baldwin")
OLD_API = (
    "That is the interface of Gym before 0.26: wrap the environment in shimmy.GymV21CompatibilityV0(env=...) (pip install 'shimmy[gym-v21]'), "
    "or return Gymnasium's values"
)
EXTRA_OF_MODULE = {"mujoco": "mujoco", "pygame": "classic", "ale_py": "atari", "Box2D": "box2d"}


def maker(config: EnvConfig) -> tuple[Callable[..., gym.Env[Any, Any]], int | None]:
    """How to make one environment without wrappers that only cost time, and its own time limit.

    Raises:
        EnvironmentFailure: nothing of that name can be found.
    """
    module_name, _, name = config.id.rpartition(":")
    if module_name:
        where = f"env.id {config.id!r}"
        module = import_module(module_name, where, EnvironmentFailure)
        if name not in gym.registry:
            env_class: Callable[..., gym.Env[Any, Any]] = find_class(module, name, gym.Env, where, EnvironmentFailure)
            return lambda **kw: env_class(**{**config.kwargs, **kw}), config.max_episode_steps
    try:
        spec = copy.deepcopy(gym.spec(name))
    except gym.error.Error as error:
        raise EnvironmentFailure(
            f"no environment {clean_text(name, 100)!r} is registered with Gymnasium.{nearest(name, gym.registry)} (baldwin list envs)"
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
        reason = describe_exception(error)
        raise EnvironmentFailure(f"environment {config.id!r} needs a package that is not installed: {reason}") from error
    except Exception as error:
        reason = describe_exception(error)
        raise EnvironmentFailure(f"environment {config.id!r} could not be made: {reason}. Check env.kwargs.") from error


def describe(config: EnvConfig) -> EnvSpec:
    """The spaces and the time limit of an environment.

    Raises:
        EnvironmentFailure: it cannot be made, lacks a space, or has one that no policy can take.
    """
    _, limit = maker(config)
    env = make_env(config)
    try:
        obs_space, action_space = (_space(env, name, config) for name in ("observation_space", "action_space"))
        return EnvSpec(flat_size(obs_space, config), obs_space, action_space, limit, "gymnasium")
    finally:
        close_quietly(env)


def _space(env: gym.Env[Any, Any], name: str, config: EnvConfig) -> gym.Space[Any]:
    space = getattr(env, name, None)
    if not isinstance(space, gym.Space):
        raise EnvironmentFailure(
            f"environment {config.id!r} has no {name}: expected a gymnasium.Space, set in __init__; got {type(space).__name__}"
        )
    return space


def flat_size(space: gym.Space[Any], config: EnvConfig) -> int:
    """How many numbers an observation has.

    Raises:
        EnvironmentFailure: none, or it is not made of numbers; names the part.
    """
    for path, part in _leaves(space, "observation_space"):
        if not isinstance(part, spaces.Box | spaces.Discrete | spaces.MultiDiscrete | spaces.MultiBinary):
            raise EnvironmentFailure(
                f"environment {config.id!r}: {path} is {clean_text(str(part), 200)}, which no policy can take. Expected numbers: Box, "
                f"Discrete, MultiDiscrete, MultiBinary, or a Dict or Tuple of them. Wrap the environment"
            )
    size = int(np.prod(spaces.flatten_space(space).shape or ()))
    if not size:
        raise EnvironmentFailure(f"environment {config.id!r}: observation_space {space} has no numbers: expected at least one")
    return size


def _leaves(space: gym.Space[Any], path: str) -> Iterator[tuple[str, gym.Space[Any]]]:
    """The parts of nested spaces, with where they are."""
    if isinstance(space, spaces.Dict):
        for name, part in space.spaces.items():
            yield from _leaves(part, f"{path}[{name!r}]")
    elif isinstance(space, spaces.Tuple):
        for number, part in enumerate(space.spaces):
            yield from _leaves(part, f"{path}[{number}]")
    else:
        yield path, space


def close_quietly(env: gym.Env[Any, Any]) -> None:
    """Close an environment; one that cannot be closed is reported and left: everything that was asked of it is done."""
    try:
        env.close()
    except Exception as error:
        log.warning("an environment failed in close(): %s", describe_exception(error))


def check_reset(result: Any) -> Any:
    """The observation that reset() returned.

    Raises:
        ValueError: the result is not Gymnasium's (obs, info).
    """
    if isinstance(result, tuple | list) and len(result) == 2 and isinstance(result[1], dict | None):
        return result[0]
    raise ValueError(f"expected reset() to return (obs, info); got {_kind(result)}. {OLD_API}")


def check_step(result: Any) -> tuple[Any, Any, Any, Any, Any]:
    """What step() returned.

    Raises:
        ValueError: the result is not Gymnasium's (obs, reward, terminated, truncated, info).
    """
    if isinstance(result, tuple | list) and len(result) == 5:
        return tuple(result)
    raise ValueError(f"expected step() to return (obs, reward, terminated, truncated, info); got {_kind(result)}. {OLD_API}")


def _kind(result: Any) -> str:
    return f"a tuple of {len(result)}" if isinstance(result, tuple) else type(result).__name__


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
                self._write_obs(obs, row, check_reset(self._env(index).reset(seed=seed)))
            except (Exception, SystemExit) as error:
                self._discard(index, "reset", error)
        return obs

    def step(self, actions: NDArray[Any], ids: Ids) -> StepResult:
        k = len(ids)
        obs = np.empty((k, *self._shape))
        reward, terminated, truncated = np.zeros(k), np.zeros(k, np.bool_), np.zeros(k, np.bool_)
        envs = self._envs
        for row, index in enumerate(ids.tolist()):
            try:
                seen, reward[row], terminated[row], truncated[row], _ = check_step(envs[index].step(actions[row]))
                self._write_obs(obs, row, seen)
            except (Exception, SystemExit) as error:
                obs[row], terminated[row] = np.nan, True
                self._discard(index, "step", error)
        return StepResult(obs, reward, terminated, truncated)

    def close(self) -> None:
        for env in self._envs:
            if env is not None:
                close_quietly(env)
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

    def _discard(self, index: int, verb: str, error: BaseException) -> None:
        """Drop an environment that failed; its next episode gets a new one."""
        self.failures.setdefault(index, f"environment {self._config.id!r} failed in {verb}(): {describe_exception(error)}")
        self._envs[index] = None


def shape_message(expected: tuple[int, ...], got: tuple[int, ...]) -> str:
    """The error for an observation that its space forbids."""
    return f"expected an observation of shape {expected}, as observation_space says; got {got}. Make the two agree in the environment."


BACKENDS.add("gymnasium", Backend(describe, GymnasiumVectorEnv, priority=0, serves=lambda config: True))
