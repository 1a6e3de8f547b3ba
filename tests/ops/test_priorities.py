from __future__ import annotations

import numpy as np
import pytest

from baldwin.ops.priorities import importance_weights, priority


def test_priorities_by_hand() -> None:
    error = np.array([3.0, -8.0, 0.0], np.float32)
    np.testing.assert_allclose(priority(error, 0.5, 1.0), [2.0, 3.0, 1.0])
    np.testing.assert_allclose(priority(error, 1.0, 0.25), [3.25, 8.25, 0.25])
    assert priority(error, 0.0, 1e-6).tolist() == [1.0, 1.0, 1.0]


@pytest.mark.parametrize(
    ("beta", "weights"),
    [
        (0.0, [1.0, 1.0, 1.0]),
        (0.5, [0.5, 1.0, 0.25]),  # N P = 1, 1/4, 4: to the power -1/2 it is 1, 2, 1/2
        (1.0, [0.25, 1.0, 0.0625]),  # 1, 4, 1/4
    ],
)
def test_importance_weights_by_hand(beta: float, weights: list[float]) -> None:
    """Drawn out of eight; priorities need not sum to one."""
    probability = np.array([0.125, 0.03125, 0.5])
    np.testing.assert_allclose(importance_weights(5 * probability, beta), weights)
    both = importance_weights(np.stack([probability, np.full(3, 0.125)]), beta)  # each batch has its own largest
    np.testing.assert_allclose(both, [weights, [1, 1, 1]])


def test_full_correction_makes_the_estimate_unbiased() -> None:
    """With beta = 1, sum over i of P(i) w(i) x(i) is proportional to the plain mean, whatever the priorities are."""
    rng = np.random.default_rng(0)
    values, shares = rng.normal(size=50) + 1, rng.random(50)
    shares /= shares.sum()
    weights = importance_weights(shares, 1.0).astype(np.float64)
    assert (shares * weights * values).sum() / (shares * weights).sum() == pytest.approx(values.mean(), rel=1e-5)
