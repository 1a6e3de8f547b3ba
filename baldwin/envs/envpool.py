"""EnvPool: many environments in one C++ object, on one thread; the process executor brings the cores."""

from __future__ import annotations

import contextlib
import importlib.util
import warnings
from functools import cache
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from baldwin.envs.atari import ATARI_PREFIX, envpool_id, envpool_kwargs
from baldwin.envs.gymnasium import describe_space
from baldwin.envs.vector_env import BACKENDS, Backend, EnvConfig, EnvSpec, Ids, StepResult
from baldwin.errors import EnvironmentFailure, missing_extra, nearest
from baldwin.observations import VECTOR, Observation
from baldwin.ops.seeds import mix

# EnvPool declares the bounds of float32 spaces in float64, and Gymnasium says so for each pool that is made.
warnings.filterwarnings("ignore", message=".*precision lowered by casting to float32.*")


RESETS_ONLY = frozenset({"envpool.mujoco.gym", "envpool.classic_control"})
"""Families in which random numbers decide the start of an episode and nothing after it.

Then the k-th start of an environment does not depend on what was played before, and a pool, which takes 1-2 ms per environment to make,
can be kept from job to job and fast-forwarded by resets. In the other families equal seeds give equal starts only in the first episode.
"""
GYMNASIUM_FAMILIES = ("gymnasium.envs.mujoco", "gymnasium.envs.classic_control")
"""The same families by their modules in Gymnasium."""


@cache
def ids() -> dict[str, str]:
    """All ids EnvPool has here, and their families; none if it is not installed."""
    if importlib.util.find_spec("envpool") is None:
        return {}
    from envpool.registration import registry

    return {name: str(spec[0]) for name, spec in registry.specs.items()}


def make_pool(config: EnvConfig, env_seeds: NDArray[np.int64]) -> Any:
    """A pool with one seed per environment.

    Raises:
        MissingExtra: EnvPool is not installed.
        EnvironmentFailure: it does not have the id or refuses an argument.
    """
    if importlib.util.find_spec("envpool") is None:
        raise missing_extra("envpool", "backend 'envpool'")
    if envpool_id(config.id) not in ids():
        raise EnvironmentFailure(f"EnvPool has no environment {config.id!r}.{nearest(config.id, ids())} Use env.backend=gymnasium or auto.")
    import envpool

    limit = {"max_episode_steps": config.max_episode_steps} if config.max_episode_steps else {}
    pool = {"env_type": "gymnasium", "num_envs": len(env_seeds), "num_threads": 1, "env_seed": env_seeds.tolist()}
    try:
        game = envpool_kwargs(config.atari) if config.atari else {}
        return envpool.make(envpool_id(config.id), **pool, **limit, **game, **config.kwargs)
    except Exception as error:
        raise EnvironmentFailure(
            f"EnvPool could not make {config.id!r}: {type(error).__name__}: {error}. Check env.kwargs, or use env.backend=gymnasium."
        ) from error


def describe(config: EnvConfig) -> EnvSpec:
    """The spaces and the time limit of a pool's environments."""
    pool = make_pool(config, np.zeros(1, np.int64))
    limit = getattr(pool.spec.config, "max_episode_steps", None)
    return EnvSpec(describe_space(pool.observation_space, pool.action_space, config), pool.action_space, limit, "envpool")


class EnvPoolVectorEnv:
    """A pool that counts the resets of its environments. Seeds are fixed when a pool is made, so new seeds mean a new pool."""

    def __init__(self, config: EnvConfig, env_spec: EnvSpec, width: int) -> None:
        self.width = width
        self.failures: dict[int, str] = {}
        self._config = config
        self._pool: Any = None
        self._carry = resets_only(config)
        self._seeds = np.full(width, -1, np.int64)
        self._episode = np.zeros(width, np.int64)
        self._spec = env_spec.obs
        self._box = isinstance(env_spec.obs.space, spaces.Box)

    def open(self, seeds: NDArray[np.int64], first_episode: int | NDArray[np.int64]) -> None:
        first = np.broadcast_to(first_episode, seeds.shape)
        keep = self._carry and np.array_equal(seeds, self._seeds) and bool((self._episode <= first).all())
        if not keep:
            self.close()
            # Where episodes are not independent of each other, a job begins at seeds of its own.
            own = seeds if self._carry else np.array([mix(int(s), int(n)) for s, n in zip(seeds, first, strict=True)])
            self._pool = make_pool(self._config, own)
            self._seeds[:] = seeds
            self._episode[:] = 0 if self._carry else first
        while (behind := np.flatnonzero(self._episode < first).astype(np.int32)).size:
            self.reset(behind)

    def reset(self, ids: Ids) -> Observation:
        self._episode[ids] += 1
        obs, _ = self._pool.reset(ids)
        return self._read(obs)

    def step(self, actions: NDArray[Any], ids: Ids) -> StepResult:
        obs, reward, terminated, truncated, _ = self._pool.step(actions, ids)
        return StepResult(self._read(obs), reward, terminated, truncated)

    def close(self) -> None:
        if self._pool is not None:
            with contextlib.suppress(AttributeError):
                self._pool.close()
            self._pool = None
        self._seeds[:] = -1

    def _read(self, obs: Any) -> Observation:
        """A pool's observations, whose arrays already have all environments side by side."""
        if self._box:
            (sensor,) = self._spec.sensors
            if not sensor.is_image:
                return {VECTOR: np.asarray(obs).reshape(len(obs), -1)}
            if not sensor.channels_last and obs.ndim == 4:
                return {sensor.key: np.asarray(obs)}
        rows = obs if not isinstance(obs, dict) else [dict(zip(obs, row, strict=True)) for row in zip(*obs.values(), strict=True)]
        found = self._spec.empty(len(rows))
        for n, row in enumerate(rows):
            self._spec.write(found, n, row)
        return found


def serves(config: EnvConfig) -> bool:
    """Whether `auto` may take this backend: where it can seed every episode, or where nobody else has the id."""
    if config.id.startswith(ATARI_PREFIX):
        return False  # ALE seeds every episode, and is as fast on one thread
    known = gym.registry.get(config.id)
    if ":" in config.id or (known and not str(known.entry_point).startswith(GYMNASIUM_FAMILIES)):
        return False  # told without asking EnvPool, which takes a second to import
    family = ids().get(envpool_id(config.id))
    return family in RESETS_ONLY or bool(family and not known)


def resets_only(config: EnvConfig) -> bool:
    """Whether random numbers decide the start of an episode and nothing after it."""
    return ids().get(envpool_id(config.id)) in RESETS_ONLY


BACKENDS.add(
    "envpool",
    Backend(describe, EnvPoolVectorEnv, priority=1, serves=serves, list_ids=lambda: list(ids()), independent_episodes=resets_only),
)
