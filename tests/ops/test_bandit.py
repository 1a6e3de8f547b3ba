"""Hyper-parameters that learn from elites, and the cross-entropy step on weights."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import stats

from baldwin.errors import ConfigError
from baldwin.ops.bandit import dirichlet_sample, dirichlet_update, truncated_normal_sample, truncated_normal_update
from baldwin.ops.weight_cem import elite_distribution, elite_indices, least_selected


def test_counts_by_hand() -> None:
    assert_array_equal(dirichlet_update(np.ones(3), [2, 0, 2]), [2, 1, 3])
    assert_array_equal(dirichlet_update([5, 1, 3], [1], discount=0.5), [3, 2, 2])
    assert_array_equal(dirichlet_update([5, 1], []), [5, 1])


def test_categories_are_drawn_in_proportion_to_counts() -> None:
    """Over all draws of the probabilities a category has the expected share count / sum."""
    rng = np.random.default_rng(0)
    drawn = np.bincount([dirichlet_sample([1, 2, 7], rng) for _ in range(5000)]) / 5000
    assert_allclose(drawn, [0.1, 0.2, 0.7], atol=0.03)


def test_the_bandit_finds_the_best_category() -> None:
    rng, counts = np.random.default_rng(0), np.ones(4)
    for _ in range(60):
        chosen = np.array([dirichlet_sample(counts, rng) for _ in range(10)])
        fitness = -np.abs(chosen - 2) + 0.5 * rng.standard_normal(10)
        counts = dirichlet_update(counts, chosen[elite_indices(fitness, 0.3)])
    assert counts.argmax() == 2
    assert counts[2] / counts.sum() > 0.8


@pytest.mark.parametrize(("mean", "std"), [(0.5, 0.3), (0.0, 0.5), (1.0, 100.0), (0.2, 0.01)])
def test_truncated_normal_as_in_scipy(mean: float, std: float) -> None:
    rng = np.random.default_rng(0)
    drawn = [truncated_normal_sample(mean, std, 0, 1, rng) for _ in range(2000)]
    theirs = stats.truncnorm(-mean / std, (1 - mean) / std, mean, std)
    assert stats.kstest(drawn, theirs.cdf).pvalue > 0.01
    assert min(drawn) >= 0
    assert max(drawn) <= 1


def test_truncated_normal_at_its_ends() -> None:
    rng = np.random.default_rng(0)
    assert truncated_normal_sample(0.3, 0.0, 0, 1, rng) == 0.3
    assert np.isfinite(truncated_normal_sample(0.3, 1.0, -np.inf, np.inf, rng))
    assert truncated_normal_sample(2.0, 1.0, 2.0, 2.0, rng) == 2


def test_update_of_the_normal_by_hand() -> None:
    assert truncated_normal_update(0, 1, [1, 3]) == (2, 1)
    assert truncated_normal_update(0, 2, [1, 3], rate=0.5) == (1, 1.5)
    assert truncated_normal_update(0, 1, [4], std_floor=0.1) == (4, 0.1)


def test_elites() -> None:
    assert_array_equal(elite_indices([1, 5, 3, 5, np.nan, 4], 0.5), [1, 3, 5])
    assert_array_equal(elite_indices([1, 2, 3, 4, 5, 6], 0.3), [5])  # floor(1.8) = 1
    assert len(elite_indices(np.arange(7.0), 0.3)) == 2
    assert len(elite_indices(np.arange(100.0), 0.29)) == 29
    assert_array_equal(elite_indices([np.nan, 1, -np.inf], 1.0), [1])  # the failed are never elites


def test_distribution_of_elites_by_hand() -> None:
    mean, std = elite_distribution([[0, 1, 0], [1, 1, 9]], std_floor=0.1)
    assert_array_equal(mean, [0.5, 1, 4.5])
    assert_array_equal(std, [0.5, 0.1, 1])  # population deviation 1/2; 0 raised to the floor; 4.5 cut at the cap


def test_the_least_selected_is_removed_when_it_is_far_behind() -> None:
    assert least_selected([6, 5, 0, 5], 4) == 2  # mean 4
    assert least_selected([6, 5, 1, 5], 4) is None
    assert least_selected([3, 3], 0) == 0


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda rng: dirichlet_sample([1, 0], rng), "above zero"),
        (lambda rng: dirichlet_update([1, 1], [2]), "between 0 and 1"),
        (lambda rng: truncated_normal_sample(2, 1, 0, 1, rng), "low <= mean <= high"),
        (lambda rng: truncated_normal_update(0, 1, []), "at least one elite"),
        (lambda rng: elite_indices([1, 2], 0), "above 0 and at most 1"),
        (lambda rng: elite_indices([np.nan, -np.inf], 0.5), "no elite"),
        (lambda rng: elite_distribution([[1, np.nan]]), "finite weights"),
        (lambda rng: elite_distribution([[1, 2]], std_floor=2), "std_floor <= std_cap"),
    ],
)
def test_refusals(call: Callable[[np.random.Generator], object], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        call(np.random.default_rng(0))
