"""Live worlds over real sockets: msgpack frames, worlds that connect to a worker, rude ones, and one in JavaScript."""

from __future__ import annotations

import asyncio
import json
import os
import random
import re
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import msgpack
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from websockets.asyncio.client import connect as connect_async
from websockets.sync.client import connect

from baldwin.config import load_config
from baldwin.envs.live import LiveWorld
from baldwin.envs.live_listener import Listener
from baldwin.envs.live_protocol import decode, describe_player, encode, read_players, read_turn, read_welcome
from baldwin.envs.live_server import Clock, LiveServer, _Remote
from baldwin.envs.match_env import MatchEnv
from baldwin.envs.pong_world import PongWorld
from baldwin.errors import EnvironmentFailure
from examples.live_client import Catch
from examples.live_pong import LivePong
from tests.envs.test_live import FAST, served
from tests.runs.tools import train_run

HELLO = {"type": "hello", "version": 1, "token": "", "frames": "msgpack"}
OFFER = {"type": "offer", "version": 1, "token": "", "players": [describe_player(player) for player in PongWorld().players]}
MESSAGES = [
    {"type": "begin", "seed": 2**63 + 1, "players": ["left", "right"]},
    {"type": "turn", "player": "left", "turn": 3, "observation": [0.5, -0.25], "reward": [1.0], "legal": [True, False], "result": {}},
    {"type": "act", "player": "ä", "turn": 0, "action": [0.1, 2]},
]


def free_port(count: int = 1) -> int:
    """The first of so many ports that are free, outside of the range from which the system takes ports for connections."""
    while True:
        first = random.randrange(20_000, 30_000)
        with suppress(OSError):
            for port in range(first, first + count):
                with socket.socket() as tried:
                    tried.bind(("127.0.0.1", port))
            return first


