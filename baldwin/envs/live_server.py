"""The other side of `live.py` in Python: a game on its own clock. It never waits for a player."""

from __future__ import annotations

import asyncio
import time
from collections import Counter, deque
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any, Literal, NamedTuple, Protocol, cast, runtime_checkable

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from baldwin.envs.asynchronous import Player
from baldwin.envs.live_packed import pack_turns, read_actions
from baldwin.envs.live_protocol import (
    GREETING_SECONDS,
    JSON,
    PACKED,
    SOCKET_OPTIONS,
    VERSION,
    WRONG,
    Connection,
    Refused,
    Turn,
    check_frames,
    check_greeting,
    decode,
    describe_player,
    encode,
    how_lost,
)
from baldwin.errors import EnvironmentFailure, clean_text
from baldwin.ops.statistics import latency_percentiles

BACKLOG = 8  # messages of a connection that may be on their way; further turns are joined
MOST_LATE = 1.0  # seconds: ticks that are later are left out
MAX_MATCHES = 1024  # of one connection
RETRY_SECONDS = 0.5  # between two offers to a worker that does not listen
TURNS_TIMED = 1000  # turns of a player whose answers are still timed
LATENCIES_KEPT = 100_000

Sending = Coroutine[Any, Any, None]


class Frame(NamedTuple):
    """Rewards of one frame, and whether the game is over with it."""

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


@runtime_checkable
class Games(Protocol):
    """A game whose matches are advanced together, by number: what a simulator in arrays needs to be fast."""

    players: Sequence[Player]

    def begin(self, match: int, seed: int) -> None:
        """Start a match of this number; the seed decides all that is random in it."""

    def frames(self, actions: Mapping[int, Mapping[str, Any]]) -> Mapping[int, Frame]:
        """Advance these matches by one frame; actions as for `Game.frame`."""

    def observe(self, matches: Sequence[int], player: str) -> Any:
        """What a player sees now in each of these matches [k, ...]."""

    def result(self, match: int, player: str) -> dict[str, Any]:
        """How a match ended for a player."""

    def leave(self, match: int) -> None:
        """Forget a match, which is over or was given up."""


class SeparateGames:
    """A game for each match."""

    def __init__(self, make_game: Callable[[], Game], first: Game) -> None:
        """`first`: one that was made already."""
        self._make_game = make_game
        self.players = first.players
        self._games: dict[int, Game] = {}
        self._unused = [first]

    def begin(self, match: int, seed: int) -> None:
        """With a game that nobody uses any more, or a new one."""
        game = self._games[match] = self._unused.pop() if self._unused else self._make_game()
        game.begin(seed)

    def frames(self, actions: Mapping[int, Mapping[str, Any]]) -> Mapping[int, Frame]:
        """One game after the other."""
        return {match: self._games[match].frame(own) for match, own in actions.items()}

    def observe(self, matches: Sequence[int], player: str) -> Any:
        """What the player sees in each match, game by game [k, ...]."""
        return [self._games[match].observe(player) for match in matches]

    def result(self, match: int, player: str) -> dict[str, Any]:
        """The game's own result, as a controller's `result()` returns it."""
        return self._games[match].result(player)

    def leave(self, match: int) -> None:
        """Its game is for the next one."""
        self._unused.append(self._games.pop(match))


