"""The time-varying Gaussian process of population-based bandits, against numbers by hand, plain linear algebra and scikit-learn."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import multivariate_normal

from baldwin.ops import pb2
from baldwin.ops.pb2 import Kernel
from baldwin.ops.ranges import Int, Log, Uniform, from_unit, to_unit

RNG = np.random.default_rng(0)
X, T, Y = RNG.random((12, 3)), RNG.integers(0, 5, 12).astype(float), RNG.standard_normal(12)
AT, AT_T = RNG.random((7, 3)), np.full(7, 6.0)
KERNEL = Kernel(0.4, 0.2, 0.05)


def test_covariance_by_hand() -> None:
    """Distance 1 and length 1: exp(-1/2). Two rounds apart with epsilon 0.36: 0.64^(2/2)."""
    found = pb2.covariance(np.array([[0.0], [1.0]]), np.array([0.0, 2.0]), np.array([[0.0]]), np.array([0.0]), Kernel(1.0, 0.36, 0.0))
    np.testing.assert_allclose(found, [[1.0], [math.exp(-0.5) * 0.64]])


def test_one_observation_by_hand() -> None:
    """k = 0.64 across one pair, 1 + noise 1 on the diagonal: mean 0.64 * 3 / 2, variance 1 - 0.64^2 / 2."""
    one, two = np.array([[0.5]]), np.array([0.0])
    mean, deviation = pb2.posterior(one, two, np.array([3.0]), one, np.array([2.0]), Kernel(1.0, 0.36, 1.0))
    np.testing.assert_allclose([mean[0], deviation[0] ** 2], [0.96, 1 - 0.64**2 / 2], rtol=1e-6)


def test_what_nobody_has_observed_is_a_standard_normal() -> None:
    mean, deviation = pb2.posterior(X[:0], T[:0], Y[:0], AT, AT_T, KERNEL)
    assert (mean.tolist(), deviation.tolist()) == ([0.0] * 7, [1.0] * 7)


def test_posterior_and_likelihood_equal_the_formulas_with_an_inverse() -> None:
    points, times = np.concatenate([X, AT]), np.concatenate([T, AT_T])
    joint = np.array(
        [
            [math.exp(-np.sum((a - b) ** 2) / (2 * 0.4**2)) * 0.8 ** (abs(s - t) / 2) for b, t in zip(points, times, strict=True)]
            for a, s in zip(points, times, strict=True)
        ]
    )
    observed = joint[:12, :12] + 0.05 * np.eye(12)
    inverse = np.linalg.inv(observed)
    mean, deviation = pb2.posterior(X, T, Y, AT, AT_T, KERNEL)
    np.testing.assert_allclose(mean, joint[12:, :12] @ inverse @ Y, rtol=1e-5)
    np.testing.assert_allclose(deviation**2, np.diag(joint[12:, 12:] - joint[12:, :12] @ inverse @ joint[:12, 12:]), rtol=1e-5)
    assert pb2.log_likelihood(X, T, Y, KERNEL) == pytest.approx(multivariate_normal(np.zeros(12), observed).logpdf(Y), rel=1e-5)


def test_without_fading_it_is_scikit_learns_regression() -> None:
    gaussian_process = pytest.importorskip("sklearn.gaussian_process")
    theirs = gaussian_process.GaussianProcessRegressor(gaussian_process.kernels.RBF(0.4), alpha=0.05, optimizer=None).fit(X, Y)
    mean, deviation = theirs.predict(AT, return_std=True)
    ours = pb2.posterior(X, T, Y, AT, AT_T, Kernel(0.4, 0.0, 0.05))
    np.testing.assert_allclose(ours, [mean, deviation], rtol=1e-5)
    assert pb2.log_likelihood(X, T, Y, Kernel(0.4, 0.0, 0.05)) == pytest.approx(theirs.log_marginal_likelihood_value_, rel=1e-5)


@pytest.mark.parametrize("kernel", [Kernel(0.2, 0.0, 0.03), Kernel(0.8, 0.3, 0.1)])
def test_fit_finds_how_long_and_how_far_observations_count(kernel: Kernel) -> None:
    rng = np.random.default_rng(1)
    x, t = rng.random((80, 1)), rng.integers(0, 30, 80).astype(float)
    covariance = pb2.covariance(x, t, x, t, kernel) + kernel.noise * np.eye(80)
    found = pb2.fit(x, t, rng.multivariate_normal(np.zeros(80), covariance))
    assert (found.lengthscale, found.fading > 0) == (pytest.approx(kernel.lengthscale, rel=1.0), kernel.fading > 0)


def test_exploration_by_hand() -> None:
    assert [pb2.exploration(n) for n in (0, 1, 2)] == [0.2] * 3
    assert pb2.exploration(25) == pytest.approx(0.2 + math.log(10))


def test_it_chooses_what_was_good_and_not_what_is_in_use() -> None:
    x = np.linspace(0, 1, 21)[:, None]
    t, y = np.zeros(21), -np.square(x[:, 0] - 0.7)
    candidates, nothing = np.array([[0.1], [0.4], [0.7], [0.95]]), np.zeros((0, 1))
    assert pb2.choose(x, t, y, nothing, np.zeros(0), candidates, 0.0) == 2
    few = slice(0, 21, 10)  # 0, 0.5 and 1: nobody knows what lies between
    free = pb2.choose(x[few], t[few], 0 * y[few], nothing, np.zeros(0), np.array([[0.25], [0.75]]), 0.0)
    used = np.array([[0.25], [0.75]])[[free]]
    assert pb2.choose(x[few], t[few], 0 * y[few], used, np.zeros(1), np.array([[0.25], [0.75]]), 0.0) == 1 - free


def test_what_is_long_ago_counts_less() -> None:
    mean, deviation = pb2.posterior(
        np.array([[0.5]]), np.array([0.0]), np.array([2.0]), np.array([[0.5]] * 2), np.array([1.0, 20.0]), KERNEL
    )
    assert mean[0] > mean[1] > 0
    assert deviation[0] < deviation[1] < 1


@pytest.mark.parametrize(
    ("found", "value", "place"),
    [
        (Uniform(2, 6), 3.0, 0.25),
        (Log(1e-4, 1e-2), 1e-3, 0.5),
        (Int(1, 5), 4, 0.75),
        (Uniform(3, 3), 3.0, 0.0),
        (Log(1e-4, 1e-2), 1e-2, 1.0),
    ],
)
def test_places_in_ranges(found: Uniform | Log | Int, value: float, place: float) -> None:
    assert to_unit(found, value) == pytest.approx(place)
    back = from_unit(found, place)
    assert back == pytest.approx(value)
    assert type(back) is type(value)
    assert found.contains(back)