@contextmanager
def in_background(*work: Any) -> Iterator[None]:
    """Coroutines in a thread, cancelled at the end."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    running = [asyncio.run_coroutine_threadsafe(one, loop) for one in work]
    try:
        yield
    finally:
        for one in running:
            one.cancel()
        asyncio.run_coroutine_threadsafe(_ended(), loop).result(20)
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


async def _ended() -> None:
    await asyncio.gather(*(task for task in asyncio.all_tasks() if task is not asyncio.current_task()), return_exceptions=True)


def follow_ball(env: MatchEnv, steps: int) -> int:
    """Decisions until the end of a match, or so many."""
    observation, _ = env.reset(seed=1)
    for n in range(steps):
        observation, _, over, _, _ = env.step(0 if observation[3] < observation[0] else 2)
        if over:
            return n + 1
    return steps


@pytest.mark.parametrize("frames", ["json", "msgpack"])
@pytest.mark.parametrize("message", MESSAGES)
def test_messages_come_back_as_they_were(message: dict[str, Any], frames: str) -> None:
    assert decode(encode(message, frames), frames) == message


def test_msgpack_is_what_the_format_says() -> None:
    assert encode({"turn": 7}, "msgpack") == b"\x81\xa4turn\x07"  # a map of one, a string of four bytes, a small integer
    assert isinstance(encode({"turn": 7}), str)


@settings(max_examples=300, deadline=None)
@given(st.one_of(st.text(), st.binary(), st.binary().map(lambda raw: b"\x84" + raw), st.binary().map(lambda raw: raw + b"\xc1")))
def test_whatever_comes_in_msgpack_is_one_error(raw: Any) -> None:
    players = {player.name: player for player in PongWorld().players}
    with pytest.raises(EnvironmentFailure):
        read_turn(raw, players, "msgpack")


@pytest.mark.parametrize("raw", [b"", b"\xc1", b"\x92\x01", b"\x01\x02", b"\x91" * 5000, b"\xdd\xff\xff\xff\xff", b"\x81\x01\x02", "{}"])
def test_malformed_msgpack_is_a_value_error(raw: Any) -> None:
    """Empty, reserved, cut off, two values, nested too deeply, four billion elements, a key that is no text, text."""
    with pytest.raises(ValueError):  # noqa: PT011 - msgpack's own words
        decode(raw, "msgpack")


def test_a_match_is_played_in_msgpack() -> None:
    with served() as (server, url):
        env = MatchEnv(LiveWorld(url, frames="msgpack"), "left")
        assert follow_ball(env, 30) > 0
        env.close()
        assert server.counts["frames"] > 0
        assert server.counts["malformed"] == 0


def test_a_world_without_msgpack_is_named() -> None:
    welcome = json.dumps({"type": "welcome", "version": 1, "players": OFFER["players"]})
    assert len(read_welcome(welcome)) == 2
    with pytest.raises(EnvironmentFailure, match="the live world has no msgpack frames: leave frames out of"):
        read_welcome(welcome, "msgpack")
    with pytest.raises(EnvironmentFailure, match="expected frames=json, msgpack or packed; got 'xml'"):
        LiveWorld("ws://127.0.0.1:1", frames="xml")
    with served() as (server, url), connect(url) as client:
        client.send(json.dumps(HELLO | {"frames": "xml"}))
        assert json.loads(client.recv())["reason"] == "expected frames=json, msgpack or packed; got 'xml'"
        assert server.counts["frames"] == 1


def test_ten_thousand_malformed_msgpack_messages_are_refused_and_the_match_goes_on() -> None:
    act = {"type": "act", "player": "left", "turn": 0, "action": 1}
    bad: list[str | bytes] = [b"", b"\xc1", b"\x91" * 5000, b"\x80", b"\x93\x01", b"\xdd\xff\xff\xff\xff", json.dumps(act)]
    bad += [msgpack.packb(act | wrong) for wrong in ({"action": 7}, {"turn": float("inf")}, {"player": ["left"]}, {"type": 3})]
    bad += [msgpack.packb(act | {"action": 2**63}), msgpack.packb(act)[:-1], msgpack.packb(act) + b"\x00"]
    rng = np.random.default_rng(0)
    with served(rate=30.0) as (server, url), connect(url, compression=None) as client:
        client.send(json.dumps(HELLO))
        assert json.loads(client.recv())["frames"] == "msgpack"
        client.send(msgpack.packb({"type": "begin", "seed": 1, "players": ["left"]}))
        for n in range(10_000):
            client.send(bad[n] if n < len(bad) else bad[rng.integers(len(bad))])
        while server.counts["malformed"] < 10_000:
            assert msgpack.unpackb(client.recv(60))["type"] == "turn"
        assert server.counts["malformed"] == 10_000
        assert msgpack.unpackb(client.recv(60))["type"] == "turn"


@pytest.mark.parametrize(
    "begin",
    [
        {},
        {"seed": -1, "players": ["left"]},
        {"seed": 2**64, "players": ["left"]},
        {"seed": 1, "players": [["left"]]},
        {"seed": 1, "players": []},
        {"seed": 1, "players": "left"},
    ],
)
def test_a_wrong_beginning_is_refused(begin: dict[str, Any]) -> None:
    with served() as (server, url), connect(url) as client:
        client.send(json.dumps(HELLO | {"frames": "json"}))
        client.recv()
        client.send(json.dumps({"type": "begin"} | begin))
        assert json.loads(client.recv())["reason"] == "expected a seed and some of the players left, right"
        assert server.counts["malformed"] == 1


def test_tokens_of_any_letters_are_compared() -> None:
    with served(token="schlüssel") as (server, url):
        assert LiveWorld(url, token="schlüssel").players
        with pytest.raises(EnvironmentFailure, match="the token is not the right one"):
            LiveWorld(url, token="ß")
        assert server.counts["token"] == 1


@pytest.mark.parametrize(
    ("origin", "token", "fine"), [("http://evil.example", "", 0), ("http://evil.example", "t", 1), ("http://localhost:80", "", 1)]
)
def test_pages_of_other_sites_need_a_token(origin: str, token: str, fine: int) -> None:
    """Any page that is open in a browser on this machine could connect to it."""
    with served(token=token) as (server, url), connect(url, origin=origin) as client:  # type: ignore[arg-type]
        client.send(json.dumps(HELLO | {"token": token}))
        assert json.loads(client.recv())["type"] == ("welcome" if fine else "error")
        assert server.counts["origin"] == 1 - fine


@pytest.mark.parametrize("frames", ["json", "msgpack"])
def test_a_world_connects_and_plays_several_matches_at_once(frames: str) -> None:
    port, server = free_port(), LiveServer(LivePong, FAST)
    with in_background(server.offer(f"ws://127.0.0.1:{port}", frames)):
        envs = [MatchEnv(LiveWorld(f"listen://:{port}"), side) for side in ("left", "right")]
        assert [follow_ball(env, 20) > 0 for env in envs] == [True, True]
        for env in envs:
            env.close()
    assert server.counts["matches"] == 2
    assert server.report()["latency_ms_p50"] > 0
    with socket.socket() as tried:
        tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        tried.bind(("127.0.0.1", port))  # the last one has closed the port


async def try_offer(url: str, raw: str, origin: str | None = None) -> str:
    """What a worker says to a world that connects like this; empty if it hangs up without a word."""
    async with connect_async(url, origin=origin, proxy=None) as client:  # type: ignore[arg-type]
        await client.send(raw)
        async for answer in client:
            return str(json.loads(answer)["reason"])
    return ""


def test_wrong_offers_are_refused_and_counted_by_reason() -> None:
    listener = Listener("127.0.0.1", free_port(), "secret")
    good = OFFER | {"token": "secret"}

    async def all_of_them() -> list[str]:
        listener._check_players(good["players"])
        wrong = [good | {"token": "x"}, good | {"version": 2}, good | {"frames": "xml"}, good | {"players": []}]
        wrong += [good | {"players": [{"name": "a"}]}, good | {"players": OFFER["players"][:1]}, {"type": "hello"}]
        huge = {"name": "a", "observation": {"shape": [10**6, 10**6], "low": 0, "high": 1}, "actions": 3}
        wrong.append(good | {"players": [huge]})
        answers = [await try_offer(listener.url, json.dumps(offer)) for offer in wrong]
        return answers + [await try_offer(listener.url, raw) for raw in ["", "{", "[" * 5000, "null", '{"version": Infinity}'] * 50]

    answers = listener._loop.run_until_complete(all_of_them())
    assert answers[:3] == [
        "the token is not the right one",
        "expected version 1 of the protocol; got 2",
        "expected frames=json or msgpack; got 'xml'",
    ]
    assert "numbers do not fit into a message" in answers[7]
    assert listener.counts == {"token": 1, "version": 1, "frames": 1, "players": 4, "malformed": 251}
    with pytest.raises(
        EnvironmentFailure, match=r"no world connected to ws://127.0.0.1:\d+ within 0.1 s \(refused: 1 for their token, .*Start one first"
    ):
        listener._loop.run_until_complete(listener.take(0.1))
    listener.close()


def test_a_message_that_is_too_large_loses_its_connection_alone() -> None:
    listener = Listener("127.0.0.1", free_port(), "")

    async def large_then_good() -> None:
        with pytest.raises(Exception, match="1009"):
            await try_offer(listener.url, "x" * (2 << 20))
        async with connect_async(listener.url, proxy=None) as client:
            await client.send(json.dumps(OFFER))
            await listener.take(20)

    listener._loop.run_until_complete(large_then_good())
    assert (listener.counts["too_large"], listener.counts["lost"]) == (1, 0)
    listener.close()


def test_nobody_connects() -> None:
    port = free_port()
    with pytest.raises(EnvironmentFailure, match=f"no world connected to ws://127.0.0.1:{port} within 0.2 s. Start one first"):
        LiveWorld(f"listen://:{port}", timeout=0.2)
    with in_background(LiveServer(LivePong, FAST).offer(f"ws://127.0.0.1:{port}")):
        env = MatchEnv(LiveWorld(f"listen://:{port}"), "left")
    env.world._connector._timeout = 0.2  # type: ignore[attr-defined]
    with pytest.raises(EnvironmentFailure, match=f"no world connected to ws://127.0.0.1:{port} within 0.2 s"):
        env.reset(seed=1)  # the world that told who plays is gone
    env.close()


@pytest.mark.parametrize(
    ("url", "options", "reason"),
    [
        ("listen://127.0.0.1", {}, "expected listen://HOST:PORT with a port from 1 to 65535"),
        ("listen://127.0.0.1:0", {}, "expected listen://HOST:PORT with a port from 1 to 65535"),
        ("listen://127.0.0.1:70000", {}, "expected listen://HOST:PORT with a port from 1 to 65535"),
        ("listen://192.0.2.1:8765", {}, "cannot listen at ws://192.0.2.1:8765"),
        ("listen://:8765", {"timeout": 100}, "expected a timeout of less than 60 seconds; got 100"),
        ("listen://:8765", {"frames": "msgpack"}, "a world that connects chooses them by itself"),
        ("http://127.0.0.1", {}, "expected live:ws://HOST:PORT for a world that serves, or live:listen://HOST:PORT"),
    ],
)
def test_addresses_that_cannot_be(url: str, options: dict[str, Any], reason: str) -> None:
    with pytest.raises(EnvironmentFailure, match=re.escape(reason)):
        LiveWorld(url, **options)


def test_a_world_that_hangs_up_ends_its_match_alone() -> None:
    port = free_port()
    url = f"ws://127.0.0.1:{port}"

    async def rude() -> None:
        """Connects, shows one turn and is gone; and one that is gone before its match begins."""
        for hangs_up_at_once in (False, True):
            while True:
                with suppress(OSError):
                    async with connect_async(url, proxy=None) as client:
                        await client.send(json.dumps(OFFER))
                        if not hangs_up_at_once:
                            await client.recv()
                            await client.send(json.dumps({"type": "turn", "player": "left", "turn": 0, "observation": [0.5] * 10}))
                            client.transport.abort()
                        break
                await asyncio.sleep(0.05)
        await LiveServer(LivePong, FAST).offer(url)

    with in_background(rude()):
        env = MatchEnv(LiveWorld(f"listen://:{port}"), "left")
        with pytest.raises(EnvironmentFailure, match="closed the connection in the middle of a match"):
            follow_ball(env, 100)
        assert follow_ball(env, 5) > 0
        env.close()


def test_a_worker_that_refuses_is_named_to_the_world() -> None:
    port = free_port()
    server = LiveServer(LivePong, FAST, token="wrong")
    listener = Listener("127.0.0.1", port, "right")
    with pytest.raises(EnvironmentFailure, match="the worker refused: the token is not the right one"):
        listener._loop.run_until_complete(server.offer(f"ws://127.0.0.1:{port}"))
    listener.close()


def test_worker_processes_take_ports_one_after_the_other() -> None:
    first = free_port(3)
    listeners = [Listener("127.0.0.1", first, "") for _ in range(3)]
    assert [listener.port - first for listener in listeners] == [0, 1, 2]
    listeners[1].close()
    listeners[1] = Listener("127.0.0.1", first, "")  # of a worker that died and was replaced
    assert listeners[1].port == first + 1
    for listener in listeners:
        listener.close()


def test_ppo_trains_two_workers_in_worlds_that_connect(tmp_path: Path) -> None:
    port = free_port(2)
    options = [
        f"env.id=live:listen://127.0.0.1:{port}",
        "algorithm.name=ppo",
        "algorithm.actor_lag=1",
        "algorithm.n_envs=4",
        "algorithm.block=2",
        "algorithm.rollout_length=16",
        "algorithm.steps_per_epoch=64",
        "policy.hidden=[8]",
        "executor.name=process",
        "executor.workers=2",
        "run.evaluate_every=100",
        "run.episodes=1",
        "stop.generations=3",
    ]
    worlds = [LiveServer(Catch, FAST) for _ in range(2)]
    with in_background(*(world.offer(f"ws://127.0.0.1:{port + n}") for n, world in enumerate(worlds))):
        run = train_run(load_config(None, [], options), tmp_path / "run")
    assert run.algorithm.version == 3
    assert all(world.counts["matches"] >= 2 for world in worlds)


NODE = shutil.which("node")
NODE_VERSION = int(subprocess.run([NODE, "--version"], capture_output=True, text=True).stdout[1:].split(".")[0]) if NODE else 0


@pytest.mark.parametrize(
    "command",
    [
        [sys.executable, "-m", "examples.live_client"],
        pytest.param(
            [str(NODE), *(["--experimental-websocket"] if NODE_VERSION < 22 else []), "examples/live_client.mjs"],
            marks=pytest.mark.skipif(NODE_VERSION < 20, reason="Node 20 or newer is not installed"),
        ),
    ],
    ids=["python", "javascript"],
)
def test_the_examples_connect_and_play_by_their_rules(command: list[str]) -> None:
    """Whoever follows the ball catches what it can: a match of ten balls, whose rewards are those of its score."""
    port = free_port()
    world = subprocess.Popen([*command, f"ws://127.0.0.1:{port}", "400"], stdout=subprocess.DEVNULL)
    try:
        env = MatchEnv(LiveWorld(f"listen://127.0.0.1:{port}"))
        observation, _ = env.reset(seed=3)
        over, total, frames = False, 0.0, 0
        while not over:
            observation, reward, over, _, info = env.step(1 + int(np.sign(round(float(observation[1] - observation[0]), 1))))
            total, frames = total + reward, frames + info["elapsed"]
        assert total == pytest.approx(20 * info["result"]["score"] - 10)
        assert frames in (500, 501, 510)  # fifty frames for a ball; one more where 1 - 50 * 0.02 is rounded up
        env.close()
    finally:
        world.kill()
        world.wait()


def test_latencies_are_from_the_turn_to_the_frame_in_which_its_action_takes_effect() -> None:
    seat = _Remote(PongWorld().players[0])
    for turn in range(3):
        seat.next_turn(0, np.zeros(10, np.float32), False, {}, now=10.0 + turn)
    seat.answer(0, 2)
    seat.answer(2, 1)
    seat.answer(7, 0)  # a turn that was never shown
    assert seat.take_effect(12.5) == [2.5, 0.5]
    assert seat.take_effect(13.5) == []
    assert seat.action == 0


class JumpingLoop(asyncio.SelectorEventLoop):
    """An event loop whose time passes only while it waits, and then at once; or where a test says so."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 100.0
        self._selector.select = self._wait  # type: ignore[attr-defined]

    def time(self) -> float:
        return self.now

    def _wait(self, timeout: float | None = None) -> list[Any]:
        self.now += timeout or 0.0
        return []


