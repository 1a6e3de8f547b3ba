"""Players that take turns: a step is from one decision of a player to its next, whatever the others do in between."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from itertools import pairwise

import numpy as np
import pytest
from gymnasium import spaces

from baldwin.config import load_config
from baldwin.envs.asynchronous import Match, Player, Seat, SimpleMatch, World
from baldwin.learners.experience import Experience, by_decisions, from_segment
from baldwin.learners.policy_gradient_algorithm import PolicyGradientAlgorithm
from baldwin.learners.turns import OpenDecisions, complete_spans
from baldwin.rollout import DECIDED
from baldwin.runs.build import build

ROWS = np.array([[1, 0, 1, 0, 0, 1, 0], [0, 1, 0, 1, 0, 0, 1], [0, 0, 0, 0, 0, 1, 0]], np.bool_)  # who decides, and who does afterwards
ENDED = np.zeros((3, 6), np.bool_)
ENDED[0, 4] = ENDED[1, 0] = ENDED[2, 2] = True


def test_decisions_that_are_answered_within_a_segment() -> None:
    assert complete_spans(ROWS[0], ENDED[0]) == [(0, 2), (2, 5)]  # the one at 5 is not answered
    assert complete_spans(ROWS[1], ENDED[1]) == [(1, 3), (3, 6)]
    assert complete_spans(ROWS[2], ENDED[2]) == []
    twice = np.array([0, 1, 0, 1, 0], np.bool_)  # two episodes end before the player decides again
    assert complete_spans(np.array([1, 0, 0, 0, 0, 1], np.bool_), twice) == [(0, 2)]


def test_decisions_left_open_are_completed_by_the_next_segment() -> None:
    rng = np.random.default_rng(0)
    rows = {
        "obs/vector": np.arange(60, dtype=np.float32)[:, None],
        "next_obs/vector": np.arange(1, 61, dtype=np.float32)[:, None],
        "action": np.arange(60),
        "reward": rng.normal(size=60).astype(np.float32),
        "terminated": rng.random(60) < 0.1,
        "truncated": np.zeros(60, np.bool_),
        "elapsed": np.ones(60, np.int32),
    }
    decided = rng.random(61) < 0.4
    whole = OpenDecisions().answered(3, rows, decided)
    assert len(whole["reward"]) == len(complete_spans(decided, rows["terminated"]))
    parts, kept = [], OpenDecisions()
    for start, stop in pairwise([0, 1, 2, 7, 8, 20, 33, 34, 50, 60]):
        state, kept = kept.state_dict(), OpenDecisions()
        kept.load_state_dict(state)  # as after a resume
        parts.append(kept.answered(3, {name: array[start:stop] for name, array in rows.items()}, decided[start : stop + 1]))
    for name, array in whole.items():
        np.testing.assert_allclose(np.concatenate([part[name] for part in parts]), array, rtol=1e-6)


def test_a_step_of_a_player_by_hand() -> None:
    rows = {
        "obs/vector": np.array([[0], [1], [2], [3], [4]], np.float32),
        "next_obs/vector": np.array([[1], [2], [3], [9], [5]], np.float32),
        "action": np.array([10, 11, 12, 13, 14]),
        "reward": np.array([1, 2, 4, 8, 16], np.float32),
        "terminated": np.array([0, 0, 0, 1, 0], np.bool_),
        "truncated": np.zeros(5, np.bool_),
    }
    kept = OpenDecisions()
    found = kept.answered(0, rows, np.array([0, 1, 0, 1, 1, 0], np.bool_))  # the row before the first decision is nobody's
    assert found["obs/vector"].ravel().tolist() == [1, 3]
    assert found["next_obs/vector"].ravel().tolist() == [3, 9]
    assert found["action"].tolist() == [11, 13]
    assert found["reward"].tolist() == [2 + 4, 8]
    assert found["terminated"].tolist() == [False, True]
    nothing = {name: array[:0] for name, array in rows.items()}
    assert kept.answered(0, nothing, np.ones(1, np.bool_))["reward"].tolist() == [16]  # its turn has come
    kept.answered(0, rows, np.array([0, 0, 0, 0, 1, 0], np.bool_))
    kept.forget(0)
    assert kept.answered(0, nothing, np.ones(1, np.bool_))["reward"].tolist() == []


def test_rewards_and_frames_of_waiting_belong_to_the_decision_before() -> None:
    numbers = np.arange(18, dtype=np.float32).reshape(3, 6)
    found = by_decisions(
        Experience(
            obs={"vector": numbers[..., None]},
            last_obs={"vector": np.full((3, 1), 99, np.float32)},
            final_obs={"vector": np.array([[50], [51], [52]], np.float32)},
            final_at=np.argwhere(ENDED),
            action=numbers[..., None],
            log_prob=-numbers,
            reward=np.stack([numbers, 10 * numbers], 2),
            terminated=ENDED,
            truncated=np.zeros_like(ENDED),
            elapsed=np.ones((3, 6), np.int32),
            valid=np.ones((3, 6), np.bool_),
            memory=np.ones((3, 2), np.float32),
        ),
        ROWS,
    )
    assert found.valid.tolist() == [[True, True], [True, True], [False, False]]
    assert found.obs["vector"][..., 0].tolist() == [[0, 2], [7, 9], [0, 0]]
    assert found.action[..., 0].tolist() == [[0, 2], [7, 9], [0, 0]]
    assert found.log_prob.tolist() == [[0, -2], [-7, -9], [0, 0]]
    assert found.reward[..., 0].tolist() == [[0 + 1, 2 + 3 + 4], [7 + 8, 9 + 10 + 11], [0, 0]]
    assert found.reward[..., 1].tolist() == [[10, 90], [150, 300], [0, 0]]
    assert found.elapsed.tolist() == [[2, 3], [2, 3], [0, 0]]
    assert found.terminated.tolist() == [[False, True], [False, False], [False, False]]
    assert found.final_at.tolist() == [[0, 1]]
    assert found.final_obs["vector"].tolist() == [[50]]
    assert found.last_obs["vector"].tolist() == [[5], [99], [99]]  # what the next decision sees
    assert found.memory[:2].tolist() == [[1, 1], [0, 0]]  # the second one's episode began after the segment did
    assert len(fields(Experience)) == 12


def collected(*options: str) -> tuple[PolicyGradientAlgorithm, list[Experience], list[dict[str, np.ndarray]]]:
    """The first three segments of four players, all by the policy that the run begins with."""
    common = ["env.self_play=true", "algorithm.name=impala", "algorithm.n_envs=4", "algorithm.block=4", "algorithm.rollout_length=9"]
    parts = build(load_config(None, [], [*common, "algorithm.segments_per_update=9", *options]))
    algorithm, worker = parts.algorithm, parts.worker_spec()
    assert isinstance(algorithm, PolicyGradientAlgorithm)
    segments, raw = [], []
    for _ in range(3):
        for shared in algorithm.publish():
            worker.receive(shared)
        (job,) = algorithm.ask(1)
        (outcome,) = job.run(worker)
        algorithm.tell([outcome])
        raw.append(dict(outcome.arrays))
        segments.append(from_segment(outcome.arrays, parts.env_spec.obs))
        assert outcome.env_steps == outcome.arrays[DECIDED][:, :-1].sum()
    worker.close()
    return algorithm, segments, raw


@pytest.mark.parametrize("memory", ["none", "lstm"])
def test_the_learner_sees_what_the_players_saw(memory: str) -> None:
    """Under the policy that acted, actions have the probabilities that they had: memory and observations are those of decisions alone."""
    options = ["env.id=tests.toys.duels:TurnDuel", "env.kwargs={rounds: 3}", "policy.output_scale=1.0", f"policy.memory={memory}"]
    algorithm, segments, _ = collected(*options, "policy.normalize_obs=false")
    for segment in segments:
        np.testing.assert_allclose(algorithm.learner.ratios(segment), 1, rtol=1e-5)


def test_frames_and_rewards_between_decisions() -> None:
    """Three frames pass with each word of red, one with each of blue: four from decision to decision, one after blue's last word."""
    _, segments, raw = collected("env.id=tests.toys.duels:TurnDuel", "env.kwargs={rounds: 3}", "policy.normalize_obs=false")
    for segment in segments:
        red, blue = segment.valid[::2], segment.valid[1::2]
        assert set(segment.elapsed[::2][red]) == {4}
        last = segment.terminated[1::2][blue]
        assert set(segment.elapsed[1::2][blue][~last]) == {4}
        assert set(segment.elapsed[1::2][blue][last]) == {1}
        assert segment.terminated.any(1).all()
    everything = np.concatenate([arrays["reward"] for arrays in raw], 1)
    ends = np.concatenate([arrays["terminated"] for arrays in raw], 1)
    stop = int(np.flatnonzero(ends[0])[-1]) + 1
    np.testing.assert_allclose(everything[0, :stop].sum(), -everything[1, :stop].sum())  # what one wins the other loses


