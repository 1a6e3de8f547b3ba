"""What Baldwin and a live world say to each other over a WebSocket.

A connection is one match. Whoever connects says hello. Where Baldwin connects (`live:ws://HOST:PORT`):

| who | message |
|---|---|
| Baldwin | {"type": "hello", "version": 1, "token": "...", "frames": "json"} |
| world | {"type": "welcome", "version": 1, "frames": "json", "players": [{"name", "observation": {"shape", "low", "high"}, "actions": 3 or {"shape", "low", "high"}, "rewards": [names]}]} |

Where the world connects (`live:listen://HOST:PORT`), one message does for both:

| who | message |
|---|---|
| world | {"type": "offer", "version": 1, "token": "...", "frames": "json", "players": [as in a welcome]} |

And then, in both cases:

| who | message |
|---|---|
| Baldwin | {"type": "begin", "seed": 7, "players": ["left"]}, to an offer when a match is to begin, which may take long |
| world | {"type": "turn", "player": "left", "turn": 12, "observation": [...], "legal": [...], "reward": [0.0], "elapsed": 1, "terminated": false, "truncated": false, "result": {...} at the end} |
| Baldwin | {"type": "act", "player": "left", "turn": 12, "action": 2} |
| either | {"type": "error", "reason": "..."}, and it closes the connection |

The first two messages are JSON. With "frames": "msgpack", the same objects travel as msgpack in binary messages from `begin` on. With
"frames": "packed", where Baldwin connects, one connection has all matches of a worker: see `live_packed.py`.
"""

from __future__ import annotations

import hmac
import json
import math
import re
from collections.abc import AsyncIterator, Mapping
from typing import Any, NamedTuple

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from baldwin.envs.asynchronous import Player
from baldwin.errors import EnvironmentFailure, clean_text, describe_exception, missing_extra

VERSION = 1
MAX_BYTES = 1 << 20
TOO_LARGE = 1009  # the code with which a WebSocket is closed for it (RFC 6455)
GREETING_SECONDS = 10.0  # for the first message of whoever connects
JSON, MSGPACK, PACKED = "json", "msgpack", "packed"
FRAMES = (JSON, MSGPACK, PACKED)
SOCKET_OPTIONS: dict[str, Any] = {"max_size": MAX_BYTES, "compression": None, "close_timeout": 1.0}
"""Messages have some hundred bytes, sixty times a second: deflating them costs more than sending them. And whoever computes does not
answer at once that a connection is closed."""
OWN_PAGES = re.compile(r"https?://(localhost|127\.0\.0\.1|\[::1\])(:\d+)?")
WRONG = (ValueError, KeyError, TypeError, AttributeError, OverflowError)
"""What reading a message raises that is not as it should be; OverflowError: int(Infinity)."""


def how_lost(closed: Exception) -> str:
    """As what a connection that ended before its time is counted: a message above MAX_BYTES came, or it was lost."""
    sent = getattr(closed, "sent", None)  # the close that this side sent; a TimeoutError has none
    return "too_large" if sent is not None and sent.code == TOO_LARGE else "lost"


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
    match: int = 0  # its number, where a connection has several

    def message(self) -> dict[str, Any]:
        """As it is told where a connection is one match."""
        legal = {} if self.legal is None else {"legal": self.legal.tolist()}
        return legal | {
            "type": "turn",
            "player": self.player,
            "turn": self.number,
            "observation": self.observation.tolist(),
            "reward": self.reward.tolist(),
            "elapsed": self.elapsed,
            "terminated": self.terminated,
            "truncated": self.truncated,
            "result": self.result,
        }


class Refused(Exception):
    """A message that ends the connection, with its kind for the counts."""

    def __init__(self, kind: str, reason: str) -> None:
        super().__init__(reason)
        self.kind = kind