def on_jumping_loop(work: Callable[[JumpingLoop], Awaitable[None]]) -> None:
    loop = JumpingLoop()
    try:
        loop.run_until_complete(work(loop))
    finally:
        loop.close()


def test_one_clock_wakes_all_that_wait_and_a_cancelled_one_disturbs_no_other() -> None:
    async def wait(loop: JumpingLoop) -> None:
        clock = Clock(0.5)
        with clock.used():
            waiting = [asyncio.create_task(clock.next_tick()) for _ in range(3)]
            await asyncio.sleep(0)
            waiting[0].cancel()
            await asyncio.gather(*waiting[1:])
            await clock.next_tick()
        assert (loop.now, clock.ticks, clock.missed) == (101.0, 2, 0)

    on_jumping_loop(wait)


def test_a_tick_is_missed_when_the_world_begins_it_more_than_a_tick_late() -> None:
    async def play(loop: JumpingLoop) -> None:
        clock = Clock(0.25)
        with clock.used():
            await clock.next_tick()  # at 100.25
            loop.now += 0.5  # a slow frame: 100.75
            await clock.next_tick()  # due at 100.5, late by one tick: not more
            assert (loop.now, clock.missed) == (100.75, 0)
            loop.now += 0.5  # 101.25
            await clock.next_tick()  # due at 100.75, late by two
            await clock.next_tick()  # due at 101.0: it follows at once
            assert (loop.now, clock.ticks, clock.missed) == (101.25, 4, 1)
            loop.now += 10  # 111.25, and the next one was due at 101.25: forty are left out
            await clock.next_tick()
            assert (loop.now, clock.ticks, clock.missed) == (111.25, 5, 41)

    on_jumping_loop(play)


def test_a_clock_that_nobody_uses_misses_nothing() -> None:
    async def play_twice(loop: JumpingLoop) -> None:
        clock = Clock(0.25)
        for _ in range(2):
            with clock.used():
                await clock.next_tick()
            loop.now += 0.75
        assert (loop.now, clock.ticks, clock.missed) == (102.0, 2, 0)

    on_jumping_loop(play_twice)


def test_players_are_described_and_read_back() -> None:
    players = list(PongWorld().players)
    assert read_players([describe_player(player) for player in players]) == players


def test_the_learner_runs_at_lower_priority_than_the_world() -> None:
    code = "import os; from baldwin.processes import lower_priority as run; before = os.nice(0); run(); run(); print(before, os.nice(0))"
    before, after = map(int, subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split())
    assert after == max(before, 5)


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere, threads have the priority of their process")
def test_an_update_runs_at_lower_priority_and_its_worker_does_not() -> None:
    code = "import os; from baldwin.processes import call_at_lower_priority as call; print(call(lambda: os.nice(0)), os.nice(0))"
    inside, after = map(int, subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split())
    assert inside == max(after, 5)
    assert after == os.nice(0)
