"""Live worlds over real sockets: a server process with its own clock, slow and rude clients, rude worlds."""

from __future__ import annotations

import asyncio
import json
import multiprocessing as mp
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from websockets.asyncio.server import serve
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

from baldwin.config import load_config
from baldwin.envs import EnvConfig, check_env
from baldwin.envs.live import LiveWorld
from baldwin.envs.live_protocol import describe_player, read_turn, read_welcome
from baldwin.envs.live_server import LiveServer
from baldwin.envs.match_env import MatchEnv
from baldwin.envs.matches import Matches, Turn
from baldwin.envs.pong_world import PongWorld
from baldwin.errors import EnvironmentFailure
from baldwin.learners.episode_tracker import EpisodeTracker
from baldwin.learners.policy_gradient_algorithm import STEP_ARRAYS
from baldwin.networks import PolicyConfig, make_network
from baldwin.ops.moments import Moments
from baldwin.ops.seeds import mix
from baldwin.rollout import CollectJob, WorkerSpec, env_seed
from baldwin.runs.run import Run
from examples.live_pong import LivePong
from tests.patience import wait_until
from tests.runs.tools import in_process, train_run

FAST = 600.0  # frames a second


@contextmanager
def in_thread(start: Callable[[], Awaitable[str]], stop: Callable[[], Awaitable[None]]) -> Iterator[str]:
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        yield asyncio.run_coroutine_threadsafe(start(), loop).result(20)  # type: ignore[arg-type]
        asyncio.run_coroutine_threadsafe(stop(), loop).result(20)  # type: ignore[arg-type]
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0


@contextmanager
def answered_by(handler: Callable[[Any], Awaitable[None]]) -> Iterator[str]:
    """A server that answers every connection by this coroutine, which may break the protocol."""
    made: list[Any] = []

    async def start() -> str:
        made.append(await serve(handler, "127.0.0.1", 0))
        return f"ws://127.0.0.1:{made[0].sockets[0].getsockname()[1]}"

    async def stop() -> None:
        made[0].close()
        await made[0].wait_closed()

    with in_thread(start, stop) as url:
        yield url


@contextmanager
def served(**options: Any) -> Iterator[tuple[LiveServer, str]]:
    server = LiveServer(LivePong, **({"rate": FAST} | options))
    with in_thread(server.start, server.close) as url:
        yield server, url


def test_a_match_is_played_to_its_end() -> None:
    with served() as (server, url):
        env = MatchEnv(LiveWorld(url), "left")
        observation, _ = env.reset(seed=3)
        over, frames, reward = False, 0, 0.0
        while not over:
            action = 0 if observation[3] < observation[0] else 2  # follow the ball
            observation, earned, over, _, info = env.step(action)
            frames += info["elapsed"]
            reward += earned
        points = info["result"]["points"]
        assert reward == points[0] - points[1]
        assert frames == pytest.approx(server.counts["frames"], abs=2)
        assert env.world.latencies  # type: ignore[attr-defined]
        env.close()


def test_the_world_does_not_wait_for_a_slow_player() -> None:
    """Turns that nobody answered are replaced; their frames and rewards are in the next step."""
    with served() as (server, url):
        world = LiveWorld(url)
        matches = Matches()
        matches.begin(0, world, 1, ["left"])
        matches.act({})
        turn, frames, decisions = Turn(0, "left"), 0, 0
        while world.replaced < 20 or decisions < 3:
            goal = server.counts["frames"] + 20
            while server.counts["frames"] < goal:  # learning, say
                threading.Event().wait(0.01)
            step = matches.act({turn: 1})[turn]
            assert not step.over  # a match has some thousand frames
            frames += step.elapsed
            decisions += 1
        assert frames > decisions
        matches.close()


