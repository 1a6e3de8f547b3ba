"""Many matches over one connection, with one message per player and frame for all of them: "frames": "packed".

A world and a worker that have fifty matches with each other spend most of their time on messages if each match has its own. After hello and
welcome (`live_protocol.py`), all messages are msgpack maps. Observations are the bytes of float32 numbers, little-endian, row after row.
Lists and rows are those of `match`, in its order.

| who | message |
|---|---|
| Baldwin | {"type": "begin", "match": 4, "seed": 7, "players": ["left"]}, with a number that is not in use |
| world | {"type": "turns", "player": "left", "match": [4, 5], "turn": [12, 9], "observation": bytes, "reward": [[0.0], [1.0]], "elapsed": [1, 1], "legal": [[...], [...]] if there are illegal actions, "ends": {row: {"terminated", "truncated", "result"}} of matches that are over} |
| Baldwin | {"type": "acts", "player": "left", "match": [4, 5], "turn": [12, 9], "action": [2, 0]} |
| Baldwin | {"type": "leave", "match": 4}, of a match that it gives up |
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any, Protocol
from weakref import WeakSet

import numpy as np

from baldwin.envs.asynchronous import Player
from baldwin.envs.live_protocol import PACKED, SOCKET_OPTIONS, WRONG, Turn, check_finite, encode, read_message, read_welcome
from baldwin.envs.matches import process_loop
from baldwin.errors import EnvironmentFailure, describe_exception

FLOATS = np.dtype("<f4")


def pack_turns(turns: Iterable[Turn]) -> list[dict[str, Any]]:
    """One message for each player that has turns."""
    by_player: dict[str, list[Turn]] = {}
    for turn in turns:
        by_player.setdefault(turn.player, []).append(turn)
    return [_pack(player, own) for player, own in by_player.items()]


def _pack(player: str, turns: Sequence[Turn]) -> dict[str, Any]:
    over = [n for n, turn in enumerate(turns) if turn.terminated or turn.truncated]
    legal = {} if turns[0].legal is None else {"legal": [None if turn.legal is None else turn.legal.tolist() for turn in turns]}
    return legal | {
        "type": "turns",
        "player": player,
        "match": [turn.match for turn in turns],
        "turn": [turn.number for turn in turns],
        "observation": np.stack([turn.observation for turn in turns]).astype(FLOATS).tobytes(),
        "reward": [turn.reward.tolist() for turn in turns],
        "elapsed": [turn.elapsed for turn in turns],
        "ends": {str(n): {"terminated": turns[n].terminated, "truncated": turns[n].truncated, "result": turns[n].result} for n in over},
    }


def read_turns(raw: str | bytes, players: Mapping[str, Player]) -> list[Turn]:
    """What the players of several matches see now.

    Raises:
        EnvironmentFailure: it is not as the player was described.
    """
    message = read_message(raw, "turns", PACKED)
    try:
        player, matches = players[message["player"]], message["match"]
        shape = player.observation_space.shape or ()
        observations = np.frombuffer(message["observation"], FLOATS).astype(np.float32).reshape(len(matches), *shape)
        rewards = np.asarray(message["reward"], np.float64).reshape(len(matches), len(player.rewards))
        check_finite(observations, rewards)
        legal, ends = message.get("legal") or [None] * len(matches), message.get("ends") or {}
        columns = zip(matches, message["turn"], observations, rewards, message["elapsed"], legal, strict=True)
        return [
            Turn(
                player.name,
                int(turn),
                observation,
                None if mask is None else np.asarray(mask, np.bool_),
                reward,
                int(elapsed),
                bool(end.get("terminated", False)),
                bool(end.get("truncated", False)),
                dict(end.get("result") or {}),
                int(match),
            )
            for n, (match, turn, observation, reward, elapsed, mask) in enumerate(columns)
            for end in [ends.get(str(n)) or {}]
        ]
    except WRONG as error:
        raise EnvironmentFailure(f"the live world sent wrong turns: {describe_exception(error)}") from error


def pack_actions(player: str, actions: Sequence[tuple[int, int, Any]]) -> dict[str, Any]:
    """One message for the actions of a player, each with its match and its turn."""
    match, turn, action = zip(*actions, strict=True)
    return {"type": "acts", "player": player, "match": match, "turn": turn, "action": action}


def read_actions(message: Mapping[str, Any]) -> Iterable[tuple[int, Any, Any]]:
    """Match, turn and action of each.

    Raises:
        ValueError, KeyError, TypeError: it is malformed.
    """
    if message["type"] != "acts":
        raise ValueError
    return zip(message["match"], message["turn"], message["action"], strict=True)


class Channel(Protocol):
    """How one match talks to its world."""

    async def send(self, message: Mapping[str, Any]) -> None:
        """Send a `begin` or an `act`."""

    def turns(self, players: Mapping[str, Player]) -> AsyncIterator[Turn]:
        """What the world tells these players, as it comes."""


class PackedMatch:
    """One match of a shared connection."""

    def __init__(self, link: _Link, number: int) -> None:
        self._link, self.number = link, number
        self.arrived: asyncio.Queue[Turn | Exception] = asyncio.Queue()

    async def send(self, message: Mapping[str, Any]) -> None:
        """Send a `begin`; an `act` travels with those of the other matches."""
        if message["type"] == "act":
            self._link.add_action(message["player"], (self.number, message["turn"], message["action"]))
        else:
            await self._link.send({**message, "match": self.number})

    async def turns(self, players: Mapping[str, Player]) -> AsyncIterator[Turn]:
        """What the world tells these players, as it comes.

        Raises:
            EnvironmentFailure: a message of the connection was malformed.
            ConnectionClosed: by the world.
        """
        while True:
            turn = await self.arrived.get()
            if isinstance(turn, Exception):
                raise turn
            if turn.player in players:
                yield turn


class PackedCaller:
    """Connects to a world that serves: matches of this process share one connection."""

    def __init__(self, url: str, hello: str | bytes, timeout: float, players: list[Player]) -> None:
        """`hello`: the message with which a connection begins; `players`: whom the world has named."""
        self.players = players
        self._key = (os.getpid(), threading.get_ident(), url, hello)
        if self._key not in _LINKS:
            _LINKS[self._key] = _Link(url, hello, timeout, players)
        self._link = _LINKS[self._key]
        self._link.users.add(self)

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[Channel]:
        """A match of the shared connection, which is opened when the first one begins."""
        match = await self._link.join()
        try:
            yield match
        finally:
            self._link.leave(match)

    def close(self) -> None:
        """The last world that uses the connection closes it."""
        self._link.users.discard(self)
        if not self._link.users and _LINKS.get(self._key) is self._link:
            del _LINKS[self._key]
            self._link.close()


class _Link:
    """A connection, and the matches that share it."""

    def __init__(self, url: str, hello: str | bytes, timeout: float, players: Sequence[Player]) -> None:
        self._url, self._hello, self._timeout = url, hello, timeout
        self._players = {player.name: player for player in players}
        self.users: WeakSet[PackedCaller] = WeakSet()
        self._matches: dict[int, PackedMatch] = {}
        self._begun = 0
        self._actions: dict[str, list[tuple[int, int, Any]]] = {}
        self._loop = process_loop()
        self._opening = asyncio.Lock()
        self._socket: Any = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def join(self) -> PackedMatch:
        """A new match; the connection is opened again if the world has closed it."""
        from websockets.asyncio.client import connect

        async with self._opening:
            if self._socket is None:
                # No pings: the event loop stands still while this process computes.
                socket = await connect(self._url, open_timeout=self._timeout, proxy=None, ping_interval=None, **SOCKET_OPTIONS)
                await socket.send(self._hello)
                read_welcome(await socket.recv(), PACKED)
                self._socket = socket
                self._start(self._read(socket))
        self._begun += 1
        match = self._matches[self._begun] = PackedMatch(self, self._begun)
        return match

    def leave(self, match: PackedMatch) -> None:
        """Give up a match; one that is over is unknown to the world, which does not mind."""
        del self._matches[match.number]
        if not self._loop.is_closed():
            self._start(self.send({"type": "leave", "match": match.number}))

    def add_action(self, player: str, action: tuple[int, int, Any]) -> None:
        """Send an action together with those that others choose in this pass of the event loop."""
        if not self._actions:
            self._loop.call_soon(self._flush)
        self._actions.setdefault(player, []).append(action)

    async def send(self, message: Mapping[str, Any]) -> None:
        """Send a message; `_read` sees a connection that is closed."""
        from websockets.exceptions import ConnectionClosed

        if self._socket is not None:
            with suppress(ConnectionClosed):
                await self._socket.send(encode(message, PACKED))

    def close(self) -> None:
        """Close the connection, and with it all matches that are played over it."""
        if self._socket is not None and not self._loop.is_closed() and not self._loop.is_running():
            self._loop.run_until_complete(self._stop())

    async def _stop(self) -> None:
        await self._socket.close()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _flush(self) -> None:
        actions, self._actions = self._actions, {}
        for player, own in actions.items():
            self._start(self.send(pack_actions(player, own)))

    def _start(self, work: Any) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _read(self, socket: Any) -> None:
        """Hand turns to their matches; at the end, tell all of them."""
        from websockets.exceptions import ConnectionClosed

        reason: Exception = EnvironmentFailure("the connection was closed")
        try:
            while True:
                for turn in read_turns(await socket.recv(), self._players):
                    if turn.match in self._matches:
                        self._matches[turn.match].arrived.put_nowait(turn)
        except (ConnectionClosed, EnvironmentFailure) as error:
            reason = error
        finally:
            self._socket = None
            for match in self._matches.values():
                match.arrived.put_nowait(reason)
            if isinstance(reason, EnvironmentFailure):
                await socket.close()


_LINKS: dict[tuple[int, int, str, str | bytes], _Link] = {}
