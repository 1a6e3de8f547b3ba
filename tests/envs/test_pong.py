"""Pong: its rules by hand, games side by side against single ones, the world against the backend."""

from __future__ import annotations

from functools import partial

import gymnasium as gym
import numpy as np
import pytest

from baldwin.envs import EnvConfig, check_env, make_vector_env
from baldwin.envs.backends import describe
from baldwin.envs.match_env import MatchEnv
from baldwin.envs.opponent_envs import OpponentEnvs
from baldwin.envs.pong import (
    BALL,
    BAT_HEIGHT,
    DOWN,
    FRONT,
    LEFT,
    RIGHT,
    ROUND_FRAMES,
    ROUNDS,
    SIZE,
    STOP,
    UP,
    PongGames,
    draw,
    result,
    uniforms,
)
from baldwin.envs.pong_backend import PACES, PongVectorEnv
from baldwin.envs.pong_world import PongWorld
from baldwin.errors import EnvironmentFailure
from baldwin.observations import VECTOR
from tests.toys.opponents import ByFunction

IDS = ["baldwin:VectorPong-v0", "baldwin:TwoRatePong-v0"]


def games(count: int = 1, seed: int = 0) -> PongGames:
    made = PongGames(count)
    made.begin(slice(None), np.arange(seed, seed + count, dtype=np.uint64))
    return made


def place(made: PongGames, ball: tuple[float, float], velocity: tuple[float, float], bats: tuple[float, float] = (0, 0)) -> None:
    made.ball[:], made.velocity[:], made.bat[:] = ball, velocity, bats


def test_a_ball_starts_in_the_middle_at_a_speed_from_the_rules() -> None:
    made = games(2000)
    np.testing.assert_array_equal(made.ball, 78)
    assert set(np.unique(made.velocity[:, 0])) == {-4, 4}
    speed = np.abs(made.velocity[:, 1])
    assert 1.2 <= speed.min() < 1.22
    assert 3.98 < speed.max() < 4
    assert abs((made.velocity[:, 1] > 0).mean() - 0.5) < 0.04
    assert abs(speed.mean() - 2.6) < 0.05


def test_bats_move_by_four_and_stay_in_the_arena() -> None:
    made = games()
    made.step([[UP, DOWN]])
    np.testing.assert_array_equal(made.bat, [[68.5, 76.5]])
    made.step([[STOP, STOP]])
    np.testing.assert_array_equal(made.bat, [[68.5, 76.5]])
    for _ in range(30):
        made.step([[UP, DOWN]])
    np.testing.assert_array_equal(made.bat, [[0, SIZE - BAT_HEIGHT]])


def test_a_wall_reflects() -> None:
    made = games()
    place(made, (80, 1), (4, -3))
    made.step([[STOP, STOP]])
    np.testing.assert_allclose(made.ball, [[84, 2]])
    np.testing.assert_allclose(made.velocity, [[4, 3]])
    place(made, (80, 155), (4, 3))
    made.step([[STOP, STOP]])
    np.testing.assert_allclose(made.ball, [[84, 154]])
    np.testing.assert_allclose(made.velocity, [[4, -3]])


@pytest.mark.parametrize(("side", "x", "vx"), [(LEFT, FRONT[LEFT] + 1, -4), (RIGHT, FRONT[RIGHT] - BALL - 1, 4)])
def test_a_bat_sends_the_ball_back_and_adds_its_own_move(side: int, x: float, vx: float) -> None:
    made = games()
    place(made, (x, 80), (vx, 2), (78, 78))
    actions = [[STOP, STOP]]
    actions[0][side] = DOWN
    reward = made.step(actions)
    np.testing.assert_allclose(made.velocity, [[-vx, 2 + 0.7 * 4]])
    assert made.ball[0, 0] == pytest.approx(x + np.sign(-vx) * 2)  # one there, three back
    np.testing.assert_array_equal(reward, 0)


def test_a_ball_that_passes_is_a_point_and_a_new_round() -> None:
    made = games()
    place(made, (-3, 80), (-4, 0))
    np.testing.assert_array_equal(made.step([[STOP, STOP]]), [[-1, 1]])
    np.testing.assert_array_equal(made.score, [[0, 1]])
    assert made.round[0] == 1
    np.testing.assert_array_equal(made.ball, 78)


def test_a_round_without_a_point_ends_after_a_thousand_frames() -> None:
    made = games()
    made.frame[:] = ROUND_FRAMES - 1
    np.testing.assert_array_equal(made.step([[STOP, STOP]]), 0)
    assert (made.round[0], made.frame[0]) == (1, 0)


