"""The pool of opponents: who is chosen, who joins, who leaves, and what the table says."""

from __future__ import annotations

import numpy as np
import pytest

from baldwin.opponents import (
    GAMES,
    SCRIPT,
    UNREPORTED,
    JobOpponents,
    Mixture,
    OpponentAssignment,
    OpponentPool,
    OpponentsConfig,
    SnapshotRule,
    game_score,
    reported_win,
)

POLICY = {"params": np.arange(3, dtype=np.float32), "obs_moments": np.zeros(1)}


def pool(**options: object) -> OpponentPool:
    return OpponentPool(OpponentsConfig(**options))  # type: ignore[arg-type]


def test_a_choice_is_a_function_of_seed_environment_and_episode() -> None:
    mixture = Mixture(np.array([0, 4, 7]), np.array([0.2, 0.5, 0.3]))
    chosen = [mixture.choose(1, env, episode) for env in range(40) for episode in range(50)]
    assert chosen == [mixture.choose(1, env, episode) for env in range(40) for episode in range(50)]
    np.testing.assert_allclose([chosen.count(n) / len(chosen) for n in (0, 4, 7)], [0.2, 0.5, 0.3], atol=0.04)


def test_snapshots_join_when_both_rules_hold() -> None:
    own = pool(snapshot=SnapshotRule(steps=100, win_rate=0.6))
    for score in (1.0, 0.0):
        own.record(SCRIPT, score)
    assert not own.snapshot(POLICY, 150)  # 0.5 is too little
    own.record(SCRIPT, 1.0)
    assert not own.snapshot(POLICY, 99)
    assert own.snapshot(POLICY, 150)
    assert [member.name for member in own.members] == ["script", "step 150"]
    assert own.members[1].rates == {SCRIPT: pytest.approx(2 / 3)}
    assert not own.snapshot(POLICY, 200)  # 50 steps after the last


def test_who_is_beaten_most_often_leaves_and_its_parameters_with_it() -> None:
    own = pool(snapshot=SnapshotRule(steps=1), capacity=3)
    for steps in (1, 2):
        own.snapshot(POLICY, steps)
    for number, score in ((1, 0.0), (2, 1.0)):
        own.record(number, score)
    own.snapshot(POLICY, 3)
    assert [member.number for member in own.active] == [0, 1, 3]
    own.forget({2})  # somebody still plays it
    assert [member.number for member in own.members] == [0, 1, 2, 3]
    own.forget(set())
    assert [member.number for member in own.members] == [0, 1, 3]
    assert list(own._recent) == [1]
    assert [shared.version for shared in own.publish()] == [1, 3]
    assert own.publish() == []


def test_a_share_of_more_games_than_are_remembered_is_refused() -> None:
    with pytest.raises(ValueError, match="Raise window"):
        pool(drop_beaten=0.75, games_needed=10, window=5)


def test_who_is_beaten_above_a_share_leaves_once_it_has_enough_games() -> None:
    own = pool(pool=["script", "script:random", "script:a:b"], drop_beaten=0.75, games_needed=4)
    for number, wins, games in ((SCRIPT, 3, 4), (2, 4, 4), (3, 3, 3)):
        for game in range(games):
            own.record(number, float(game < wins))
    own.drop_beaten()
    assert [m.number for m in own.active] == [SCRIPT, 3]  # 0.75 is not above it; three games are too few
    own.forget(set())
    assert sorted(own._recent) == [SCRIPT, 3]
    own.record(3, 1.0)
    own.record(SCRIPT, 1.0)
    own.drop_beaten()
    assert [m.number for m in own.active] == [SCRIPT]  # both are beaten too often; this one less
    other = pool(pool=["script", "script:random", "script:a:b"], drop_beaten=0.75)
    other.load_state_dict(own.state_dict())
    assert [m.number for m in other.active] == [SCRIPT]


def test_nobody_leaves_for_being_beaten_by_default_and_epochs_and_generations_ask() -> None:
    for share, left in ((None, [SCRIPT, 1, 2]), (0.9, [1, 2])):
        assignment = OpponentAssignment(pool(drop_beaten=share, snapshot=SnapshotRule(steps=1)), 1, seed=1)
        jobs = JobOpponents(pool(drop_beaten=share, snapshot=SnapshotRule(steps=1)))
        for steps in (1, 2):
            assignment.end_epoch(POLICY, steps, [])
            jobs.end_generation(POLICY, steps, [])
        for own in (assignment.pool, jobs.pool):
            for _ in range(20):
                own.record(SCRIPT, 1.0)
        assignment.end_epoch(POLICY, 2, [])
        jobs.end_generation(POLICY, 2, [])
        assert [m.number for m in assignment.pool.active] == [m.number for m in jobs.pool.active] == left


def test_weights_stay_with_those_whose_they_are_when_others_leave() -> None:
    own = pool(pool=["script", "script:random", "script:a:b"], choice="given", weights=[1, 2, 3], drop_beaten=0.5, games_needed=1)
    own.record(SCRIPT, 1.0)
    own.drop_beaten()
    np.testing.assert_allclose(own.mixture().probabilities, [0.4, 0.6])


