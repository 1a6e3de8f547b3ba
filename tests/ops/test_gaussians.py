from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch.distributions import Independent, Normal

from baldwin.ops.gaussians import (
    decayed,
    elite_moments,
    log_density,
    log_weights,
    step_size_absolute,
    step_size_linear,
    step_size_relative,
    step_size_sigmoid,
    updated_mean_var,
)

MEAN, VARIANCE, X = np.array([0.1, -0.2, 0.3]), np.array([1e-3, 2e-3, 5e-4]), np.array([0.15, -0.30, 0.30])


def test_log_weights() -> None:
    np.testing.assert_allclose(log_weights(5), [0.429544, 0.263374, 0.166170, 0.097203, 0.043709], atol=1e-6)


@pytest.mark.parametrize(
    ("tau", "expected"), [(0.95, {1: 9.505e-4, 10: 6.03e-4, 50: 8.62e-5, 100: 1.59e-5}), (0.9, {1: 9.01e-4, 10: 3.55e-4, 50: 1.51e-5})]
)
def test_extra_variance_decays(tau: float, expected: dict[int, float]) -> None:
    value = 1e-3
    for generation in range(1, 101):
        value = decayed(value, tau, 1e-5)
        if generation in expected:
            assert value == pytest.approx(expected[generation], rel=4e-3)


POINTS = np.array([(1, 0), (0, 1), (2, 2), (-1, 1), (0.5, -0.5), (3, 0), (0, -2), (1, 1), (-2, 0), (0.1, 0.2)])
FITNESS = np.array([3, 1, 9, 4, 5, 2, 8, 7, 0, 6])


@pytest.mark.parametrize(("divide", "variance"), [(True, (0.3036034898, 0.5735884336)), (False, (1.5144134488, 2.8643381682))])
def test_cross_entropy_step(divide: bool, variance: tuple[float, float]) -> None:
    best = np.argsort(-FITNESS)[:5]
    assert best.tolist() == [2, 6, 7, 9, 4]
    mean, found = elite_moments(POINTS[best], np.array([0.2, 0.1]), decayed(1e-3, 0.9, 1e-5), divide)
    np.testing.assert_allclose(mean, (1.0568329984, 0.4960973809), rtol=1e-9)
    np.testing.assert_allclose(found, variance, rtol=1e-9)


def test_sliding_window_step() -> None:
    old = np.array([0.2, 0.1])
    mean, variance = elite_moments(POINTS[np.argsort(-FITNESS)[:5]], old, decayed(1e-3, 0.9 ** (1 / 10), 1e-5), True)
    np.testing.assert_allclose(old + (mean - old) / 10, (0.2856832998, 0.1396097381), rtol=1e-9)
    np.testing.assert_allclose(variance, (0.3036921138, 0.5736770577), rtol=1e-9)


