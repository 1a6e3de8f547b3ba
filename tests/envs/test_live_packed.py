"""Live worlds over real sockets: all matches of a worker over one connection, and rude workers and worlds that do so."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import msgpack
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from websockets.sync.client import connect

from baldwin.envs import live_packed
from baldwin.envs.live import LiveWorld
from baldwin.envs.live_packed import pack_actions, pack_turns, read_actions, read_turns
from baldwin.envs.live_protocol import Turn, describe_player
from baldwin.envs.live_server import LiveServer
from baldwin.envs.match_env import MatchEnv
from baldwin.envs.matches import Matches
from baldwin.envs.matches import Turn as Deciding
from baldwin.envs.pong_world import PongWorld
from baldwin.errors import EnvironmentFailure
from examples.live_client import Catch
from tests.envs.test_live import FAST, answered_by, in_thread, served
from tests.envs.test_live_clients import follow_ball

PLAYERS = {player.name: player for player in PongWorld().players}
HELLO = {"type": "hello", "version": 1, "token": "", "frames": "packed"}


def turn(match: int, number: int, over: bool = False, player: str = "left") -> Turn:
    result = {"score": 0.5} if over else {}
    return Turn(player, number, np.full(10, match, np.float32), None, np.array([1.5]), 2, over, False, result, match)


def test_turns_of_several_matches_are_one_message_for_each_player() -> None:
    left, right = pack_turns([turn(4, 12), turn(7, 3, over=True), turn(4, 9, player="right")])
    one, four, seven = b"\x00\x00\x80\x3f", b"\x00\x00\x80\x40", b"\x00\x00\xe0\x40"  # 1, 4 and 7 as little-endian float32
    assert np.frombuffer(one, "<f4").tolist() == [1.0]
    assert left == {
        "type": "turns",
        "player": "left",
        "match": [4, 7],
        "turn": [12, 3],
        "observation": four * 10 + seven * 10,
        "reward": [[1.5], [1.5]],
        "elapsed": [2, 2],
        "ends": {"1": {"terminated": True, "truncated": False, "result": {"score": 0.5}}},
    }
    assert (right["player"], right["match"], right["ends"]) == ("right", [4], {})


def test_turns_and_actions_come_back_as_they_were() -> None:
    sent = [turn(4, 12), turn(7, 3, over=True)._replace(legal=np.array([True, False, True]))]
    sent[0] = sent[0]._replace(legal=np.array([False, True, True]))
    found = read_turns(msgpack.packb(pack_turns(sent)[0]), PLAYERS)
    for before, after in zip(sent, found, strict=True):
        for name, value in before._asdict().items():
            np.testing.assert_array_equal(getattr(after, name), value)
    actions = [(4, 12, 2), (7, 3, 0)]
    assert list(read_actions(msgpack.unpackb(msgpack.packb(pack_actions("left", actions))))) == actions


@pytest.mark.parametrize(
    "wrong",
    [
        {"player": "nobody"},
        {"match": [4]},
        {"match": 4},
        {"turn": [1, 2, 3]},
        {"turn": ["x", 2]},
        {"observation": b"\x00" * 79},
        {"observation": b"\x00" * 76},
        {"observation": [0.0] * 20},
        {"observation": np.full(20, np.nan, np.float32).tobytes()},
        {"reward": [[1.0]]},
        {"reward": [[1.0, 2.0], [1.0, 2.0]]},
        {"elapsed": None},
        {"ends": [1]},
        {"ends": {"0": 3}},
    ],
)
def test_wrong_turns_are_refused(wrong: dict[str, Any]) -> None:
    message = pack_turns([turn(4, 12), turn(7, 3)])[0]
    assert len(read_turns(msgpack.packb(message), PLAYERS)) == 2
    with pytest.raises(EnvironmentFailure, match="the live world sent wrong turns"):
        read_turns(msgpack.packb(message | wrong), PLAYERS)


@settings(max_examples=150, deadline=None)
@given(st.one_of(st.text(), st.binary(), st.binary().map(lambda raw: b"\x84" + raw)))
def test_whatever_comes_is_one_error(raw: Any) -> None:
    with pytest.raises(EnvironmentFailure):
        read_turns(raw, PLAYERS)


@contextmanager
def counted(make_game: Any) -> Iterator[tuple[LiveServer, str, list[Any]]]:
    """A server, its address, and the connections over which matches are played."""
    server = LiveServer(make_game, FAST)
    connections: list[Any] = []
    play = server._play_packed

    async def noted(connection: Any, table: Any) -> None:
        connections.append(table)
        await play(connection, table)

    server._play_packed = noted  # type: ignore[method-assign]
    with in_thread(server.start, server.close) as url:
        yield server, url, connections


def test_matches_of_a_process_share_one_connection() -> None:
    """Of games that are advanced one by one; `follow_ball` of all at once below."""
    with counted(Catch) as (server, url, connections):
        worlds, matches = [LiveWorld(url, frames="packed") for _ in range(3)], Matches()
        asked = len(connections)  # each world asks who plays
        for number, world in enumerate(worlds):
            matches.begin(number, world, number, ["catcher"])
        turns = [Deciding(number, "catcher") for number in range(3)]
        matches.act({}, turns)
        score: dict[int, float] = {}
        rewards = dict.fromkeys(range(3), 0.0)
        while len(score) < 3:
            found = matches.act(dict.fromkeys(matches.waiting, 1), [own for own in turns if own.match not in score])
            assert not matches.failures
            for own, step in found.items():
                rewards[own.match] += float(step.reward.sum())
                if step.over:
                    score[own.match] = matches.controller(own).result()["score"]
        assert {n: pytest.approx(20 * score[n] - 10) for n in score} == rewards
        assert len(connections) == asked + 1
        assert server.counts["matches"] == 3
        matches.close()
        for world in worlds:
            world.close()
        assert not live_packed._LINKS


def test_a_match_is_played_to_its_end_and_given_up_in_its_middle() -> None:
    with served() as (server, url):
        env = MatchEnv(LiveWorld(url, frames="packed"), "left")
        assert follow_ball(env, 30) == 30
        assert follow_ball(env, 10**6) > 30  # the first match was given up
        env.close()
        assert server.counts["matches"] == 2
        assert server.counts["malformed"] == 0


def receive(client: Any) -> dict[str, Any]:
    return dict(msgpack.unpackb(client.recv(60)))


def test_malformed_messages_are_counted_and_all_matches_go_on() -> None:
    acts = {"type": "acts", "player": "left", "match": [1], "turn": [0], "action": [1]}
    begin = {"type": "begin", "match": 1, "seed": 1, "players": ["left"]}
    bad: list[Any] = [{}, [], None, acts | {"player": "nobody"}, acts | {"action": [7]}, acts | {"turn": []}, acts | {"match": 3}]
    bad += [acts | {"match": [[1]]}, {"type": "act"}, begin, begin | {"match": "x"}, begin | {"match": 2, "players": []}]
    with served(rate=30.0) as (server, url), connect(url, compression=None) as client:
        client.send(json.dumps(HELLO))
        assert json.loads(client.recv())["frames"] == "packed"
        for match in (1, 5):
            client.send(msgpack.packb(begin | {"match": match}))
        while receive(client)["match"] != [1, 5]:
            pass
        for n in range(2000):
            client.send(msgpack.packb(bad[n % len(bad)]))
        while server.counts["malformed"] < 2000:
            assert receive(client)["match"] == [1, 5]
        client.send(msgpack.packb({"type": "leave", "match": 5}))
        client.send(msgpack.packb({"type": "leave", "match": 99}))
        while receive(client)["match"] != [1]:
            pass
        client.send(msgpack.packb(acts | {"match": [5]}))  # of a match that is over
        while not server.counts["late_actions"]:
            assert receive(client)["match"] == [1]
        assert server.counts["malformed"] == 2000


def test_a_world_that_hangs_up_ends_all_matches_and_the_next_ones_connect_again() -> None:
    calls: list[str] = []

    async def rude(socket: Any) -> None:
        await socket.recv()
        players = [describe_player(player) for player in PLAYERS.values()]
        await socket.send(json.dumps({"type": "welcome", "version": 1, "frames": "packed", "players": players}))
        begin = msgpack.unpackb(await socket.recv())
        calls.append(begin["type"])
        await socket.send(msgpack.packb(pack_turns([turn(begin["match"], 0)])[0]))
        await socket.recv()  # an action, and hangs up

    with answered_by(rude) as url:
        env = MatchEnv(LiveWorld(url, frames="packed"), "left")
        for _ in range(2):
            env.reset(seed=0)
            with pytest.raises(EnvironmentFailure, match="closed the connection in the middle of a match"):
                env.step(1)
        env.close()
    assert calls == ["begin", "begin"]


def test_a_world_that_connects_has_one_match_for_each_connection() -> None:
    with pytest.raises(EnvironmentFailure, match="expected frames=json or msgpack; got 'packed'"):
        asyncio.run(LiveServer(Catch).offer("ws://127.0.0.1:1", "packed"))
