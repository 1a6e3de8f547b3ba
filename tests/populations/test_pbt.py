"""Population-based training, by outcomes that are made up: who copies whom, which rounds are taken back, and the toy problem of its paper."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest

from baldwin.errors import ConfigError
from baldwin.parts import Sections
from baldwin.populations.config import PopulationContext
from baldwin.populations.member import TrainMember
from baldwin.populations.pbt import PBT, PBTConfig
from baldwin.populations.states import pack_state, unpack_state
from baldwin.types import Outcome
from tests.populations.test_members import config_of, sections_of
from tests.populations.tools import ask_all, pauses, simulate, state_name, trained

SEARCH = {"algorithm.entropy_coef": {"uniform": [0.0, 1.0]}, "algorithm.value_coef": {"uniform": [0.0, 1.0]}}


@cache
def sections(*options: str) -> Sections:
    return sections_of(config_of("ppo", *options))


def make(seed: int = 1, options: tuple[str, ...] = (), **settings: Any) -> PBT:
    config = PBTConfig.model_validate({"members": 5, "fraction": 0.2, "episodes": 4, "search": SEARCH} | settings)
    return PBT(config, PopulationContext(sections(*options), seed, None, True, 1))


def around(mean: float, spread: float = 0.1) -> list[float]:
    return [mean - spread, mean - spread, mean + spread, mean + spread]


def round_of(population: PBT, means: list[float], spreads: list[float] | None = None) -> list[TrainMember]:
    """The jobs of a round, by member; each comes back with returns around its mean."""
    jobs = sorted(ask_all(population), key=lambda job: job.member)
    population.tell([trained(job, around(means[job.member], (spreads or [0.1] * 5)[job.member])) for job in jobs])
    return jobs


SCORES = [10.0, 8.0, 7.0, 6.0, 5.0]  # the last one copies the first
WIDE = [0.1, 0.1, 0.1, 0.1, 50.0]  # the last one stays the worst: no test tells it from others


def test_a_bad_round_is_taken_back_also_twice_in_a_row() -> None:
    """Member 1 falls from 8 to 1, and then to 2: both times it goes on from its first state, as another seed and without the open episodes."""
    population = make(safe=True, synchronous=True)
    first = round_of(population, SCORES)[1]
    begun = [round_of(population, [10.0, mean, 7.0, 6.0, 5.0], WIDE)[1] for mean in (1.0, 2.0, 7.98, 7.97)]
    assert [job.parent_sha256 for job in begun] == [*[state_name(first.ticket)] * 3, state_name(begun[2].ticket)]  # 7.98 is no worse than 8
    assert [job.leave_episodes for job in begun] == [False, True, True, False]
    assert len({job.seed for job in (first, *begun[1:3])}) == 3
    assert [job.seed for job in begun] == [first.seed, begun[1].seed, begun[2].seed, begun[2].seed]
    assert population.members[1].score == pytest.approx(7.97)


def test_members_that_go_back_in_one_round_go_on_with_seeds_of_their_own() -> None:
    population = make(safe=True, synchronous=True)
    round_of(population, SCORES)
    round_of(population, [10.0, 1.0, 1.0, 1.0, 5.0], WIDE)
    assert len({job.seed for job in round_of(population, SCORES)}) == 5


def test_without_safe_a_bad_round_counts() -> None:
    population = make(synchronous=True)
    round_of(population, SCORES)
    bad = round_of(population, [10.0, 6.5, 7.0, 6.0, 9.0])[1]
    assert population.members[1].score == 6.5
    assert round_of(population, SCORES)[1].parent_sha256 == state_name(bad.ticket)


def test_the_first_round_of_a_copy_is_taken_back_to_the_copied_one() -> None:
    """It has 9 where it had 5 before, but began from 10: state, hyper-parameters and score are those that were copied."""
    population = make(safe=True, synchronous=True)
    original = round_of(population, SCORES)[0]
    copied = population.members[0].hyperparameters
    copy = round_of(population, [10.0, 8.0, 7.0, 6.0, 9.0])[4]
    assert (copy.parent_sha256, copy.leave_episodes) == (state_name(original.ticket), True)
    after = population.members[4]
    assert (after.id, after.score, after.state_sha256, after.hyperparameters) == (4, 10.0, state_name(original.ticket), copied)
    again = round_of(population, SCORES)[4]
    assert (again.parent_sha256, again.leave_episodes) == (state_name(original.ticket), True)
    assert len({job.seed for job in (original, copy, again)}) == 3


def test_a_copy_is_compared_with_what_it_copied_and_not_with_what_became_of_it() -> None:
    population = make(safe=True)
    round_of(population, SCORES)
    original, *_, copy = sorted(ask_all(population), key=lambda job: job.member)
    state = unpack_state(pack_state(population.state_dict()))
    population = make(safe=True)  # what it was compared with is part of the state
    population.load_state_dict(state)
    population.tell([trained(original, around(20.0))])
    population.tell([trained(copy, around(9.99))])
    assert population.members[4].score == 9.99
    population.load_state_dict(state)
    population.tell([trained(copy, around(9.0))])
    assert population.members[4].score == 10.0


@pytest.mark.parametrize(
    ("exploit", "last_but_one", "last"),
    [
        ("truncation", {None}, {0}),
        ("t-test", {0, 1, 2, None}, {0, 1, 2, None}),
        ("both", {0, 1, 2, None}, {0}),
    ],
)
def test_truncation_decides_first_and_the_t_test_for_whom_it_leaves_alone(
    exploit: str, last_but_one: set[int | None], last: set[int | None]
) -> None:
    """Three members that no test tells apart, and two that are far worse, of which one is the worst fifth: whom they copy, over many seeds."""
    copied: list[set[int | None]] = [set() for _ in range(5)]
    for seed in range(40):
        population = make(seed, exploit=exploit, synchronous=True)
        states = {state_name(job.ticket): job.member for job in round_of(population, [10.2, 10.1, 10.0, 4.0, 3.0], [1.0] * 5)}
        for job in ask_all(population):
            copied[job.member].add(states[job.parent_sha256] if job.leave_episodes else None)
    assert copied == [{None}, {None}, {None}, last_but_one, last]


@pytest.mark.parametrize("workers", [3, 5])
def test_no_worker_of_asynchronous_pbt_is_idle_while_a_member_waits(workers: int) -> None:
    rng = np.random.default_rng(1)
    rounds = simulate(make(), lambda job: trained(job, around(rng.normal())), workers, rounds=40)
    assert pauses(rounds) == []
    assert len({sum(r.job.member == n for r in rounds) for n in range(5)}) > 1  # nor does a member wait for the others


@pytest.mark.parametrize("what", ["optimizer", "normalizer"])
def test_what_is_to_be_fresh_is_so_for_copies_alone(what: str) -> None:
    population = make(synchronous=True, **{what: "fresh"})
    round_of(population, SCORES)
    assert [getattr(job, f"fresh_{what}") for job in round_of(population, SCORES)] == [False, False, False, False, True]


def test_a_fresh_normalizer_where_nothing_is_normalised_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"population\.normalizer=fresh has no effect"):
        make(1, ("policy.normalize_obs=false", "algorithm.normalize_reward=false"), normalizer="fresh")


# Figure 2 of the paper: maximise Q = 1.2 - theta0^2 - theta1^2 by ascent on 1.2 - h0 theta0^2 - h1 theta1^2.


def toy(seed: int, **settings: Any) -> float:
    """The best Q of two members that begin with h = (1, 0) and (0, 1). They finish their rounds in random order: in step with each other
    they would always be equally good, and nobody copies an equal."""
    population = make(seed, members=2, fraction=0.5, episodes=2, **settings)
    for member, h in zip(population.members, ([1.0, 0.0], [0.0, 1.0]), strict=True):
        member.hyperparameters = dict(zip(SEARCH, h, strict=True))
    thetas = {"": np.full(2, 0.9)}
    rng, running = np.random.default_rng(seed), []

    def train(job: TrainMember) -> Outcome:
        h = np.array([getattr(job.sections.algorithm, key.split(".")[1]) for key in SEARCH])
        theta = thetas[job.parent_sha256] * (1 - 0.02 * h) ** 5  # five steps of 0.01 along the gradient
        thetas[state_name(job.ticket)] = theta
        return trained(job, [1.2 - float(theta @ theta)] * 2)

    for _ in range(400):
        running += ask_all(population)
        population.tell([train(running.pop(rng.integers(len(running))))])
    return max(m.score for m in population.members)


@pytest.mark.parametrize("seed", range(3))
def test_pbt_solves_the_toy_of_its_paper(seed: int) -> None:
    """By itself, either member stays at 1.2 - 0.81: it moves one of the two parameters. Zero times a factor is zero, so that some are drawn anew."""
    assert toy(seed, resample=0.5) == pytest.approx(1.2, abs=0.05)


def test_copies_that_explore_nothing_do_not() -> None:
    """After the first copy both members have the same h, which moves one parameter alone."""
    assert toy(0, resample=0.0, factors=[1.0]) == pytest.approx(1.2 - 0.81, abs=0.05)
