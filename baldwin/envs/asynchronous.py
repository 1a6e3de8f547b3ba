"""Worlds with several players, each of which acts at its own pace.

A world says who plays in it. `reset` begins a match: a controller for every player that was asked for, and ticks, coroutines that
advance the world. Whoever plays awaits `controller.start()`, which returns when that player has to decide for the first time, sees
`controller.observation` and awaits `controller.act(action)`, which returns when it has to decide again, however many frames later. Players that nobody asked for are played by the world's own scripts, as ticks.

    match = world.reset(seed, ["left", "right"])
    async with asyncio.TaskGroup() as tasks:
        for tick in match.ticks:
            tasks.create_task(tick)
        for controller in match.controllers:
            tasks.create_task(play(controller))

    async def play(controller):
        step = await controller.start()
        while not step.over:
            step = await controller.act(choose(controller.observation, controller.legal))
        print(controller.result())
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from baldwin.errors import EnvironmentFailure, nearest

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Player:
    """Who may play, what it sees and what it can do."""

    name: str
    observation_space: gym.Space[Any]
    action_space: gym.Space[Any]
    rewards: tuple[str, ...] = ("reward",)  # names of the components of its reward


class Step(NamedTuple):
    """What came of an action, from the moment it was chosen to the moment at which its player has to choose again."""

    reward: NDArray[np.float64] = np.zeros(1)  # [C], one value per component
    terminated: bool = False
    truncated: bool = False
    elapsed: int = 1  # frames
    info: Mapping[str, Any] = {}

    @property
    def over(self) -> bool:
        """Whether the match is over for this player."""
        return self.terminated or self.truncated


class Controller(Protocol):
    """One player of a match."""

    player: str

    @property
    def observation(self) -> Any:
        """What the player sees when it has to decide; after the end, the last it saw."""

    @property
    def legal(self) -> NDArray[np.bool_] | None:
        """Which choices are legal now, as `info["action_mask"]` of Gymnasium; None: all are."""

    async def start(self) -> Step:
        """Wait until the player has to decide for the first time; or the match is over before."""

    async def act(self, action: Any) -> Step:
        """Decide, and wait until the player has to decide again or the match is over for it."""

    def result(self) -> dict[str, Any]:
        """After the end: `score`, and what else the world tells: `win` (1, 0.5 or 0), `objectives`, `behaviour`."""


class Match(Protocol):
    """One game in progress: its controllers, its ticks, and how to end it."""

    controllers: Sequence[Controller]  # in the order in which `reset` was given the players
    ticks: Sequence[Coroutine[Any, Any, None]]

    def close(self) -> None:
        """Give up whatever the match holds. Ticks that were not awaited yet are closed, too."""


class World(ABC):
    """Where matches are played. One match at a time: a reset ends the one before."""

    players: Sequence[Player]
    live: bool = False  # it has a clock of its own and cannot be played again

    @abstractmethod
    def reset(self, seed: int, players: Sequence[str]) -> Match:
        """Begin a match that these players control; the same seed and the same actions give the same match.

        Nothing is awaited in the one before any more: whoever played it has cancelled its ticks.
        """

    def pop_latencies(self) -> tuple[list[float], int]:
        """Of a live world: seconds from turns to their actions since the last call, and how many turns took the place of an unanswered one."""
        return [], 0

    def close(self) -> None:  # noqa: B027 - most worlds have nothing to close
        """Free what the world holds: a simulator, a connection. No match is played after it."""

    def render(self) -> NDArray[np.uint8] | None:
        """A picture [height, width, 3] of the match, where the world can draw."""
        return None


class Slot(Generic[T]):
    """One value that one side puts and the other takes: asyncio.Queue(1) at a third of its cost, because putting never waits."""

    def __init__(self) -> None:
        self.full = False
        self._value: T | None = None
        self._waiting: list[asyncio.Future[None]] = []

    def put(self, value: T) -> None:
        """Put a value into the empty slot; whoever waits for it goes on in the next pass of the event loop."""
        self._value, self.full = value, True
        for future in self._waiting:
            if not future.done():
                future.set_result(None)
        self._waiting.clear()

    def pop(self) -> T:
        """Take the value out of the full slot."""
        value, self._value, self.full = self._value, None, False
        return value  # type: ignore[return-value]

    def arrival(self) -> asyncio.Future[None]:
        """Done as soon as there is a value; a future of its own for everybody who waits, so that one can be cancelled alone."""
        future = asyncio.get_running_loop().create_future()
        if self.full:
            future.set_result(None)
            return future
        if self._waiting:
            self._waiting = [other for other in self._waiting if not other.done()]
        self._waiting.append(future)
        return future

    async def get(self) -> T:
        """Wait for a value, and take it."""
        while not self.full:
            await self.arrival()
        return self.pop()


class Seat:
    """A controller for worlds that are written as one coroutine: it shows what each player sees, takes their actions, and steps.

        async def tick(seats):
            for seat in seats:
                seat.show(observation)
            while not over:
                actions = [await seat.action() for seat in seats]
                ...
                for seat in seats:
                    seat.add(reward)
                    seat.show(observation, terminated=over)

    A player whom the world shows nothing for some frames waits: its step covers all of them.
    """

    def __init__(self, player: str, n_rewards: int = 1) -> None:
        self.player = player
        self.observation: Any = None
        self.legal: NDArray[np.bool_] | None = None
        self.steps: Slot[Step] = Slot()  # what came, until the player takes it
        self._chosen: Slot[Any] = Slot()  # what it decided, until the world takes it
        self._n_rewards = n_rewards
        self._reward = np.zeros(n_rewards)
        self._elapsed = 0
        self._decides = False  # a turn was shown that has no answer yet
        self._over = False
        self._result: dict[str, Any] = {}

    async def start(self) -> Step:
        """Wait for the first turn."""
        return await self.steps.get()

    async def act(self, action: Any) -> Step:
        """Decide, and wait for what comes of it. Of a match that ended while the player decided, the end: its action counts for nothing.

        Raises:
            EnvironmentFailure: the match is over for this player, or an earlier action still waits.
        """
        self.choose(action)
        return await self.steps.get()

    def choose(self, action: Any) -> None:
        """Decide as `act` does, without waiting: what comes of it will be in `steps`.

        Raises:
            EnvironmentFailure: as `act`.
        """
        if self._over and self.steps.full:
            return
        if self._over:
            raise EnvironmentFailure(f"player {self.player!r} acted after its match was over: stop when a step is over")
        if self._chosen.full:
            raise EnvironmentFailure(f"player {self.player!r} acted twice: await each act() before the next")
        self._chosen.put(action)
        self._decides = False

    async def action(self) -> Any:
        """The world's side: wait for the player's decision."""
        return await self._chosen.get()

    def add(self, reward: Any, elapsed: int = 1) -> None:
        """The world's side: count rewards and frames until the player decides again."""
        self._reward = self._reward + reward
        self._elapsed += elapsed

    def show(
        self,
        observation: Any,
        legal: NDArray[np.bool_] | None = None,
        *,
        terminated: bool = False,
        truncated: bool = False,
        info: Mapping[str, Any] | None = None,
    ) -> None:
        """The world's side: let the player decide again, or tell it that the match is over, with all that was added since it acted.

        Raises:
            EnvironmentFailure: the player has not answered the turn before, or was told already that the match is over.
        """
        over = terminated or truncated
        if self._over or self.steps.full or (self._decides and not over):
            told = "was told that its match is over" if self._over else "has not answered the turn before"
            raise EnvironmentFailure(f"the world showed player {self.player!r} a turn, who {told}: await action() after each show()")
        self.observation, self.legal = observation, legal
        self._over, self._decides = over, not over
        self.steps.put(Step(self._reward, terminated, truncated, self._elapsed, info or {}))
        self._reward, self._elapsed = np.zeros(self._n_rewards), 0

    def finish(self, **result: Any) -> None:
        """The world's side: what `result` tells after the end."""
        self._result = result

    def result(self) -> dict[str, Any]:
        """What the world told of the end; empty before it."""
        return self._result


