"""Welch's test against SciPy and by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import special, stats

from baldwin.errors import ConfigError
from baldwin.ops.statistics import explained_share, incomplete_beta, significantly_better, student_t_two_sided, welch_test


def test_by_hand() -> None:
    """Means 2 and 6, variances 1 and 10: t = -4 / sqrt(1/3 + 2), dof = (7/3)^2 / ((1/3)^2 / 2 + 2^2 / 4)."""
    test = welch_test([1, 2, 3], [2, 4, 6, 8, 10])
    assert test.statistic == pytest.approx(-4 / math.sqrt(7 / 3))
    assert test.dof == pytest.approx((7 / 3) ** 2 / (1 / 18 + 1))


@pytest.mark.parametrize("seed", range(20))
def test_as_in_scipy(seed: int) -> None:
    rng = np.random.default_rng(seed)
    a = rng.normal(rng.normal(), rng.uniform(0.1, 5), rng.integers(2, 60))
    b = rng.normal(rng.normal(), rng.uniform(0.1, 5), rng.integers(2, 60))
    theirs = stats.ttest_ind(a, b, equal_var=False)
    assert welch_test(a, b) == pytest.approx((theirs.statistic, theirs.df, theirs.pvalue), rel=1e-9)


@pytest.mark.parametrize(("t", "dof"), [(0, 3), (1, 1), (-2, 4.7), (40, 3), (6, 1e6), (1e9, 2)])
def test_tails_of_students_distribution(t: float, dof: float) -> None:
    assert student_t_two_sided(t, dof) == pytest.approx(2 * stats.t.sf(abs(t), dof), rel=1e-8)


@pytest.mark.parametrize(("a", "b", "x"), [(0.5, 0.5, 0.3), (2, 3, 0.9), (50, 0.5, 0.999), (1e-2, 1e3, 1e-3), (3, 4, 0), (3, 4, 1)])
def test_incomplete_beta(a: float, b: float, x: float) -> None:
    assert incomplete_beta(a, b, x) == pytest.approx(special.betainc(a, b, x), rel=1e-10)


def test_samples_without_variance() -> None:
    assert welch_test([0.1, 0.1, 0.1], [0.1, 0.1])[::2] == (0, 1)
    assert welch_test([2, 2], [1, 1, 1])[::2] == (math.inf, 0)
    assert welch_test([1, 1], [2, 2])[::2] == (-math.inf, 0)
    assert welch_test([1, 1], [1.5, 2.5]).dof == 1  # all variance is in the second


def test_better_is_larger_and_significant() -> None:
    assert significantly_better([5, 6, 7], [1, 2, 3])
    assert not significantly_better([1, 2, 3], [5, 6, 7])
    assert not significantly_better([5, 6, 7], [1, 5, 9])
    assert not significantly_better([1, 1], [1, 1])


@pytest.mark.parametrize("bad", [[1.0], [], [1.0, np.nan], [1.0, np.inf]])
def test_refusals(bad: list[float]) -> None:
    with pytest.raises(ConfigError, match="at least two finite values"):
        welch_test(bad, [1, 2, 3])


def test_the_share_of_variance_that_groups_explain() -> None:
    """By hand: scores 0, 1, 1, 2 in the groups (0, 1) and (1, 2) have a total of 2, of which 1 is between the groups."""
    assert explained_share(["a", "a", "b", "b"], [0, 0, 1, 1]) == 1
    assert explained_share(["a", "b", "a", "b"], [0, 0, 1, 1]) == 0
    assert explained_share(["a", "a", "b", "b"], [0, 1, 1, 2]) == 0.5
    assert explained_share([1, 2, 3, 4, 5, 6, 7, 8], [0, 1, 1, 2, 2, 3, 3, 4]) == pytest.approx(10 / 12)  # quarters: 0.5, 1.5, 2.5, 3.5
    assert explained_share([True, False], [3, 3]) == 0
