"""Genetic algorithms over members, by outcomes that are made up: fronts of the usual test problems, and who waits for whom."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest

from baldwin.ops.pareto import hypervolume, non_dominated_sort
from baldwin.parts import Sections
from baldwin.populations import POPULATIONS
from baldwin.populations.config import PopulationContext
from baldwin.populations.genetic import Breeding
from baldwin.populations.member import TrainMember
from baldwin.types import Outcome
from tests.populations.test_members import config_of, sections_of
from tests.populations.tools import ask_all, pauses, simulate, state_name, trained


@cache
def sections() -> Sections:
    return sections_of(config_of("ppo"))


def make(name: str, **settings: Any) -> Any:
    entry = POPULATIONS.find(name)
    config = entry.config.model_validate({"steps": 0, "inheritance": "darwinian", "episodes": 1} | settings)
    return entry.build(config, PopulationContext(sections(), 1, None, True, 1))


# Test problems of Zitzler, Deb & Thiele 2000 and Deb et al. 2002, which are minimised.


def zdt1(x: np.ndarray) -> list[float]:
    distance = 1 + 9 * x[1:].mean()
    return [x[0], distance * (1 - np.sqrt(x[0] / distance))]


def dtlz2(x: np.ndarray) -> list[float]:
    distance = 1 + np.square(x[2:] - 0.5).sum()
    a, b = x[:2] * np.pi / 2
    return [distance * np.cos(a) * np.cos(b), distance * np.cos(a) * np.sin(b), distance * np.sin(a)]


def evolve(problem: Callable[[np.ndarray], list[float]], objectives: int, at_once: int = 32, **settings: Any) -> np.ndarray:
    """The objectives of 32 members of NSGA-II, whose four hyper-parameters are the variables of the problem. Nothing is trained."""
    keys = [f"x{n}" for n in range(4)]
    search = {f"env.reward_weights.{key}": {"uniform": [0.0, 1.0]} for key in keys}
    names = [f"f{n}" for n in range(objectives)]
    population = make("nsga2", members=32, search=search, objectives={name: {name: -1.0} for name in names}, **settings)

    def evaluate(job: TrainMember) -> Outcome:
        found = problem(np.array([job.sections.env.reward_weights[key] for key in keys]))
        return trained(job, [0.0], dict(zip(names, found, strict=True)))

    while population.version < 40:
        for job in population.ask(at_once):
            population.tell([evaluate(job)])
    return np.array([population.objectives_of(m) for m in population.members])


@pytest.mark.parametrize(("generational", "at_once"), [(True, 32), (False, 5)])
def test_nsga2_reaches_the_front_of_zdt1(generational: bool, at_once: int) -> None:
    """1,280 evaluations. Below (1.1, 1.1), the front 1 - sqrt(x) has 0.1 + 2/3 over [0, 1], and 0.11 beside it."""
    fitness = evolve(zdt1, 2, at_once, generational=generational)
    assert (non_dominated_sort(fitness) == 0).all()
    assert 0.9 < hypervolume(fitness, [-1.1, -1.1]) / (0.1 + 2 / 3 + 0.11) < 1


def test_nsga2_reaches_the_front_of_dtlz2() -> None:
    """1,280 evaluations. The front is the unit sphere's octant: below (1.1, 1.1, 1.1) there are 1.331 - pi / 6."""
    fitness = evolve(dtlz2, 3, generational=True)
    assert np.linalg.norm(fitness, axis=1) == pytest.approx(1, abs=0.15)
    assert 0.7 < hypervolume(fitness, [-1.1] * 3) / (1.331 - np.pi / 6) < 1


@pytest.mark.parametrize("name", ["nsga2", "genetic", "steady-state", "map-elites"])
def test_the_first_generation_is_no_barrier_where_one_does_not_wait_for_all(name: str) -> None:
    """Children of the first two that have arrived (of the first, in map-elites) begin while the others of the first generation train."""
    needed = 1 if name == "map-elites" else 2
    more = {"descriptors": {"busy": [0, 1]}} if name == "map-elites" else {}
    population: Breeding = make(name, members=6, search={"algorithm.entropy_coef": {"uniform": [0.0, 1.0]}}, **more)
    rng = np.random.default_rng(1)
    rounds = simulate(population, lambda job: trained(job, [rng.normal()], {"busy": rng.random()}), workers=6, rounds=30)
    first = {state_name(r.job.ticket): r.finished for r in rounds if not r.job.parent_sha256}
    enough = sorted(first.values())[needed - 1]
    assert len(first) == 6
    assert all(until == enough for _, until in pauses(rounds))
    early = [r for r in rounds if r.job.parent_sha256 and r.started < max(first.values())]
    assert early
    assert all(first[r.job.parent_sha256] <= r.started for r in early if r.job.parent_sha256 in first)


def test_a_generation_that_one_waits_for_is_bred_from_all_of_the_last() -> None:
    population = make("genetic", members=4, generational=True, search={"algorithm.entropy_coef": {"uniform": [0.0, 1.0]}})
    first = ask_all(population)
    population.tell([trained(job, [float(job.ticket)]) for job in first[:3]])
    assert ask_all(population) == []
    population.tell([trained(first[3], [3.0])])
    assert len(ask_all(population)) == 4


def test_parents_that_all_have_failed_are_replaced_by_new_ones() -> None:
    population = make("nsga2", members=3, search={"algorithm.entropy_coef": {"uniform": [0.0, 1.0]}})
    population.tell([Outcome(job.ticket, float("nan"), reason="the wheel came off") for job in population.ask(3)])
    again = population.ask(3)
    assert [job.parent_sha256 for job in again] == ["", "", ""]
    population.tell([trained(job, [0.0]) for job in again[:2]])
    assert population.ask(1)[0].parent_sha256 in {state_name(job.ticket) for job in again[:2]}


def test_who_fails_in_the_first_generation_is_followed_by_another_at_once() -> None:
    population = make("genetic", members=3, search={"algorithm.entropy_coef": {"uniform": [0.0, 1.0]}})
    first, second, _ = population.ask(3)
    population.tell([Outcome(first.ticket, float("nan"), reason="the wheel came off")])
    assert [job.parent_sha256 for job in population.ask(3)] == [""]
    population.tell([trained(second, [0.0])])
    assert population.ask(3) == []  # two are on their way
