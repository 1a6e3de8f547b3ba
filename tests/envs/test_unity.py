"""Unity ML-Agents against a stand-in for a build that calls with the official messages over a real socket (tests/toys/unity_player.py)."""

from __future__ import annotations

import importlib.util
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from baldwin.config import RunConfig, load_config
from baldwin.envs import EnvConfig, check_env
from baldwin.envs.asynchronous import Player, Step
from baldwin.envs.gymnasium import make_env
from baldwin.envs.match_env import MatchEnv
from baldwin.envs.matches import Matches, Turn
from baldwin.envs.unity import Slots, UnityWorld
from baldwin.envs.unity_scene import AgentStep, Behaviour, make_action_space, read_settings, short_names
from baldwin.errors import EnvironmentFailure, MissingExtra
from tests.patience import PATIENCE
from tests.runs.tools import train_run

PLAYER = Path(__file__).parents[1] / "toys" / "unity_player.py"
MOVER, CALLER = "Mover", "Caller"
REACH = {"arguments": ["--game", "reach"]}
NEEDED = ("mlagents_envs", "grpc", "google.protobuf", "PIL")


def is_installed(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:
        return False


unity = pytest.mark.skipif(
    os.name != "posix" or not all(map(is_installed, NEEDED)), reason="the extra unity and mlagents-envs are not installed"
)


@pytest.fixture(scope="module")
def build(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An executable file, as Unity builds one."""
    path = tmp_path_factory.mktemp("unity") / "scene.x86_64"
    path.write_text(f"#!{sys.executable}\nimport runpy\nrunpy.run_path({str(PLAYER)!r}, run_name='__main__')\n")
    path.chmod(0o755)
    return path


@pytest.fixture(scope="module")
def meeting(build: Path) -> Iterator[UnityWorld]:
    world = UnityWorld(str(build), agents={MOVER: 4}, parameters={"gravity": 2.5}, seed=7, quality=3, width=84, height=64, time_scale=10)
    yield world
    world.close()


def mover_action(move: float, bonus: float, first: int, second: int) -> dict[str, Any]:
    return {"continuous": np.array([move, bonus], np.float32), "discrete": np.array([first, second])}


# What is pure


@pytest.mark.parametrize(
    ("continuous", "branches", "space"),
    [
        (2, (), spaces.Box(-1, 1, (2,), np.float32)),
        (0, (4,), spaces.Discrete(4)),
        (0, (3, 2), spaces.MultiDiscrete([3, 2])),
        (2, (3, 2), spaces.Dict({"continuous": spaces.Box(-1, 1, (2,), np.float32), "discrete": spaces.MultiDiscrete([3, 2])})),
        (1, (4,), spaces.Dict({"continuous": spaces.Box(-1, 1, (1,), np.float32), "discrete": spaces.Discrete(4)})),
    ],
)
def test_action_spaces_and_their_parts(continuous: int, branches: tuple[int, ...], space: spaces.Space[Any]) -> None:
    assert make_action_space(continuous, branches) == space
    behaviour = Behaviour((), frozenset(), spaces.Dict({}), space, branches, continuous)
    space.seed(3)
    action = space.sample()
    moved, chosen = behaviour.split(action)
    assert (moved.shape, moved.dtype, chosen.shape, chosen.dtype) == ((continuous,), np.float32, (len(branches),), np.int32)
    parts = action if isinstance(action, dict) else {"continuous" if continuous else "discrete": action}
    np.testing.assert_array_equal(moved, parts.get("continuous", []))
    np.testing.assert_array_equal(chosen, np.ravel(parts.get("discrete", [])))


def test_legal_choices_of_all_branches_are_one_row_and_random_ones_obey_it() -> None:
    behaviour = Behaviour((), frozenset(), spaces.Dict({}), make_action_space(1, (3, 2)), (3, 2), 1)
    legal = behaviour.legal([np.array([True, False, True]), np.array([False, True])])  # Unity: true is forbidden
    np.testing.assert_array_equal(legal, [False, True, False, True, False])
    np.testing.assert_array_equal(behaviour.legal(None), [True] * 5)
    rng = np.random.default_rng(0)
    drawn = [behaviour.random(legal, rng) for _ in range(20)]
    assert {tuple(choices.tolist()) for _, choices in drawn} == {(1, 0)}
    assert all(abs(float(moved[0])) <= 1 for moved, _ in drawn)
    assert len({float(moved[0]) for moved, _ in drawn}) == 20


def test_pictures_are_the_bytes_that_unity_sent() -> None:
    behaviour = Behaviour(("camera", "v"), frozenset({0}), spaces.Dict({}), make_action_space(1, ()), (), 1)
    pixels = np.arange(256, dtype=np.uint8).reshape(1, 16, 16)
    seen = behaviour.observation([pixels.astype(np.float32) / 255.0, np.array([0.5], np.float32)])
    np.testing.assert_array_equal(seen["camera"], pixels)
    assert (seen["camera"].dtype, seen["v"].dtype) == (np.uint8, np.float32)


def test_agents_take_slots_as_they_come() -> None:
    def told(agent: int, over: bool = False, behaviour: str = "A?team=0") -> AgentStep:
        return AgentStep(behaviour, agent, {}, 0.0, terminated=over)

    space = spaces.Dict({})
    slots = Slots({"A?team=0": [Player(f"A/{n}", space, space) for n in range(2)], "B?team=0": [Player("B/0", space, space)]})
    assert slots.player(told(7)) == "A/0"
    assert slots.player(told(3, behaviour="B?team=0")) == "B/0"
    assert slots.player(told(9, over=True)) is None  # gone before it had to decide
    assert slots.player(told(7)) == "A/0"
    assert slots.player(told(7, over=True)) == "A/0"
    assert slots.player(told(8)) == "A/1"  # a new one gets a new slot
    assert slots.player(told(10)) is None
    assert slots.player(told(1, behaviour="C?team=0")) is None


def test_teams_are_named_where_they_share_a_behaviour() -> None:
    names = ["Goalie?team=0", "Striker?team=0", "Striker?team=1", "Plain"]
    assert list(short_names(names).values()) == ["Goalie", "Striker/team0", "Striker/team1", "Plain"]


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"time_scal": 2}, "got 'time_scal'. Did you mean 'time_scale'"),
        ({"time_scale": 0}, "env.kwargs.time_scale: Input should be greater than 0; got 0"),
        ({"agents": "many"}, "env.kwargs.agents: .*got 'many'"),
        ({"width": 84}, "width and height belong together"),
        ({"parameters": {"episode_seed": 1}}, "episode_seed is set for every episode"),
    ],
)
def test_wrong_settings_are_refused(kwargs: dict[str, Any], message: str) -> None:
    with pytest.raises(EnvironmentFailure, match=message):
        read_settings(kwargs)


def test_a_missing_package_prints_the_commands(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith("mlagents_envs")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "mlagents_envs", None)
    command = r"pip install 'baldwin-rl\[unity\]' && pip install --no-deps --ignore-requires-python mlagents-envs==1.1.0"
    with pytest.raises(MissingExtra, match=command):
        check_env(EnvConfig(id="unity:scene"))


def test_a_build_is_foreign_code_and_the_editor_is_none() -> None:
    assert EnvConfig(id="unity:/tmp/scene").foreign_code() == ["id=unity:/tmp/scene"]
    assert EnvConfig(id="unity:editor").foreign_code() == []


# One player


@unity
def test_players_and_their_spaces(meeting: UnityWorld) -> None:
    assert [player.name for player in meeting.players] == [f"{CALLER}/0", *(f"{MOVER}/{n}" for n in range(4))]
    caller, mover = meeting.players[0], meeting.players[1]
    assert caller.observation_space == spaces.Dict({"signal": spaces.Box(-np.inf, np.inf, (2,), np.float32)})
    assert caller.action_space == spaces.Discrete(4)
    assert mover.observation_space == spaces.Dict(
        {"camera": spaces.Box(0, 255, (3, 6, 8), np.uint8), "position": spaces.Box(-np.inf, np.inf, (3,), np.float32)}
    )
    assert mover.action_space == make_action_space(2, (3, 2))


@unity
def test_one_player_sees_what_the_scene_shows_step_by_step(meeting: UnityWorld) -> None:
    env = MatchEnv(meeting, f"{MOVER}/1")
    seen, info = env.reset(seed=1234)
    x = 0.34  # the scene's own rule for this seed
    for frame in range(6):
        assert env.observation_space.contains(seen)
        np.testing.assert_allclose(seen["position"], [x, frame, 1], rtol=1e-6)
        np.testing.assert_array_equal(seen["camera"].reshape(3, -1).T, [[10 * frame, 101, 255]] * 48)
        np.testing.assert_array_equal(info["action_mask"], [True, True, frame % 2 == 0, True, True])
        seen, reward, terminated, truncated, info = env.step(mover_action(0.5, 0.25 * frame, 1, frame % 2))
        x += 0.0625
        assert reward == 0.25 * frame + 1 - 0.5 * (frame % 2) + 0.25  # and the group's
        assert (terminated, truncated) == (False, frame == 5)
    np.testing.assert_allclose(seen["position"], [x, 6, 1], rtol=1e-6)  # the last one of this episode, not the first of the next
    assert info["result"] == {"score": 0.25 * 15 + 6 - 1.5 + 1.5}


@unity
def test_an_end_terminates_and_an_interruption_truncates(meeting: UnityWorld) -> None:
    ends = {}
    for slot in range(2):
        env = MatchEnv(meeting, f"{MOVER}/{slot}")
        env.reset(seed=0)
        for frame in range(1, 9):
            seen, _, terminated, truncated, _ = env.step(mover_action(0, 0, 0, 0))
            if terminated or truncated:
                ends[slot] = (frame, terminated, truncated, seen["position"].tolist())
                break
    assert ends == {0: (4, True, False, [0, 4, 0]), 1: (6, False, True, [0, 6, 1])}


@unity
def test_side_channels_reach_the_scene_and_come_back(build: Path) -> None:
    settings = {"parameters": {"gravity": 2.5}, "seed": 7, "quality": 3, "width": 84, "height": 64, "time_scale": 10, "areas": 2}
    world = UnityWorld(str(build), **settings)
    assert world.stats == {
        "args/nographics": [1.0],
        "init/seed": [7.0],
        "init/areas": [2.0],
        "engine/screen": [84.0, 64.0],
        "engine/quality": [3.0],
        "engine/time_scale": [10.0],
        "engine/target_frame_rate": [-1.0],
        "engine/capture_frame_rate": [60.0],
        "parameters/gravity": [2.5],
        "parameters/episode_seed": [0.0],
    }
    world.reset(2**24 + 5, []).close()
    assert world.stats == {"parameters/episode_seed": [5.0]}
    world.close()
    assert world.stats == {}


# Several players


def play_match(world: UnityWorld, players: list[str], seed: int = 0) -> dict[str, list[Step]]:
    """All that the players get, who move by a quarter and choose nothing."""
    matches = Matches()
    matches.begin(0, world, seed, players)
    found: dict[str, list[Step]] = {name: [] for name in players}
    actions: dict[Turn, Any] = {}
    while matches.going_on:
        for turn, step in matches.act(actions).items():
            found[turn.player].append(step)
        assert not matches.failures
        actions = {turn: 3 if turn.player.startswith(CALLER) else mover_action(0, 0.5, 1, 1) for turn in matches.waiting}
    assert all(matches.controller(Turn(0, name)).result()["score"] == sum(s.reward.sum() for s in found[name]) for name in players)
    matches.close()
    return found


@unity
def test_agents_come_and_go(meeting: UnityWorld) -> None:
    movers = [f"{MOVER}/{n}" for n in range(4)]
    found = play_match(meeting, movers)
    # Slot 2 is filled in frame 2; slot 3 by the next episode of the agent that was gone in frame 4. It is the last one, gone in frame 8.
    assert [len(found[name]) for name in movers] == [5, 7, 5, 5]
    assert [(steps[-1].terminated, steps[-1].truncated) for steps in found.values()] == [
        (True, False),
        (False, True),
        (True, False),
        (True, False),
    ]
    assert all(step.reward.tolist() == [1.25] and step.elapsed == 1 for steps in found.values() for step in steps[1:])
    assert all(steps[0].reward.tolist() == [0.0] for steps in found.values())
    numbers = [{step.info["agent"] for step in steps} for steps in found.values()]
    assert all(len(own) == 1 for own in numbers)  # one agent for each slot
    assert len(set.union(*numbers)) == 4


@unity
def test_a_player_with_a_pace_of_its_own_gets_all_frames_in_one_step(meeting: UnityWorld) -> None:
    found = play_match(meeting, [f"{CALLER}/0", f"{MOVER}/1"])
    assert len(found[f"{MOVER}/1"]) == 7
    *steps, last = found[f"{CALLER}/0"][1:]
    assert [(step.elapsed, step.reward.item()) for step in steps] == [(2, 3.0)] * 10
    assert (last.elapsed, last.reward.item(), last.truncated) == (1, 3.0, True)  # gone in frame 21


@unity
def test_a_player_that_never_comes_is_cut_short_at_the_end(build: Path) -> None:
    world = UnityWorld(str(build), agents=2, arguments=["--game", "once"])
    matches = Matches()
    names = ["Reacher/0", "Reacher/1"]
    matches.begin(0, world, 0, names)
    steps = matches.act({}, [Turn(0, names[0])])
    for _ in range(10):
        assert [turn.player for turn in steps] == ["Reacher/0"]
        steps = matches.act({Turn(0, names[0]): np.zeros(1)}, [Turn(0, names[0])])
    assert {turn.player: (step.terminated, step.truncated) for turn, step in steps.items()} == dict.fromkeys(names, (False, True))
    assert matches.controller(Turn(0, names[1])).observation["sensor_0"].tolist() == [0.0]
    matches.close()
    world.close()


# What goes wrong


@unity
@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"arguments": ["--fault", "exit"]}, "return code 5"),
        ({"arguments": ["--fault", "silent"], "timeout": 0.5}, "did not answer for 0.5 s"),
        ({"arguments": ["--fault", "version"]}, "Unity API: 2.0.0"),
        ({"behaviour": "Mower"}, "no behaviour 'Mower'; there are: .*Did you mean"),
        ({"agents": {"Mover?team=0": 1}}, "no behaviour 'Mover.team=0'; there are: Caller, Mover"),
        ({"behaviour": "Mover", "agents": 0}, "no agent has to decide when the scene begins"),
    ],
)
def test_a_scene_that_cannot_be_used_is_refused(kwargs: dict[str, Any], message: str, build: Path) -> None:
    with pytest.raises(EnvironmentFailure, match=message):
        UnityWorld(str(build), **kwargs)


@unity
def test_a_wrong_path_is_refused(tmp_path: Path) -> None:
    with pytest.raises(EnvironmentFailure, match=r"there is no Unity build at .*nowhere: expected the path"):
        check_env(EnvConfig(id=f"unity:{tmp_path / 'nowhere'}"))
    (tmp_path / "plain").write_text("")
    with pytest.raises(EnvironmentFailure, match="it is not executable"):
        check_env(EnvConfig(id=f"unity:{tmp_path / 'plain'}"))


@unity
def test_players_of_different_kinds_need_a_choice(build: Path) -> None:
    with pytest.raises(EnvironmentFailure, match="Say which one learns"):
        make_env(EnvConfig(id=f"unity:{build}"))


@unity
@pytest.mark.parametrize(("fault", "message"), [("crash", "return code 7"), ("hang", "did not answer for 0.5 s")])
def test_a_build_that_fails_is_started_again(fault: str, message: str, build: Path) -> None:
    world = UnityWorld(str(build), behaviour=MOVER, arguments=["--fault", fault])
    assert world._scene
    world._scene._env._communicator._timeout = 0.5 if fault == "hang" else 60.0  # a start may take longer than a step
    env = MatchEnv(world, f"{MOVER}/1")
    env.reset(seed=0)
    for _ in range(3):
        env.step(mover_action(0, 0, 0, 0))
    with pytest.raises(EnvironmentFailure, match=message):
        env.step(mover_action(0, 0, 0, 0))
    seen, _ = env.reset(seed=34)
    np.testing.assert_allclose(seen["position"], [0.34, 0, 1])
    env.close()


@unity
def test_a_player_that_never_appears_is_reported(build: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("baldwin.envs.unity.MAX_STEPS_ALONE", 5)
    env = MatchEnv(UnityWorld(str(build), agents={"Caller": 2, "Mover": 2}), "Caller/1")
    with pytest.raises(EnvironmentFailure, match="Caller/1 did not appear in 5 steps: the scene has fewer agents"):
        env.reset(seed=0)
    env.close()


@unity
def test_unity_may_end_the_connection(build: Path) -> None:
    env = MatchEnv(UnityWorld(str(build), behaviour=MOVER, arguments=["--fault", "stop"]), f"{MOVER}/1")
    env.reset(seed=0)
    for _ in range(3):
        env.step(mover_action(0, 0, 0, 0))
    with pytest.raises(EnvironmentFailure, match="Unity ended the connection; in the editor, Play was stopped"):
        env.step(mover_action(0, 0, 0, 0))
    env.close()


@unity
def test_an_interpreter_that_closes_nothing_ends(build: Path) -> None:
    script = (
        "from baldwin.envs.unity import UnityWorld\n"
        f"world = UnityWorld({str(build)!r}, arguments=['--game', 'reach'])\n"
        "print(world._scene._env._process.pid)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=PATIENCE, check=True)
    assert done.stderr == ""
    with pytest.raises(ProcessLookupError):
        os.kill(int(done.stdout), 0)


@unity
def test_copies_listen_at_ports_of_their_own(build: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        worlds = [UnityWorld(str(build), port=port, **REACH) for _ in range(2)]
        ports = [world._scene._env._port for world in worlds if world._scene]
        for world in worlds:
            world.close()
    assert len({port, *ports}) == 3
    assert all(port < other < port + 64 for other in ports)


# The editor


@unity
def test_all_worlds_of_a_process_share_the_editor(build: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    editor = subprocess.Popen([build, "--mlagents-port", str(port), "--game", "reach"])
    try:
        first = MatchEnv(UnityWorld("editor", port=port))
        first.reset(seed=50)
        first.step(np.zeros(1))
        first.close()  # Unity goes on
        second, third = MatchEnv(UnityWorld("editor", port=port)), MatchEnv(UnityWorld("editor", port=port))
        np.testing.assert_allclose(second.reset(seed=75)[0]["sensor_0"], [0.75])
        np.testing.assert_allclose(third.reset(seed=25)[0]["sensor_0"], [0.25])
        with pytest.raises(EnvironmentFailure, match="another match began in Unity's editor"):
            second.step(np.zeros(1))
        third.step(np.zeros(1))
        assert editor.poll() is None
    finally:
        editor.kill()
        editor.wait()


# Training

PPO = [
    *("algorithm.name=ppo", "algorithm.rollout_length=12", "algorithm.batch_size=12", "algorithm.epochs=2"),
    *("algorithm.steps_per_epoch=12", "stop.env_steps=24", "policy.normalize_obs=false"),
]
SAC = [
    *("algorithm.name=sac", "algorithm.start_steps=10", "algorithm.batch_size=8", "algorithm.rollout_length=10"),
    *("algorithm.steps_per_epoch=20", "algorithm.buffer_size=100", "algorithm.critic={hidden: [8]}", "stop.env_steps=40"),
]
SMALL = ["policy.hidden=[8]", "executor.name=inline", "run.episodes=1", "run.evaluate_every=10", "env.max_episode_steps=10"]


def config_of(build: Path, kwargs: str, *overrides: str) -> RunConfig:
    return load_config(None, [], [f"env.id=unity:{build}", f"env.kwargs={{{kwargs}}}", *SMALL, *overrides])


@unity
def test_ppo_trains_mixed_actions_exactly(build: Path, tmp_path: Path) -> None:
    config = config_of(build, f"player: {MOVER}/0, repeatable: true", *PPO, "algorithm.n_envs=1")
    runs = [train_run(config, tmp_path / name) for name in ("once", "again")]
    assert runs[0].params_sha256() == runs[1].params_sha256()
    assert runs[0].algorithm.env_steps == 24


@unity
@pytest.mark.parametrize("kwargs", ["arguments: [--game, reach]", f"player: {MOVER}/0"], ids=["numbers", "mixed"])
def test_sac_trains(kwargs: str, build: Path, tmp_path: Path) -> None:
    run = train_run(config_of(build, kwargs, *SAC, "algorithm.n_envs=1"), tmp_path / "run")
    assert run.algorithm.env_steps == 40
    assert ("alpha_discrete" in run.last) == (MOVER in kwargs)


@unity
def test_one_policy_plays_all_agents_of_a_behaviour(build: Path, tmp_path: Path) -> None:
    own = ["env.self_play=true", "algorithm.n_envs=3", "algorithm.block=3"]
    run = train_run(config_of(build, "behaviour: Mover, agents: 3", *PPO, *own), tmp_path / "run")
    assert run.algorithm.env_steps >= 24


@unity
def test_a_scene_that_cannot_be_repeated_is_live(build: Path) -> None:
    config = EnvConfig(id=f"unity:{build}", kwargs=REACH)
    assert check_env(config).live
    assert not check_env(config.model_copy(update={"kwargs": REACH | {"repeatable": True}})).live