def test_both_players_see_themselves_on_the_left() -> None:
    made = games()
    place(made, (39, 78), (4, 0), (0, 145))
    made.step([[STOP, STOP]])
    left, right = made.observe(LEFT)[0], made.observe(RIGHT)[0]
    np.testing.assert_allclose(left[:4], [0, 1, 43 / 156, 0.5], rtol=1e-6)
    np.testing.assert_allclose(right[:4], [1, 0, 1 - 43 / 156, 0.5], rtol=1e-6)
    np.testing.assert_allclose(left[4:], 0.5)  # where it was before


def test_games_side_by_side_are_the_games_by_themselves() -> None:
    rng = np.random.default_rng(0)
    together, alone = games(5, seed=7), [games(1, seed=7 + n) for n in range(5)]
    for _ in range(600):
        actions = rng.integers(0, 3, (5, 2))
        some = np.flatnonzero(rng.random(5) < 0.7)
        reward = together.step(actions[some], some)
        for row, n in enumerate(some):
            np.testing.assert_array_equal(alone[n].step(actions[n : n + 1])[0], reward[row])
            np.testing.assert_array_equal(alone[n].observe(RIGHT)[0], together.observe(RIGHT)[n])
    assert together.score.sum() > 10


def test_the_script_beats_chance_and_loses_only_to_steep_balls() -> None:
    rng, made = np.random.default_rng(0), games(50)
    for _ in range(1500):
        playing = np.flatnonzero(~made.over)
        made.step(np.stack([made.track(LEFT, playing), rng.integers(0, 3, len(playing))], 1), playing)
    points = made.score.sum(0)
    assert points[LEFT] > 3 * points[RIGHT]


def test_a_result_is_score_win_and_behaviour() -> None:
    made = games()
    made.score[:], made.frames[:], made.moves[:] = [[12, 8]], 100, [[30, 100]]
    made.decisions[:], made.stops[:] = [[50, 100]], [[10, 0]]
    assert result(made, 0, LEFT) == {"score": 0.6, "win": 1.0, "points": (12, 8), "behaviour": {"lazy": 0.2, "busy": 0.3}}
    assert result(made, 0, RIGHT)["score"] == pytest.approx(0.4)
    made.score[:] = 10
    assert result(made, 0, RIGHT)["win"] == 0.5


def test_lazy_counts_decisions_and_busy_counts_frames() -> None:
    """A bat that is held against a wall is neither: it does not move, though nobody decided to stop."""
    made = games()
    for actions in 25 * [[UP, STOP]] + 15 * [[STOP, DOWN]]:
        made.count_decisions(np.array([LEFT]), actions[:1], np.array([0]))
        made.count_decisions(RIGHT, actions[1])
        made.step([actions])
    frames_to_wall = 19  # (160 - 15) / 2 = 72.5 at 4 a frame
    assert result(made, 0, LEFT)["behaviour"] == {"lazy": 15 / 40, "busy": frames_to_wall / 40}
    assert result(made, 0, RIGHT)["behaviour"] == {"lazy": 25 / 40, "busy": 15 / 40}
    made.begin([0], np.zeros(1, np.uint64))
    assert result(made, 0, LEFT)["behaviour"] == {"lazy": 0.0, "busy": 0.0}


def test_the_script_is_never_lazy_and_a_decision_of_several_frames_counts_once() -> None:
    world = PongWorld(frames=(4, 4), delay=2)
    env = MatchEnv(world, "left")
    env.reset(seed=1)
    actions, over = [STOP, UP, UP, DOWN], False
    while not over:
        for action in actions:
            *_, over, _, info = env.step(action)
            if over:
                break
    games_played = world.games
    assert abs(int(games_played.decisions[0, LEFT]) - int(games_played.frames[0]) / 4) <= 1
    assert info["result"]["behaviour"]["lazy"] == pytest.approx(0.25, abs=0.01)
    assert info["result"]["behaviour"]["lazy"] + info["result"]["behaviour"]["busy"] != pytest.approx(1, abs=0.01)
    assert result(games_played, 0, RIGHT)["behaviour"]["lazy"] == 0
    env.close()


def test_numbers_are_uniform_and_differ_by_seed_and_counter() -> None:
    draws = uniforms(np.arange(20_000, dtype=np.uint64), np.zeros(20_000, np.int64), 3)
    assert abs(draws.mean() - 0.5) < 0.005
    assert abs(np.corrcoef(draws.T)[0, 1]) < 0.02
    assert len(np.unique(uniforms(np.zeros(100, np.uint64), np.arange(100), 1))) == 100


def test_a_picture_has_bats_ball_and_score() -> None:
    made = games()
    made.score[:] = [[3, 1]]
    picture = draw(made, 0)
    assert picture.shape == (210, 160, 3)
    assert (picture[34 + 78 : 34 + 82, 78:82] == 236).all()
    assert (picture[12:22] > 0).any(-1).sum() == 4 * 2 * 10


