"""Scenes of Unity ML-Agents: unity:PATH_OF_BUILD, or unity:editor for one that is played in the editor.

Every agent that a scene shows is an episode: Unity gives it a new number when it begins another one. The players of a world are slots:
BEHAVIOUR/0, BEHAVIOUR/1 and so on (BEHAVIOUR/team0/0 where several teams share one). In a match the agents of a behaviour take its slots in the order in which they come, those that come
together in the order of their numbers; a slot whose agent is gone stays empty until the next match. Agents for whom no slot is left, and
those of slots that nobody asked for, take random actions.
"""

from __future__ import annotations

import itertools
import logging
import weakref
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from typing import Any, cast

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from baldwin.envs.asynchronous import Match, Player, Seat, SimpleMatch, World, find_players
from baldwin.envs.unity_scene import (
    EDITOR,
    EDITOR_PORT,
    Action,
    AgentStep,
    Behaviour,
    UnityScene,
    UnitySettings,
    read_settings,
    short_names,
)
from baldwin.envs.vector_env import UNITY
from baldwin.errors import EnvironmentFailure, nearest
from baldwin.ops import seeds

log = logging.getLogger("baldwin")
PREFIX = UNITY
MAX_STEPS_ALONE = 1000  # of a scene in which none of the players that were asked for has appeared

_EDITORS: dict[int | None, UnityScene] = {}  # by port: all worlds of this process share the one connection that an editor makes


class UnityWorld(World):
    """A scene whose agents are players. It waits for them: between two decisions nothing moves.

    A build that has ended or does not answer fails its match; the next match starts it again. The editor is shared by all worlds of a
    process: a match that begins there ends the one before.
    """

    def __init__(self, target: str, **kwargs: Any) -> None:
        """Start the build, or wait for the editor, to see who plays. `target`: a path, or `editor`; `kwargs`: those of `UnitySettings`.

        Raises:
            MissingExtra: the official package is not installed.
            EnvironmentFailure: a setting is wrong, there is no such build, or it has no agents.
        """
        self._target, self._settings = target, read_settings(kwargs)
        self.live = not self._settings.repeatable
        self._scene: UnityScene | None = None
        self._finalizer: weakref.finalize[..., UnityWorld] | None = None
        scene = self._running_scene()
        try:
            present = Counter(step.behaviour for step in scene.reset(0))
            self._slots = list_players(scene, present, self._settings)
        except EnvironmentFailure:
            self.close()
            raise
        self.players = [player for own in self._slots.values() for player in own]

    @property
    def stats(self) -> dict[str, list[float]]:
        """What the scene's StatsRecorder told since the last match began, by name."""
        return self._scene.stats if self._scene else {}

    def reset(self, seed: int, players: Sequence[str]) -> Match:
        """Begin a match; the scene gets the seed as its environment parameter `episode_seed`."""
        asked = find_players(self, players)
        scene = self._running_scene()
        first = scene.reset(seed)
        scene.match = match = object()
        seats = {player.name: Seat(player.name) for player in asked}
        return SimpleMatch(list(seats.values()), [self._tick(scene, match, first, seats, seed)])

    def close(self) -> None:
        """End the build. An editor stays connected for the other worlds of this process, until it ends."""
        if self._scene and self._target != EDITOR:
            self._scene.close()
        self._scene = None

    async def _tick(self, scene: UnityScene, match: object, steps: list[AgentStep], seats: dict[str, Seat], seed: int) -> None:
        slots = Slots(self._slots)
        rng = seeds.generator(seed, seeds.Stream.MATCH)
        totals: dict[str, float] = {}  # of players that have appeared
        playing: set[str] = set()
        for count in itertools.count():
            deciding: list[tuple[AgentStep, Seat | None]] = []
            for step in steps:
                seat = seats.get(slots.player(step) or "")
                if not step.over:
                    deciding.append((step, seat))
                if seat:
                    show(seat, step, totals)
                    (playing.discard if step.over else playing.add)(seat.player)
            if totals and not playing:
                break
            if not totals and count >= MAX_STEPS_ALONE:
                raise EnvironmentFailure(
                    f"{', '.join(seats)} did not appear in {count} steps: the scene has fewer agents. See env.kwargs.agents"
                )
            actions = {
                (step.behaviour, step.agent): await choose(scene.behaviours[step.behaviour], step, seat, rng) for step, seat in deciding
            }
            if scene.match is not match:
                raise EnvironmentFailure(
                    "another match began in Unity's editor, which plays one at a time: use one environment and one worker"
                )
            steps = scene.step(actions)
            for name in playing:
                seats[name].add(0.0)  # a frame
        for player in self.players:
            if player.name in seats and player.name not in totals:  # its agent never came
                seats[player.name].finish(score=0.0)
                seats[player.name].show(see_nothing(player), truncated=True)

    def _running_scene(self) -> UnityScene:
        """The scene, which is started if it is not there or has failed."""
        if self._scene is None or not self._scene.is_open:
            if self._target == EDITOR:
                self._scene = find_editor(self._settings)
            else:
                if self._finalizer:
                    self._finalizer.detach()
                self._scene = UnityScene(self._target, self._settings)
                self._finalizer = weakref.finalize(self, self._scene.close)  # of a world that is dropped, too
        return self._scene