class Connection(NamedTuple):
    """A WebSocket, and how messages are written on it."""

    socket: Any
    frames: str = JSON

    async def send(self, message: Mapping[str, Any]) -> None:
        """Encode a message as the connection's frames say, and send it."""
        await self.socket.send(encode(message, self.frames))

    async def turns(self, players: Mapping[str, Player]) -> AsyncIterator[Turn]:
        """What the world tells these players, as it comes.

        Raises:
            EnvironmentFailure: a message is no turn of one of them.
        """
        async for raw in self.socket:
            yield read_turn(raw, players, self.frames)

    async def receive(self, kind: str) -> dict[str, Any]:
        """The next message, which has to be of this type.

        Raises:
            Refused: it is something else.
        """
        try:
            message = decode(await self.socket.recv(), self.frames)
        except ValueError as error:
            raise Refused("malformed", f"expected a message in {self.frames}") from error
        if not isinstance(message, dict) or message.get("type") != kind:
            raise Refused("malformed", f"expected a message of type {kind}")
        return message

    async def refuse(self, error: Refused) -> None:
        """Say why; the caller closes the connection."""
        await self.send({"type": "error", "reason": str(error)})


def check_frames(frames: str, purpose: str, one_match: bool = False) -> str:
    """The name itself. `one_match`: the connection can have no more than one.

    Raises:
        MissingExtra: msgpack is not installed.
        EnvironmentFailure: there are no such frames.
    """
    known = FRAMES[:-1] if one_match else FRAMES
    if frames not in known:
        raise EnvironmentFailure(f"expected frames={', '.join(known[:-1])} or {known[-1]}; got {clean_text(str(frames), 40)!r}")
    if frames != JSON:
        try:
            import msgpack  # noqa: F401
        except ModuleNotFoundError as error:
            raise missing_extra("live", purpose) from error
    return frames


def encode(message: Mapping[str, Any], frames: str = JSON) -> str | bytes:
    """A message as it travels: text for JSON, bytes for msgpack and packed."""
    if frames == JSON:
        return json.dumps(message)
    import msgpack

    return bytes(msgpack.packb(message))


def decode(raw: str | bytes, frames: str = JSON) -> Any:
    """What was sent, of whatever type.

    Raises:
        ValueError: it is malformed.
    """
    if frames == JSON:
        try:
            return json.loads(raw)
        except RecursionError as error:
            raise ValueError("nested too deeply") from error
    import msgpack

    if isinstance(raw, str):
        raise ValueError("text where msgpack was agreed on")
    try:
        return msgpack.unpackb(raw)
    except (msgpack.UnpackException, TypeError, OverflowError, RecursionError) as error:
        raise ValueError("malformed msgpack") from error


def check_greeting(message: Mapping[str, Any], token: str, origin: str | None, one_match: bool = False) -> str:
    """The frames that were agreed on with whoever connected, for one match or for any number. `origin`: of the page, if that is a browser.

    Any page can connect to this machine from a browser on it, so that pages of other sites need a token.

    Raises:
        Refused: another version, token or site, or unknown frames.
    """
    if message.get("version") != VERSION:
        raise Refused("version", f"expected version {VERSION} of the protocol; got {clean_text(repr(message.get('version')), 40)}")
    given = str(message.get("token", ""))
    if not hmac.compare_digest(given.encode("utf-8", "surrogatepass"), token.encode("utf-8", "surrogatepass")):
        raise Refused("token", "the token is not the right one")
    if origin is not None and not token and not OWN_PAGES.fullmatch(origin):
        raise Refused("origin", "pages of other sites need a token")
    frames = message.get("frames", JSON)
    try:
        return check_frames(frames, f"frames={frames}", one_match)
    except Exception as error:
        raise Refused("frames", str(error)) from error


