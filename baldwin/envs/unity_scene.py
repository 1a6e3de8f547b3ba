"""A Unity scene that runs: what its agents see and do in Gymnasium's terms, and the commands that it takes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray
from pydantic import Field, ValidationError

from baldwin.config_base import ConfigModel
from baldwin.envs.unity_connection import PORTS, SECONDS_TO_QUIT, describe_failure, import_unity, open_connection
from baldwin.errors import EnvironmentFailure, nearest

EDITOR = "editor"
EDITOR_PORT, FIRST_PORT = 5004, 5005  # where Unity's editor calls, and builds by the custom of ML-Agents
EPISODE_SEED = "episode_seed"  # the environment parameter that a scene can draw its random numbers from
EXACT_FLOAT = 2**24  # parameters are 32-bit floats, which have all integers up to here
CONTINUOUS, DISCRETE = "continuous", "discrete"  # parts of a mixed action

Action = tuple[NDArray[np.float32], NDArray[np.int32]]
"""The continuous part, and a choice for each branch."""


class UnitySettings(ConfigModel):
    """env.kwargs of a Unity scene."""

    agents: int | dict[str, int] | None = Field(
        None, description="Slots of each behaviour, or by the name of a behaviour; default: as many agents as it has at first"
    )
    behaviour: str | None = Field(None, description="Only the agents of this one are players")
    repeatable: bool = Field(
        False, description=f"The scene draws all that is random from the parameter {EPISODE_SEED}, so that an episode can be played again"
    )
    seed: int = Field(0, ge=0, lt=2**31, description="Of the process, once at its start")
    port: int | None = Field(None, gt=0, lt=2**16, description="The first one that is tried; default 5005, of the editor 5004")
    timeout: float = Field(60.0, gt=0, description="Seconds to wait for Unity's start, and for every step")
    areas: int = Field(1, ge=1, description="Copies of the training area, for scenes with a training area replicator")
    arguments: list[str] = Field(default_factory=list, description="For the command line of the build")
    no_graphics: bool = Field(True, description="Without a window. Cameras need one")
    time_scale: float = Field(20.0, gt=0, le=100, description="How much faster than the clock the scene runs")
    quality: int | None = Field(None, ge=0, description="Unity's quality level")
    width: int | None = Field(None, gt=0, description="Of the window")
    height: int | None = Field(None, gt=0, description="Of the window")
    target_frame_rate: int = Field(-1, ge=-1, description="Frames per second that are drawn; -1: as many as possible")
    capture_frame_rate: int = Field(60, ge=0, description="Frames per second of the scene's own time; 0: as they come")
    parameters: dict[str, float] = Field(default_factory=dict, description="Environment parameters, by name")


def read_settings(kwargs: Mapping[str, Any]) -> UnitySettings:
    """Settings from env.kwargs.

    Raises:
        EnvironmentFailure: an unknown key, or a value that cannot be.
    """
    known = UnitySettings.model_fields
    for key in kwargs:
        if key not in known:
            raise EnvironmentFailure(f"env.kwargs: a Unity scene takes {', '.join(known)}, player; got {key!r}.{nearest(key, known)}")
    try:
        settings = UnitySettings.model_validate(dict(kwargs))
    except ValidationError as error:
        found = error.errors()[0]
        where = ".".join(map(str, found["loc"][:1]))
        raise EnvironmentFailure(f"env.kwargs.{where}: {found['msg']}; got {found['input']!r}") from error
    if (settings.width is None) != (settings.height is None):
        raise EnvironmentFailure("env.kwargs: width and height belong together: set both, or neither")
    if EPISODE_SEED in settings.parameters:
        raise EnvironmentFailure(f"env.kwargs.parameters: {EPISODE_SEED} is set for every episode. Choose another name")
    return settings


class Behaviour(NamedTuple):
    """What the agents of a behaviour see and do, in Gymnasium's terms."""

    sensors: tuple[str, ...]  # names, in Unity's order
    pictures: frozenset[int]  # numbers of those that come as PNG
    observation_space: spaces.Dict
    action_space: spaces.Space[Any]
    branches: tuple[int, ...]  # sizes of the discrete ones
    continuous: int  # size

    def observation(self, sensors: Sequence[NDArray[np.float32]]) -> dict[str, NDArray[Any]]:
        """Of one agent, by the names of its sensors; pictures in bytes, as they were before the package made fractions of them."""
        seen = [np.rint(255 * array).astype(np.uint8) if n in self.pictures else array for n, array in enumerate(sensors)]
        return dict(zip(self.sensors, seen, strict=True))

    def legal(self, masks: Sequence[NDArray[np.bool_]] | None) -> NDArray[np.bool_] | None:
        """A flag for each choice of all branches; None without branches. Unity's masks are true for what is forbidden."""
        if not self.branches:
            return None
        return np.ones(sum(self.branches), np.bool_) if masks is None else ~np.concatenate(masks)

    def split(self, action: Any) -> Action:
        """The continuous and the discrete part of an action."""
        parts = action if isinstance(action, Mapping) else {CONTINUOUS if self.continuous else DISCRETE: action}
        return (
            np.asarray(parts.get(CONTINUOUS, ()), np.float32).reshape(self.continuous),
            np.asarray(parts.get(DISCRETE, ()), np.int32).reshape(len(self.branches)),
        )

    def random(self, legal: NDArray[np.bool_] | None, rng: np.random.Generator) -> Action:
        """A legal action at random."""
        flags = np.split(legal, np.cumsum(self.branches)[:-1]) if legal is not None else []
        chosen = [rng.choice(np.flatnonzero(own)) if own.any() else 0 for own in flags]
        return rng.uniform(-1, 1, self.continuous).astype(np.float32), np.array(chosen, np.int32)