@dataclass(slots=True)
class SimpleMatch:
    """Controllers, ticks, and nothing to give up."""

    controllers: Sequence[Controller]
    ticks: Sequence[Coroutine[Any, Any, None]] = field(default_factory=tuple)

    def close(self) -> None:
        """Close ticks that nobody awaited."""
        for tick in self.ticks:
            tick.close()


def check_alike(players: Sequence[Player], what: str, instead: str = "") -> None:
    """Refuse players that one policy cannot play. `instead`: what to do; default: name the player that learns.

    Raises:
        EnvironmentFailure: they see or do different things.
    """
    first = players[0]
    for other in players[1:]:
        if (other.observation_space, other.action_space, other.rewards) != (first.observation_space, first.action_space, first.rewards):
            one = f"Say which one learns, as in env.kwargs={{player: {first.name}}}, without env.self_play and opponents"
            raise EnvironmentFailure(
                f"{what}: players {first.name!r} and {other.name!r} see or do different things, so that one policy cannot play both. "
                + (instead or f"{one}; or train one policy for each group of players: population.name=groups")
            )


def find_players(world: World, names: Sequence[str]) -> list[Player]:
    """The players of these names, in this order.

    Raises:
        EnvironmentFailure: there is none of that name, or one is asked for twice.
    """
    known = {player.name: player for player in world.players}
    for name in names:
        if name not in known:
            raise EnvironmentFailure(f"there is no player {name!r}; there are: {', '.join(known)}.{nearest(name, known)}")
    if len(set(names)) < len(names):
        raise EnvironmentFailure(f"a player is asked for twice: {', '.join(names)}")
    return [known[name] for name in names]
