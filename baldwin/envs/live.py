"""Worlds with a clock of their own, in another process or on another machine. What is said is in `live_protocol.py`."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from typing import Protocol

import numpy as np

from baldwin.envs.asynchronous import Match, Player, Seat, SimpleMatch, World, find_players
from baldwin.envs.live_listener import SCHEME, ListeningPort
from baldwin.envs.live_packed import Channel, PackedCaller
from baldwin.envs.live_protocol import JSON, PACKED, SOCKET_OPTIONS, VERSION, Connection, Turn, check_frames, encode, read_welcome
from baldwin.envs.vector_env import LIVE
from baldwin.errors import EnvironmentFailure, clean_text, describe_exception, missing_extra

PREFIX = LIVE
LATENCIES_KEPT = 10_000
MAX_TRIES = 5  # connections for one match


class Connector(Protocol):
    """How connections to a world come about."""

    players: list[Player]

    def connection(self) -> AbstractAsyncContextManager[Channel]:
        """A connection for one match, or its part of a shared one, ready for `begin`; it is given up at the end."""

    def close(self) -> None:
        """Stop listening, and close all connections."""


class LiveWorld(World):
    """A world that serves at ws://host:port, or worlds that connect to this process at listen://host:port.

    `latencies` are the last seconds from a turn to its action; `replaced` counts turns that came too early.
    """

    live = True

    def __init__(self, url: str, token: str = "", timeout: float | None = None, frames: str | None = None) -> None:
        """Ask the world who plays. `timeout`: seconds to wait for a world, 10 for one that serves and 30 for one that connects.
        `frames`: json, msgpack or packed (all matches of a process over one connection); a world that connects chooses by itself.

        Raises:
            MissingExtra: websockets or msgpack is not installed.
            EnvironmentFailure: nobody answers there, or not in this protocol.
        """
        try:
            import websockets  # noqa: F401
        except ModuleNotFoundError as error:
            raise missing_extra("live", f"environment '{PREFIX}{url}'") from error
        self._connector = make_connector(url, str(token), timeout, frames)
        self.players = self._connector.players
        self.latencies: deque[float] = deque(maxlen=LATENCIES_KEPT)
        self.replaced = 0
        self._unreported: deque[float] = deque(maxlen=LATENCIES_KEPT)
        self._reported = 0  # of `replaced`

    def pop_latencies(self) -> tuple[list[float], int]:
        """What the learner's metrics report."""
        seconds, replaced = list(self._unreported), self.replaced - self._reported
        self._unreported.clear()
        self._reported = self.replaced
        return seconds, replaced

    def reset(self, seed: int, players: Sequence[str]) -> Match:
        """Begin a match over a connection of its own. Seeds are for the world; what happens in it nobody can repeat."""
        seats = {player.name: Seat(player.name, len(player.rewards)) for player in find_players(self, players)}
        return SimpleMatch(list(seats.values()), [self._tick(seats, seed)])

    def close(self) -> None:
        """Stop listening, if no other world of this process listens there."""
        self._connector.close()

    async def _tick(self, seats: dict[str, Seat], seed: int) -> None:
        for _ in range(MAX_TRIES):
            async with self._connector.connection() as connection:
                if await self._play(connection, seats, seed):
                    return
        raise EnvironmentFailure(f"the live world closed the connection before the first turn, {MAX_TRIES} times")

    async def _play(self, connection: Channel, seats: dict[str, Seat], seed: int) -> bool:
        """A match to its end; false if the connection was closed before its first turn: the world went away while it waited."""
        from websockets.exceptions import ConnectionClosed

        players = {player.name: _Live(player, seats[player.name]) for player in self.players if player.name in seats}
        known = {name: player.player for name, player in players.items()}
        acting = {name: asyncio.create_task(self._act(player, connection)) for name, player in players.items()}
        reason, begun = "", False
        try:
            await connection.send({"type": "begin", "seed": seed, "players": list(seats)})
            async for turn in connection.turns(known):
                begun = True
                self.replaced += players[turn.player].take(turn)
                if all(player.over for player in players.values()):
                    await asyncio.gather(*(acting[name] for name, player in players.items() if player.last))
                    return True
        except ConnectionClosed as error:
            reason = f": {describe_exception(error)}"
        finally:
            for task in acting.values():
                task.cancel()
        if begun:
            raise EnvironmentFailure(f"the live world closed the connection in the middle of a match{reason}")
        return False

    async def _act(self, player: _Live, connection: Channel) -> None:
        from websockets.exceptions import ConnectionClosed

        while True:
            action = await player.seat.action()
            player.waits_for_player = False
            if player.last:  # the match ended before this action came
                player.end(player.last)
                return
            latency = time.monotonic() - player.shown_at
            self.latencies.append(latency)
            self._unreported.append(latency)
            plain = np.asarray(action).tolist()
            with suppress(ConnectionClosed):  # which `_play` sees, too
                await connection.send({"type": "act", "player": player.player.name, "turn": player.turn, "action": plain})