def see_nothing(player: Player) -> dict[str, NDArray[Any]]:
    """Zeros for all sensors."""
    sensors = cast("spaces.Dict", player.observation_space).spaces
    return {name: np.zeros(sensor.shape or (), sensor.dtype) for name, sensor in sensors.items()}


class Slots:
    """Which agent plays which player, in one match."""

    def __init__(self, players: Mapping[str, Sequence[Player]]) -> None:
        """`players` by behaviour."""
        self._free = {behaviour: deque(player.name for player in own) for behaviour, own in players.items()}
        self._taken: dict[tuple[str, int], str | None] = {}

    def player(self, step: AgentStep) -> str | None:
        """Whose step it is; None: no slot is left, or the agent was gone before it had to decide."""
        key = (step.behaviour, step.agent)
        if step.over:
            return self._taken.pop(key, None)
        if key not in self._taken:
            free = self._free.get(step.behaviour)
            self._taken[key] = free.popleft() if free else None
        return self._taken[key]


async def choose(behaviour: Behaviour, step: AgentStep, seat: Seat | None, rng: np.random.Generator) -> Action:
    """The action of whoever plays the agent, or one at random."""
    return behaviour.split(await seat.action()) if seat else behaviour.random(step.legal, rng)


def show(seat: Seat, step: AgentStep, totals: dict[str, float]) -> None:
    """Let a player see what came, and count its rewards; those from before its first decision belong to nobody."""
    first = seat.player not in totals
    totals[seat.player] = 0.0 if first else totals[seat.player] + step.reward
    seat.add(0.0 if first else step.reward, 0)
    if step.over:
        seat.finish(score=totals[seat.player])
    seat.show(step.observation, step.legal, terminated=step.terminated, truncated=step.truncated, info={"agent": step.agent})


def list_players(scene: UnityScene, present: Mapping[str, int], settings: UnitySettings) -> dict[str, list[Player]]:
    """The slots of each behaviour; `present`: its agents when the scene begins.

    Raises:
        EnvironmentFailure: a behaviour is named that the scene does not have, or there is nobody to play.
    """
    short = short_names(sorted(scene.behaviours))
    slots = settings.agents if isinstance(settings.agents, dict) else {}
    for name in [*slots, *([settings.behaviour] if settings.behaviour else [])]:
        if name not in short.values():
            there = ", ".join(short.values())
            raise EnvironmentFailure(f"the scene has no behaviour {name!r}; there are: {there}.{nearest(name, short.values())}")
    found = {}
    for full, name in short.items():
        behaviour = scene.behaviours[full]
        count = settings.agents if isinstance(settings.agents, int) else slots.get(name, present.get(full, 0))
        if settings.behaviour in (None, name):
            found[full] = [Player(f"{name}/{n}", behaviour.observation_space, behaviour.action_space) for n in range(count)]
    if not any(found.values()):
        raise EnvironmentFailure(
            "no agent has to decide when the scene begins, so that there is nobody to play. Set env.kwargs={agents: 1}"
        )
    return found


def find_editor(settings: UnitySettings) -> UnityScene:
    """The connection of this process to the editor, which is waited for if there is none."""
    scene = _EDITORS.get(settings.port)
    if scene is None or not scene.is_open:
        log.warning("waiting for Unity's editor at port %d: press Play", settings.port or EDITOR_PORT)
        scene = _EDITORS[settings.port] = UnityScene(EDITOR, settings)
    return scene
