"""The other side of `live.py` in Python: a game on its own clock. It never waits for a player."""

from __future__ import annotations

import asyncio
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple, Protocol

import numpy as np

from baldwin.envs.asynchronous import Player
from baldwin.envs.live_protocol import (
    GREETING_SECONDS,
    JSON,
    SOCKET_OPTIONS,
    VERSION,
    WRONG,
    Connection,
    Refused,
    check_frames,
    check_greeting,
    decode,
    describe_player,
    encode,
)
from baldwin.errors import EnvironmentFailure, clean_text
from baldwin.ops.statistics import latency_percentiles

BACKLOG = 4  # turns that may be on their way to a player; further ones are joined
RETRY_SECONDS = 0.5  # between two offers to a worker that does not listen
TURNS_TIMED = 1000  # turns of a player whose answers are still timed
LATENCIES_KEPT = 100_000


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
    """Plays a game over each connection at so many frames a second: of workers that connect (`start`), or to workers that listen (`offer`).

    `counts`: matches, frames, missed_frames (the clock was late by more than a frame), late (actions for a turn that was over), and
    messages that were refused, by reason. `latencies`: the last seconds from a turn to the frame in which its action took effect.
    """

    def __init__(self, make_game: Callable[[], Game], rate: float = 60.0, token: str = "", host: str = "127.0.0.1", port: int = 0) -> None:
        """`port` 0: any that is free. Only this machine can connect, unless `host` says otherwise."""
        self._make_game, self._clock, self._token = make_game, Clock(1 / rate), token
        self._host, self.port = host, port
        self.counts: Counter[str] = Counter()
        self.latencies: deque[float] = deque(maxlen=LATENCIES_KEPT)
        self._server: Any = None

    async def start(self) -> str:
        """Begin to serve; returns the address."""
        from websockets.asyncio.server import serve

        self._server = await serve(self._serve, self._host, self.port, **SOCKET_OPTIONS)
        self.port = next(iter(self._server.sockets)).getsockname()[1]
        return f"ws://{self._host}:{self.port}"

    async def close(self) -> None:
        """Stop listening and close all connections, in the middle of their matches."""
        self._server.close()
        await self._server.wait_closed()

    async def offer(self, url: str, frames: str = JSON) -> None:
        """Offer matches to a worker that listens there, one more whenever one has begun, until this is cancelled.

        Raises:
            EnvironmentFailure: the worker refuses; one that is not there yet, or no more, is waited for.
        """
        check_frames(frames, f"frames={frames}")
        matches: set[asyncio.Task[None]] = set()
        try:
            while True:
                left = asyncio.Event()
                match = asyncio.create_task(self._offer_one(url, frames, left))
                matches.add(match)
                match.add_done_callback(matches.discard)
                await left.wait()
                if match.done():
                    match.result()
        finally:
            for match in matches:
                match.cancel()

    def report(self) -> dict[str, float]:
        """All counts, and the percentiles of the latencies in milliseconds."""
        return dict(self.counts) | latency_percentiles(self.latencies)

    async def _serve(self, socket: Any) -> None:
        """One connection from its `hello` to its end: it plays a game of its own."""
        from websockets.exceptions import ConnectionClosed

        game, connection = self._make_game(), Connection(socket)
        try:
            hello = await asyncio.wait_for(connection.receive("hello"), GREETING_SECONDS)
            frames = check_greeting(hello, self._token, socket.request.headers.get("Origin"))
            players = [describe_player(player) for player in game.players]
            await connection.send({"type": "welcome", "version": VERSION, "frames": frames, "players": players})
            connection = Connection(socket, frames)
            await self._play(connection, game, await connection.receive("begin"))
        except Refused as error:
            self.counts[error.kind] += 1
            await connection.refuse(error)
        except (ConnectionClosed, TimeoutError):
            self.counts["lost"] += 1

    async def _offer_one(self, url: str, frames: str, left: asyncio.Event) -> None:
        """One connection to a worker that listens; `left` is set when it waits no more: its match begins, or it failed."""
        from websockets.asyncio.client import connect
        from websockets.exceptions import ConnectionClosed, InvalidHandshake

        game = self._make_game()
        players = [describe_player(player) for player in game.players]
        try:
            async with connect(url, open_timeout=None, ping_interval=None, proxy=None, **SOCKET_OPTIONS) as socket:
                greeting = {"type": "offer", "version": VERSION, "token": self._token, "frames": frames, "players": players}
                await socket.send(encode(greeting))
                begin = read_begin(await socket.recv(), frames)
                left.set()
                await self._play(Connection(socket, frames), game, begin)
        except Refused:
            self.counts["malformed"] += 1
        except (ConnectionClosed, InvalidHandshake, EOFError, OSError):
            self.counts["lost"] += left.is_set()
            if not left.is_set():
                await asyncio.sleep(RETRY_SECONDS)
        finally:
            left.set()

    async def _play(self, connection: Connection, game: Game, begin: Mapping[str, Any]) -> None:
        seats = {player.name: _Remote(player) for player in chosen_players(game, begin)}
        self.counts["matches"] += 1
        game.begin(begin["seed"])
        reading = asyncio.create_task(self._read(connection, seats))
        sending: set[asyncio.Task[None]] = set()
        over = False
        try:
            while True:
                for name, seat in seats.items():
                    if over or len(sending) < BACKLOG * len(seats):  # a player that does not read gets one turn for several frames
                        message = seat.next_turn(game.observe(name), over, game.result(name) if over else {}, time.monotonic())
                        task = asyncio.create_task(connection.send(message))
                        sending.add(task)
                        task.add_done_callback(partial(_forget, sending))
                if over:
                    await asyncio.gather(*sending)
                    return
                lateness = await self._clock.next_frame()
                self.counts["missed_frames"] += lateness > self._clock.seconds
                if reading.done():
                    reading.result()
                    return
                now = time.monotonic()
                for seat in seats.values():
                    self.latencies.extend(seat.take_effect(now))
                rewards, over = game.frame({name: seat.action for name, seat in seats.items()})
                self.counts["frames"] += 1
                for name, seat in seats.items():
                    seat.reward += rewards.get(name, 0.0)
                    seat.elapsed += 1
        finally:
            reading.cancel()
            for task in sending:
                task.cancel()

    async def _read(self, connection: Connection, seats: Mapping[str, _Remote]) -> None:
        """Actions as they come; what is wrong is refused and counted, and the match goes on."""
        async for raw in connection.socket:
            try:
                message = decode(raw, connection.frames)
                seat, turn = seats[message["player"]], int(message["turn"])
                if message["type"] != "act" or not seat.accepts(message["action"]):
                    raise ValueError
                self.counts["late"] += turn < seat.turn
                seat.answer(turn, message["action"])
            except WRONG:
                self.counts["malformed"] += 1