class Caller:
    """Connects to a world that serves, once for each match."""

    def __init__(self, url: str, hello: str | bytes, timeout: float, players: list[Player], frames: str) -> None:
        """`hello`: the message with which a connection begins; `players`: whom the world has named."""
        self.players = players
        self._url, self._hello, self._timeout, self._frames = url, hello, timeout, frames

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[Connection]:
        """A new connection, after hello and welcome."""
        from websockets.asyncio.client import connect

        # No pings: the event loop stands still while this process computes, and a world that is gone is found out by its match's deadline.
        async with connect(self._url, open_timeout=self._timeout, proxy=None, ping_interval=None, **SOCKET_OPTIONS) as socket:
            await socket.send(self._hello)
            read_welcome(await socket.recv(), self._frames)
            yield Connection(socket, self._frames)

    def close(self) -> None:
        """Nothing is open between matches."""


def make_connector(url: str, token: str, timeout: float | None, frames: str | None) -> Connector:
    """By the scheme of the address; a world that serves is asked who plays.

    Raises:
        EnvironmentFailure: it has another one, or nobody answers there.
    """
    if url.startswith(SCHEME):
        if frames is not None:
            raise EnvironmentFailure("frames: a world that connects chooses them by itself. Leave frames out of env.kwargs")
        return ListeningPort(url, token, 30.0 if timeout is None else timeout)
    if not url.startswith(("ws://", "wss://")):
        raise EnvironmentFailure(
            f"expected {PREFIX}ws://HOST:PORT for a world that serves, or {PREFIX}{SCHEME}HOST:PORT for one that connects; "
            f"got {PREFIX}{clean_text(url, 80)}"
        )
    frames = check_frames(JSON if frames is None else frames, f"environment '{PREFIX}{url}' with frames={frames}")
    timeout = 10.0 if timeout is None else timeout
    hello = encode({"type": "hello", "version": VERSION, "token": token, "frames": frames})
    players = ask_for_players(url, hello, timeout, frames)
    return PackedCaller(url, hello, timeout, players) if frames == PACKED else Caller(url, hello, timeout, players, frames)


def ask_for_players(url: str, hello: str | bytes, timeout: float, frames: str) -> list[Player]:
    """Who plays in the world that serves there.

    Raises:
        EnvironmentFailure: nobody answers there, or not in this protocol.
    """
    import websockets.sync.client as sync

    try:
        with sync.connect(url, open_timeout=timeout, proxy=None, **SOCKET_OPTIONS) as socket:
            socket.send(hello)
            return read_welcome(socket.recv(timeout), frames)
    except EnvironmentFailure:
        raise
    except Exception as error:
        raise EnvironmentFailure(f"no live world at {url}: {describe_exception(error)}. Start it first") from error


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
