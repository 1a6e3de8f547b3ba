"""Worlds with a clock of their own, in another process or on another machine, over a WebSocket.

A connection is one match. Messages are JSON objects:

| who | message |
|---|---|
| Baldwin | {"type": "hello", "version": 1, "token": "..."} |
| world | {"type": "welcome", "version": 1, "players": [{"name", "observation": {"shape", "low", "high"}, "actions": 3 or {"shape", "low", "high"}, "rewards": [names]}]} |
| Baldwin | {"type": "begin", "seed": 7, "players": ["left"]} |
| world | {"type": "turn", "player": "left", "turn": 12, "observation": [...], "legal": [...], "reward": [0.0], "elapsed": 1, "terminated": false, "truncated": false, "result": {...} at the end} |
| Baldwin | {"type": "act", "player": "left", "turn": 12, "action": 2} |
| world | {"type": "error", "reason": "..."}, and it closes the connection |

The world never waits: a turn that comes before the last one was answered replaces it, and its rewards and frames are added to the step.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from baldwin.envs.asynchronous import Match, Player, Seat, SimpleMatch, World, find_players
from baldwin.envs.vector_env import LIVE
from baldwin.errors import EnvironmentFailure, clean_text, describe_exception, missing_extra

PREFIX = LIVE
VERSION = 1
MAX_BYTES = 1 << 20
LATENCIES_KEPT = 10_000


class Turn(NamedTuple):
    """What a world tells a player."""

    player: str
    number: int
    observation: NDArray[np.float32]
    legal: NDArray[np.bool_] | None
    reward: NDArray[np.float64]
    elapsed: int
    terminated: bool
    truncated: bool
    result: dict[str, Any]


class LiveWorld(World):
    """A world at ws://host:port. `latencies` are the last seconds from a turn to its action; `replaced` counts turns that came too early."""

    live = True

    def __init__(self, url: str, token: str = "", timeout: float = 10.0) -> None:
        """Ask the world who plays.

        Raises:
            MissingExtra: websockets is not installed.
            EnvironmentFailure: nobody answers there, or not in this protocol.
        """
        self._url, self._token, self._timeout = url, token, timeout
        self.latencies: deque[float] = deque(maxlen=LATENCIES_KEPT)
        self.replaced = 0
        try:
            import websockets.sync.client as sync
        except ModuleNotFoundError as error:
            raise missing_extra("live", f"environment '{PREFIX}{url}'") from error
        try:
            with sync.connect(url, max_size=MAX_BYTES, open_timeout=timeout, proxy=None) as socket:
                socket.send(json.dumps(self._hello()))
                self.players = read_welcome(socket.recv(timeout))
        except EnvironmentFailure:
            raise
        except Exception as error:
            raise EnvironmentFailure(f"no live world at {url}: {describe_exception(error)}. Start it first") from error

    def reset(self, seed: int, players: Sequence[str]) -> Match:
        """Begin a match over a connection of its own. Seeds are for the world; what happens in it nobody can repeat."""
        seats = {player.name: Seat(player.name, len(player.rewards)) for player in find_players(self, players)}
        return SimpleMatch(list(seats.values()), [self._tick(seats, seed)])

    def _hello(self) -> dict[str, Any]:
        return {"type": "hello", "version": VERSION, "token": self._token}

    async def _tick(self, seats: dict[str, Seat], seed: int) -> None:
        from websockets.asyncio.client import connect

        async with connect(self._url, max_size=MAX_BYTES, open_timeout=self._timeout, proxy=None) as socket:
            await socket.send(json.dumps(self._hello()))
            read_welcome(await socket.recv())
            await socket.send(json.dumps({"type": "begin", "seed": seed, "players": list(seats)}))
            players = {player.name: _Live(player, seats[player.name]) for player in self.players if player.name in seats}
            acting = {name: asyncio.create_task(self._act(player, socket)) for name, player in players.items()}
            try:
                async for message in socket:
                    turn = read_turn(message, {name: player.player for name, player in players.items()})
                    self.replaced += players[turn.player].take(turn)
                    if all(player.over for player in players.values()):
                        await asyncio.gather(*(acting[name] for name, player in players.items() if player.last))
                        return
                raise EnvironmentFailure("the live world closed the connection in the middle of a match")
            finally:
                for task in acting.values():
                    task.cancel()

    async def _act(self, player: _Live, socket: Any) -> None:
        while True:
            action = await player.seat.action()
            player.waits_for_player = False
            if player.last:  # the match ended before this action came
                player.end(player.last)
                return
            self.latencies.append(time.monotonic() - player.shown_at)
            plain = np.asarray(action).tolist()
            await socket.send(json.dumps({"type": "act", "player": player.player.name, "turn": player.turn, "action": plain}))


