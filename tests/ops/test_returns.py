"""Returns and advantages: numbers worked by hand, and naive double loops."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from baldwin.ops.returns import backward_sum, explained_variance, gae, gae_v, td_errors, vtrace

RNG = np.random.default_rng(0)


def column(*values: float) -> Any:
    return np.array(values, np.float64).reshape(1, -1, 1)


def random_segment(count: int = 3, steps: int = 12) -> tuple[Any, ...]:
    """delta, discount, ended, rho, some episodes terminated, some cut."""
    terminated, truncated = RNG.random((count, steps, 1)) < 0.15, RNG.random((count, steps, 1)) < 0.15
    discount = np.where(terminated, 0.0, 0.9)
    return RNG.normal(size=(count, steps, 1)), discount, terminated | truncated, RNG.uniform(0.2, 3.0, (count, steps, 1))


def test_gae_by_hand() -> None:
    """r = 1, 2, 3; V = 1, 0, 2, then 4; gamma 0.5, lambda 0.5; nothing ends."""
    delta = td_errors(column(1, 2, 3), column(1, 0, 2), column(0, 2, 4), column(0.5, 0.5, 0.5))
    np.testing.assert_allclose(delta[0, :, 0], [0, 3, 3])
    np.testing.assert_allclose(gae(delta, column(0.5, 0.5, 0.5), column(0, 0, 0) > 0, 0.5)[0, :, 0], [0.9375, 3.75, 3])


def test_nothing_is_summed_across_an_end() -> None:
    """A time limit after the second step: its delta bootstraps, but the third step is another episode's."""
    delta, ended = column(1, 1, 1), column(0, 1, 0) > 0
    np.testing.assert_allclose(gae(delta, column(0.9, 0.9, 0.9), ended, 1.0)[0, :, 0], [1.9, 1, 1])


def test_gae_is_the_naive_double_loop() -> None:
    delta, discount, ended, _ = random_segment()
    for lam in (0.0, 0.7, 1.0):
        expected = np.zeros_like(delta)
        for row, t in np.ndindex(delta.shape[:2]):
            weight = 1.0
            for k in range(t, delta.shape[1]):
                expected[row, t] += weight * delta[row, k]
                if ended[row, k, 0]:
                    break
                weight *= discount[row, k, 0] * lam
        np.testing.assert_allclose(gae(delta, discount, ended, lam), expected)


def test_gae_v_is_the_naive_double_loop_and_gae_where_the_policy_is_the_same() -> None:
    delta, discount, ended, rho = random_segment()
    expected = np.zeros_like(delta)
    for row, t in np.ndindex(delta.shape[:2]):
        weight = 1.0
        for k in range(t, delta.shape[1]):
            expected[row, t] += weight * delta[row, k]
            if ended[row, k, 0] or k + 1 == delta.shape[1]:
                break
            weight *= discount[row, k, 0] * 0.8 * min(1.0, rho[row, k + 1, 0])
    np.testing.assert_allclose(gae_v(delta, discount, ended, 0.8, rho), expected)
    np.testing.assert_allclose(gae_v(delta, discount, ended, 0.8, np.ones_like(rho)), gae(delta, discount, ended, 0.8))


def test_vtrace_is_the_naive_double_loop() -> None:
    delta, discount, ended, rho = random_segment()
    expected = np.zeros_like(delta)
    for row, t in np.ndindex(delta.shape[:2]):
        weight = 1.0
        for k in range(t, delta.shape[1]):
            expected[row, t] += weight * min(1.5, rho[row, k, 0]) * delta[row, k]
            if ended[row, k, 0]:
                break
            weight *= discount[row, k, 0] * min(1.2, rho[row, k, 0])
    np.testing.assert_allclose(vtrace(delta, discount, ended, rho, 1.5, 1.2), expected)


def test_vtrace_on_policy_is_the_n_step_return() -> None:
    reward, value = RNG.normal(size=(2, 6, 1)), RNG.normal(size=(2, 7, 1))
    discount, ended = np.full((2, 6, 1), 0.9), np.zeros((2, 6, 1), np.bool_)
    delta = td_errors(reward, value[:, :-1], value[:, 1:], discount)
    target = value[:, :-1] + vtrace(delta, discount, ended, np.ones_like(reward))
    weights = 0.9 ** np.arange(6)
    for row in range(2):
        for t in range(6):
            n_step = (weights[: 6 - t] * reward[row, t:, 0]).sum() + 0.9 ** (6 - t) * value[row, -1, 0]
            assert target[row, t, 0] == pytest.approx(n_step)


def test_components_have_their_own_discounts() -> None:
    """The same rewards with gamma 0 and 1: the reward itself, and the sum to the end."""
    reward = np.ones((1, 4, 2))
    discount = np.broadcast_to(np.array([0.0, 1.0]), (1, 4, 2))
    np.testing.assert_allclose(backward_sum(reward, discount)[0], [[1, 4], [1, 3], [1, 2], [1, 1]])


def test_explained_variance_by_hand() -> None:
    target = np.array([1.0, 2.0, 3.0])
    assert explained_variance(target, target) == 1.0
    assert explained_variance(np.zeros(3), target) == 0.0
    assert explained_variance(-target, target) == pytest.approx(-3.0)
    assert np.isnan(explained_variance(target, np.ones(3)))