@pytest.mark.parametrize(
    ("rule", "f", "p", "mean", "fixed", "adaptive"),
    [
        ("linear", 5000, 0.5, (0.125, -0.25), (1.025e-3, 2.3e-3, 4.5e-4), (1.25e-3, 5e-3, 1e-5)),
        ("linear", 3000, 0.0, (0.1, -0.2), (1e-3, 2e-3, 5e-4), (1e-3, 2e-3, 5e-4)),
        ("linear", 9000, 1.0, (0.15, -0.30), (9e-4, 1.8e-3, 4.5e-4), (1e-5, 1e-5, 1e-5)),
        (
            "sigmoid",
            5000,
            0.6224593312,
            (0.1311229666, -0.2622459331),
            (9.943851672e-4, 2.177540669e-3, 4.5e-4),
            (9.43851672e-4, 3.775406688e-3, 1e-5),
        ),
        (
            "sigmoid",
            3000,
            0.3775406688,
            (0.1188770334, -0.2377540669),
            (1.055614833e-3, 2.422459331e-3, 4.5e-4),
            (1.337321012e-3, 4.562345369e-3, 1.967346701e-4),
        ),
        ("relative", 5000, 0.6, (0.13, -0.26), (1e-3, 2.2e-3, 4.5e-4), (1e-3, 4e-3, 1e-5)),
        (
            "relative",
            3000,
            1 / 3,
            (0.1166667, -0.2333333),
            (1.066666667e-3, 2.466666667e-3, 4.5e-4),
            (1.333333333e-3, 4.333333333e-3, 2.5e-4),
        ),
        ("relative", 1500, 0.0, (0.1, -0.2), (1e-3, 2e-3, 5e-4), (1e-3, 2e-3, 5e-4)),
        (
            "absolute",
            5000,
            0.5384615385,
            (0.1269230769, -0.2538461538),
            (1.015384615e-3, 2.261538462e-3, 4.5e-4),
            (1.153846154e-3, 4.615384615e-3, 1e-5),
        ),
        (
            "absolute",
            1500,
            0.3684210526,
            (0.1184210526, -0.2368421053),
            (1.057894737e-3, 2.431578947e-3, 4.5e-4),
            (1.337719298e-3, 4.51754386e-3, 2.083333333e-4),
        ),
    ],
)
def test_one_individual_moves_mean_and_variance(
    rule: str, f: float, p: float, mean: tuple[float, ...], fixed: tuple[float, ...], adaptive: tuple[float, ...]
) -> None:
    rules: dict[str, Callable[[], float]] = {
        "linear": lambda: step_size_linear(f - 4000, 2000),
        "sigmoid": lambda: step_size_sigmoid(f - 4000, 2000),
        "relative": lambda: step_size_relative(f - 4000, 2000),
        "absolute": lambda: step_size_absolute(f, 4000, -2000),
    }
    found = rules[rule]()
    assert found == pytest.approx(p, abs=1e-9)
    for memory, expected in ((10.0, fixed), (None, adaptive)):
        moved, variance = updated_mean_var(MEAN, VARIANCE, X, found, memory, 1e-5)
        np.testing.assert_allclose(moved[:2], mean, rtol=1e-6)
        np.testing.assert_allclose(variance, expected, rtol=1e-8)


def test_pulls_at_the_edges() -> None:
    assert [step_size_relative(d, 2.0) for d in (-2, -1, 0, 2, 5)] == pytest.approx([0, 1 / 3, 1 / 2, 2 / 3, 7 / 9])
    assert [step_size_sigmoid(d, 2.0) for d in (-2, -1, 0, 2, 5)] == pytest.approx([0.269, 0.378, 0.5, 0.731, 0.924], abs=1e-3)
    assert step_size_sigmoid(-1e9, 1.0) == 0.0
    assert step_size_linear(-1.0, 2.0, negative=0.5) == -0.25
    assert step_size_absolute(-3.0, 1.0, -2.0) == 0.0
    assert step_size_absolute(1.0, -5.0, -1.0) == 1.0  # a mean below the floor


def test_log_density_up_to_a_constant() -> None:
    rows = np.stack([X, MEAN, 2 * X])
    normal = Independent(Normal(torch.from_numpy(MEAN), torch.from_numpy(np.sqrt(VARIANCE))), 1)
    known = normal.log_prob(torch.from_numpy(rows)).numpy()
    found = log_density(rows, MEAN, VARIANCE)
    np.testing.assert_allclose(found - found[0], known - known[0])


@pytest.mark.parametrize(
    ("p", "memory", "medians"),
    [
        (0.5, None, {1: 2.3e-4, 10: 1e-5, 50: 1e-5}),
        (1 / 3, None, {1: 6.5e-4, 5: 2.3e-4, 10: 5.4e-5, 50: 1e-5}),
        (0.1, None, {1: 9.4e-4, 5: 8.7e-4, 10: 7.9e-4, 50: 3.7e-4}),
        (0.5, 10.0, {1: 9.2e-4, 5: 7.5e-4, 10: 5.7e-4, 50: 6.6e-5}),
    ],
)
def test_where_nobody_is_better_the_variance_falls(p: float, memory: float | None, medians: dict[int, float]) -> None:
    """Individuals of the distribution itself that all pull alike: the median variance after so many of them."""
    rng, mean, variance = np.random.default_rng(1), np.zeros(20_000), np.full(20_000, 1e-3)
    for told in range(1, 51):
        x = mean + np.sqrt(variance) * rng.standard_normal(len(mean))
        mean, variance = updated_mean_var(mean, variance, x, p, memory, 1e-5)
        if told in medians:
            assert np.median(variance) == pytest.approx(medians[told], rel=0.1)