@pytest.mark.parametrize(("name", "kwargs"), [*((name, {}) for name in IDS), (IDS[1], {"redraw": False})], ids=str)
def test_the_backend_is_the_match(name: str, kwargs: dict[str, object]) -> None:
    """Games side by side in NumPy equal the same world, played as a match through its controllers."""
    config = EnvConfig(id=name, kwargs=kwargs)
    spec = describe(config)
    assert (spec.backend, spec.has_elapsed) == ("pong", True)
    fast = make_vector_env(config, spec, 3)
    slow_config = EnvConfig(id=name, backend="gymnasium", kwargs=kwargs)
    slow = make_vector_env(slow_config, describe(slow_config), 3)
    ids, rng, ended = np.arange(3, dtype=np.int32), np.random.default_rng(0), 0
    paces: list[set[int]] = [set() for _ in range(3)]  # of games that have not ended yet
    for env in (fast, slow):
        env.open(np.array([5, 6, 7]), np.array([0, 3, 0]))
    np.testing.assert_array_equal(fast.reset(ids)[VECTOR], slow.reset(ids)[VECTOR])
    while ended < 2:
        actions = rng.integers(0, 3, 3)
        one, other = fast.step(actions, ids), slow.step(actions, ids)
        np.testing.assert_array_equal(one.obs[VECTOR], other.obs[VECTOR])
        for a, b in zip(one[1:4], other[1:4], strict=True):
            np.testing.assert_array_equal(a, b)
        np.testing.assert_array_equal(one.elapsed, other.elapsed)
        assert one.elapsed is not None
        over = ids[one.terminated]
        if not ended:
            for n in ids[~one.terminated]:
                paces[n].add(int(one.elapsed[n]))
        ended += len(over)
        assert [fast.result(n) for n in over] == [slow.result(n) for n in over]  # type: ignore[attr-defined]
        if len(over):
            np.testing.assert_array_equal(fast.reset(over)[VECTOR], slow.reset(over)[VECTOR])
    assert not slow.failures
    if "Vector" in name:
        assert paces == [{1}] * 3
    elif kwargs:
        assert all(len(pace) == 1 for pace in paces)  # the same k for a whole game
        assert len(set.union(*paces)) > 1
    else:
        assert paces == [set(range(1, 7))] * 3
    slow.close()


@pytest.mark.parametrize("name", IDS)
def test_members_have_the_pace_of_players(name: str) -> None:
    """Games against a member, side by side in NumPy, equal the same through controllers."""
    config = EnvConfig(id=name)
    spec = describe(config)
    pace = PACES[name.removeprefix("baldwin:")]
    fast, slow = PongVectorEnv(config, spec, 3), OpponentEnvs(partial(PongWorld, **pace), "any", spec, 3, np.zeros(0, np.float32))
    ids, rng = np.arange(3, dtype=np.int32), np.random.default_rng(0)
    for env in (fast, slow):
        env.opponents[:] = [1, 0, 1]
        env.policies = ByFunction(lambda obs: np.where(obs[VECTOR][:, 3] < obs[VECTOR][:, 0], UP, DOWN))
        env.open(np.array([5, 6, 7]), 0)
    np.testing.assert_array_equal(fast.reset(ids)[VECTOR], slow.reset(ids)[VECTOR].astype(np.float32))
    for _ in range(300):
        actions = rng.integers(0, 3, 3)
        one, other = fast.step(actions, ids), slow.step(actions, ids)
        np.testing.assert_array_equal(one.obs[VECTOR], other.obs[VECTOR].astype(np.float32))
        np.testing.assert_array_equal(one.reward, other.reward)
        np.testing.assert_array_equal(one.elapsed, other.elapsed)
        if one.terminated.any():
            break
    slow.close()


def test_as_a_gymnasium_environment_it_tells_its_result() -> None:
    env = gym.make("baldwin.envs:VectorPong-v0", player="left", render_mode="rgb_array").unwrapped
    env.reset(seed=3)
    over = False
    while not over:
        _, _, over, _, info = env.step(STOP)
    assert info["result"]["win"] == 0.0
    assert sum(info["result"]["points"]) <= ROUNDS
    assert env.render().shape == (210, 160, 3)
    env.close()


@pytest.mark.parametrize(
    "kwargs",
    [
        {"player": "middle"},
        {"delay": "x"},
        {"frames": [1.5, 2.5]},
        {"frames": [0, 2]},
        {"frames": 3},
        {"delay": -1},
        {"speed": 2},
        {"redraw": 1},
    ],
)
def test_wrong_arguments_are_named(kwargs: dict[str, object]) -> None:
    with pytest.raises(EnvironmentFailure, match=r"expected env.kwargs of player \(any, left, right\)"):
        check_env(EnvConfig(id=IDS[0], kwargs=kwargs))
