"""Pieces of policy-gradient losses, and the noise of noisy layers, with numbers worked by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from baldwin.ops.noisy import factorized_noise, initial_sigma, signed_root
from baldwin.ops.policy_loss import (
    approx_kl,
    clip_fraction,
    clipped_value_loss,
    score_loss,
    squared_error,
    surrogate_loss,
)


def test_surrogate_by_hand() -> None:
    """The gradient stops where the ratio has left the range in the direction that the advantage wants, and only there."""
    ratio = np.array([1.5, 1.5, 0.5, 0.5, 1.1], np.float32)
    advantage = np.array([2.0, -2.0, 2.0, -2.0, 1.0], np.float32)
    loss, gradient = surrogate_loss(np.log(ratio), advantage, 0.2)
    assert loss == pytest.approx(-(2.4 - 3.0 + 1.0 - 1.6 + 1.1) / 5)
    np.testing.assert_allclose(gradient, -np.array([0.0, -2.0 * 1.5, 2.0 * 0.5, 0.0, 1.1]) / 5, rtol=1e-5)


def test_the_gradient_of_the_surrogate_is_that_of_autograd() -> None:
    """Equation 7 of the paper as it is written, also at ratio 1 and at the edges of the range."""
    log_ratio = torch.tensor([0.3, 0.3, -0.5, -0.5, 0.0, math.log(1.2), math.log(0.8)], requires_grad=True)
    advantage, ratio = torch.tensor([2.0, -2.0, 2.0, -2.0, 1.0, -1.0, 1.0]), log_ratio.exp()
    expected = -torch.min(ratio * advantage, ratio.clamp(0.8, 1.2) * advantage).mean()
    expected.backward()  # type: ignore[no-untyped-call]
    loss, gradient = surrogate_loss(log_ratio.detach().numpy(), advantage.numpy(), 0.2)
    assert loss == pytest.approx(expected.item(), rel=1e-4)
    assert log_ratio.grad is not None
    np.testing.assert_allclose(gradient, log_ratio.grad.numpy(), rtol=1e-6)


def test_the_loss_of_the_policy_gradient_by_hand() -> None:
    loss, gradient = score_loss(np.array([-1.0, -3.0], np.float32), np.array([2.0, 0.5], np.float32))
    assert loss == pytest.approx((2.0 + 1.5) / 2)
    assert gradient.tolist() == [-1.0, -0.25]


def test_squared_errors_are_averaged_over_steps_and_summed_over_components() -> None:
    assert squared_error(torch.tensor([[1.0, 0.0], [3.0, 0.0]]), torch.tensor([[0.0, 2.0], [0.0, 0.0]])).item() == 7.0


def test_clipped_values_by_hand() -> None:
    """Old 0, target 1, clip 0.2: a value of 0.5 counts as 0.2; one of 0.1 as it is. Two components add up."""
    value = torch.tensor([[0.5, 0.1], [0.5, 0.1]])
    assert clipped_value_loss(value, torch.ones(2, 2), torch.zeros(2, 2), 0.2).item() == pytest.approx(0.64 + 0.81)


def test_kl_and_clip_fraction_as_stable_baselines_computes_them() -> None:
    """approx_kl = mean((exp(log_ratio) - 1) - log_ratio); clip_fraction = mean(|ratio - 1| > clip_range); the mean over minibatches."""
    log_ratios = [np.array([0.0, 0.1, -0.3], np.float32), np.array([0.4], np.float32)]
    expected = [np.mean((np.exp(x) - 1) - x) for x in ([0.0, 0.1, -0.3], [0.4])]
    assert approx_kl(log_ratios[:1]) == pytest.approx(expected[0], rel=1e-5)
    assert approx_kl(log_ratios) == pytest.approx(sum(expected) / 2, rel=1e-5)
    assert clip_fraction(log_ratios, 0.2) == pytest.approx((1 / 3 + 1) / 2)


def test_factorised_noise() -> None:
    assert signed_root(np.array([-4.0, 0.0, 9.0])).tolist() == [-2.0, 0.0, 3.0]
    shapes = ((8, 1, 3, 3), (8,), (2, 3), (2,), (4, 2), (4,))
    rng, again = np.random.default_rng(1), np.random.default_rng(1)
    noise = factorized_noise(rng, shapes)
    assert not noise[: 72 + 8].any()  # convolutions have none
    out, fan_in = signed_root(again.standard_normal(2)), signed_root(again.standard_normal(3))
    np.testing.assert_allclose(noise[80:86].reshape(2, 3), np.outer(out, fan_in), rtol=1e-6)
    np.testing.assert_allclose(noise[86:88], out, rtol=1e-6)
    assert np.linalg.matrix_rank(noise[88:96].reshape(4, 2)) == 1


def test_sigma_at_the_start() -> None:
    sigma = initial_sigma(((8, 1, 3, 3), (8,), (2, 3), (2,)))
    np.testing.assert_allclose(sigma, [*[0.0] * 80, *[0.5 / math.sqrt(3)] * 8], rtol=1e-6)