class Clock:
    """One timer for all matches: they wake up once a frame instead of once a frame each, and a worker gets their turns together."""

    def __init__(self, seconds: float) -> None:
        """`seconds` of a frame."""
        self.seconds = seconds
        self._due = 0.0
        self._next: asyncio.Future[float] | None = None

    async def next_frame(self) -> float:
        """Wait for the next frame; by how many seconds it comes late. Missed frames follow at once, but not those of more than a second."""
        if self._next is None:
            loop = asyncio.get_running_loop()
            now = loop.time()
            self._due = self._due + self.seconds if now - self._due < 1 else now + self.seconds
            self._next = loop.create_future()
            loop.call_at(self._due, self._ring, loop)
        return await asyncio.shield(self._next)  # a match that is cancelled cancels no other

    def _ring(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._next:
            self._next.set_result(loop.time() - self._due)
        self._next = None


def chosen_players(game: Game, begin: Mapping[str, Any]) -> list[Player]:
    """Whom the other side plays.

    Raises:
        Refused: the message names others, or has no proper seed.
    """
    known = {player.name: player for player in game.players}
    names, seed = begin.get("players"), begin.get("seed")
    good_names = isinstance(names, list) and names and all(isinstance(name, str) and name in known for name in names)
    if not good_names or not isinstance(seed, int) or not 0 <= seed < 1 << 64:
        raise Refused("malformed", f"expected a seed and some of the players {', '.join(known)}")
    return [known[name] for name in names or ()]


def read_begin(raw: str | bytes, frames: str) -> dict[str, Any]:
    """What a worker answers to an offer: `begin` in these frames, or a refusal in JSON.

    Raises:
        EnvironmentFailure: it refused.
        Refused: it is neither.
    """
    for kind, written in (("error", JSON), ("begin", frames)):
        with suppress(ValueError):
            message = decode(raw, written)
            if isinstance(message, dict) and message.get("type") == kind == "error":
                raise EnvironmentFailure(f"the worker refused: {clean_text(str(message.get('reason')), 200)}")
            if isinstance(message, dict) and message.get("type") == kind:
                return message
    raise Refused("malformed", "expected a message of type begin")


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
        self._shown: deque[float] = deque(maxlen=TURNS_TIMED)  # when the last turns were sent
        self._answered: list[float] = []  # when those turns were sent whose actions have not taken effect yet

    def accepts(self, action: Any) -> bool:
        space = self._player.action_space
        return bool(space.contains(np.asarray(action, space.dtype))) and not isinstance(action, bool)

    def answer(self, turn: int, action: Any) -> None:
        """An action for a turn; it takes effect in the next frame."""
        self.action = action
        back = self.turn - turn
        if 0 <= back < len(self._shown):
            self._answered.append(self._shown[-1 - back])

    def take_effect(self, now: float) -> list[float]:
        """Seconds from the turns to this frame, for all that were answered since the last one."""
        latencies = [now - shown for shown in self._answered]
        self._answered = []
        return latencies

    def next_turn(self, observation: Any, over: bool, result: dict[str, Any], now: float) -> dict[str, Any]:
        """The message of a turn that is sent now."""
        self.turn += 1
        self._shown.append(now)
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