class LiveServer:
    """Plays a game over each connection at so many frames a second: of workers that connect (`start`), or to workers that listen (`offer`).

    `counts`: matches, frames of all matches, late_actions (they came when a later turn had been sent), and messages that were refused, by
    reason. `latencies`: the last seconds from a turn to the frame in which its action took effect.
    """

    def __init__(
        self,
        make_game: Callable[[], Game | Games],
        rate: float = 60.0,
        token: str = "",
        host: str = "127.0.0.1",
        port: int = 0,
        late: Literal["apply", "refuse"] = "apply",
    ) -> None:
        """`make_game`: for each match, or, if it makes `Games`, for each connection. `port` 0: any that is free. Only this machine can
        connect, unless `host` says otherwise. `late` actions, for a turn that is not the last one sent: they take effect in the next frame,
        or are left out, so that the action before them goes on.

        Raises:
            EnvironmentFailure: `late` is neither.
        """
        if late not in ("apply", "refuse"):
            raise EnvironmentFailure(f"expected late='apply' or 'refuse'; got {clean_text(str(late), 40)!r}")
        self._refuses_late = late == "refuse"
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
        check_frames(frames, f"frames={frames}", one_match=True)
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
        """All counts; `ticks` of the world's clock and `missed_ticks`, which it began more than a tick late; percentiles of the latencies in
        milliseconds."""
        ticks = {"ticks": self._clock.ticks, "missed_ticks": self._clock.missed}
        return dict(self.counts) | ticks | latency_percentiles(self.latencies)

    async def _serve(self, socket: Any) -> None:
        """One connection from its `hello` to its end: it plays a game of its own."""
        from websockets.exceptions import ConnectionClosed

        table, connection = self._make_table(), Connection(socket)
        try:
            hello = await asyncio.wait_for(connection.receive("hello"), GREETING_SECONDS)
            frames = check_greeting(hello, self._token, socket.request.headers.get("Origin"))
            players = [describe_player(player) for player in table.games.players]
            await connection.send({"type": "welcome", "version": VERSION, "frames": frames, "players": players})
            connection = Connection(socket, frames)
            if frames == PACKED:
                await self._play_packed(connection, table)
            else:
                await self._play(connection, table, await connection.receive("begin"))
        except Refused as error:
            self.counts[error.kind] += 1
            await connection.refuse(error)
        except (ConnectionClosed, TimeoutError) as error:
            self.counts[how_lost(error)] += 1

    async def _offer_one(self, url: str, frames: str, left: asyncio.Event) -> None:
        """One connection to a worker that listens; `left` is set when it waits no more: its match begins, or it failed."""
        from websockets.asyncio.client import connect
        from websockets.exceptions import ConnectionClosed, InvalidHandshake

        table = self._make_table()
        players = [describe_player(player) for player in table.games.players]
        try:
            async with connect(url, open_timeout=None, ping_interval=None, proxy=None, **SOCKET_OPTIONS) as socket:
                greeting = {"type": "offer", "version": VERSION, "token": self._token, "frames": frames, "players": players}
                await socket.send(encode(greeting))
                begin = read_begin(await socket.recv(), frames)
                left.set()
                await self._play(Connection(socket, frames), table, begin)
        except Refused:
            self.counts["malformed"] += 1
        except (ConnectionClosed, InvalidHandshake, EOFError, OSError) as error:
            self.counts[how_lost(error)] += left.is_set()
            if not left.is_set():
                await asyncio.sleep(RETRY_SECONDS)
        finally:
            left.set()

    def _make_table(self) -> _Table:
        game = self._make_game()
        return _Table(
            game if isinstance(game, Games) else SeparateGames(cast("Callable[[], Game]", self._make_game), game), self._refuses_late
        )

    async def _play(self, connection: Connection, table: _Table, begin: Mapping[str, Any]) -> None:
        """One match, to its end or to that of its connection."""
        self.counts["matches"] += table.begin(0, begin)
        reading = asyncio.create_task(self._read(connection, table))
        await self._run(table, reading, lambda turns: [connection.send(turn.message()) for turn in turns])

    async def _play_packed(self, connection: Connection, table: _Table) -> None:
        """All matches that a worker begins, until it closes the connection."""
        reading = asyncio.create_task(self._read_packed(connection, table))
        await self._run(table, reading, lambda turns: [connection.send(message) for message in pack_turns(turns)], until_closed=True)

    async def _run(
        self, table: _Table, reading: asyncio.Task[None], send: Callable[[list[Turn]], list[Sending]], until_closed: bool = False
    ) -> None:
        """Advance the matches of a connection tick by tick, and send what their players see, until all are over or it is closed."""
        sending: set[asyncio.Task[None]] = set()
        try:
            with self._clock.used():
                while True:
                    has_room = len(sending) < BACKLOG  # who does not read gets one turn for several frames
                    for message in send(table.next_turns(time.monotonic(), only_ends=not has_room)):
                        task = asyncio.create_task(message)
                        sending.add(task)
                        task.add_done_callback(partial(_forget, sending))
                    table.drop_ended()
                    if not table.seats and not until_closed:
                        await asyncio.gather(*sending)
                        return
                    await self._clock.next_tick()
                    if reading.done():
                        reading.result()
                        return
                    self.latencies.extend(table.advance(time.monotonic()))
                    self.counts["frames"] += len(table.seats)
        finally:
            reading.cancel()
            for task in sending:
                task.cancel()

    async def _read(self, connection: Connection, table: _Table) -> None:
        """Actions as they come; what is wrong is refused and counted, and the match goes on."""
        async for raw in connection.socket:
            try:
                message = decode(raw, connection.frames)
                if message["type"] != "act":
                    raise ValueError
                self.counts["late_actions"] += table.take(0, message["player"], message["turn"], message["action"])
            except WRONG:
                self.counts["malformed"] += 1

    async def _read_packed(self, connection: Connection, table: _Table) -> None:
        """Take actions of all matches of a connection, in packed frames, as they come."""
        async for raw in connection.socket:
            try:
                message = decode(raw, connection.frames)
                if message["type"] == "begin":
                    self.counts["matches"] += table.begin(int(message["match"]), message)
                elif message["type"] == "leave":
                    table.leave(message["match"])
                else:
                    for number, turn, action in read_actions(message):
                        self.counts["late_actions"] += table.take(number, message["player"], turn, action)
            except (*WRONG, Refused):
                self.counts["malformed"] += 1


