"""Gymnasium's MuJoCo robots at the speed of their physics.

Each copy is Gymnasium's own environment, which makes the model and begins the episodes. Only its step is replaced: the
simulators run one after the other, and what Gymnasium then computes in Python for each robot is computed for all at once.
The numbers are the same to the last bit as with the gymnasium backend, unless `env.islands` is switched off.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from baldwin.envs import gymnasium
from baldwin.envs.vector_env import BACKENDS, Backend, EnvConfig, EnvSpec, Ids, StepResult
from baldwin.errors import EnvironmentFailure, missing_extra
from baldwin.observations import VECTOR, Observation


class State(NamedTuple):
    """What is read from k simulators after a step."""

    qpos_qvel: NDArray[np.float64]  # [k, nq + nv] positions, then velocities
    qpos: NDArray[np.float64]  # [k, nq], a view of it
    qvel: NDArray[np.float64]  # [k, nv], too
    forces: NDArray[np.float64]  # [k, bodies * 6], only where the task looks at contacts


StepOutputs = tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.bool_]]  # observations, rewards, terminated
RewardFn = Callable[[Any, State, NDArray[np.float64], NDArray[Any]], StepOutputs]  # (environment, state, speed [k], actions [k, nu])


def forward_task(env: Any, state: State, speed: NDArray[np.float64], actions: NDArray[Any]) -> StepOutputs:
    """HalfCheetah and Swimmer: forward, at a price for effort; they cannot fall."""
    obs = state.qpos_qvel[:, env.observation_structure["skipped_qpos"] :]
    return obs, env._forward_reward_weight * speed - _effort(env, actions), np.zeros(len(obs), np.bool_)


def upright_task(env: Any, state: State, speed: NDArray[np.float64], actions: NDArray[Any]) -> StepOutputs:
    """Hopper and Walker2d: forward and upright."""
    healthy = _within(state.qpos[:, 1], env._healthy_z_range) & _within(state.qpos[:, 2], env._healthy_angle_range)
    if hasattr(env, "_healthy_state_range"):
        healthy &= _within(state.qpos_qvel[:, 2:], env._healthy_state_range).all(1)
    obs = np.concatenate((_positions(env, state), np.clip(state.qvel, -10, 10)), axis=1)
    reward = env._forward_reward_weight * speed + healthy * env._healthy_reward - _effort(env, actions)
    return obs, reward, ~healthy & env._terminate_when_unhealthy


def ant_task(env: Any, state: State, speed: NDArray[np.float64], actions: NDArray[Any]) -> StepOutputs:
    """Ant: forward, off the ground, at a price for effort and for contact forces, which it also sees."""
    low, high = env._healthy_z_range
    healthy = np.isfinite(state.qpos_qvel).all(1) & (low <= state.qpos[:, 2]) & (state.qpos[:, 2] <= high)
    forces = np.clip(state.forces, *env._contact_force_range)
    seen = (_positions(env, state), state.qvel, forces[:, 6:])  # the world itself, body 0, feels nothing
    obs = np.concatenate(seen if env._include_cfrc_ext_in_observation else seen[:2], axis=1)
    costs = _effort(env, actions) + env._contact_cost_weight * np.sum(np.square(forces), axis=1)
    return obs, speed * env._forward_reward_weight + healthy * env._healthy_reward - costs, ~healthy & env._terminate_when_unhealthy


def balance_task(env: Any, state: State, speed: NDArray[np.float64], actions: NDArray[Any]) -> StepOutputs:
    """InvertedPendulum: one for every step upright."""
    fallen = ~np.isfinite(state.qpos_qvel).all(1) | (np.abs(state.qpos_qvel[:, 1]) > 0.2)
    return state.qpos_qvel, (~fallen).astype(np.float64), fallen


REWARD_FNS: dict[str, RewardFn] = {
    "gymnasium.envs.mujoco.half_cheetah_v5:HalfCheetahEnv": forward_task,
    "gymnasium.envs.mujoco.swimmer_v5:SwimmerEnv": forward_task,
    "gymnasium.envs.mujoco.hopper_v5:HopperEnv": upright_task,
    "gymnasium.envs.mujoco.walker2d_v5:Walker2dEnv": upright_task,
    "gymnasium.envs.mujoco.ant_v5:AntEnv": ant_task,
    "gymnasium.envs.mujoco.inverted_pendulum_v5:InvertedPendulumEnv": balance_task,
}


def reward_fn_of(config: EnvConfig) -> RewardFn | None:
    """How observations and rewards of this environment are computed, if this backend knows it."""
    spec = gym.registry.get(config.id)
    if spec is None or spec.additional_wrappers or not isinstance(spec.entry_point, str):
        return None
    return REWARD_FNS.get(spec.entry_point)


def available(config: EnvConfig) -> bool:
    """Whether this backend can serve the environment here."""
    return reward_fn_of(config) is not None and importlib.util.find_spec("mujoco") is not None


def describe(config: EnvConfig) -> EnvSpec:
    """The spaces and the time limit of the environment.

    Raises:
        MissingExtra: MuJoCo is not installed.
        EnvironmentFailure: it is not one of the known robots.
    """
    if importlib.util.find_spec("mujoco") is None:
        raise missing_extra("mujoco", "backend 'mujoco'")
    if reward_fn_of(config) is None:
        known = ", ".join(sorted(name for name, spec in gym.registry.items() if spec.entry_point in REWARD_FNS))
        raise EnvironmentFailure(f"the mujoco backend does not serve {config.id!r}; it knows {known}. Use env.backend=auto.")
    return replace(gymnasium.describe(config), backend="mujoco")


class Simulator(NamedTuple):
    """The simulator of one copy. The arrays are views: they always show what it holds."""

    data: Any
    ctrl: NDArray[np.float64]
    qpos_qvel: tuple[NDArray[np.float64], NDArray[np.float64]]  # qpos, qvel
    body: NDArray[np.float64]  # where the robot is; qpos itself unless the task asks for a body
    forces: NDArray[np.float64]


class MujocoVectorEnv(gymnasium.GymnasiumVectorEnv):
    """Gymnasium's environments with a batched step."""

    def __init__(self, config: EnvConfig, env_spec: EnvSpec, width: int) -> None:
        super().__init__(config, env_spec, width)
        import mujoco

        self._mj_step, self._mj_contacts = mujoco.mj_step, mujoco.mj_rnePostConstraint
        self._reward_fn = REWARD_FNS[str(gym.registry[config.id].entry_point)]
        self._contacts = self._reward_fn is ant_task
        self._disabled = 0 if config.islands else int(mujoco.mjtDisableBit.mjDSBL_ISLAND)
        self._robot: Any = None  # any one of the environments: all have the same model, weights and ranges
        self._simulators: list[Simulator | None] = [None] * width
        self._dt, self._nq = 0.0, 0
        self._x = np.zeros(width)  # where each stood before the step

    def reset(self, ids: Ids) -> Observation:
        obs = super().reset(ids)
        self._remember_x(ids.tolist())
        return obs

    def step(self, actions: NDArray[Any], ids: Ids) -> StepResult:
        indices = ids.tolist()
        sims = [sim for index in indices if (sim := self._simulators[index]) is not None]
        if len(sims) < len(indices):
            steps = super().step(actions, ids)  # some could not begin their episode: Gymnasium's step tells which
            self._remember_x(indices)
            return steps
        env, model, mj_step = self._robot, self._robot.model, self._mj_step
        frame_skip, contacts = env.frame_skip, self._mj_contacts if self._contacts else None
        broken = []
        for row, (sim, action) in enumerate(zip(sims, actions.astype(np.float64), strict=True)):
            try:
                sim.ctrl[:] = action
                mj_step(model, sim.data, frame_skip)
                if contacts:  # MuJoCo computes these only on request
                    contacts(model, sim.data)
            except Exception as error:
                broken.append(row)
                self._discard(indices[row], "step", error)
        k = len(sims)
        qpos_qvel = np.concatenate([part for sim in sims for part in sim.qpos_qvel]).reshape(k, -1)
        forces = np.concatenate([sim.forces for sim in sims]).reshape(k, -1) if contacts else qpos_qvel[:, :0]
        x = np.array([sim.body[0] for sim in sims]) if contacts else qpos_qvel[:, 0]
        state = State(qpos_qvel, qpos_qvel[:, : self._nq], qpos_qvel[:, self._nq :], forces)
        obs, reward, terminated = self._reward_fn(env, state, (x - self._x[ids]) / self._dt, actions)
        self._x[ids] = x
        if broken:
            obs[broken], terminated[broken] = np.nan, True
        return StepResult({VECTOR: obs}, reward, terminated, np.zeros(k, np.bool_))

    def _remember_x(self, indices: list[int]) -> None:
        for index in indices:
            sim = self._simulators[index]
            self._x[index] = np.nan if sim is None else sim.body[0]

    def close(self) -> None:
        super().close()
        self._simulators = [None] * self.width

    def _env(self, index: int) -> gym.Env[Any, Any]:
        env = super()._env(index)
        if self._simulators[index] is None:
            robot: Any = env.unwrapped
            self._robot, self._dt, self._nq, data = robot, robot.dt, robot.model.nq, robot.data
            robot.model.opt.disableflags |= self._disabled
            body = data.body(robot._main_body).xpos if self._contacts else data.qpos
            self._simulators[index] = Simulator(data, data.ctrl, (data.qpos, data.qvel), body, data.cfrc_ext.reshape(-1))
        return env

    def _discard(self, index: int, verb: str, error: BaseException) -> None:
        super()._discard(index, verb, error)
        self._simulators[index] = None


def _positions(env: Any, state: State) -> NDArray[np.float64]:
    """Where the joints are; mostly without where the robot is."""
    return state.qpos[:, env.observation_structure["skipped_qpos"] :]


def _effort(env: Any, actions: NDArray[Any]) -> NDArray[Any]:
    return env._ctrl_cost_weight * np.sum(np.square(actions), axis=1)  # type: ignore[no-any-return]


def _within(values: NDArray[np.float64], bounds: tuple[float, float]) -> NDArray[np.bool_]:
    return (bounds[0] < values) & (values < bounds[1])


BACKENDS.add("mujoco", Backend(describe, MujocoVectorEnv, priority=2, serves=available))