def read_behaviour(spec: Any, pictures: frozenset[int]) -> Behaviour:
    """From what Unity tells of a behaviour. Sensors without a name, or with one that another has, are numbered."""
    names: list[str] = []
    parts: dict[str, spaces.Space[Any]] = {}
    for n, sensor in enumerate(spec.observation_specs):
        name = sensor.name or f"sensor_{n}"
        names.append(f"{name}_{n}" if name in names else name)
        picture = spaces.Box(0, 255, sensor.shape, np.uint8)
        parts[names[-1]] = picture if n in pictures else spaces.Box(-np.inf, np.inf, sensor.shape, np.float32)
    size, branches = int(spec.action_spec.continuous_size), tuple(map(int, spec.action_spec.discrete_branches))
    return Behaviour(tuple(names), pictures, spaces.Dict(parts), make_action_space(size, branches), branches, size)


def make_action_space(continuous: int, branches: Sequence[int]) -> spaces.Space[Any]:
    """Box, Discrete for one branch, MultiDiscrete for several, or a Dict of both kinds."""
    box = spaces.Box(-1, 1, (continuous,), np.float32)
    if not branches:
        return box
    choices: spaces.Space[Any] = spaces.Discrete(branches[0]) if len(branches) == 1 else spaces.MultiDiscrete(list(branches))
    return spaces.Dict({CONTINUOUS: box, DISCRETE: choices}) if continuous else choices


def short_names(behaviours: Iterable[str]) -> dict[str, str]:
    """Names without the ?team=0 that Unity adds; where several teams share a behaviour, they are called NAME/team0, NAME/team1."""
    parts = {full: full.partition("?team=") for full in behaviours}
    shared = Counter(name for name, _, _ in parts.values())
    return {full: name if shared[name] == 1 else f"{name}/team{team}" for full, (name, _, team) in parts.items()}


class AgentStep(NamedTuple):
    """What Unity tells of an agent: that it has to decide, or that its episode is over."""

    behaviour: str
    agent: int
    observation: dict[str, NDArray[Any]]  # after the end, the true last one
    reward: float  # its own and its group's, since the last time
    legal: NDArray[np.bool_] | None = None
    terminated: bool = False
    truncated: bool = False  # interrupted, by a limit of steps for example

    @property
    def over(self) -> bool:
        """Whether its episode is over."""
        return self.terminated or self.truncated