class Clock:
    """One timer for all matches: they wake up once a tick instead of once each, and a worker gets their turns together.

    Ticks are due at fixed times, whatever the players do. `missed` counts those that the world itself began more than a tick late.
    """

    def __init__(self, seconds: float) -> None:
        """`seconds` of a tick."""
        self.seconds = seconds
        self.ticks = self.missed = 0
        self._users = 0
        self._due = 0.0
        self._next: asyncio.Future[None] | None = None

    @contextmanager
    def used(self) -> Iterator[None]:
        """While somebody plays. A clock that nobody used has missed nothing."""
        if not self._users:
            self._due = asyncio.get_running_loop().time()
        self._users += 1
        try:
            yield
        finally:
            self._users -= 1

    async def next_tick(self) -> None:
        """Wait for the next tick. Late ones follow at once, but those of more than a second are left out, and count as missed."""
        if self._next is None:
            loop = asyncio.get_running_loop()
            self._due += self.seconds
            if (late := loop.time() - self._due) > MOST_LATE:
                self.missed += int(late / self.seconds)
                self._due += int(late / self.seconds) * self.seconds
            self._next = loop.create_future()
            loop.call_at(self._due, self._ring, loop)
        await asyncio.shield(self._next)  # a match that is cancelled cancels no other

    def _ring(self, loop: asyncio.AbstractEventLoop) -> None:
        self.ticks += 1
        self.missed += loop.time() - self._due > self.seconds
        if self._next:
            self._next.set_result(None)
        self._next = None


def chosen_players(players: Sequence[Player], begin: Mapping[str, Any]) -> list[Player]:
    """Whom the other side plays.

    Raises:
        Refused: the message names others, or has no proper seed.
    """
    known = {player.name: player for player in players}
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


class _Table:
    """The matches of a connection by number, and their players at the other end."""

    def __init__(self, games: Games, refuses_late: bool = False) -> None:
        self.games, self._refuses_late = games, refuses_late
        self.seats: dict[int, dict[str, _Remote]] = {}  # of matches that go on
        self._ended: set[int] = set()

    def begin(self, number: int, begin: Mapping[str, Any]) -> bool:
        """Start a match as a message asks for it; true.

        Raises:
            Refused: it asks for what there is not, or there are too many matches.
        """
        players = chosen_players(self.games.players, begin)
        if number in self.seats or len(self.seats) >= MAX_MATCHES:
            raise Refused("malformed", f"expected a number that is not in use, and at most {MAX_MATCHES} matches")
        self.games.begin(number, begin["seed"])
        self.seats[number] = {player.name: _Remote(player) for player in players}
        return True

    def leave(self, number: int) -> None:
        """Give up a match, if it still goes on."""
        if self.seats.pop(number, None):
            self.games.leave(number)

    def take(self, number: int, player: str, turn: Any, action: Any) -> bool:
        """An action, which takes effect in the next frame unless it is refused; whether it comes late: a later turn was sent, or the match is over.

        Raises:
            KeyError, ValueError, TypeError: it is malformed.
        """
        if number not in self.seats:
            return True
        seat = self.seats[number][player]
        if not seat.accepts(action):
            raise ValueError
        late = int(turn) < seat.turn
        if not (late and self._refuses_late):
            seat.answer(int(turn), action)
        return late

    def advance(self, now: float) -> list[float]:
        """One frame of all; seconds from turns to their actions' effect, of all that were answered since the last one."""
        if not self.seats:
            return []
        latencies = [seconds for seats in self.seats.values() for seat in seats.values() for seconds in seat.take_effect(now)]
        actions = {number: {name: seat.action for name, seat in seats.items()} for number, seats in self.seats.items()}
        for number, (rewards, over) in self.games.frames(actions).items():
            if over:
                self._ended.add(number)
            for name, seat in self.seats[number].items():
                seat.reward += rewards.get(name, 0.0)
                seat.elapsed += 1
        return latencies

    def next_turns(self, now: float, only_ends: bool) -> list[Turn]:
        """What the players see now, of all matches or only of those that are over."""
        turns = []
        for player in self.games.players:
            numbers = [n for n, seats in self.seats.items() if player.name in seats and (n in self._ended or not only_ends)]
            observations = np.asarray(self.games.observe(numbers, player.name), np.float32) if numbers else ()
            for number, observation in zip(numbers, observations, strict=True):
                over = number in self._ended
                result = self.games.result(number, player.name) if over else {}
                turns.append(self.seats[number][player.name].next_turn(number, observation, over, result, now))
        return turns

    def drop_ended(self) -> None:
        """Forget matches whose end was told."""
        for number in self._ended:
            self.leave(number)
        self._ended = set()


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
        if isinstance(space, spaces.Discrete) and type(action) is int:
            return bool(0 <= action - space.start < space.n)
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

    def next_turn(self, match: int, observation: NDArray[np.float32], over: bool, result: dict[str, Any], now: float) -> Turn:
        """The turn that is sent now, with all rewards and frames since the last one."""
        self.turn += 1
        self._shown.append(now)
        reward = np.array([self.reward])
        turn = Turn(self._player.name, self.turn, observation, None, reward, self.elapsed, over, False, result, match)
        self.reward, self.elapsed = 0.0, 0
        return turn
