"""Errors by hand, and the best of k draws against brute force."""

from __future__ import annotations

import math
from itertools import product

import pytest
import torch
from torch.distributions import Normal
from torch.nn.functional import cross_entropy

from baldwin.ops.exploration import action_error, best_of_k_log_density, best_of_k_log_prob, half_squared_error


def test_half_squared_error_by_hand() -> None:
    """(1 + 4) / 2 and (9 + 0) / 2."""
    found = half_squared_error(torch.tensor([[1.0, 2.0], [3.0, 1.0]]), torch.tensor([[0.0, 0.0], [0.0, 1.0]]))
    assert found.tolist() == [2.5, 4.5]


def test_action_error_by_hand() -> None:
    """Two branches of even logits, log 2 + log 3, and a continuous action that is 0.5 off."""
    predicted = torch.tensor([0.0, 0.0, 1.0, 1.0, 1.0, 0.5])
    action = torch.tensor([1.0, 0.0, 0.0, 0.0, 1.0, 1.0])
    assert action_error(predicted, action, (2, 3)).item() == pytest.approx(math.log(2) + math.log(3) + 0.125)


def test_action_error_of_a_branch_is_cross_entropy() -> None:
    logits = torch.randn(7, 4, generator=torch.Generator().manual_seed(1))
    chosen = torch.tensor([0, 1, 2, 3, 0, 1, 2])
    found = action_error(logits, torch.eye(4)[chosen], (4,))
    torch.testing.assert_close(found, cross_entropy(logits, chosen, reduction="none"))


@pytest.mark.parametrize("k", [1, 2, 4])
@pytest.mark.parametrize("scores", [[0.3, -1.0, 2.0], [1.0, 0.0, 1.0], [5.0, 5.0, 5.0]])
def test_best_of_k_by_counting_all_draws(scores: list[float], k: int) -> None:
    """All n^k sequences of draws, of which each executes its first best one; ties included."""
    probs = torch.tensor([0.5, 0.2, 0.3], dtype=torch.float64)
    expected = [0.0, 0.0, 0.0]
    for draws in product(range(3), repeat=k):
        expected[max(draws, key=lambda a: scores[a])] += math.prod(float(probs[a]) for a in draws)
    rows = torch.arange(3)
    found = best_of_k_log_prob(probs.expand(3, 3), torch.tensor(scores).expand(3, 3), rows, k)
    assert found.exp().tolist() == pytest.approx(expected)
    assert found.exp().sum().item() == pytest.approx(1.0)


def test_best_of_k_by_simulation() -> None:
    generator = torch.Generator().manual_seed(4)
    probs, scores, k = torch.tensor([0.1, 0.2, 0.3, 0.4]), torch.tensor([4.0, 1.0, 3.0, 2.0]), 5
    draws = torch.multinomial(probs, 200_000 * k, replacement=True, generator=generator).view(-1, k)
    executed = draws.gather(1, scores[draws].argmax(1, keepdim=True))
    expected = torch.bincount(executed[:, 0], minlength=4) / len(executed)
    found = best_of_k_log_prob(probs.expand(4, 4), scores.expand(4, 4), torch.arange(4), k).exp()
    torch.testing.assert_close(found, expected, atol=0.005, rtol=0)


def test_a_rare_action_keeps_its_digits() -> None:
    """The best of 10 for a probability of 1e-12: 10 times as likely, where 1 - (1 - 1e-12)^10 would be zero in single precision."""
    probs, scores = torch.tensor([1.0 - 1e-12, 1e-12]), torch.tensor([0.0, 1.0])
    assert best_of_k_log_prob(probs, scores, torch.tensor(1), 10).item() == pytest.approx(math.log(1e-11), abs=1e-3)


def test_density_by_hand() -> None:
    """k = 3, two of four draws at most as good: log pi + log 3 + 2 log(3 / 5)."""
    found = best_of_k_log_density(torch.tensor(-1.0), torch.tensor(0.5), torch.tensor([0.0, 0.5, 1.0, 2.0]), 3)
    assert found.item() == pytest.approx(-1.0 + math.log(3) + 2 * math.log(0.6))


def test_one_draw_is_the_policy_itself() -> None:
    log_prob = torch.tensor([-1.0, 0.3])
    assert best_of_k_log_density(log_prob, torch.zeros(2), torch.ones(2, 5), 1).tolist() == log_prob.tolist()


def test_density_by_simulation() -> None:
    """Actions a ~ N(0, 1), score a^2, best of 4: the share of executed actions in small intervals, against the density."""
    generator, k, m = torch.Generator().manual_seed(5), 4, 400_000
    draws = torch.randn(m, k, generator=generator)
    executed = draws.gather(1, draws.square().argmax(1, keepdim=True))[:, 0]
    others = torch.randn(20_000, generator=generator).square()
    for at in (-2.0, -0.7, 1.2):
        width = 0.1
        expected = ((executed - at).abs() < width / 2).float().mean().item() / width
        action = torch.tensor(at)
        found = best_of_k_log_density(Normal(0.0, 1.0).log_prob(action), action.square(), others, k).exp().item()
        assert found == pytest.approx(expected, rel=0.06)
