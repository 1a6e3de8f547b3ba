"""The evolver, by outcomes that are made up: what members are told to begin with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from numpy.typing import NDArray

from baldwin.populations.config import PopulationContext
from baldwin.populations.evolver import Evolver, EvolverConfig
from baldwin.populations.member import RETURNS, STATE_HASH, TrainMember
from baldwin.populations.states import StateFiles, pack_state, unpack_state
from baldwin.types import Individual, Outcome
from tests.populations.test_members import config_of, sections_of
from tests.populations.tools import ask_all, pauses, simulate

SEARCH = {
    "algorithm.lr": {"log": [1e-5, 1e-1]},
    "algorithm.normalize_advantage": {"choice": [True, False]},
}


def make(folder: Path, **settings: Any) -> Evolver:
    config = EvolverConfig.model_validate({"members": 6, "elites": 0.5, "episodes": 2, "search": SEARCH} | settings)
    return Evolver(config, PopulationContext(sections_of(config_of("ppo")), 1, folder, True, 1))


def outcome_of(
    evolver: Evolver, folder: Path, job: TrainMember, score: float, value: float, weights: NDArray[np.float32] | None = None
) -> Outcome:
    """What comes of a round: weights, unless they are given, and statistics that all have this value; a score of NaN: it failed."""
    if np.isnan(score):
        return Outcome(job.ticket, float("nan"), reason="the wheel came off")
    weights = np.full(len(evolver._distribution.mean), np.float32(value)) if weights is None else weights
    state = {"weights": weights, "policy": {"obs_moments": np.full(9, np.float32(value)), "n": job.ticket}}
    name = StateFiles(folder).write(pack_state(state))
    arrays = {STATE_HASH: np.frombuffer(bytes.fromhex(name), np.uint8), RETURNS: np.full(2, score)}
    return Outcome(job.ticket, score, env_steps=1, arrays=arrays)


def round_of(evolver: Evolver, folder: Path, scores: list[float], shift: float = 0.0) -> list[TrainMember]:
    """The jobs of a round, by member; member n comes back with its score, and with weights and statistics that all are n + shift."""
    jobs = ask_all(evolver)
    evolver.tell([outcome_of(evolver, folder, job, scores[job.member], job.member + shift) for job in jobs])
    return sorted(jobs, key=lambda job: job.member)


def lineage(evolver: Evolver) -> dict[int, Individual]:
    return {int(record["member"]): record for record in evolver.individuals()}


SCORES = [1.0, 6.0, 2.0, 5.0, 4.0, 3.0]  # the elites are 1, 3 and 4


def test_all_begin_with_one_initialisation(tmp_path: Path) -> None:
    jobs = round_of(make(tmp_path), tmp_path, SCORES)
    expected = sections_of(config_of("ppo")).build(1)[0].weights()  # type: ignore[attr-defined]
    for job in jobs:
        assert job.weights is not None
        np.testing.assert_array_equal(job.weights, expected)
    assert len({job.seed for job in jobs}) == 6


def test_weights_are_drawn_around_those_of_the_elites_and_the_best_keeps_its_own(tmp_path: Path) -> None:
    """Mean and standard deviation of 1, 3 and 4; observation statistics come from the best; parents are the elites."""
    evolver = make(tmp_path, std_cap=5.0)
    round_of(evolver, tmp_path, SCORES)
    jobs = round_of(evolver, tmp_path, SCORES)
    assert jobs[1].weights is None
    assert jobs[1].obs_moments is None
    drawn = np.stack([job.weights for job in jobs if job.weights is not None])
    assert len(drawn) == 5
    count = drawn.size**0.5
    assert drawn.mean() == pytest.approx(8 / 3, abs=5 / count)
    assert drawn.std() == pytest.approx(np.sqrt(14 / 9), abs=5 / count)
    for job in jobs:
        assert job.member == 1 or (job.obs_moments == 1).all()  # type: ignore[attr-defined]
    found = lineage(evolver)
    assert (found[1]["operator"], found[1]["parents"]) == ("continue", [1])
    assert all((found[n]["operator"], found[n]["parents"]) == ("drawn", [1, 3, 4]) for n in (0, 2, 3, 4, 5))


@pytest.mark.parametrize("elitism", [0, 2])
def test_as_many_keep_their_weights_as_elitism_says(elitism: int, tmp_path: Path) -> None:
    evolver = make(tmp_path, elitism=elitism)
    round_of(evolver, tmp_path, SCORES)
    kept = [job.member for job in round_of(evolver, tmp_path, SCORES) if job.weights is None]
    assert kept == [1, 3][:elitism]


def test_a_single_elite_has_the_deviation_of_the_floor(tmp_path: Path) -> None:
    evolver = make(tmp_path, elites=0.1, std_floor=0.25)
    round_of(evolver, tmp_path, SCORES)
    drawn = np.stack([job.weights for job in round_of(evolver, tmp_path, SCORES) if job.weights is not None])
    assert drawn.std() == pytest.approx(0.25, abs=1.5 / drawn.size**0.5)
    assert drawn.mean() == pytest.approx(1.0, abs=1.5 / drawn.size**0.5)


def climb(folder: Path, score: Callable[[NDArray[np.float32], int], float], rounds: int, std_floor: float) -> list[list[float]]:
    """The scores of each round of members whose training changes no weight; `score` of weights and the number of the round."""
    evolver = make(folder, members=12, elites=0.3, search={}, std_floor=std_floor)
    weights, found = [np.zeros(0, np.float32)] * 12, []
    for number in range(rounds):
        jobs = ask_all(evolver)
        for job in jobs:
            weights[job.member] = weights[job.member] if job.weights is None else job.weights
        found.append([score(weights[job.member], number) for job in jobs])
        evolver.tell([outcome_of(evolver, folder, job, told, 0, weights[job.member]) for job, told in zip(jobs, found[-1], strict=True)])
    assert np.std(weights, 0).min() > std_floor / 10  # the floor keeps them apart
    return found


def test_the_evolver_climbs_a_sphere_without_any_gradient_and_never_loses_the_best(tmp_path: Path) -> None:
    found = climb(tmp_path, lambda weights, _: -float(np.square(weights[:5] - 1).sum()), 16, std_floor=0.2)
    best = np.max(found, 1)
    assert (np.diff(best) >= 0).all()
    assert best[0] < -4
    assert best[-1] > -0.4


def cartpole_return(weights: NDArray[np.float32], seed: int) -> float:
    """Of a linear policy, over at most 200 steps."""
    env = gymnasium.make("CartPole-v1", max_episode_steps=200)
    obs, _ = env.reset(seed=seed)
    total, done = 0.0, False
    while not done:
        obs, reward, terminated, truncated, _ = env.step(int(weights[:4] @ obs > 0))
        total, done = total + float(reward), terminated or truncated
    return total


def test_the_evolver_finds_a_linear_policy_for_cartpole_without_any_gradient(tmp_path: Path) -> None:
    """Common seeds within a round, new ones in the next."""
    means = np.mean(climb(tmp_path, cartpole_return, 10, std_floor=0.2), 1)
    assert np.mean(means[5:]) > max(100, 2 * means[0])


def test_with_one_elite_and_no_floor_everybody_is_a_copy_of_the_best(tmp_path: Path) -> None:
    evolver = make(tmp_path, elites=0.1, elitism=0, std_floor=0)
    jobs = ask_all(evolver)
    drawn = np.random.default_rng(0).normal(size=(6, len(evolver._distribution.mean))).astype(np.float32)
    evolver.tell([outcome_of(evolver, tmp_path, job, SCORES[job.member], 0, drawn[job.member]) for job in jobs])
    for job in ask_all(evolver):
        np.testing.assert_array_equal(job.weights, drawn[1])  # type: ignore[arg-type]


def test_who_fails_is_replaced_at_once_and_the_others_do_not_wait_for_it(tmp_path: Path) -> None:
    """The new learner begins while the round goes on, with weights of the elites of then; its own round is the next."""
    evolver = make(tmp_path)
    round_of(evolver, tmp_path, SCORES)
    first, failing, *others = ask_all(evolver)
    evolver.tell([outcome_of(evolver, tmp_path, failing, np.nan, 0)])
    (new,) = ask_all(evolver)
    assert (new.member, new.ticket, new.parent_sha256) == (1, failing.ticket + 6, "")
    assert new.weights is not None
    assert new.seed != failing.seed
    assert new.sections.algorithm != failing.sections.algorithm  # other hyper-parameters
    assert evolver.members[1].state_sha256  # until the round ends
    metrics = evolver.tell([outcome_of(evolver, tmp_path, job, SCORES[job.member], 0) for job in (first, *others)])
    assert metrics is not None
    assert metrics["failed_members"] == 1
    assert sorted(job.member for job in ask_all(evolver)) == [0, 2, 3, 4, 5]
    assert not evolver.members[1].state_sha256
    evolver.individuals()
    assert evolver.state_dict()["open"].keys() >= {str(new.ticket)}


def test_a_replacement_begins_with_what_was_known_when_the_round_began(tmp_path: Path) -> None:
    """Also if nobody had a worker for it before the round ended; and it is neither ahead of the others nor behind."""
    evolver = make(tmp_path, elitism=0, std_floor=0, std_cap=1e-9)
    round_of(evolver, tmp_path, SCORES)  # the elites are 1, 3 and 4: the mean is 8 / 3
    round_of(evolver, tmp_path, [1.0, np.nan, 2.0, 5.0, 4.0, 3.0])  # 3, 4 and 5: 4
    assert evolver._times_elite.tolist() == [0, 1, 0, 2, 2, 1]
    jobs = round_of(evolver, tmp_path, SCORES)
    assert [float(job.weights.mean()) for job in jobs] == pytest.approx([4, 8 / 3, 4, 4, 4, 4])  # type: ignore[union-attr]
    records = evolver.individuals()[12:]
    assert [(r["operator"], r["parents"]) for r in records[:2]] == [("drawn", [3, 4, 5]), ("replaced", [1, 3, 4])]


@dataclass
class Played:
    """A population after six rounds of all members, its lineage, and the seeds of learners by the ticket that they began with."""

    evolver: Evolver
    lineage: list[Individual] = field(default_factory=list)
    seeds: dict[int, int] = field(default_factory=dict)


def play(folder: Path, order: int, workers: int, **settings: Any) -> Played:
    """Results come in a random order, and the run may stop and resume; what a round yields follows from its ticket."""
    settings |= {"max_failures_in_a_row": 100, "replace_after": 1.0}
    rng, played, running = np.random.default_rng(order), Played(make(folder, **settings)), []
    while played.evolver.version < 6:
        evolver = played.evolver
        running += [job for job in evolver.ask(workers - len(running)) if isinstance(job, TrainMember)]
        played.seeds |= {job.ticket: job.seed for job in running if not job.parent_sha256}
        job = running.pop(rng.integers(len(running)))
        drawn = np.random.default_rng(job.ticket)
        score = np.nan if drawn.random() < 0.4 else drawn.normal()
        value = 0.0 if job.weights is None else float(job.weights[0])
        evolver.tell([outcome_of(evolver, folder, job, score, value + drawn.normal())])
        played.lineage += evolver.individuals()
        if rng.random() < 0.1:
            state = unpack_state(pack_state(evolver.state_dict()))
            played.evolver, running = make(folder, **settings), []
            played.evolver.load_state_dict(state)
            played.evolver.reissue()
    return played


def test_the_order_of_arrival_decides_nothing(tmp_path: Path) -> None:
    """Also where replacements fail, and after a resume."""
    expected = play(tmp_path, 0, 1)
    failed = {r["round"] for r in expected.lineage if r["score"] is None}
    assert any(r["round"] in failed and r["round"] - 6 in failed for r in expected.lineage)
    for order, workers in [(1, 2), (2, 3), (3, 6), (4, 6), (5, 20)]:
        found = play(tmp_path, order, workers)
        assert found.lineage == expected.lineage
        for name in ("members", "times_elite", "distribution", "counts", "normals"):
            np.testing.assert_equal(found.evolver.state_dict()[name], expected.evolver.state_dict()[name])


@pytest.mark.parametrize("asynchronous", [False, True])
def test_each_learner_has_a_seed_of_its_own(asynchronous: bool, tmp_path: Path) -> None:
    for order in range(4):
        seeds = play(tmp_path, order, 4, asynchronous=asynchronous).seeds.values()
        assert len(set(seeds)) == len(seeds) > 12


def test_an_asynchronous_evolver_replaces_who_still_trains(tmp_path: Path) -> None:
    """The new learner begins at once, and what the old one brings back is passed over."""
    evolver = make(tmp_path, asynchronous=True, replace_after=0.9, elites=0.9)
    round_of(evolver, tmp_path, SCORES)
    slow, *others = sorted(ask_all(evolver), key=lambda job: job.member)
    for job in others:
        evolver.tell([outcome_of(evolver, tmp_path, job, SCORES[job.member], 0)])
    job = ask_all(evolver)[0]
    assert evolver.version == 1
    evolver.tell([outcome_of(evolver, tmp_path, job, SCORES[job.member], 0)])
    assert evolver.version == 2
    (new,) = [job for job in ask_all(evolver) if job.member == 0]
    assert new.parent_sha256 == ""
    assert new.weights is not None
    assert new.seed != slow.seed
    evolver.tell([outcome_of(evolver, tmp_path, slow, 99.0, 0)])
    assert evolver.best is not None
    assert evolver.best.score == 6.0
    assert ask_all(evolver) == []
    evolver.tell([outcome_of(evolver, tmp_path, new, 7.0, 0)])
    assert evolver.best.score == 7.0


def test_nobody_waits_in_an_asynchronous_evolver(tmp_path: Path) -> None:
    """As many workers as members; three rounds in ten fail."""
    evolver, rng = make(tmp_path, asynchronous=True, replace_after=0.5, max_failures_in_a_row=100), np.random.default_rng(2)

    def outcome(job: TrainMember) -> Outcome:
        return outcome_of(evolver, tmp_path, job, np.nan if rng.random() < 0.3 else 1.0, rng.normal())

    rounds = simulate(evolver, outcome, workers=6, rounds=24)
    assert pauses(rounds) == []
    assert len({sum(r.job.member == n for r in rounds) for n in range(6)}) > 1


def test_a_replacement_of_the_evolver_trains_while_others_still_train(tmp_path: Path) -> None:
    """It begins when the other has failed, and the next round when the others are through, who have not waited for it."""
    evolver = make(tmp_path)
    failing = {0, 3}
    ended = simulate(
        evolver, lambda job: outcome_of(evolver, tmp_path, job, np.nan if job.ticket in failing else 1.0, 0), workers=6, rounds=12
    )
    rounds = {r.job.ticket: r for r in ended}
    end = max(rounds[ticket].finished for ticket in range(6))
    for ticket in range(6):
        assert rounds[ticket + 6].started == (rounds[ticket].finished if ticket in failing else end)
    assert all(rounds[ticket].finished < end for ticket in failing)
    assert any(rounds[ticket + 6].finished > end for ticket in failing)


def test_weights_that_are_not_finite_are_no_example(tmp_path: Path) -> None:
    evolver = make(tmp_path)
    round_of(evolver, tmp_path, SCORES, shift=np.inf)
    jobs = round_of(evolver, tmp_path, SCORES)  # nobody to learn from: all go on as they are
    assert [job.weights for job in jobs] == [None] * 6
    assert all(np.isfinite(job.weights).all() for job in round_of(evolver, tmp_path, SCORES) if job.weights is not None)


def test_who_is_never_an_elite_is_replaced_by_a_learner_of_the_elites(tmp_path: Path) -> None:
    evolver = make(tmp_path, replace_after=0.9, elites=0.9)  # all but one are elites: the mean is ahead of it by 5 / 6 a round
    values = [1.0, 6.0, 2.0, 5.0, 4.0, 3.0]
    rounds = [round_of(evolver, tmp_path, values) for _ in range(3)]
    before, after = rounds[1][0], rounds[2][0]
    assert (before.member, after.member) == (0, 0)
    assert before.parent_sha256
    assert (after.parent_sha256, after.seed != before.seed) == ("", True)
    assert after.weights is not None
    assert after.obs_moments is not None
    assert lineage(evolver)[0]["operator"] == "replaced"
    assert lineage(evolver) == {}
    assert evolver._times_elite.tolist() == [0, 1, 1, 1, 1, 1]  # the count begins anew


def test_the_bandit_follows_the_elites(tmp_path: Path) -> None:
    """Counts of choices grow by the elites', and the normal distribution of a number moves to theirs."""
    evolver = make(tmp_path, bandit_rate=1.0, bandit_discount=1.0)
    chosen = [evolver.members[n].hyperparameters for n in (1, 3, 4)]
    round_of(evolver, tmp_path, SCORES)
    counts = [1 + sum(own["algorithm.normalize_advantage"] is value for own in chosen) for value in (True, False)]
    assert evolver._counts["algorithm.normalize_advantage"].tolist() == counts
    logs = np.log([float(own["algorithm.lr"]) for own in chosen])  # type: ignore[arg-type]
    assert evolver._normals["algorithm.lr"] == pytest.approx((logs.mean(), logs.std()))


def test_drawn_weights_come_with_a_fresh_optimiser_and_the_statistics_of_the_best(tmp_path: Path) -> None:
    sections, files = sections_of(config_of("ppo")), StateFiles(tmp_path)
    first = TrainMember(0, 0, sections, seed=5, steps=60, evaluation_seed=1, episodes=2, files=files)
    state = bytes(first.run(None)[0].arrays[STATE_HASH]).hex()  # type: ignore[arg-type]
    trained = files.load(state)
    assert np.any(trained["algorithm"]["learner"]["optimizer"]["exp_avg"])
    weights, moments = trained["weights"] + np.float32(1), trained["policy"]["obs_moments"] * 2
    drawn = TrainMember(1, 0, sections, 5, 0, 1, 2, parent_sha256=state, files=files, weights=weights, obs_moments=moments)
    found = files.load(bytes(drawn.run(None)[0].arrays[STATE_HASH]).hex())  # type: ignore[arg-type]
    assert not np.any(found["algorithm"]["learner"]["optimizer"]["exp_avg"])
    np.testing.assert_array_equal(found["weights"], weights)
    np.testing.assert_array_equal(found["policy"]["obs_moments"], moments)
