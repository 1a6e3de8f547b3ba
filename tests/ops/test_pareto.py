"""NSGA-II's parts against numbers worked by hand and those of pymoo 0.6.2, and whole fronts of the usual test problems."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from baldwin.errors import ConfigError
from baldwin.ops.pareto import (
    crowding_distance,
    dominates,
    hypervolume,
    non_dominated_sort,
    nsga2_order,
    pareto_front,
    select_survivors,
    tournament,
)
from baldwin.ops.variation import polynomial_mutation, sbx

# Two fronts of two objectives: A (0, 4), B (1, 3), C (3, 1), D (4, 0), then E (0, 3), F (2, 0).
FITNESS = np.array([[0.0, 4], [1, 3], [3, 1], [4, 0], [0, 3], [2, 0]])
RANK = np.array([0, 0, 0, 0, 1, 1])

# pymoo 0.6.2 on the negated points: NonDominatedSorting().do, 3 * calc_crowding_distance of each front (pymoo divides by the number of
# objectives), HV(ref_point=-10 ...).
FIRST = np.array([94, 89, 83, 30, 91, 82, 11, 30, 71, 44, 58, 99])
SECOND = np.array([62, 57, 22, 28, 0, 13, 46, 34, 25, 47, 55, 80])
THIRD = np.array([68, 77, 5, 87, 49, 79, 81, 27, 99, 50, 50, 79])
FOURTH = np.array([70, 62, 34, 98, 46, 21, 84, 16, 85, 61, 11, 4])
THREE = np.column_stack([FIRST, SECOND, THIRD])
INF = np.inf


def test_dominance_is_strict() -> None:
    assert dominates([1, 2], [1, 1])
    assert not dominates([1, 1], [1, 1])
    assert not dominates([2, 0], [1, 1])
    assert_array_equal(dominates(np.array([[1, 1], [0, 0]]), np.array([0, 1])), [True, False])


def test_fronts_by_hand() -> None:
    assert_array_equal(non_dominated_sort(FITNESS), RANK)
    assert_array_equal(pareto_front(FITNESS), [0, 1, 2, 3])
    assert_array_equal(non_dominated_sort([[1.0], [3.0], [3.0], [2.0]]), [2, 0, 0, 1])  # one objective: equal ones share a front
    assert_array_equal(non_dominated_sort(np.zeros((0, 2))), [])
    assert_array_equal(pareto_front([[1, 1], [1, 1], [0, 1]]), [0, 1])  # equal ones are all kept


def test_crowding_by_hand() -> None:
    """B lies between A and C: (3 - 0) / 4 + (4 - 1) / 4; E and F are the ends of their front."""
    assert_allclose(crowding_distance(FITNESS, RANK), [INF, 1.5, 1.5, INF, INF, INF])


def test_an_objective_without_differences_has_no_extremes() -> None:
    flat = np.array([[1.0, 7], [2, 7], [4, 7], [5, 7]])
    assert_allclose(crowding_distance(flat, np.zeros(4, np.int64)), [INF, 0.75, 0.75, INF])
    assert_allclose(crowding_distance(np.ones((3, 2)), np.zeros(3, np.int64)), 0)


def test_failed_individuals_are_the_last_and_not_nan() -> None:
    fitness = np.array([[-INF, -INF], [1.0, 2.0], [-INF, -INF], [2.0, 1.0]])
    assert_array_equal(nsga2_order(fitness), [1, 3, 0, 2])
    assert not np.isnan(crowding_distance(fitness, non_dominated_sort(fitness))).any()


def test_three_objectives_as_in_pymoo() -> None:
    rank = non_dominated_sort(THREE)
    assert_array_equal(rank, [1, 1, 2, 0, 2, 1, 0, 4, 0, 3, 2, 0])
    assert_allclose(crowding_distance(THREE, rank), [INF, 3.0, INF, 1.9636363636363634, INF, INF, INF, 0, INF, 0, INF, INF])


def test_the_order_is_by_front_then_crowding_then_index() -> None:
    assert_array_equal(nsga2_order(FITNESS), [0, 3, 1, 2, 4, 5])
    assert_array_equal(select_survivors(FITNESS, 3), [0, 3, 1])
    assert_array_equal(select_survivors(FITNESS, 0), [])


def test_a_tournament_of_all_is_won_by_the_best_and_ties_by_anybody() -> None:
    rng = np.random.default_rng(0)
    crowding = np.array([1.0, 3, 2, 9, 9, 9])
    rank = np.array([0, 0, 0, 1, 1, 1])
    assert_array_equal(tournament(rank, crowding, 5, rng, size=6), 1)
    equal = tournament(np.zeros(4, np.int64), np.full(4, INF), 4000, rng)
    assert_allclose(np.bincount(equal) / 4000, 0.25, atol=0.03)


def test_the_second_of_three_wins_one_in_three_binary_tournaments() -> None:
    """Of the three possible pairs, two have the best and one has it not; contestants are different, so that the last never wins."""
    winners = tournament(np.array([0, 1, 2]), np.zeros(3), 3000, np.random.default_rng(1))
    assert_allclose(np.bincount(winners, minlength=3) / 3000, [2 / 3, 1 / 3, 0], atol=0.03)


def test_hypervolumes_by_hand() -> None:
    assert hypervolume([[3.0], [5.0]], [1.0]) == 4
    # Above (-1, -1): columns of width 1, 1, 2, 1 and heights 5, 4, 2, 1.
    assert hypervolume(FITNESS, [-1, -1]) == 5 + 4 + 2 * 2 + 1
    assert hypervolume([[2, 2, 2]], [0, 0, 0]) == 8
    assert hypervolume([[2, 1, 1], [1, 2, 1], [1, 1, 2]], [0, 0, 0]) == 4  # three of volume 2, which share a unit cube
    assert hypervolume([[2, 1, 1], [2, 1, 1], [5, 5, -1]], [0, 0, 0]) == 2  # doubles once; not better than the reference: nothing
    assert hypervolume(np.zeros((0, 3)), [0, 0, 0]) == 0


def test_hypervolumes_of_three_and_four_objectives_as_in_pymoo() -> None:
    assert hypervolume(THREE, [10] * 3) == 448686
    assert hypervolume(np.column_stack([THREE, FOURTH]), [10] * 4) == 19927743


@pytest.mark.parametrize("objectives", [2, 3, 4])
def test_the_hypervolume_does_not_depend_on_the_order_and_grows_with_a_new_point(objectives: int) -> None:
    rng = np.random.default_rng(objectives)
    points = rng.random((15, objectives))
    volume = hypervolume(points, np.zeros(objectives))
    assert hypervolume(points[rng.permutation(15)][:, ::-1], np.zeros(objectives)) == pytest.approx(volume)
    assert hypervolume(np.vstack([points, np.full(objectives, 0.99)]), np.zeros(objectives)) > volume


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: non_dominated_sort([[1.0, 2], [np.nan, 0]]), "individual 1 is .* NaN cannot be compared"),
        (lambda: non_dominated_sort([1.0, 2.0]), r"\[individuals, objectives\]; got the shape \[2\]"),
        (lambda: select_survivors(FITNESS, 7), "between 0 and 6 individuals"),
        (lambda: tournament(np.zeros(1, np.int64), np.zeros(1), 2, np.random.default_rng()), "tournament of 2 needs at least"),
        (lambda: hypervolume(FITNESS, [0, 0, 0]), "reference point with 2 objectives"),
        (lambda: hypervolume([[1, INF]], [0, 0]), "infinite; leave that individual out"),
    ],
)
def test_refusals(call: Callable[[], object], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        call()


# Whole fronts: test problems of Zitzler, Deb & Thiele 2000 and Deb et al. 2002, which are minimised. ZDT1 and DTLZ2 are with the tests of populations.


def zdt(x: np.ndarray, shape: Callable[[np.ndarray, np.ndarray], np.ndarray]) -> np.ndarray:
    first, distance = x[:, 0], 1 + 9 * x[:, 1:].mean(1)
    return np.column_stack([first, distance * shape(first / distance, first)])


def zdt2(x: np.ndarray) -> np.ndarray:
    return zdt(x, lambda ratio, first: 1 - ratio**2)


def zdt3(x: np.ndarray) -> np.ndarray:
    return zdt(x, lambda ratio, first: 1 - np.sqrt(ratio) - ratio * np.sin(10 * np.pi * first))


def dtlz1(x: np.ndarray) -> np.ndarray:
    """11^5 - 1 local fronts before the true one."""
    y = x[:, 2:] - 0.5
    distance = 1 + 100 * (y.shape[1] + (y**2 - np.cos(20 * np.pi * y)).sum(1))
    a, b = x[:, 0], x[:, 1]
    return 0.5 * distance[:, None] * np.column_stack([a * b, a * (1 - b), 1 - a])


def nsga2(problem: Callable[[np.ndarray], np.ndarray], size: int, population: int, generations: int, seed: int) -> np.ndarray:
    """The fitness of the last population; all variables are in [0, 1]."""
    rng = np.random.default_rng(seed)
    x = rng.random((population, size))
    fitness = -problem(x)
    for _ in range(generations):
        rank = non_dominated_sort(fitness)
        parents = x[tournament(rank, crowding_distance(fitness, rank), population, rng)]
        children = np.concatenate(sbx(parents[::2], parents[1::2], 0, 1, rng, eta=15))
        children = polynomial_mutation(children, 0, 1, rng, eta=20)
        x, fitness = np.concatenate([x, children]), np.concatenate([fitness, -problem(children)])
        survivors = select_survivors(fitness, population)
        x, fitness = x[survivors], fitness[survivors]
    return fitness


@pytest.mark.parametrize(
    ("problem", "volume"),
    [
        (zdt2, 0.1 + 1 / 3 + 0.11),  # the front 1 - x^2, below (1.1, 1.1): 0.1 + 1/3 over [0, 1], and 0.11 beside it
        (zdt3, 1.33171),  # pymoo 0.6.2: HV of ZDT3().pareto_front(5000)
    ],
)
def test_nsga2_reaches_the_front_of_zdt(problem: Callable[[np.ndarray], np.ndarray], volume: float) -> None:
    """30 variables, 15,000 evaluations. With the same budget pymoo's NSGA2 has 0.530 and 1.324."""
    fitness = nsga2(problem, size=30, population=60, generations=250, seed=0)
    assert (non_dominated_sort(fitness) == 0).all()
    assert 0.97 * volume < hypervolume(fitness, [-1.1, -1.1]) <= volume


def test_nsga2_passes_the_local_fronts_of_dtlz1() -> None:
    """Objectives that sum to 0.5; of the volume below (0.55, 0.55, 0.55), the points of the front cover all but a tenth."""
    fitness = nsga2(dtlz1, size=7, population=92, generations=400, seed=0)
    assert np.median(-fitness.sum(1)) == pytest.approx(0.5, abs=0.01)
    assert 0.88 < hypervolume(fitness, [-0.55] * 3) / (0.55**3 - 0.5**3 / 6) < 1
