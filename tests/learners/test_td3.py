"""Losses of continuous critics, with numbers worked by hand."""

from __future__ import annotations

import pytest
import torch

from baldwin.learners.replay_learner import clipped_loss
from baldwin.learners.td3 import smooth_target_action


def test_smoothing_cuts_the_noise_and_then_the_action() -> None:
    action = torch.tensor([[0.0, 0.9, -0.9, 0.5]])
    noise = torch.tensor([[1.0, 10.0, -10.0, -10.0]])
    torch.testing.assert_close(smooth_target_action(action, noise, 0.2, 0.5), torch.tensor([[0.2, 1.0, -1.0, 0.0]]))


def test_the_clipped_loss_by_hand() -> None:
    """Q' = 1, epsilon = 1/2, so that Q = 2 counts as 3/2. y = 5: 3.5^2 > 3^2, and has no gradient; y = 0: 2^2 > 1.5^2."""
    q = torch.tensor([[2.0, 2.0]], requires_grad=True)
    slow, y = torch.ones(1, 2), torch.tensor([5.0, 0.0])
    loss = clipped_loss(q, slow, y, 0.5, None)
    loss.backward()  # type: ignore[no-untyped-call]
    assert loss.item() == (3.5**2 + 2**2) / 2
    assert q.grad is not None
    assert q.grad.tolist() == [[0.0, 2.0]]
    assert clipped_loss(q, slow, y, 0.5, torch.tensor([2.0, 0.5])).item() == (2 * 3.5**2 + 0.5 * 2**2) / 2
    assert clipped_loss(q, slow, y, 9.0, None).item() == (3**2 + 2**2) / 2  # near Q', it is the plain loss


@pytest.mark.parametrize(("epsilon", "least", "most"), [(0.2, 4.0, 4.5), (100.0, 29.0, 30.0)])
def test_the_clip_limits_the_speed_of_critics_to_tau_epsilon(epsilon: float, least: float, most: float) -> None:
    """400 updates towards 30 with tau = 0.05: 400 x 0.05 x 0.2 = 4, and the 0.2 ahead of the slow copy; or all of the way."""
    tau, q, slow = 0.05, torch.zeros(1, 1, requires_grad=True), torch.zeros(1, 1)
    for _ in range(400):
        (gradient,) = torch.autograd.grad(clipped_loss(q, slow, torch.tensor([30.0]), epsilon, None), q)
        with torch.no_grad():
            q -= (5e-4 if epsilon < 1 else 5e-3) * gradient
            slow += tau * (q - slow)
    assert least < q.item() < most
