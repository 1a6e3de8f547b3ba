"""Targets over windows: worked numbers, naive sums, and fixed points."""

import math

import numpy as np
import pytest
import torch

from baldwin.ops.priorities import sequence_error
from baldwin.ops.targets import tanh_gaussian, tanh_gaussian_log_prob
from baldwin.ops.traces import n_step_targets, rescale, retrace_targets, unscale, vtrace_targets

GAMMA = 0.9


def window(seed: int = 0, rows: int = 5, steps: int = 6) -> dict[str, torch.Tensor]:
    """Random windows, some of which end early, by a termination or by a time limit."""
    g = torch.Generator().manual_seed(seed)
    length = torch.randint(1, steps + 1, (rows,), generator=g)
    going = torch.arange(steps) < length[:, None]
    ends = torch.arange(steps) == length[:, None] - 1
    terminated = ends & (torch.rand(rows, 1, generator=g) < 0.5)
    return {
        "reward": torch.randn(rows, steps, generator=g),
        "discount": GAMMA * (~terminated).float(),
        "value": torch.randn(rows, steps + 1, generator=g),
        "action_value": torch.randn(rows, steps, generator=g),
        "ratio": torch.rand(rows, steps, generator=g) * 2,
        "going": going,
    }


def naive(w: dict[str, torch.Tensor], kind: str, b: int, t: int, n: int, lam: float) -> float:
    """One target by the definition, with plain sums."""
    r, d, v, q, rho, going = (w[name][b].tolist() for name in ("reward", "discount", "value", "action_value", "ratio", "going"))
    last = max(k for k in range(t, min(t + n, len(r))) if going[k])
    if kind == "nstep":
        y, factor = 0.0, 1.0
        for k in range(t, last + 1):
            y += factor * r[k]
            factor *= d[k]
        return y + factor * v[last + 1]
    if kind == "retrace":
        y, factor = q[t], 1.0
        for k in range(t, last + 1):
            factor *= lam * min(1.0, rho[k]) if k > t else 1.0
            y += factor * (r[k] + d[k] * v[k + 1] - q[k])
            factor *= d[k]
        return y
    estimate, factor = v[t + 1], 1.0
    for k in range(t + 1, last + 1):
        weight = min(1.0, rho[k])
        estimate += factor * weight * (r[k] + d[k] * v[k + 1] - v[k])
        factor *= d[k] * lam * weight
    return r[t] + d[t] * estimate


@pytest.mark.parametrize("n", [1, 2, 4, 9])
@pytest.mark.parametrize("kind", ["nstep", "retrace", "vtrace"])
def test_targets_equal_plain_sums(kind: str, n: int) -> None:
    for seed in range(5):
        w = window(seed)
        common = w["reward"], w["discount"], w["value"]
        y = {
            "nstep": n_step_targets(*common, w["going"], n),
            "retrace": retrace_targets(*common, w["action_value"], w["ratio"], w["going"], n, 0.8),
            "vtrace": vtrace_targets(*common, w["ratio"], w["going"], n, 0.8),
        }[kind]
        for b, t in w["going"].nonzero().tolist():
            assert float(y[b, t]) == pytest.approx(naive(w, kind, b, t, n, 0.8), abs=1e-5), (b, t)


def test_two_steps_by_hand() -> None:
    """r = 1, 2, V = 10, 20, 30, Q = 5, 7, gamma = 0.5: the two-step return is 1 + 0.5 (2 + 0.5 30) = 9.5."""
    reward, discount = torch.tensor([[1.0, 2.0]]), torch.full((1, 2), 0.5)
    value, q, going = torch.tensor([[10.0, 20.0, 30.0]]), torch.tensor([[5.0, 7.0]]), torch.ones(1, 2, dtype=torch.bool)
    assert n_step_targets(reward, discount, value, going, 2)[0].tolist() == [9.5, 17.0]
    # delta = 1 + 10 - 5, 2 + 15 - 7; 5 + 6 + 0.5 x 0.4 x 10 = 13: the first ratio does not count
    assert retrace_targets(reward, discount, value, q, torch.tensor([[0.1, 0.4]]), going, 2)[0].tolist() == pytest.approx([13.0, 17.0])
    # v_1 = 20 + 0.4 (2 + 15 - 20) = 18.8; 1 + 0.5 x 18.8
    assert vtrace_targets(reward, discount, value, torch.tensor([[0.1, 0.4]]), going, 2)[0].tolist() == pytest.approx([10.4, 17.0])


def test_with_equal_policies_all_are_the_n_step_return() -> None:
    w = window(3)
    ones = torch.ones_like(w["ratio"])
    expected = n_step_targets(w["reward"], w["discount"], w["value"], w["going"], 3)
    q = w["value"][:, :-1]  # where Q(s, a) = V(s), Retrace's sum telescopes, too
    for y in (
        vtrace_targets(w["reward"], w["discount"], w["value"], ones, w["going"], 3),
        retrace_targets(w["reward"], w["discount"], w["value"], q, ones, w["going"], 3),
    ):
        torch.testing.assert_close(y[w["going"]], expected[w["going"]])