def read_message(raw: str | bytes, kind: str, frames: str = JSON) -> dict[str, Any]:
    """A message of that type.

    Raises:
        EnvironmentFailure: it is something else, or the world's refusal.
    """
    try:
        message = decode(raw, frames)
    except ValueError as error:
        kind_of = "JSON" if frames == JSON else frames
        raise EnvironmentFailure(f"the live world sent what is no {kind_of}: {clean_text(str(raw), 80)}") from error
    found = message.get("type") if isinstance(message, dict) else None
    if found == "error":
        raise EnvironmentFailure(f"the live world refused: {clean_text(str(message.get('reason')), 200)}")
    if found != kind:
        raise EnvironmentFailure(f"expected a message of type {kind} from the live world; got {clean_text(str(message), 80)}")
    return dict(message)


def read_welcome(raw: str | bytes, frames: str = JSON) -> list[Player]:
    """Who plays. `frames`: those that were asked for; the welcome itself is JSON.

    Raises:
        EnvironmentFailure: another version, other frames, or no proper list of players.
    """
    message = read_message(raw, "welcome")
    if message.get("version") != VERSION:
        raise EnvironmentFailure(f"the live world speaks version {message.get('version')!r} of the protocol, Baldwin {VERSION}")
    if message.get("frames", JSON) != frames:
        raise EnvironmentFailure(f"the live world has no {frames} frames: leave frames out of env.kwargs")
    return read_players(message.get("players"))


def read_players(described: Any) -> list[Player]:
    """Who plays, from the list in a welcome or in an offer.

    Raises:
        EnvironmentFailure: it is no such list, or empty.
    """
    try:
        players = [
            Player(str(p["name"]), _box(p["observation"]), _actions(p["actions"]), tuple(map(str, p.get("rewards", ["reward"]))))
            for p in described
        ]
    except (*WRONG, AssertionError, MemoryError) as error:
        raise EnvironmentFailure(f"the live world describes its players wrongly: {describe_exception(error)}") from error
    if not players:
        raise EnvironmentFailure("the live world has no players")
    return players


def read_turn(raw: str | bytes, players: Mapping[str, Player], frames: str = JSON) -> Turn:
    """What a player sees now.

    Raises:
        EnvironmentFailure: it is not as the player was described.
    """
    message = read_message(raw, "turn", frames)
    try:
        player = players[message["player"]]
        observation = np.asarray(message["observation"], np.float32)
        reward = np.asarray(message.get("reward", [0.0] * len(player.rewards)), np.float64)
        legal = None if message.get("legal") is None else np.asarray(message["legal"], np.bool_)
        if observation.shape != player.observation_space.shape or reward.shape != (len(player.rewards),):
            raise ValueError(f"observation {observation.shape} and reward {reward.shape} of {player.name}")
        check_finite(observation, reward)
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
    except WRONG as error:
        raise EnvironmentFailure(f"the live world sent a wrong turn: {describe_exception(error)}") from error


def check_finite(*arrays: NDArray[Any]) -> None:
    """Refuse what no policy can learn from.

    Raises:
        ValueError: a number is not finite.
    """
    if not all(np.isfinite(array).all() for array in arrays):
        raise ValueError("numbers that are not finite")


def describe_player(player: Player) -> dict[str, Any]:
    """A player as a welcome has it, for worlds that are written in Python."""
    space = player.action_space
    actions = int(space.n) if isinstance(space, spaces.Discrete) else _limits(space)
    return {"name": player.name, "observation": _limits(player.observation_space), "actions": actions, "rewards": list(player.rewards)}


def _limits(space: Any) -> dict[str, Any]:
    return {"shape": list(space.shape), "low": float(np.min(space.low)), "high": float(np.max(space.high))}


def _box(limits: Mapping[str, Any]) -> spaces.Box:
    shape = tuple(int(n) for n in limits["shape"])
    if math.prod(shape) > MAX_BYTES:
        raise ValueError(f"{math.prod(shape)} numbers do not fit into a message")
    return spaces.Box(float(limits["low"]), float(limits["high"]), shape, np.float32)


def _actions(actions: Any) -> spaces.Space[Any]:
    return spaces.Discrete(actions) if isinstance(actions, int) else _box(actions)
