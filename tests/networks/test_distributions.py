"""Samples, log-probabilities and entropies against torch.distributions; masks never let an illegal action through."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.distributions import Bernoulli, Categorical, Independent, Normal, TanhTransform, TransformedDistribution

from baldwin.errors import ConfigError
from baldwin.networks import ActionDistribution, ActionMap, mask_logits
from baldwin.networks.distributions import to_environment
from tests.networks.test_any_space import nested

MIXED = spaces.Dict(
    {
        "a": spaces.Discrete(3, start=1),
        "b": spaces.Tuple((spaces.Box(-2, 2, (2,), np.float32), spaces.MultiDiscrete([2, 4]))),
        "c": spaces.MultiBinary(3),
    }
)
RNG = torch.Generator().manual_seed(0)


def test_log_probs_and_entropies_and_their_gradients_are_those_of_torch() -> None:
    actions = ActionMap(MIXED, "tanh", "gaussian")
    out = 0.5 * torch.randn(5, actions.outputs, generator=RNG)  # far from +-1, where float32 cannot tell actions apart
    stored = torch.from_numpy(ActionDistribution(actions, out).sample(np.random.default_rng(0)))
    dist = ActionDistribution(actions, out.requires_grad_())
    a, box, branches, flags = torch.split(out, [3, 4, 6, 3], -1)
    normal = Normal(box[:, :2], box[:, 2:].exp())
    squashed = Independent(TransformedDistribution(normal, [TanhTransform()]), 1)
    heads = [Categorical(logits=a), Categorical(logits=branches[:, :2]), Categorical(logits=branches[:, 2:])]
    expected = squashed.log_prob(torch.tanh(stored[:, 1:3]).double().clamp(-1 + 1e-6, 1 - 1e-6).float())
    expected = expected + sum(h.log_prob(stored[:, c]) for h, c in zip(heads, (0, 3, 4), strict=True))
    expected = expected + Bernoulli(logits=flags).log_prob(stored[:, 5:]).sum(-1)
    torch.testing.assert_close(dist.log_prob(stored), expected, rtol=1e-3, atol=1e-3)
    entropy = normal.entropy().sum(-1) + sum(h.entropy() for h in heads) + Bernoulli(logits=flags).entropy().sum(-1)
    torch.testing.assert_close(dist.entropy(), entropy, rtol=1e-4, atol=1e-5)
    for found, known in ((dist.log_prob(stored), expected), (dist.entropy(), entropy)):
        slopes = [torch.autograd.grad((x * torch.arange(1, 6)).sum(), out, retain_graph=True)[0] for x in (found, known)]
        torch.testing.assert_close(*slopes, rtol=1e-3, atol=1e-3)


def test_samples_have_the_probabilities_they_say() -> None:
    actions = ActionMap(spaces.Discrete(4), "tanh")
    logits, mask = torch.tensor([[0.0, 1.0, 2.0, 9.0]]), torch.tensor([[True, True, True, False]])
    stored = ActionDistribution(actions, logits.expand(20_000, -1), mask.expand(20_000, -1)).sample(np.random.default_rng(1))
    found = np.bincount(stored[:, 0].astype(int), minlength=4) / 20_000
    np.testing.assert_allclose(found, [*torch.softmax(logits[0, :3], 0).tolist(), 0.0], atol=0.015)


def test_masked_choices_by_hand() -> None:
    """Of logits 1, 1, 5 the last is illegal: two even odds, entropy log 2."""
    dist = ActionDistribution(ActionMap(spaces.Discrete(3), "tanh"), torch.tensor([[1.0, 1.0, 5.0]]), torch.tensor([[True, True, False]]))
    assert dist.entropy().item() == pytest.approx(np.log(2))
    assert dist.log_prob(torch.tensor([[0.0]])).item() == pytest.approx(-np.log(2))
    assert dist.log_prob(torch.tensor([[2.0]])).item() < -1e8
    assert dist.mode().item() in (0, 1)
    assert mask_logits(torch.tensor([[1.0, 2.0]]), torch.tensor([[False, False]])).tolist() == [[1.0, 2.0]]


def test_ten_thousand_masks_let_nothing_illegal_through() -> None:
    space = spaces.Tuple((spaces.Discrete(6), spaces.MultiDiscrete([3, 5]), spaces.MultiBinary(4), spaces.Box(-1, 1, (1,), np.float32)))
    actions = ActionMap(space, "tanh", "gaussian")
    assert actions.mask_size == 6 + 8 + 4
    mask = torch.rand(10_000, actions.mask_size, generator=RNG) < 0.3
    for part in (slice(0, 6), slice(6, 9), slice(9, 14)):  # each choice has at least one way out
        mask[torch.arange(10_000), part.start + torch.randint(0, part.stop - part.start, (10_000,), generator=RNG)] = True
    out = 5 * torch.randn(10_000, actions.outputs, generator=RNG)
    dist = ActionDistribution(actions, out, mask)
    sampled = torch.from_numpy(dist.sample(np.random.default_rng(0)))
    assert torch.isfinite(dist.log_prob(sampled)).all()
    assert torch.isfinite(dist.entropy()).all()
    rows = torch.arange(10_000)
    for stored in (sampled, dist.mode()):
        assert mask[rows, stored[:, 0].long()].all()
        assert mask[rows, 6 + stored[:, 1].long()].all()
        assert mask[rows, 9 + stored[:, 2].long()].all()
        assert (mask[:, 14:] | (stored[:, 3:7] == 0)).all()
    greedy = actions(out, mask=mask)
    expected = to_environment(actions, dist.mode().numpy())
    for n in range(0, 10_000, 97):
        assert space.contains(greedy[n])
        np.testing.assert_allclose(
            np.concatenate([np.ravel(g) for g in greedy[n]]), np.concatenate([np.ravel(e) for e in expected[n]]), rtol=1e-5
        )


@settings(deadline=None, max_examples=100)
@given(nested, st.integers(0, 2**31))
def test_what_is_sampled_is_an_action_of_any_space(space: Any, seed: int) -> None:
    actions = ActionMap(space, "tanh", "gaussian")
    out = torch.randn(3, actions.outputs, generator=torch.Generator().manual_seed(seed))
    dist = ActionDistribution(actions, out)
    stored = dist.sample(np.random.default_rng(seed))
    assert stored.shape == (3, actions.columns)
    assert dist.log_prob(torch.from_numpy(stored)).shape == (3,)
    for action in to_environment(actions, stored):
        assert space.contains(action), (space, action)


def test_every_branch_needs_a_way_out() -> None:
    branches = ActionMap(spaces.MultiDiscrete([2, 2]), "tanh")
    assert branches.has_legal(torch.tensor([[True, False, False, False], [True, False, False, True]])).tolist() == [False, True]
    space = spaces.Tuple((spaces.MultiBinary(2), spaces.Box(0, 1, (1,), np.float32), spaces.Discrete(2)))
    mixed = ActionMap(space, "tanh")
    assert mixed.has_legal(torch.tensor([[False, False, False, True], [True, True, False, False]])).tolist() == [True, False]


def test_continuous_parts_need_a_gaussian_head() -> None:
    with pytest.raises(ConfigError, match=r"needs policy\.head=gaussian"):
        ActionDistribution(ActionMap(spaces.Box(-1, 1, (2,), np.float32), "tanh"), torch.zeros(3, 2))