@pytest.mark.parametrize("kind", ["retrace", "vtrace"])
def test_the_bad_arm_of_a_bandit_is_worth_nothing(kind: str) -> None:
    """Rewards 1 and 0, pi = 0.9 and 0.1, drawn uniformly: Q must be 1 and 0. A weight on the first step would give the bad arm 0.783."""
    policy, rewards = torch.tensor([0.9, 0.1]), torch.tensor([1.0, 0.0])
    q = torch.zeros(2)
    ended, over = torch.ones(2, 1, dtype=torch.bool), torch.zeros(2, 1)
    for _ in range(200):
        v = (policy * q).sum()
        value = torch.stack([v.expand(2), torch.zeros(2)], 1)
        ratio = (policy / 0.5)[:, None]
        if kind == "retrace":
            y = retrace_targets(rewards[:, None], over, value, q[:, None], ratio, ended, 3)
        else:
            y = vtrace_targets(rewards[:, None], over, value, ratio, ended, 3)
        q = q + 0.5 * (y[:, 0] - q)
    assert q.tolist() == pytest.approx([1.0, 0.0], abs=1e-6)


def test_retrace_finds_the_values_of_another_policy() -> None:
    """Two states, two actions, behaviour uniform: the expected target of the true Q is the true Q, though most actions are not the policy's."""
    policy = torch.tensor([0.2, 0.8])
    rewards = torch.tensor([[1.0, 0.0], [0.0, 2.0]])  # [state, action]; action a leads to state a
    q = torch.zeros(2, 2)
    for _ in range(400):
        v = (q * policy).sum(1)
        q = rewards + GAMMA * v[None, :].expand(2, 2)
    rng = np.random.default_rng(0)
    count, steps = 40_000, 4
    actions = torch.from_numpy(rng.integers(0, 2, (count, steps)))
    states = torch.cat([torch.zeros(count, 1, dtype=torch.long), actions[:, :-1]], 1)
    value = torch.cat([(q * policy).sum(1)[states], (q * policy).sum(1)[actions[:, -1:]]], 1)
    going = torch.ones(count, steps, dtype=torch.bool)
    wrong_q = q[states, actions] + 1.0  # an error that the trace must correct for later steps
    y = retrace_targets(
        rewards[states, actions], torch.full((count, steps), GAMMA), value, q[states, actions], policy[actions] / 0.5, going, 4
    )
    torch.testing.assert_close(y, q[states, actions])
    noisy = retrace_targets(rewards[states, actions], torch.full((count, steps), GAMMA), value, wrong_q, policy[actions] / 0.5, going, 4)
    first = noisy[:, 0] - q[states, actions][:, 0]
    c = (policy / 0.5).clamp(max=1).mul(torch.tensor([0.5, 0.5])).sum()  # E min(1, ratio) under the behaviour
    expected = -sum((GAMMA * c) ** k for k in range(1, 4))
    assert float(first.mean()) == pytest.approx(float(expected), rel=0.02)


def test_rescaling_has_an_inverse() -> None:
    x = torch.tensor([-1000.0, -1.5, 0.0, 0.25, 3.0, 1e4], dtype=torch.float64)
    torch.testing.assert_close(unscale(rescale(x)), x)
    assert float(rescale(torch.tensor(3.0))) == pytest.approx(1.003)  # sqrt(4) - 1 + 0.003


def test_log_density_of_given_actions() -> None:
    mean, log_std, noise = torch.randn(7, 3), torch.randn(7, 3) * 0.3, torch.randn(7, 3)
    action, log_prob = tanh_gaussian(mean, log_std, noise)
    torch.testing.assert_close(tanh_gaussian_log_prob(mean, log_std, action), log_prob, rtol=1e-3, atol=1e-3)
    oracle = torch.distributions.TransformedDistribution(
        torch.distributions.Normal(mean, log_std.exp()), [torch.distributions.TanhTransform(cache_size=1)]
    )
    torch.testing.assert_close(tanh_gaussian_log_prob(mean, log_std, action), oracle.log_prob(action).sum(-1), rtol=1e-3, atol=1e-3)
    assert math.isfinite(float(tanh_gaussian_log_prob(mean[0], log_std[0], torch.tensor([1.0, -1.0, 0.0]))))


def test_priority_of_a_sequence() -> None:
    """0.9 x the largest + 0.1 x the mean of those that are there."""
    errors = np.array([[1.0, 3.0, 99.0], [2.0, 2.0, 2.0]])
    valid = np.array([[True, True, False], [True, True, True]])
    assert sequence_error(errors, valid, 0.9).tolist() == pytest.approx([2.9, 2.0])