class _Live:
    """A player of a live match."""

    def __init__(self, player: Player, seat: Seat) -> None:
        self.player, self.seat = player, seat
        self.turn, self.over = -1, False
        self.waits_for_player = False
        self.shown_at = 0.0
        self.last: Turn | None = None  # an end that waits for the player's next action

    def take(self, turn: Turn) -> bool:
        """Show a turn, or put it in the place of one that was not answered yet: true for that."""
        replaced = self.waits_for_player
        self.turn, self.over = turn.number, turn.terminated or turn.truncated
        self.seat.add(turn.reward, turn.elapsed)
        self.shown_at = time.monotonic()
        if replaced and self.over:
            self.last = turn
        elif replaced:
            self.seat.observation, self.seat.legal = turn.observation, turn.legal
        elif self.over:
            self.end(turn)
        else:
            self.waits_for_player = True
            self.seat.show(turn.observation, turn.legal)
        return replaced

    def end(self, turn: Turn) -> None:
        """Tell the player that the match is over."""
        self.seat.finish(**turn.result)
        self.seat.show(turn.observation, turn.legal, terminated=turn.terminated, truncated=turn.truncated)


def read_message(raw: str | bytes, kind: str) -> dict[str, Any]:
    """A message of that type.

    Raises:
        EnvironmentFailure: it is something else, or the world's refusal.
    """
    try:
        message = json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise EnvironmentFailure(f"the live world sent what is no JSON: {clean_text(str(raw), 80)}") from error
    found = message.get("type") if isinstance(message, dict) else None
    if found == "error":
        raise EnvironmentFailure(f"the live world refused: {clean_text(str(message.get('reason')), 200)}")
    if found != kind:
        raise EnvironmentFailure(f"expected a message of type {kind} from the live world; got {clean_text(str(message), 80)}")
    return dict(message)


def read_welcome(raw: str | bytes) -> list[Player]:
    """Who plays.

    Raises:
        EnvironmentFailure: another version, or no proper list of players.
    """
    message = read_message(raw, "welcome")
    if message.get("version") != VERSION:
        raise EnvironmentFailure(f"the live world speaks version {message.get('version')!r} of the protocol, Baldwin {VERSION}")
    try:
        players = [
            Player(str(p["name"]), _box(p["observation"]), _actions(p["actions"]), tuple(map(str, p.get("rewards", ["reward"]))))
            for p in message["players"]
        ]
    except (KeyError, TypeError, ValueError, AssertionError) as error:
        raise EnvironmentFailure(f"the live world describes its players wrongly: {describe_exception(error)}") from error
    if not players:
        raise EnvironmentFailure("the live world has no players")
    return players


def read_turn(raw: str | bytes, players: Mapping[str, Player]) -> Turn:
    """What a player sees now.

    Raises:
        EnvironmentFailure: it is not as the player was described.
    """
    message = read_message(raw, "turn")
    try:
        player = players[message["player"]]
        observation = np.asarray(message["observation"], np.float32)
        reward = np.asarray(message.get("reward", [0.0] * len(player.rewards)), np.float64)
        legal = None if message.get("legal") is None else np.asarray(message["legal"], np.bool_)
        if observation.shape != player.observation_space.shape or reward.shape != (len(player.rewards),):
            raise ValueError(f"observation {observation.shape} and reward {reward.shape} of {player.name}")
        if not np.isfinite(observation).all() or not np.isfinite(reward).all():
            raise ValueError("numbers that are not finite")
        return Turn(
            player.name,
            int(message["turn"]),
            observation,
            legal,
            reward,
            int(message.get("elapsed", 1)),
            bool(message.get("terminated", False)),
            bool(message.get("truncated", False)),
            dict(message.get("result") or {}),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise EnvironmentFailure(f"the live world sent a wrong turn: {describe_exception(error)}") from error


def describe_player(player: Player) -> dict[str, Any]:
    """A player as a welcome has it, for worlds that are written in Python."""
    space = player.action_space
    actions = int(space.n) if isinstance(space, spaces.Discrete) else _limits(space)
    return {"name": player.name, "observation": _limits(player.observation_space), "actions": actions, "rewards": list(player.rewards)}


def _limits(space: Any) -> dict[str, Any]:
    return {"shape": list(space.shape), "low": float(np.min(space.low)), "high": float(np.max(space.high))}


def _box(limits: Mapping[str, Any]) -> spaces.Box:
    return spaces.Box(float(limits["low"]), float(limits["high"]), tuple(int(n) for n in limits["shape"]), np.float32)


def _actions(actions: Any) -> spaces.Space[Any]:
    return spaces.Discrete(actions) if isinstance(actions, int) else _box(actions)