@pytest.mark.parametrize(("late", "expected"), [("apply", 2), ("refuse", 1)])
def test_late_actions_are_applied_or_refused_and_counted(late: Any, expected: int) -> None:
    table = LiveServer(LivePong, late=late)._make_table()
    table.begin(0, {"seed": 1, "players": ["left"]})
    table.next_turns(0.0, only_ends=False)
    assert not table.take(0, "left", 0, 1)  # in time
    table.advance(0.1)
    table.next_turns(0.1, only_ends=False)
    assert table.take(0, "left", 0, 2)  # for the turn before
    assert (table.seats[0]["left"].action, len(table.advance(0.2))) == (expected, expected - 1)
    with pytest.raises(EnvironmentFailure, match="expected late='apply' or 'refuse'; got 'maybe'"):
        LiveServer(LivePong, late="maybe")  # type: ignore[arg-type]


def test_versions_and_tokens_are_checked() -> None:
    with served(token="secret") as (server, url):
        assert [player.name for player in LiveWorld(url, token="secret").players] == ["left", "right"]
        with pytest.raises(EnvironmentFailure, match="the live world refused: the token is not the right one"):
            LiveWorld(url)
        with connect(url) as socket:
            socket.send(json.dumps({"type": "hello", "version": 99, "token": "secret"}))
            assert json.loads(socket.recv())["reason"] == "expected version 1 of the protocol; got 99"
        assert (server.counts["token"], server.counts["version"]) == (1, 1)
    with pytest.raises(EnvironmentFailure, match=r"no live world at ws://127.0.0.1:1.*Start it first"):
        LiveWorld("ws://127.0.0.1:1", timeout=1)


def test_ten_thousand_malformed_messages_are_refused_and_the_match_goes_on() -> None:
    rng = np.random.default_rng(0)
    bad = [
        "",
        "{",
        "[]",
        "null",
        '{"type": "act"}',
        '{"type": "act", "player": "left", "turn": 0, "action": 7}',
        '{"type": "act", "player": "nobody", "turn": 0, "action": 1}',
        '{"type": "act", "player": "left", "turn": "x", "action": 1}',
        '{"type": "act", "player": ["left"], "turn": 0, "action": 1}',
        '{"type": "act", "player": "left", "turn": 0, "action": "up"}',
        '{"type": "act", "player": "left", "turn": 0, "action": true}',
        "[" * 5000,
    ]
    with served(rate=30.0) as (server, url), connect(url) as socket:
        socket.send(json.dumps({"type": "hello", "version": 1, "token": ""}))
        socket.recv()
        socket.send(json.dumps({"type": "begin", "seed": 1, "players": ["left"]}))
        for n in range(10_000):
            text = bad[n] if n < len(bad) else bad[rng.integers(len(bad))]
            socket.send(text if n % 3 else text.encode())
        for _ in range(5):
            assert json.loads(socket.recv(60))["type"] == "turn"
        before = server.counts["malformed"]
        for _ in range(600):
            if server.counts["malformed"] == 10_000:
                break
            threading.Event().wait(0.1)
        assert server.counts["malformed"] == 10_000, before


def test_a_message_that_is_too_large_ends_that_match_alone() -> None:
    with served() as (server, url):
        other = MatchEnv(LiveWorld(url), "left")
        other.reset(seed=0)
        with connect(url) as socket:
            socket.send(json.dumps({"type": "hello", "version": 1, "token": "x" * (2 << 20)}))
            with pytest.raises(Exception, match="1009"):
                socket.recv(60)
            socket.close()
        with connect(url) as socket:  # the same in the middle of a match
            socket.send(json.dumps({"type": "hello", "version": 1, "token": ""}))
            socket.recv(60)
            socket.send(json.dumps({"type": "begin", "seed": 1, "players": ["left"]}))
            socket.send("x" * (2 << 20))
            wait_until(lambda: server.counts["too_large"] == 2)
        other.step(1)
        other.close()
        wait_until(lambda: server.counts["lost"] == 1)  # of the one that was played to no end
        assert server.report()["too_large"] == 2


@settings(max_examples=150, deadline=None)
@given(
    st.one_of(
        st.text(),
        st.binary(),
        st.recursive(st.none() | st.booleans() | st.floats() | st.text(), lambda x: st.lists(x) | st.dictionaries(st.text(), x)).map(
            json.dumps
        ),
    )
)
def test_whatever_a_world_sends_is_a_turn_or_one_error(raw: Any) -> None:
    players = {player.name: player for player in PongWorld().players}
    for read in (read_welcome, lambda message: read_turn(message, players)):
        with pytest.raises(EnvironmentFailure):
            read(raw)