class Leaves(World):
    """Three players in turns; the first one is out after its first move, with seven points, the others play two rounds for one point each."""

    def __init__(self) -> None:
        self.players = [Player(name, spaces.Box(0, 1, (1,), np.float32), spaces.Discrete(2)) for name in "abc"]

    def reset(self, seed: int, players: Sequence[str]) -> Match:
        seats = {name: Seat(name) for name in players}
        return SimpleMatch(list(seats.values()), [self._tick(seats)])

    async def _tick(self, seats: dict[str, Seat]) -> None:
        everybody = list(seats.values())
        left = everybody[0].player == "a" and everybody[0]
        for turn in range(2):
            for seat in [s for s in everybody if turn == 0 or s is not left]:
                seat.show(np.array([turn], np.float32))
                await seat.action()
                seat.add(7.0 if seat is left else 1.0)
                if seat is left:
                    seat.show(np.zeros(1, np.float32), terminated=True)
        for seat in everybody:
            if seat is not left:
                seat.show(np.ones(1, np.float32), terminated=True)


def test_who_is_out_early_waits_for_the_end_of_the_match() -> None:
    options = ["env.id=tests.learners.test_turns:Leaves", "algorithm.n_envs=3", "algorithm.block=3", "policy.normalize_obs=false"]
    _, segments, raw = collected(*options)
    assert (raw[0]["terminated"][0] == raw[0]["terminated"][1]).all()
    first = segments[0]
    assert first.reward[0, first.valid[0], 0].tolist() == [
        7.0
    ]  # a match has five decisions: of nine rows, the second one is not at its end
    assert first.terminated[0, first.valid[0]].all()
    assert first.reward[1, :2, 0].tolist() == [1.0, 1.0]
    assert first.terminated[1, :2].tolist() == [False, True]


def test_a_time_limit_ends_the_match_for_everybody() -> None:
    """After five words red waits for blue: nothing came of its last decision, and what it saw then is the last it has seen."""
    _, segments, _ = collected("env.id=tests.toys.duels:TurnDuel", "env.max_episode_steps=5", "policy.normalize_obs=false")
    first = segments[0]
    assert first.truncated[0, first.valid[0]].tolist()[:3] == [False, False, True]
    assert first.truncated[1, first.valid[1]].tolist()[:2] == [False, True]
    assert first.elapsed[0, :3].tolist() == [4, 4, 0]
    assert first.elapsed[1, :2].tolist() == [4, 4]  # blue was about to speak again
    row = first.final_at.tolist().index([0, 2])
    np.testing.assert_array_equal(first.final_obs["vector"][row], first.obs["vector"][0, 2])
