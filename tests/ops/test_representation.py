"""Representation losses by hand and against torch."""

from __future__ import annotations

import math

import pytest
import torch
from torch.distributions import Normal, kl_divergence
from torch.nn.functional import cross_entropy

from baldwin.ops.representation import cosine_distance, gated_sum, info_nce, kl_to_standard_normal, split_latent


def test_info_nce_by_hand() -> None:
    """Row 0: log(1 + e^-2); row 1: log 2."""
    expected = (math.log(1 + math.exp(-2)) + math.log(2)) / 2
    assert info_nce(torch.tensor([[2.0, 0.0], [1.0, 1.0]])).item() == pytest.approx(expected)


def test_info_nce_is_cross_entropy_on_the_diagonal() -> None:
    logits = torch.randn(6, 6, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    plain = -(logits.diagonal() - logits.exp().sum(1).log()).mean()
    torch.testing.assert_close(info_nce(logits), plain)
    torch.testing.assert_close(info_nce(logits), cross_entropy(logits, torch.arange(6)))


@pytest.mark.parametrize(("target", "expected"), [([6.0, 8.0], 0.0), ([-3.0, -4.0], 4.0), ([4.0, -3.0], 2.0)])
def test_cosine_distance_is_smallest_at_agreement(target: list[float], expected: float) -> None:
    assert cosine_distance(torch.tensor([3.0, 4.0]), torch.tensor(target)).item() == pytest.approx(expected, abs=1e-6)


def test_kl_is_that_of_torch() -> None:
    generator = torch.Generator().manual_seed(3)
    mean = torch.randn(5, 4, generator=generator)
    std = torch.rand(5, 4, generator=generator) + 0.1
    torch.testing.assert_close(kl_to_standard_normal(mean, std), kl_divergence(Normal(mean, std), Normal(0.0, 1.0)))
    assert kl_to_standard_normal(torch.tensor(2.0), torch.tensor(1.0)).item() == 2.0


def test_the_spread_of_predicted_features_is_bounded() -> None:
    mean, std = split_latent(torch.tensor([1.0, 2.0, 3.0, -9.0, math.log(0.5), 9.0]))
    assert mean.tolist() == [1.0, 2.0, 3.0]
    assert std.tolist() == pytest.approx([0.1, 0.5, 1.0])


def test_an_opposing_gradient_is_left_out() -> None:
    main = torch.tensor([1.0, 0.0])
    assert gated_sum(main, torch.tensor([2.0, 5.0])).tolist() == [3.0, 5.0]
    assert gated_sum(main, torch.tensor([-0.1, 5.0])).tolist() == [1.0, 0.0]
    assert gated_sum(main, torch.tensor([0.0, 5.0])).tolist() == [1.0, 5.0]
    assert gated_sum(torch.zeros(2), torch.tensor([-1.0, 5.0])).tolist() == [-1.0, 5.0]