@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        ("uniform", [1 / 3] * 3),
        ("latest", [0, 0, 1]),
        ("80-20", [0.1, 0.1, 0.8]),
        ("pfsp", [1 / 9, 0, 8 / 9]),
        ("pfsp-even", [1, 0, 0]),
    ],
)
def test_choices(choice: str, expected: list[float]) -> None:
    own = pool(choice=choice, snapshot=SnapshotRule(steps=1), games_needed=2)
    for steps in (1, 2):
        own.snapshot(POLICY, steps)
    for number, scores in ((0, (1.0, 0.0)), (1, (1.0, 1.0)), (2, (0.0, 0.0))):
        for score in scores:
            own.record(number, score)
    np.testing.assert_allclose(own.mixture().probabilities, expected)


def test_the_nash_choice_plays_the_mixture_of_a_cycle() -> None:
    """Rock is the script; paper joined beating it, scissors joined beating paper and losing to rock."""
    own = pool(choice="nash", snapshot=SnapshotRule(steps=1))
    own.record(0, 1.0)
    own.snapshot(POLICY, 1)
    own._recent = {0: [0.0], 1: [1.0]}
    own.snapshot(POLICY, 2)
    np.testing.assert_allclose(own.mixture().probabilities, 1 / 3, atol=0.03)
    table = own.table()
    assert table.players == ["script", "step 1", "step 2", "learner"]
    np.testing.assert_array_equal(table.win_rate[:3, :3], [[0.5, 0, 1], [1, 0.5, 0], [0, 1, 0.5]])


def test_the_state_is_all_there_is() -> None:
    own = pool(snapshot=SnapshotRule(steps=1))
    own.record(0, 0.5)
    own.snapshot(POLICY, 5)
    own.record(1, 1.0)
    other = pool(snapshot=SnapshotRule(steps=1))
    other.load_state_dict(own.state_dict())
    np.testing.assert_array_equal(other.table().win_rate, own.table().win_rate)
    np.testing.assert_array_equal(other.mixture().probabilities, own.mixture().probabilities)
    assert [shared.version for shared in other.publish()] == [1]
    own.snapshot(POLICY, 9)
    other.snapshot(POLICY, 9)
    assert [m.number for m in other.members] == [m.number for m in own.members]


def test_results_go_to_whom_the_episode_was_played_against() -> None:
    assignment = OpponentAssignment(pool(), 2, seed=1)
    for episode, (score, following) in enumerate([(1.0, 5), (0.0, 6), (None, 7)]):  # the last one was given up: no result
        assignment.mixture = Mixture(np.array([following]), np.ones(1))
        assignment.end(0, episode, score)
    assert assignment.current == [7, 0]
    assert assignment.pool._recent == {0: [1.0], 5: [0.0]}


def test_results_of_a_generation_count_at_its_end_whoever_was_faster() -> None:
    found = []
    for order in ((3, 8), (8, 3)):
        own = JobOpponents(pool(choice="uniform", snapshot=SnapshotRule(steps=10, win_rate=0.6)))
        games = {3: [[SCRIPT, 2.0], [SCRIPT, 0.0]], 8: [[SCRIPT, 1.0, UNREPORTED], [SCRIPT, 9.0, 0.0], [SCRIPT, -5.0, 1.0]]}
        for ticket in order:
            own.add(ticket, {GAMES: np.array(games[ticket])})
            assert own.pool.win_rate() == 0.5  # nothing is known yet
        own.add(9, {})
        metrics = own.end_generation(POLICY, 10, [])
        found.append((own.pool._recent, metrics, [m.number for m in own.pool.active]))
    assert found[0] == found[1] == ({SCRIPT: [1.0, 0.5, 1.0, 0.0, 1.0]}, {"win_rate": 0.7, "opponents": 1.0}, [0, 1])


def test_who_won_is_what_the_world_tells_or_else_the_sign_of_the_return() -> None:
    assert [reported_win({"win": win}) for win in (1, 0.5, np.float32(0.0))] == [1.0, 0.5, 0.0]
    assert [reported_win(result) for result in ({}, {"score": 3.0}, {"win": "left"}, {"win": 7}, {"win": None})] == [UNREPORTED] * 5
    assert [game_score(total) for total in (3.0, 0.0, -0.5)] == [1.0, 0.5, 0.0]
    assert [game_score(3.0, win) for win in (0.0, 0.5, UNREPORTED)] == [0.0, 0.5, 1.0]


def test_a_job_that_is_made_again_meets_the_same_opponents_after_a_resume_too() -> None:
    own = JobOpponents(pool(choice="latest", snapshot=SnapshotRule(steps=1), capacity=2))
    own.mixture_of(7)
    own.end_generation(POLICY, 1, [7])
    own.mixture_of(8)
    own.add(5, {GAMES: np.array([[1, 1.0]])})
    other = JobOpponents(pool(choice="latest", snapshot=SnapshotRule(steps=1), capacity=2))
    other.load_state_dict(own.state_dict())
    for one in (own, other):
        assert one.mixture_of(7).members.tolist() == [0]
        assert one.mixture_of(8).members.tolist() == [0, 1]
        assert one.mixture_of(9).probabilities.tolist() == [0, 1]
        one.end_generation(POLICY, 2, [8])  # a third one joins; the first snapshot leaves, but job 8 may still need it
        assert [(m.number, m.active) for m in one.pool.members] == [(0, True), (1, False), (2, True)]
        assert one.mixture_of(7).members.tolist() == [0, 2]  # a new job of that number
        one.end_generation(POLICY, 2, [])
        assert [m.number for m in one.pool.members] == [0, 2]
