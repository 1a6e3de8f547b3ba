"""MAP-Elites' grid by hand."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from baldwin.errors import ConfigError
from baldwin.ops.archive import EMPTY, cell_index, coverage, empty_grid, insert, qd_score

LOW, HIGH, BINS = [0.0, -1.0], [1.0, 1.0], (4, 2)


def test_cells_are_row_major() -> None:
    descriptors = [[0, -1], [0.25, -1], [0.24, 0.5], [0.99, 0.99], [0.5, 0.0]]
    assert_array_equal(cell_index(descriptors, LOW, HIGH, BINS), [0, 2, 1, 7, 5])


def test_bounds_are_included_and_what_is_outside_is_clipped() -> None:
    assert_array_equal(cell_index([[1, 1], [7, -9], [-np.inf, np.inf]], LOW, HIGH, BINS), [7, 6, 1])
    assert_array_equal(cell_index(np.zeros((0, 2)), LOW, HIGH, BINS), [])


def test_only_the_better_takes_a_cell() -> None:
    elites, accepted = insert(empty_grid((3,)), [0, 2], [1.0, -5.0])
    assert_array_equal(accepted, [True, True])
    assert_array_equal(elites, [1, EMPTY, -5])
    again, accepted = insert(elites, [0, 2, 1], [1.0, -4.0, np.nan])  # equal, better, failed
    assert_array_equal(accepted, [False, True, False])
    assert_array_equal(again, [1, EMPTY, -4])
    assert_array_equal(elites, [1, EMPTY, -5])  # the old ones are untouched


def test_of_several_in_one_cell_the_best_stays_and_of_equals_the_first() -> None:
    elites, accepted = insert(empty_grid((2,)), [0, 0, 0, 1, 1], [1.0, 3.0, 2.0, 5.0, 5.0])
    assert_array_equal(elites, [3, 5])
    assert_array_equal(accepted, [False, True, False, True, False])


def test_one_after_the_other_is_the_same_as_all_at_once() -> None:
    rng = np.random.default_rng(0)
    cells, fitness = rng.integers(0, 10, 200), rng.normal(size=200)
    at_once, _ = insert(empty_grid((10,)), cells, fitness)
    elites = empty_grid((10,))
    for cell, value in zip(cells, fitness, strict=True):
        elites, _ = insert(elites, [cell], [value])
    assert_array_equal(elites, at_once)
    assert_array_equal(at_once, [fitness[cells == cell].max() for cell in range(10)])


def test_coverage_and_qd_score() -> None:
    elites = np.array([1.0, EMPTY, -4.0, EMPTY])
    assert coverage(elites) == 0.5
    assert qd_score(elites) == -3
    assert qd_score(elites, offset=-10) == 11 + 6
    assert coverage(empty_grid((2, 2))) == qd_score(empty_grid((2, 2))) == 0


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: cell_index([0.5, 0.5], LOW, HIGH, BINS), r"descriptors \[N, 2\]"),
        (lambda: cell_index([[0.5]], LOW, HIGH, BINS), r"got \[1, 1\]"),
        (lambda: cell_index([[0.5, np.nan]], LOW, HIGH, BINS), "belongs to no cell"),
        (lambda: cell_index([[0.5, 0.5]], [0, 0], [1, 0], BINS), "low < high"),
        (lambda: cell_index([[0.5, 0.5]], LOW, HIGH, (4, 0)), "at least one bin"),
        (lambda: insert(empty_grid((3,)), [-1], [1.0]), "between 0 and 2 for each of 1 individuals; got .-1"),
        (lambda: insert(empty_grid((3,)), [0], [1.0, 2.0]), "for each of 2 individuals"),
    ],
)
def test_refusals(call: Callable[[], object], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        call()
