"""Worlds that connect to this process. Each connection offers one match, and waits until one is to begin."""

from __future__ import annotations

import asyncio
import errno
import os
import threading
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlsplit
from weakref import WeakSet

from baldwin.envs.asynchronous import Player
from baldwin.envs.live_protocol import GREETING_SECONDS, SOCKET_OPTIONS, Connection, Refused, check_greeting, how_lost, read_players
from baldwin.envs.matches import process_loop
from baldwin.envs.vector_env import DEADLINE
from baldwin.errors import EnvironmentFailure, clean_text, describe_exception

SCHEME = "listen://"
LOOPBACK = "127.0.0.1"
PORTS = 64  # that are tried from the first one on: worker processes of one machine
QUIET_PASSES = 4  # of the event loop, in which it notices connections that were closed while it stood still


class Listener:
    """A port of this process, the offers that came there, and why others were refused (`counts`)."""

    def __init__(self, host: str, port: int, token: str) -> None:
        """Listen at the first port that is free from `port` on: every worker process has one of its own.

        Raises:
            EnvironmentFailure: none is free, or the host is not this machine.
        """
        self.host, self.port, self._token = host, port, token
        self.players: list[Player] = []  # of the first offer; all others have to have the same
        self.counts: Counter[str] = Counter()
        self.users: WeakSet[ListeningPort] = WeakSet()
        self._offers: asyncio.Queue[Connection] = asyncio.Queue()
        self._known = asyncio.Event()
        self._loop = process_loop()
        self._server = self._loop.run_until_complete(self._start(range(port, min(port + PORTS, 1 << 16))))

    @property
    def url(self) -> str:
        """Where worlds connect to."""
        return f"ws://{self.host}:{self.port}"

    def wait_for_players(self, timeout: float) -> list[Player]:
        """Who plays, when the first world has connected.

        Raises:
            EnvironmentFailure: none did in so many seconds.
        """
        try:
            self._loop.run_until_complete(asyncio.wait_for(self._known.wait(), timeout))
        except TimeoutError:
            raise EnvironmentFailure(self._nobody(timeout)) from None
        return self.players

    async def take(self, timeout: float) -> Connection:
        """A world that waits for a match.

        Raises:
            EnvironmentFailure: there was none in so many seconds.
        """
        for _ in range(QUIET_PASSES):
            await asyncio.sleep(0)
        try:
            async with asyncio.timeout(timeout):
                while True:
                    offer = await self._offers.get()
                    if offer.socket.close_code is None:
                        return offer
        except TimeoutError:
            raise EnvironmentFailure(self._nobody(timeout)) from None

    def close(self) -> None:
        """Stop listening and close all connections."""
        if not self._loop.is_closed() and not self._loop.is_running():
            self._loop.run_until_complete(self._stop())

    async def _start(self, ports: range) -> Any:
        from websockets.asyncio.server import serve

        for port in ports:
            try:
                # No pings: the event loop stands still while this process computes.
                server = await serve(self._serve, self.host, port, ping_interval=None, **SOCKET_OPTIONS)
            except OSError as error:
                if error.errno != errno.EADDRINUSE:
                    raise EnvironmentFailure(f"cannot listen at {self.url}: {describe_exception(error)}") from error
            else:
                self.port = port
                return server
        raise EnvironmentFailure(f"cannot listen at {self.url}: the ports from {ports[0]} to {ports[-1]} are all in use")

    async def _stop(self) -> None:
        self._server.close()
        await self._server.wait_closed()

    async def _serve(self, socket: Any) -> None:
        """Check an offer and keep it until its connection is closed."""
        from websockets.exceptions import ConnectionClosed

        connection = Connection(socket)
        try:
            offer = await asyncio.wait_for(connection.receive("offer"), GREETING_SECONDS)
            frames = check_greeting(offer, self._token, socket.request.headers.get("Origin"), one_match=True)
            self._check_players(offer.get("players"))
            self._offers.put_nowait(Connection(socket, frames))
            self._known.set()
            await socket.wait_closed()
            if how_lost(socket.protocol.close_exc) == "too_large":
                self.counts["too_large"] += 1
        except Refused as error:
            self.counts[error.kind] += 1
            await connection.refuse(error)
        except (ConnectionClosed, TimeoutError) as error:
            self.counts[how_lost(error)] += 1

    def _check_players(self, described: Any) -> None:
        try:
            players = read_players(described)
        except EnvironmentFailure as error:
            raise Refused("players", str(error)) from error
        if self.players and players != self.players:
            names = ", ".join(player.name for player in self.players)
            raise Refused("players", f"expected the same players as those of the first world that connected: {names}")
        self.players = players

    def _nobody(self, timeout: float) -> str:
        refused = ", ".join(
            f"{count} for their {'size' if kind == 'too_large' else kind}" for kind, count in self.counts.items() if kind != "lost"
        )
        return f"no world connected to {self.url} within {timeout:g} s{f' (refused: {refused})' if refused else ''}. Start one first"


_LISTENERS: dict[tuple[int, int, str, int, str], Listener] = {}


class ListeningPort:
    """What one world of this process has of the listener that all of its worlds share."""

    def __init__(self, url: str, token: str, timeout: float) -> None:
        """Listen, and wait for the first world to tell who plays.

        Raises:
            EnvironmentFailure: no such address, or no world connected.
        """
        if not 0 < timeout < DEADLINE:
            raise EnvironmentFailure(f"expected a timeout of less than {DEADLINE:g} seconds; got {timeout:g}")
        host, port = read_address(url)
        self._timeout = timeout
        self._key = (os.getpid(), threading.get_ident(), host, port, token)
        if self._key not in _LISTENERS:
            _LISTENERS[self._key] = Listener(host, port, token)
        self._listener = _LISTENERS[self._key]
        self._listener.users.add(self)
        try:
            self.players = self._listener.wait_for_players(timeout)
        except BaseException:
            self.close()
            raise

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[Connection]:
        """One that waits for a match."""
        offer = await self._listener.take(self._timeout)
        try:
            yield offer
        finally:
            await offer.socket.close()

    def close(self) -> None:
        """The last world that listens there closes the port."""
        self._listener.users.discard(self)
        if not self._listener.users and _LISTENERS.get(self._key) is self._listener:
            del _LISTENERS[self._key]
            self._listener.close()


def read_address(url: str) -> tuple[str, int]:
    """Host and port of listen://HOST:PORT; without a host, this machine only.

    Raises:
        EnvironmentFailure: it is no such address.
    """
    try:
        parts = urlsplit(url)
        if parts.port and not parts.path and not parts.query:
            return parts.hostname or LOOPBACK, parts.port
    except ValueError:  # no number, or none of a port
        pass
    raise EnvironmentFailure(f"expected {SCHEME}HOST:PORT with a port from 1 to 65535; got {clean_text(url, 80)}")
