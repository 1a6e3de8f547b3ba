"""CartPole, Pendulum and MountainCar in NumPy, all copies stepped at once.

The equations are Gymnasium's, in the same order, and so are the starts: an episode is that of the gymnasium backend to the last bit (but
for Pendulum's rewards, to the ninth digit). Stepping eight copies takes a fraction of what EnvPool's hand-over to its thread takes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
from gymnasium.utils.seeding import np_random
from numpy.typing import NDArray

from baldwin.envs import gymnasium
from baldwin.envs.vector_env import BACKENDS, Backend, EnvConfig, EnvSpec, Ids, StepResult
from baldwin.errors import EnvironmentFailure
from baldwin.observations import VECTOR, Observation
from baldwin.ops.seeds import mix

Array = NDArray[np.float64]
Flags = NDArray[np.bool_]


class Task(NamedTuple):
    """One task, for k copies side by side. A state is [S, k], one row per variable, which keeps each of them contiguous."""

    start: Callable[[np.random.Generator], Array]  # the state [S] in which an episode begins
    step: Callable[[Array, NDArray[Any]], tuple[Array, Array, Flags]]  # states [S, k] and actions [k, ...] -> states, rewards, terminated
    observe: Callable[[Array], Array] = lambda state: state.T  # of states [S, k], observations [k, V]


def cart_pole(state: Array, actions: NDArray[Any]) -> tuple[Array, Array, Flags]:
    """One for every step in which the pole stands: Barto, Sutton and Anderson 1983."""
    _, x_dot, theta, theta_dot = state
    force = np.where(actions == 1, 10.0, -10.0)
    cos, sin = np.cos(theta), np.sin(theta)
    temp = (force + 0.05 * np.square(theta_dot) * sin) / 1.1
    theta_acc = (9.8 * sin - cos * temp) / (0.5 * (4.0 / 3.0 - 0.1 * np.square(cos) / 1.1))
    x_acc = temp - 0.05 * theta_acc * cos / 1.1
    state = state + 0.02 * np.array((x_dot, x_acc, theta_dot, theta_acc))
    fallen = (np.abs(state[0]) > 2.4) | (np.abs(state[2]) > 12 * 2 * np.pi / 360)
    return state, np.ones(len(fallen)), fallen


def pendulum(state: Array, actions: NDArray[Any]) -> tuple[Array, Array, Flags]:
    """Swing up and stand, with little torque."""
    theta, speed = state
    torque = np.clip(actions, -2.0, 2.0)[:, 0]
    costs = ((theta + np.pi) % (2 * np.pi) - np.pi) ** 2 + 0.1 * speed**2 + 0.001 * torque**2
    speed = np.clip(speed + (3 * 10.0 / 2.0 * np.sin(theta) + 3.0 * torque) * 0.05, -8.0, 8.0)
    return np.array((theta + speed * 0.05, speed)), -costs, np.zeros(len(costs), np.bool_)


def see_pendulum(state: Array) -> Array:
    """The direction it hangs in, and its speed."""
    theta, speed = state
    return np.array((np.cos(theta), np.sin(theta), speed)).T


def mountain_car(state: Array, actions: NDArray[Any]) -> tuple[Array, Array, Flags]:
    """Minus one for every step until the goal."""
    position, speed = state
    speed = np.clip(speed + ((actions - 1) * 0.001 + np.cos(3 * position) * -0.0025), -0.07, 0.07)
    position = np.clip(position + speed, -1.2, 0.6)
    speed = np.where((position == -1.2) & (speed < 0), 0.0, speed)  # a car that hits the left wall stops
    return np.array((position, speed)), np.full(len(position), -1.0), (position >= 0.5) & (speed >= 0)


MODULE = "gymnasium.envs.classic_control"
TASKS = {
    f"{MODULE}.cartpole:CartPoleEnv": Task(lambda rng: rng.uniform(-0.05, 0.05, (4,)), cart_pole),
    f"{MODULE}.pendulum:PendulumEnv": Task(lambda rng: rng.uniform(-(high := np.array([np.pi, 1.0])), high), pendulum, see_pendulum),
    f"{MODULE}.mountain_car:MountainCarEnv": Task(lambda rng: np.array([rng.uniform(-0.6, -0.4), 0.0]), mountain_car),
}


def task_of(config: EnvConfig) -> Task | None:
    """The task, if it is one of these with its own settings."""
    spec = gym.registry.get(config.id)
    if spec is None or spec.additional_wrappers or spec.kwargs or config.kwargs or not isinstance(spec.entry_point, str):
        return None
    return TASKS.get(spec.entry_point)


def describe(config: EnvConfig) -> EnvSpec:
    """The spaces and the time limit of the environment.

    Raises:
        EnvironmentFailure: it is not one of the known tasks.
    """
    if task_of(config) is None:
        known = ", ".join(sorted(name for name, spec in gym.registry.items() if spec.entry_point in TASKS))
        raise EnvironmentFailure(
            f"the classic-control backend does not serve {config.id!r} with env.kwargs={config.kwargs}; it knows {known} with their own "
            "settings. Use env.backend=auto."
        )
    return replace(gymnasium.describe(config), backend="classic-control")


class ClassicControlEnv:
    """Copies of one task, whose states are the columns of one array."""

    def __init__(self, config: EnvConfig, env_spec: EnvSpec, width: int) -> None:
        task = task_of(config)
        assert task  # it was described
        self.width = width
        self.failures: dict[int, str] = {}
        self._task = task
        self._state = np.zeros((len(task.start(np.random.default_rng(0))), width))
        self._seeds = np.zeros(width, np.int64)
        self._episode = np.zeros(width, np.int64)

    def open(self, seeds: NDArray[np.int64], first_episode: int | NDArray[np.int64]) -> None:
        self._seeds[:] = seeds
        self._episode[:] = first_episode

    def reset(self, ids: Ids) -> Observation:
        for index in ids.tolist():
            rng, _ = np_random(mix(int(self._seeds[index]), int(self._episode[index])))
            self._state[:, index] = self._task.start(rng)
        self._episode[ids] += 1
        return self._observe(self._state[:, ids])

    def step(self, actions: NDArray[Any], ids: Ids) -> StepResult:
        everyone = len(ids) == self.width
        state, reward, terminated = self._task.step(self._state if everyone else self._state[:, ids], actions)
        if everyone:
            self._state = state
        else:
            self._state[:, ids] = state
        return StepResult(self._observe(state), reward, terminated, np.zeros(len(ids), np.bool_))

    def close(self) -> None:
        pass

    def _observe(self, state: Array) -> Observation:
        return {VECTOR: np.ascontiguousarray(self._task.observe(state), np.float32)}


BACKENDS.add("classic-control", Backend(describe, ClassicControlEnv, priority=2, serves=lambda config: task_of(config) is not None))
