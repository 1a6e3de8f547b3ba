"""The other side of `live.py` in Python: a game on its own clock, served to whoever connects. It never waits for a player."""

from __future__ import annotations

import asyncio
import hmac
import json
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple, Protocol

import numpy as np

from baldwin.envs.asynchronous import Player
from baldwin.envs.live import MAX_BYTES, VERSION, describe_player

BACKLOG = 4  # turns that may be on their way to a player; further ones are joined


class Frame(NamedTuple):
    """What one frame brought."""

    rewards: Mapping[str, float]  # by player
    over: bool


class Game(Protocol):
    """A game that is advanced frame by frame."""

    players: Sequence[Player]

    def begin(self, seed: int) -> None:
        """Start a new match; the seed decides all that is random in it."""

    def frame(self, actions: Mapping[str, Any]) -> Frame:
        """Advance by one frame. Players that are not named are played by the game's script; None: this player has not decided yet."""

    def observe(self, player: str) -> Any:
        """What a player sees now."""

    def result(self, player: str) -> dict[str, Any]:
        """How the game ended for a player."""


class LiveServer:
    """Serves a game for each connection at so many frames a second.

    `counts`: matches, frames, missed_frames (the clock was late by more than a frame), late (actions for a turn that was over), and
    messages that were refused, by reason.
    """

    def __init__(self, make_game: Callable[[], Game], rate: float = 60.0, token: str = "", host: str = "127.0.0.1", port: int = 0) -> None:
        """`port` 0: any that is free. Only this machine can connect, unless `host` says otherwise."""
        self._make_game, self._seconds, self._token = make_game, 1 / rate, token
        self._host, self.port = host, port
        self.counts: Counter[str] = Counter()
        self._server: Any = None

    async def start(self) -> str:
        """Begin to serve; returns the address."""
        from websockets.asyncio.server import serve

        self._server = await serve(self._serve, self._host, self.port, max_size=MAX_BYTES)
        self.port = next(iter(self._server.sockets)).getsockname()[1]
        return f"ws://{self._host}:{self.port}"

    async def close(self) -> None:
        """Stop listening and close all connections, in the middle of their matches."""
        self._server.close()
        await self._server.wait_closed()

    async def _serve(self, socket: Any) -> None:
        from websockets.exceptions import ConnectionClosed

        game = self._make_game()
        try:
            hello = await asyncio.wait_for(self._receive(socket, "hello"), 10)
            if hello.get("version") != VERSION:
                raise Refused("version", f"expected version {VERSION} of the protocol; got {hello.get('version')!r}")
            if not hmac.compare_digest(str(hello.get("token", "")), self._token):
                raise Refused("token", "the token is not the right one")
            await socket.send(json.dumps({"type": "welcome", "version": VERSION, "players": [describe_player(p) for p in game.players]}))
            begin = await self._receive(socket, "begin")
            known = {player.name: player for player in game.players}
            names = begin.get("players")
            if (
                not isinstance(names, list)
                or not names
                or any(name not in known for name in names)
                or not isinstance(begin.get("seed"), int)
            ):
                raise Refused("malformed", f"expected a seed and some of the players {', '.join(known)}")
            await self._play(socket, game, [known[name] for name in names], begin["seed"])
        except Refused as error:
            self.counts[error.kind] += 1
            await socket.send(json.dumps({"type": "error", "reason": str(error)}))
        except (ConnectionClosed, TimeoutError):
            self.counts["lost"] += 1

    async def _receive(self, socket: Any, kind: str) -> dict[str, Any]:
        raw = await socket.recv()
        try:
            message = json.loads(raw)
        except (ValueError, RecursionError) as error:
            raise Refused("malformed", "expected JSON") from error
        if not isinstance(message, dict) or message.get("type") != kind:
            raise Refused("malformed", f"expected a message of type {kind}")
        return message

    async def _play(self, socket: Any, game: Game, players: Sequence[Player], seed: int) -> None:
        self.counts["matches"] += 1
        game.begin(seed)
        seats = {player.name: _Remote(player) for player in players}
        reading = asyncio.create_task(self._read(socket, seats))
        sending: set[asyncio.Task[None]] = set()
        began, frame, over = time.monotonic(), 0, False
        try:
            while True:
                for name, seat in seats.items():
                    if over or len(sending) < BACKLOG * len(seats):  # a player that does not read gets one turn for several frames
                        message = seat.next_turn(game.observe(name), over, game.result(name) if over else {})
                        task = asyncio.create_task(socket.send(json.dumps(message)))
                        sending.add(task)
                        task.add_done_callback(partial(_forget, sending))
                if over:
                    await asyncio.gather(*sending)
                    return
                frame += 1
                pause = began + frame * self._seconds - time.monotonic()
                self.counts["missed_frames"] += pause < -self._seconds
                await asyncio.sleep(max(0.0, pause))
                if reading.done():
                    reading.result()
                    return
                rewards, over = game.frame({name: seat.action for name, seat in seats.items()})
                self.counts["frames"] += 1
                for name, seat in seats.items():
                    seat.reward += rewards.get(name, 0.0)
                    seat.elapsed += 1
        finally:
            reading.cancel()
            for task in sending:
                task.cancel()

    async def _read(self, socket: Any, seats: Mapping[str, _Remote]) -> None:
        """Actions as they come; what is wrong is refused and counted, and the match goes on."""
        async for raw in socket:
            try:
                message = json.loads(raw)
                seat = seats[message["player"]]
                if message["type"] != "act" or not seat.accepts(message["action"]):
                    raise ValueError
                if int(message["turn"]) < seat.turn:
                    self.counts["late"] += 1
                seat.action = message["action"]
            except (ValueError, KeyError, TypeError, RecursionError, AttributeError):
                self.counts["malformed"] += 1


def _forget(sending: set[asyncio.Task[None]], done: asyncio.Task[None]) -> None:
    """Of a message that was sent, or that found the connection closed, which `_read` sees, too."""
    sending.discard(done)
    if not done.cancelled():
        done.exception()


class _Remote:
    """A player at the other end."""

    def __init__(self, player: Player) -> None:
        self._player = player
        self.turn, self.reward, self.elapsed = -1, 0.0, 0
        self.action: Any = None

    def accepts(self, action: Any) -> bool:
        space = self._player.action_space
        return bool(space.contains(np.asarray(action, space.dtype))) and not isinstance(action, bool)

    def next_turn(self, observation: Any, over: bool, result: dict[str, Any]) -> dict[str, Any]:
        self.turn += 1
        message = {
            "type": "turn",
            "player": self._player.name,
            "turn": self.turn,
            "observation": np.asarray(observation).tolist(),
            "reward": [self.reward],
            "elapsed": self.elapsed,
            "terminated": over,
            "result": result,
        }
        self.reward, self.elapsed = 0.0, 0
        return message


class Refused(Exception):
    """A message that ends the connection, with its kind for the counts."""

    def __init__(self, kind: str, reason: str) -> None:
        super().__init__(reason)
        self.kind = kind
