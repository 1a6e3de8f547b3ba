import math

import pytest
import torch
from torch.distributions import Independent, Normal, TanhTransform, TransformedDistribution

from baldwin.ops.targets import (
    bootstrap_discount,
    expected_soft_value,
    soft_value,
    split_gaussian,
    tanh_gaussian,
)


def test_discount_knows_the_real_length_and_stops_only_at_terminations() -> None:
    found = bootstrap_discount(0.9, torch.tensor([1, 3, 2]), torch.tensor([False, False, True]))
    torch.testing.assert_close(found, torch.tensor([0.9, 0.729, 0.0]))


@pytest.mark.parametrize("actions", [1, 3, 17])
def test_tanh_log_probability_is_that_of_torch(actions: int) -> None:
    generator = torch.Generator().manual_seed(actions)
    mean, log_std, noise = (torch.randn(500, actions, generator=generator, dtype=torch.float64) / 2 for _ in range(3))
    action, found = tanh_gaussian(mean, log_std, noise)
    u = mean + log_std.exp() * noise
    base = Independent(Normal(mean, log_std.exp()), 1).log_prob(u)
    torch.testing.assert_close(action, torch.tanh(u))
    torch.testing.assert_close(found, base - TanhTransform().log_abs_det_jacobian(u, action).sum(-1))
    keep = action.abs().amax(-1) < 0.999  # torch inverts tanh, which is lossy near one
    known = TransformedDistribution(Independent(Normal(mean[keep], log_std[keep].exp()), 1), [TanhTransform()])
    assert keep.sum() > 5
    torch.testing.assert_close(found[keep], known.log_prob(action[keep]))


def test_tanh_log_probability_by_hand_and_far_out() -> None:
    # u = 0.5: -0.5 * 0.25 - 0 - 0.9189385 - log(1 - tanh(0.5)^2) = -1.0439385 + 0.2402293
    _, found = tanh_gaussian(torch.tensor([[0.0]]), torch.tensor([[0.0]]), torch.tensor([[0.5]]))
    assert found.item() == pytest.approx(-0.8037093, abs=1e-5)
    _, far = tanh_gaussian(torch.tensor([[50.0]]), torch.tensor([[0.0]]), torch.tensor([[0.0]]))
    assert far.item() == pytest.approx(-0.9189385 + 2 * (50 - math.log(2)), abs=1e-3)  # finite, where 1 - tanh^2 is 0


def test_gaussian_head_is_cut_in_two_and_its_spread_kept_in_range() -> None:
    mean, log_std = split_gaussian(torch.tensor([[0.1, 0.2, -50.0, 9.0]]))
    assert mean.tolist() == [[pytest.approx(0.1), pytest.approx(0.2)]]
    assert log_std.tolist() == [[-20.0, 2.0]]


def test_soft_values_by_hand() -> None:
    assert soft_value(torch.tensor(2.0), torch.tensor(-1.5), torch.tensor(0.2)).item() == pytest.approx(2.3)
    probs = torch.tensor([0.25, 0.75])
    found = expected_soft_value(probs, probs.log(), torch.tensor([1.0, 3.0]), torch.tensor(0.5))
    assert found.item() == pytest.approx(0.25 + 2.25 + 0.5 * 0.5623351)  # entropy of (1/4, 3/4)
