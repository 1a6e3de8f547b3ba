"""What every simulator looks like from above."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Protocol, Self

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray
from pydantic import Field, field_validator, model_validator

from baldwin.config_base import ConfigModel
from baldwin.envs.atari import ATARI_PREFIX, AtariConfig
from baldwin.observations import Channels, Observation, ObservationSpec
from baldwin.registry import Registry

Ids = NDArray[np.int32]
AUTO = "auto"
LIVE = "live:"  # worlds in other processes
OWN = "baldwin:"  # ids of Baldwin's own environments
DMC = "dmc:"  # tasks of the DeepMind Control Suite
PYBULLET = "pybullet:"  # environments of PyBullet
DEADLINE = 60.0  # seconds until a match in which nothing comes any more is given up
UNITY = "unity:"  # builds of Unity ML-Agents, and its editor


class EnvConfig(ConfigModel):
    """Which environment, and who simulates it."""

    id: str = Field(
        description="A Gymnasium id, dmc:domain-task, pybullet:EnvId, pettingzoo:module, unity:PATH, package.module:EnvId or package.module:EnvClass"
    )
    backend: str = Field(
        AUTO, description="auto, gymnasium, classic-control, envpool, mujoco or a plugin's; auto takes the fastest that has the id"
    )
    kwargs: dict[str, Any] = Field(default_factory=dict, description="Passed to the environment")
    islands: bool = Field(
        True,
        description="mujoco: false skips the search for constraint islands: some 7 % faster, but a robot that lies still may differ from "
        "Gymnasium's by 1e-12",
    )
    max_episode_steps: int | None = Field(None, gt=0, description="Overrides the environment's own time limit")
    frame_stack: int = Field(1, ge=1, le=64, description="Frames of each image that the policy sees, the newest last")
    previous_action: bool = Field(
        False,
        description="The policy sees the action that it took before, as a sensor previous_action: choices as one-hot vectors, zeros at the start",
    )
    channels: Channels = Field("auto", description="Which axis of an image holds its channels: first, last, or auto, the shorter one")
    ignore_sensors: list[str] = Field(default_factory=list, description="Parts of the observation that the policy does not see, by name")
    self_play: bool = Field(
        False,
        description="Training collects every player of a match, and the policy plays them all; evaluations play one against the world's script. "
        "For worlds whose players see the same kind of thing",
    )
    players: Literal["all"] | list[str] = Field(
        default_factory=list,
        description="Players that the policy plays together in every match, in training and in evaluations: all, or names of some that see "
        "the same kind of thing. The world's script plays the others. Default: one of them",
    )
    match_deadline: float = Field(
        DEADLINE,
        gt=0,
        allow_inf_nan=False,
        description="Seconds that a world of several players may take for the next turn, or for its end when it is given up; "
        "beyond it, the match has failed",
    )
    atari: AtariConfig | None = Field(None, description="Preprocessing of Atari games; default for ids that begin with ALE/: DeepMind's")
    reward_weights: dict[str, float] = Field(
        default_factory=dict, description="Weights of the components of a vector reward, by name; default 1. Their sum is the reward"
    )

    @model_validator(mode="before")
    @classmethod
    def _atari_by_default(cls, data: Any) -> Any:
        ours = isinstance(data, dict) and str(data.get("id", "")).startswith(ATARI_PREFIX) and not data.get("kwargs")
        return {"atari": {}} | data if ours else data

    @model_validator(mode="after")
    def _atari_has_its_own_stack(self) -> Self:
        if self.atari and self.frame_stack != 1:
            raise ValueError("frame_stack is for other environments: set env.atari.stack")
        if self.atari and ":" in self.id:
            raise ValueError(f"atari is for games of ALE, such as ALE/Pong-v5; got id={self.id}")
        return self

    @model_validator(mode="after")
    def _previous_action_of_one_player(self) -> Self:
        if self.previous_action and (self.players or self.self_play):
            raise ValueError("previous_action is for environments of one player: leave it out, or players and self_play")
        if self.previous_action and self.backend not in (AUTO, "gymnasium"):
            raise ValueError(f"previous_action needs backend=gymnasium; got {self.backend}. Leave backend out")
        return self

    @model_validator(mode="after")
    def _says_once_who_plays(self) -> Self:
        if self.players and self.self_play:
            raise ValueError("players and self_play both say who plays: leave one out. players=all is self_play that is evaluated likewise")
        if self.players and "player" in self.kwargs:
            raise ValueError("players says whom the policy plays: leave player out of kwargs")
        if len(set(self.players)) < len(self.players) and self.players != "all":
            raise ValueError(f"players: expected each player once; got {', '.join(self.players)}")
        return self

    @property
    def one_player(self) -> dict[str, Any]:
        """Keyword arguments of an environment that is one player alone: the first of several that the policy plays."""
        return {**self.kwargs, "player": self.players[0]} if isinstance(self.players, list) and self.players else self.kwargs

    @property
    def frames(self) -> int:
        """Frames of each image that the policy sees."""
        return self.atari.stack if self.atari and not self.atari.ram else self.frame_stack

    def for_evaluation(self) -> Self:
        """The same game as its score counts: no clipped rewards, no end at the loss of a life."""
        if self.atari is None:
            return self
        return self.model_copy(update={"atari": self.atari.model_copy(update={"clip_reward": False, "end_on_life_loss": False})})

    def foreign_code(self) -> list[str]:
        """A class, a module that registers the id, or a Unity build."""
        own = self.id.startswith((OWN, LIVE, DMC, PYBULLET)) or self.id == f"{UNITY}editor"
        return [f"id={self.id}"] if ":" in self.id and not own else []

    @field_validator("id")
    @classmethod
    def _id_is_printable(cls, value: str) -> str:
        if not value or not value.isprintable():
            raise ValueError("expected a name without control characters")
        return value

    @field_validator("kwargs")
    @classmethod
    def _nobody_watches(cls, value: dict[str, Any]) -> dict[str, Any]:
        if value.get("render_mode") == "human":
            raise ValueError("render_mode=human would draw every step of training. Leave it out, and film the policy with baldwin render")
        return value

    @field_validator("backend")
    @classmethod
    def _backend_is_registered(cls, value: str) -> str:
        return value if value == AUTO else BACKENDS.check(value)


@dataclass(frozen=True, slots=True)
class EnvSpec:
    """What a policy and a rollout need to know of an environment."""

    obs: ObservationSpec
    action_space: gym.Space[Any]
    max_episode_steps: int | None
    backend: str
    rewards: tuple[str, ...] = ()  # names of the components, where the environment gives a vector of rewards
    has_elapsed: bool = False  # info["elapsed"] says how many frames a step took
    players: int = 1  # of a match
    alike: bool = True  # all players of a match see and do the same kind of thing
    policy_players: int = 1  # of a match, that the policy plays together (env.players)
    live: bool = False  # it has a clock of its own: an episode cannot be played again


class StepResult(NamedTuple):
    """One step of k environments. A finished one shows its last observation, never that of a reset."""

    obs: Observation  # [k, ...], newest frames only
    reward: NDArray[Any]  # [k]
    terminated: NDArray[np.bool_]  # [k]
    truncated: NDArray[np.bool_]  # [k]; only by the environment itself: the rollout keeps the time limit
    components: NDArray[np.float32] | None = None  # [k, C], of a vector reward; `reward` is their weighted sum
    elapsed: NDArray[np.int32] | None = None  # [k] frames, where the environment says


class VectorEnv(Protocol):
    """Copies of one environment. Episode k of a copy is a pure function of (its seed, k, the actions).

    Equal seeds give equal starts in any two copies: that is how common random numbers are made. One that knows more of an episode than its
    rewards also has `result(copy) -> map of numbers`, after the episode's end and before the next reset. One whose copies are the players of
    matches has `match_size`, how many of them are neighbours in a match: they are reset together.
    """

    width: int
    failures: dict[int, str]  # copy -> why it failed, until someone takes it out

    def open(self, seeds: NDArray[np.int64], first_episode: int | NDArray[np.int64]) -> None:
        """Give each copy its seed [width]; the next reset of each begins its episode number `first_episode` (one for all, or [width])."""

    def reset(self, ids: Ids) -> Observation:
        """Begin the next episode of these copies; returns observations [k, ...]."""

    def step(self, actions: NDArray[Any], ids: Ids) -> StepResult:
        """Step these copies with the actions [k, ...]."""

    def close(self) -> None:
        """Close the simulators of all copies."""


class OpponentPolicies(Protocol):
    """Members of a pool as they play. Every opponent of every copy has a row, with a memory and earlier frames of its own."""

    def begin(self, rows: NDArray[np.intp], seeds: NDArray[np.int64]) -> None:
        """A match begins for the opponents in these rows: whoever plays them remembers nothing, and draws from these seeds [k]."""

    def act(self, members: NDArray[np.int64], obs: Observation, rows: NDArray[np.intp]) -> NDArray[Any]:
        """Actions [k, ...] of the opponents in these rows, whom these members [k] play and who see these observations [k, ...]."""


@dataclass(frozen=True, slots=True)
class OtherPlayers:
    """Players of every match that a frozen policy plays; they may see and do other things than the learning ones."""

    names: tuple[str, ...]
    obs: ObservationSpec
    policies: OpponentPolicies  # row m * len(names) + p is player p of match m


class OpponentEnv(VectorEnv, Protocol):
    """Copies in each of which one player learns, and another one is a member of a pool."""

    opponents: NDArray[np.int64]  # [width], set before a reset; 0 is the world's own script
    opponent_rows: int  # opponents of all copies together
    policies: OpponentPolicies | None  # how the members decide


class TurnEnv(VectorEnv, Protocol):
    """Copies that are the players of matches, all of which are stepped together, though not all of them have to decide every time."""

    deciding: NDArray[np.bool_]  # [width] whose next action counts; the others wait, and see what they saw last


class LiveEnv(VectorEnv, Protocol):
    """Copies of worlds with a clock of their own."""

    def pop_latencies(self) -> tuple[list[float], int]:
        """Seconds from turns to their actions since the last call, and how many turns took the place of an unanswered one."""


@dataclass(frozen=True, slots=True)
class Backend:
    """A simulator. Of those that serve an id, `auto` takes the one with the highest priority."""

    describe: Callable[[EnvConfig], EnvSpec]
    make: Callable[[EnvConfig, EnvSpec, int], VectorEnv]
    priority: int
    serves: Callable[[EnvConfig], bool]
    list_ids: Callable[[], Iterable[str]] = tuple  # ids that Gymnasium's registry does not have
    make_with_opponents: Callable[[EnvConfig, EnvSpec, int], OpponentEnv] | None = None  # None: it has no matches
    make_self_play: Callable[[EnvConfig, EnvSpec, int, Sequence[OtherPlayers]], VectorEnv] | None = None
    """Copies are the players that the policy plays; frozen policies play those given, scripts the rest. None: it has no matches."""
    independent_episodes: Callable[[EnvConfig], bool] = lambda config: True
    """Whether an episode that is begun anew in the middle of a job is still a pure function of its seed and number."""


BACKENDS: Registry[Backend] = Registry("environment backend")
