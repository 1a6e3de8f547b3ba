from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from baldwin.envs import EnvConfig, EnvSpec
from baldwin.errors import EnvironmentFailure
from baldwin.observations import vector_spec
from baldwin.rollout.fingerprint import digest, env_fingerprint
from baldwin.types import CENTER, Shared
from tests.rollout.test_episodes import worker_for

HELD = [(CENTER, 0)]


class Careless(gym.Env[Any, Any]):
    """Does not look at its seed."""

    observation_space = gym.spaces.Box(-1, 1, (2,), np.float64)
    action_space = gym.spaces.Discrete(2)

    def reset(self, **kwargs: Any) -> tuple[Any, dict[str, Any]]:
        return np.random.default_rng().uniform(-1, 1, 2), {}


class Missing(Careless):
    """Cannot begin."""

    def reset(self, **kwargs: Any) -> tuple[Any, dict[str, Any]]:
        raise OSError("no such level file")


def env_spec(kind: type[Careless]) -> tuple[EnvConfig, EnvSpec]:
    config = EnvConfig(id=f"{__name__}:{kind.__name__}")
    return config, EnvSpec(vector_spec(2), kind.action_space, None, "gymnasium")


def test_two_workers_with_the_same_of_everything_have_the_same_fingerprint() -> None:
    first, second = (worker_for(EnvConfig(id="Hopper-v5"))[0] for _ in range(2))
    assert first.fingerprint(HELD) == second.fingerprint(HELD)
    assert {"torch", "mujoco", "arithmetic", "environment", "center/0"} <= set(first.fingerprint(HELD))


def test_the_fingerprint_knows_what_lies_in_memory_now() -> None:
    worker, _, center, moments = worker_for(EnvConfig(id="Hopper-v5"))
    before = worker.fingerprint(HELD)
    worker.shared(CENTER, 0)["params"][3] += 1e-6
    rotten = worker.fingerprint(HELD)
    assert [k for k in before if before[k] != rotten[k]] == ["center/0"]
    worker.receive(Shared(CENTER, 0, {"params": center, "obs_moments": moments.pack()}, 0))
    assert worker.fingerprint(HELD) == before


def test_an_environment_that_cannot_begin_here_is_an_error() -> None:
    with pytest.raises(EnvironmentFailure, match="no such level file"):
        env_fingerprint(*env_spec(Missing))


def test_an_environment_that_ignores_its_seed_is_no_reason_to_refuse() -> None:
    assert env_fingerprint(*env_spec(Careless)) == env_fingerprint(*env_spec(Careless)) == "varies"


def test_digest_is_over_bytes() -> None:
    assert digest(np.zeros(3)) == digest(np.zeros(3)) != digest(np.zeros(3, np.float32))
    assert digest(np.arange(6).reshape(2, 3).T) == digest(np.array([[0, 3], [1, 4], [2, 5]]))