def test_a_turn_of_another_shape_is_refused() -> None:
    players = {player.name: player for player in PongWorld().players}
    good = {"type": "turn", "player": "left", "turn": 1, "observation": [0.5] * 10, "reward": [1.0]}
    assert read_turn(json.dumps(good), players).reward.tolist() == [1.0]
    for wrong in (
        {"observation": [0.5] * 9},
        {"reward": [1.0, 2.0]},
        {"observation": [float("nan")] * 10},
        {"turn": None},
        {"player": "x"},
    ):
        with pytest.raises(EnvironmentFailure, match="the live world sent a wrong turn"):
            read_turn(json.dumps(good | wrong), players)


def test_a_connection_that_is_cut_is_a_failure_of_its_match() -> None:
    async def rude(socket: Any) -> None:
        await socket.recv()
        await socket.send(json.dumps({"type": "welcome", "version": 1, "players": [describe_player(p) for p in PongWorld().players]}))
        await socket.recv()
        await socket.send(json.dumps({"type": "turn", "player": "left", "turn": 0, "observation": [0.5] * 10}))
        await socket.recv()  # and hangs up

    with answered_by(rude) as url:
        env = MatchEnv(LiveWorld(url), "left")
        env.reset(seed=0)
        with pytest.raises(EnvironmentFailure, match="closed the connection in the middle of a match"):
            env.step(1)
        env.close()


def test_a_client_that_dies_ends_its_match_alone() -> None:
    """Three matches of eight turns side by side; the first one of the second hangs up after three."""
    dying = mix(int(env_seed(5, 1)[0]), 0)

    playing = 0

    async def serve_one(socket: Any) -> None:
        nonlocal playing
        playing += 1
        with suppress(ConnectionClosed):
            await play(socket)
        await socket.close()
        playing -= 1

    async def play(socket: Any) -> None:
        await socket.recv()
        await socket.send(json.dumps({"type": "welcome", "version": 1, "players": [describe_player(p) for p in PongWorld().players]}))
        begin = json.loads(await socket.recv())
        for turn in range(9):
            if turn == 3 and begin["seed"] == dying:
                return
            message = {"type": "turn", "player": begin["players"][0], "turn": turn, "observation": [turn / 10] * 10, "reward": [1.0]}
            await socket.send(json.dumps(message | {"terminated": turn == 8}))
            if turn < 8:
                await socket.recv()

    with answered_by(serve_one) as url:
        env = EnvConfig(id=f"live:{url}", kwargs={"player": "left"})
        policy = PolicyConfig(hidden=[4], normalize_obs=False)
        spec = WorkerSpec(env, check_env(env), policy)  # which leaves what libraries open once
        wait_until(lambda: playing == 0)
        before = descriptors()
        params, moments = make_network(policy, spec.env_spec.obs, 3).init(0), Moments.empty(10).pack()
        tracker, worker = EpisodeTracker(3, np.empty(0, np.int64), spec.env_spec.obs), spec()
        found = []
        for ticket in range(2):
            outcome = worker.collect(CollectJob(ticket, 5, params, moments, tracker.positions(range(3)), 10, "sample"))
            tracker.add_segments(range(3), {name: a for name, a in outcome.arrays.items() if name in STEP_ARRAYS})
            found.append(outcome)
        worker.close()
        wait_until(lambda: playing == 0 and descriptors() <= before)
    first, second = (outcome.arrays for outcome in found)
    assert "closed the connection in the middle of a match" in found[0].reason
    assert np.argwhere(first["failed"]).tolist() == [[1, 2]]
    assert first["reward"][1].tolist() == [1, 1, 0, *[1] * 7]
    np.testing.assert_allclose(first["obs/vector"][1, :5, 0], [0, 0.1, 0.2, 0, 0.1])
    ended = np.concatenate([a["terminated"] | a["truncated"] for a in (first, second)], 1)
    assert [np.flatnonzero(row).tolist() for row in ended] == [[7, 15], [2, 10, 18], [7, 15]]
    assert ("failed" in second, "cut" in first) == (False, False)
    stats = tracker.pop_stats()
    assert (stats["episodes"], stats["failed_episodes"]) == (6, 1)