class UnityScene:
    """A build that was started, or an editor that has connected."""

    def __init__(self, target: str, settings: UnitySettings) -> None:
        """`target`: the path of a build, or `editor`.

        Raises:
            MissingExtra: the official package is not installed.
            EnvironmentFailure: Unity cannot be started, or not be understood.
        """
        self._name, self._settings = target, settings
        channels = import_unity("side_channel.stats_side_channel", f"environment 'unity:{target}'")
        self._stats = channels.StatsSideChannel()
        self._engine = import_unity("side_channel.engine_configuration_channel", "").EngineConfigurationChannel()
        self._parameters = import_unity("side_channel.environment_parameters_channel", "").EnvironmentParametersChannel()
        self._action_tuple = import_unity("base_env", "").ActionTuple
        in_editor = target == EDITOR
        first = settings.port or (EDITOR_PORT if in_editor else FIRST_PORT)
        self._env = open_connection(
            None if in_editor else target,
            range(first, min(first + (1 if in_editor else PORTS), 2**16)),
            settings.timeout,
            [self._engine, self._parameters, self._stats],
            seed=settings.seed,
            no_graphics=settings.no_graphics,
            additional_args=settings.arguments,
            num_areas=settings.areas,
        )
        self.is_open = True
        self.match: object = None  # which one is being played
        self.behaviours: dict[str, Behaviour] = {}
        self._engine.set_configuration_parameters(
            width=settings.width,
            height=settings.height,
            quality_level=settings.quality,
            time_scale=settings.time_scale,
            target_frame_rate=settings.target_frame_rate,
            capture_frame_rate=settings.capture_frame_rate,
        )
        for name, value in settings.parameters.items():
            self._parameters.set_float_parameter(name, value)

    @property
    def stats(self) -> dict[str, list[float]]:
        """What the scene's StatsRecorder told since the last reset, by name."""
        return {name: [value for value, _ in values] for name, values in self._stats.stats.items()}

    def reset(self, seed: int) -> list[AgentStep]:
        """Begin anew; the agents that have to decide.

        Raises:
            EnvironmentFailure: Unity does not answer any more; it is closed.
        """
        self._stats.get_and_reset_stats()
        self._parameters.set_float_parameter(EPISODE_SEED, seed % EXACT_FLOAT)
        return [step for step in self._call(self._env.reset) if not step.over]  # others ended with the match before

    def step(self, actions: Mapping[tuple[str, int], Action]) -> list[AgentStep]:
        """Take the actions of all agents that have to decide, by behaviour and number; go on until one has to decide again, or is gone.

        Raises:
            EnvironmentFailure: Unity does not answer any more; it is closed.
        """
        for name in self.behaviours:
            deciding, _ = self._env.get_steps(name)
            chosen = [actions[name, int(agent)] for agent in deciding.agent_id]
            if chosen:
                parts = [np.stack(part) for part in zip(*chosen, strict=True)]
                self._env.set_actions(name, self._action_tuple(continuous=parts[0], discrete=parts[1]))
        return self._call(self._env.step)

    def close(self, patience: float = SECONDS_TO_QUIT) -> None:
        """Tell Unity to quit, and kill a build that does not in so many seconds; a second time it does nothing."""
        if self.is_open:
            self.is_open = False
            self._env._close(patience)

    def _call(self, command: Any) -> list[AgentStep]:
        try:
            command()
            return [step for name in sorted(self._env.behavior_specs) for step in self._read(name)]
        except BaseException as error:  # a deadline of the executor, too: a call that was broken off would be taken for the next one
            self.close(patience=0.0)
            if not isinstance(error, Exception):
                raise
            raise EnvironmentFailure(describe_failure(self._name, error)) from error

    def _read(self, name: str) -> list[AgentStep]:
        """Who is gone, then who has to decide, each by number."""
        if name not in self.behaviours:
            self.behaviours[name] = read_behaviour(self._env.behavior_specs[name], frozenset(self._env.pictures.get(name, ())))
        behaviour = self.behaviours[name]
        deciding, gone = self._env.get_steps(name)
        found = []
        for agent in sorted(map(int, gone)):
            step = gone[agent]
            reward, observation = float(step.reward) + float(step.group_reward), behaviour.observation(step.obs)
            cut = bool(step.interrupted)
            found.append(AgentStep(name, agent, observation, reward, terminated=not cut, truncated=cut))
        for agent in sorted(map(int, deciding)):
            step = deciding[agent]
            reward, observation = float(step.reward) + float(step.group_reward), behaviour.observation(step.obs)
            found.append(AgentStep(name, agent, observation, reward, behaviour.legal(step.action_mask)))
        return found
