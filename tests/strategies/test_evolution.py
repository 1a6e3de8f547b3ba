import numpy as np
import pytest

from baldwin.strategies import ESConfig, EvolutionAlgorithm, OpenAIES
from baldwin.types import Metrics, Outcome
from tests.toys.contexts import toy_context


def search(**kwargs: object) -> EvolutionAlgorithm:
    config = ESConfig(**({"population": 4, "block": 4} | kwargs))  # type: ignore[arg-type]
    return EvolutionAlgorithm(OpenAIES(np.zeros(2, np.float32), config, seed=1), config, toy_context())


def generation(algorithm: EvolutionAlgorithm, steps: list[int], truncated: float = 0.0, fitness: list[float] | None = None) -> Metrics:
    tickets = [t for job in algorithm.ask(10) for t in job.tickets]
    values = fitness or [float(t) for t in tickets]
    found = None
    for ticket, count, value in zip(tickets, steps, values, strict=True):
        found = algorithm.tell([Outcome(ticket, value, count, truncated, arrays={"obs_moments": np.array([1.0, value, 0.0])})])
    assert found is not None
    return found


def limit(algorithm: EvolutionAlgorithm) -> int | None:
    return algorithm._step_limit()


def test_growing_cap_grows_when_many_hit_it_and_never_shrinks() -> None:
    algorithm = search(cap={"rule": "grow", "start": 100, "fraction": 0.5, "growth": 1.5})
    assert limit(algorithm) == 100
    generation(algorithm, [10] * 5, truncated=0.4)
    assert limit(algorithm) == 100
    generation(algorithm, [100] * 5, truncated=0.6)
    assert limit(algorithm) == 150
    generation(algorithm, [1] * 5, truncated=0.0)
    assert limit(algorithm) == 150
    for _ in range(20):
        generation(algorithm, [100] * 5, truncated=1.0)
    assert limit(algorithm) == 1000  # the environment's own


def test_fixed_cap_stays() -> None:
    algorithm = search(cap={"rule": "fixed", "start": 100})
    metrics = generation(algorithm, [100] * 5, truncated=1.0)
    assert limit(algorithm) == metrics["episode_cap"] == 100


def test_twice_mean_cap_is_that_of_pytorch_es() -> None:
    algorithm = search(cap={"rule": "twice-mean", "start": 300})
    assert limit(algorithm) == 300
    generation(algorithm, [10, 20, 30, 40, 51])
    assert limit(algorithm) == 60  # floor(2 x 30.2)


def test_no_cap_is_the_environments_own() -> None:
    assert limit(search()) == 1000


def test_statistics_are_frozen_within_a_generation_and_merged_at_its_end() -> None:
    algorithm = search()
    algorithm.ask(10)
    algorithm.tell([Outcome(0, 1.0, 3, arrays={"obs_moments": np.array([2.0, 5.0, 0.0])})])
    assert algorithm.moments.count == 0
    for ticket in (4, 2, 1, 3):
        algorithm.tell([Outcome(ticket, 1.0, 3)])
    assert algorithm.version == 1
    assert algorithm.moments.count == 2
    assert algorithm.moments.mean.tolist() == [5.0]


def test_a_step_cost_changes_who_is_best_but_not_what_is_reported() -> None:
    plain, charged = search(), search(step_cost=1.0)
    long_and_good, short_and_bad = [10.0, 6.0, 9.0, 5.0, 7.0], [100, 2, 100, 2, 2]
    a = generation(plain, short_and_bad, fitness=long_and_good)
    b = generation(charged, short_and_bad, fitness=long_and_good)
    assert b["return_max"] == a["return_max"] == 10.0
    assert b["return_mean"] == pytest.approx(7.5)  # of the population, without the center
    assert b["center_return"] == 7.0
    assert plain.strategy.center == pytest.approx(-charged.strategy.center)  # every pair now prefers the other member


def test_pairs_share_their_starts_and_jobs_never_do() -> None:
    algorithm = search(population=600, block=4, episodes=2)
    specs = [job.spec for job in algorithm.ask(150)]  # type: ignore[attr-defined]
    assert all((s.seeds[0::2] == s.seeds[1::2]).all() for s in specs)
    starts = [(int(seed), s.first_episode) for s in specs for seed in s.seeds[::2]]
    assert len(set(starts)) == len(starts)
    assert {s.first_episode for s in specs} == set(range(0, 128, 2))  # two episodes per environment and job


def test_the_whole_population_may_share_its_start() -> None:
    algorithm = search(population=16, block=4, common_random_numbers="population")
    specs = [job.spec for job in algorithm.ask(10)]  # type: ignore[attr-defined]
    assert len({(int(seed), s.first_episode) for s in specs for seed in s.seeds}) == 1