class ServerProcess:
    """A live world in a process of its own."""

    def __init__(self) -> None:
        self._start("0")

    def _start(self, port: str) -> None:
        command = [sys.executable, "-m", "examples.live_pong", port, "200"]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        self.url = self._process.stdout.readline().strip()

    def restart(self) -> None:
        """Kill it and start it again at the same address."""
        self.kill()
        self._start(self.url.rpartition(":")[2])

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()


@pytest.fixture
def server_process() -> Iterator[ServerProcess]:
    process = ServerProcess()
    yield process
    process.kill()


LIVE_RUN = [
    "algorithm.name=ppo",
    "algorithm.actor_lag=1",
    "algorithm.n_envs=4",
    "algorithm.block=2",
    "algorithm.rollout_length=16",
    "algorithm.steps_per_epoch=128",
    "policy.hidden=[8]",
    "executor.name=process",
    "executor.workers=2",
    "run.evaluate_every=100",
    "run.episodes=1",
    "stop.generations=6",
    "executor.retries=9",
]


def epochs_of(path: Path) -> list[dict[str, float]]:
    lines = [json.loads(line) for line in (path / "metrics.jsonl").read_text().splitlines()]
    return [line for line in lines if "return_mean" in line]


@pytest.mark.parametrize(("kills", "frames"), [(0, "json"), (2, "json"), (2, "packed")])
def test_ppo_trains_in_a_live_world_while_it_goes_on(server_process: ServerProcess, kills: int, frames: str, tmp_path: Path) -> None:
    """A worker that dies takes its matches with it: its segment fails, and the next one begins new ones. The journal has what arrived."""
    options = [f"env.id=live:{server_process.url}", f"env.kwargs={{frames: {frames}}}", *LIVE_RUN]
    killed: list[int] = []

    def kill(run: Run, line: dict[str, float]) -> None:
        if "return_mean" in line and len(killed) < kills:
            for victim in mp.active_children()[:1]:
                os.kill(victim.pid or 0, signal.SIGKILL)
                killed.append(victim.pid or 0)

    run = train_run(load_config(None, [], options), tmp_path / "run", watchers=[kill])
    assert run.algorithm.version == 6
    assert len(killed) == kills
    epochs = epochs_of(tmp_path / "run")
    failed = sum(line["failed_segments"] for line in epochs)
    assert (failed > 0) == bool(kills)
    assert all(0 < line["latency_ms_p50"] <= line["latency_ms_p95"] <= line["latency_ms_p99"] for line in epochs)
    assert all(line["replaced_turns"] >= 0 for line in epochs)
    assert run.params_sha256() in in_process("replay", tmp_path / "run", "--generation", 6).stdout


@pytest.mark.parametrize("frames", ["json", "packed"])
def test_a_world_that_is_killed_and_started_again_costs_segments_and_not_the_run(
    server_process: ServerProcess, frames: str, tmp_path: Path
) -> None:
    """Twice, between two updates; what is collected meanwhile fails, and the next matches begin in the new world."""
    restarts: list[float] = []

    def restart(run: Run, line: dict[str, float]) -> None:
        if "return_mean" in line and len(restarts) < 2:
            server_process.restart()
            restarts.append(line["env_steps"])

    options = [f"env.id=live:{server_process.url}", f"env.kwargs={{frames: {frames}}}", *LIVE_RUN]
    run = train_run(load_config(None, [], options), tmp_path / "run", watchers=[restart])
    assert run.algorithm.version == 6
    assert len(restarts) == 2
    failed = [line["failed_segments"] for line in epochs_of(tmp_path / "run")]
    assert sum(failed[1:]) > 0
    assert failed[-1] == 0
