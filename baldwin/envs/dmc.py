"""Tasks of the DeepMind Control Suite as Gymnasium environments: dmc:cartpole-swingup."""

from __future__ import annotations

import importlib
import importlib.util
import math
import os
import sys
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from baldwin.envs.vector_env import DMC
from baldwin.errors import EnvironmentFailure, describe_exception, missing_extra, nearest

PREFIX = DMC
SUITE = "dm_control.suite"
MUJOCO_GL = "MUJOCO_GL"
PIXELS = "pixels"  # the only sensor of env.kwargs={pixels: true}
FILM = {"height": 480, "width": 640}
NO_OPENGL = (
    "pictures need OpenGL: expected a screen, or EGL or OSMesa, which need none (apt install libegl1 or libosmesa6). "
    "MUJOCO_GL=egl or osmesa chooses one"
)

Observations = dict[str, NDArray[Any]]


def import_suite() -> Any:
    """dm_control's suite, which chooses how to draw when it is imported: by MUJOCO_GL; without it and without a screen, EGL or not at all.

    Raises:
        ImportError: it is not installed.
        Exception: of any kind, if MUJOCO_GL asks for something that is not there.
    """
    undecided = sys.platform == "linux" and not os.environ.get(MUJOCO_GL) and not os.environ.get("DISPLAY")
    if undecided and importlib.util.find_spec("dm_control"):
        os.environ[MUJOCO_GL] = "egl"
        try:
            return importlib.import_module(SUITE)
        except (ImportError, AttributeError, RuntimeError):  # PyOpenGL reports a missing library in many ways
            os.environ[MUJOCO_GL] = "off"
    return importlib.import_module(SUITE)


def task_names() -> list[str]:
    """All tasks, as domain-task; none if dm_control cannot be imported."""
    try:
        return ["-".join(task) for task in import_suite().ALL_TASKS]
    except Exception:
        return []


def check_name(name: str) -> None:
    """Refuse what is no task.

    Raises:
        MissingExtra: dm_control is not installed.
        EnvironmentFailure: there is no such task, or dm_control cannot be imported.
    """
    try:
        import_suite()
    except ModuleNotFoundError as error:
        raise missing_extra("dmc", f"environment '{PREFIX}{name}'") from error
    except Exception as error:
        raise EnvironmentFailure(f"{PREFIX}{name}: dm_control cannot be imported ({describe_exception(error)}); {NO_OPENGL}") from error
    names = task_names()
    if name not in names:
        raise EnvironmentFailure(
            f"there is no task {PREFIX}{name}: expected domain-task, such as {PREFIX}cartpole-swingup.{nearest(name, names)} "
            "(baldwin list envs dmc)"
        )


class DMControlEnv(gym.Env[Any, NDArray[Any]]):
    """A task. Every entry of its observation is a sensor; scalars and matrices become vectors.

    An episode is a pure function of its seed and the actions. The time limit truncates, it never terminates.
    """

    def __init__(
        self, name: str, *, pixels: bool = False, size: int = 84, camera: int | str = 0, render_mode: str | None = None, **task_kwargs: Any
    ) -> None:
        """`pixels`: observe pictures of `size` x `size` from this camera and nothing else; `task_kwargs`: those of the task, such as time_limit.

        Raises:
            EnvironmentFailure: there is nothing to draw pictures with.
        """
        domain, _, task = name.partition("-")
        self._env = import_suite().load(domain, task, task_kwargs={"random": 0} | task_kwargs)
        self._size, self._camera, self._pixels = size, camera, pixels
        self.render_mode = render_mode
        self.metadata = {"render_modes": ["rgb_array"], "render_fps": round(1 / self._env.control_timestep())}
        limit = self._env._step_limit  # there is no public way to ask
        self.max_episode_steps = None if math.isinf(limit) else math.ceil(limit)
        action = self._env.action_spec()
        self.action_space = spaces.Box(np.float32(action.minimum), np.float32(action.maximum), action.shape, np.float32)
        if pixels:
            self.observation_space = spaces.Dict({PIXELS: spaces.Box(0, 255, (size, size, 3), np.uint8)})
            self._draw(height=size, width=size)  # what cannot work is reported now
        else:
            sensors = {key: math.prod(part.shape) for key, part in self._env.observation_spec().items()}
            self.observation_space = spaces.Dict({key: spaces.Box(-np.inf, np.inf, (n,), np.float64) for key, n in sensors.items()})

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Observations, dict[str, Any]]:
        """Begin an episode; with a seed, as suite.load(..., task_kwargs={"random": seed}) does."""
        super().reset(seed=seed)
        if seed is not None:
            self._env.task.random.seed(seed)
        return self._observe(self._env.reset()), {}

    def step(self, action: NDArray[Any]) -> tuple[Observations, float, bool, bool, dict[str, Any]]:
        """One control step; the time limit of the task truncates."""
        step = self._env.step(action)
        terminated = step.last() and step.discount == 0.0
        return self._observe(step), float(step.reward), terminated, step.last() and not terminated, {}

    def render(self) -> Any:
        """The scene as an image [height, width, 3] of uint8."""
        return self._draw(**FILM)

    def close(self) -> None:
        """Free the memory of the simulator and of its renderer."""
        self._env.close()

    def _observe(self, step: Any) -> Observations:
        if self._pixels:
            return {PIXELS: self._draw(height=self._size, width=self._size)}
        return {key: np.ravel(value) for key, value in step.observation.items()}

    def _draw(self, **shape: int) -> NDArray[np.uint8]:
        try:
            return np.array(self._env.physics.render(camera_id=self._camera, **shape))
        except (ImportError, RuntimeError, AttributeError) as error:
            raise EnvironmentFailure(f"{NO_OPENGL}; {describe_exception(error)}") from error
