"""CartPole, Pendulum and MountainCar in NumPy: Gymnasium's episodes, whoever is stepped beside them."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest

from baldwin.envs import EnvConfig, check_env, choose_backend, make_vector_env
from baldwin.errors import EnvironmentFailure

TASKS = ["CartPole-v1", "Pendulum-v1", "MountainCar-v0"]
SEEDS = np.arange(8, dtype=np.int64) * 7


def envs_of(name: str, backend: str, width: int):  # type: ignore[no-untyped-def]
    config = EnvConfig(id=name, backend=backend)
    env_spec = check_env(config)
    envs = make_vector_env(config, env_spec, width)
    envs.open(SEEDS[:width], 2)
    return envs, env_spec


def actions_of(name: str, steps: int, width: int) -> np.ndarray:
    rng = np.random.default_rng(5)
    if name == "Pendulum-v1":
        return rng.uniform(-2.5, 2.5, (steps, width, 1)).astype(np.float32)
    return rng.integers(0, 2 if name == "CartPole-v1" else 3, (steps, width))


@pytest.mark.parametrize("name", TASKS)
def test_an_episode_is_gymnasiums(name: str) -> None:
    (plain, _), (own, env_spec) = envs_of(name, "gymnasium", 8), envs_of(name, "auto", 8)
    assert env_spec.backend == "classic-control"
    everyone = np.arange(8, dtype=np.int32)
    np.testing.assert_array_equal(own.reset(everyone)["vector"], plain.reset(everyone)["vector"])
    ids = everyone
    for number, actions in enumerate(actions_of(name, 300, 8)):
        if number % 3 == 1:
            ids = everyone[2:5]
        expected, found = plain.step(actions[ids], ids), own.step(actions[ids], ids)
        np.testing.assert_allclose(found.obs["vector"], expected.obs["vector"], rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(found.reward, expected.reward, rtol=1e-6)
        np.testing.assert_array_equal(found.terminated, expected.terminated)
        assert not found.truncated.any()
        over = ids[expected.terminated]
        if len(over):
            np.testing.assert_array_equal(own.reset(over)["vector"], plain.reset(over)["vector"])
        ids = everyone


@pytest.mark.parametrize("name", TASKS)
def test_bits_do_not_depend_on_who_is_stepped_beside(name: str) -> None:
    actions = actions_of(name, 100, 8)
    together, _ = envs_of(name, "classic-control", 8)
    everyone = np.arange(8, dtype=np.int32)
    together.reset(everyone)
    states = [together.step(own, everyone) for own in actions]
    for width in (1, 3, 8):
        envs, _ = envs_of(name, "classic-control", width)
        envs.reset(np.arange(width, dtype=np.int32))
        for step, expected in zip(actions, states, strict=True):
            for ids in (everyone[: width // 2], everyone[width // 2 : width]):
                if len(ids):
                    found = envs.step(step[ids], ids)
                    assert found.obs["vector"].tobytes() == expected.obs["vector"][ids].tobytes()
                    assert found.reward.tobytes() == expected.reward[ids].tobytes()


def test_a_car_reaches_the_goal_and_stops_at_the_wall() -> None:
    envs, _ = envs_of("MountainCar-v0", "classic-control", 1)
    first = np.zeros(1, np.int32)
    position, speed = envs.reset(first)["vector"][0]
    lowest = position
    for _ in range(200):  # with the slope, then with the engine: the way out of the valley
        result = envs.step(np.array([2 if speed >= 0 else 0]), first)
        position, speed = result.obs["vector"][0]
        lowest = min(lowest, position)
        if result.terminated[0]:
            break
    assert position >= 0.5
    assert lowest >= -1.2


@pytest.mark.parametrize("config", [{"kwargs": {"g": 5.0}}, {"backend": "gymnasium"}, {"previous_action": True}])
def test_other_settings_are_left_to_other_backends(config: dict[str, object]) -> None:
    assert choose_backend(EnvConfig(id="Pendulum-v1", **config)) != "classic-control"  # type: ignore[arg-type]


def test_an_id_of_somebody_elses_class_is_left_to_gymnasium() -> None:
    theirs = gym.registry["CartPole-v1"]
    gym.register("CartPole-v1", "tests.toys.worlds:Chase")
    try:
        assert choose_backend(EnvConfig(id="CartPole-v1")) == "gymnasium"
    finally:
        gym.registry["CartPole-v1"] = theirs


def test_what_it_does_not_know_is_refused() -> None:
    with pytest.raises(EnvironmentFailure, match=r"does not serve 'Acrobot-v1'.*it knows CartPole-v0, CartPole-v1"):
        check_env(EnvConfig(id="Acrobot-v1", backend="classic-control"))
