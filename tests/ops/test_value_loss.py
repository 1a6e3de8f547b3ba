"""Losses of values, with numbers worked by hand and against torch."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.nn.functional import smooth_l1_loss

from baldwin.ops.value_loss import huber_loss


def test_huber_loss_by_hand() -> None:
    """h(0.5) = 0.125, h(-3) = 2.5, h(1) = 0.5, h(0) = 0; slopes 0.5, -1, 1, 0; a mean of four."""
    loss, gradient = huber_loss(np.array([0.5, -3.0, 1.0, 0.0], np.float32))
    assert loss == pytest.approx(3.125 / 4)
    assert gradient.tolist() == [0.125, -0.25, 0.25, 0.0]


def test_huber_loss_with_weights_by_hand() -> None:
    loss, gradient = huber_loss(np.array([0.5, -3.0], np.float32), np.array([2.0, 0.5], np.float32))
    assert loss == pytest.approx((2 * 0.125 + 0.5 * 2.5) / 2)
    assert gradient.tolist() == [0.5, -0.25]


def test_huber_loss_is_that_of_torch() -> None:
    error = np.random.default_rng(1).normal(scale=2, size=50).astype(np.float32)
    known = torch.from_numpy(error).requires_grad_()
    expected = smooth_l1_loss(known, torch.zeros(50))
    expected.backward()
    loss, gradient = huber_loss(error)
    assert loss == pytest.approx(expected.item(), rel=1e-6)
    np.testing.assert_allclose(gradient, known.grad, rtol=1e-6)
