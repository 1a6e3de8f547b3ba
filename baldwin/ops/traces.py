"""Targets of Q-functions over windows of steps [B, T], time on the last axis; values have one more, [B, T + 1]: that after the last step.

`going` [B, T] is true where a step is there, and `discount` [B, T] is gamma, or 0 after a termination. `n` is how many steps a
target looks ahead; where fewer are there, because the episode or the window ends, it bootstraps from the last of them.
"""

from __future__ import annotations

import torch
from torch import Tensor

RESCALE_SLOPE = 1e-3


def n_step_targets(reward: Tensor, discount: Tensor, value: Tensor, going: Tensor, n: int) -> Tensor:
    """y_t = r_t + discount_t (r_{t+1} + ... + discount V(s_{t+n})): uncorrected, as if the policy of now had acted."""
    y, ahead = torch.zeros_like(reward), _ahead(going)
    for k in range(n):
        follows = torch.where(ahead, _shift(y), value[:, 1:]) if k else value[:, 1:]
        y = reward + discount * follows
    return y


def retrace_targets(
    reward: Tensor, discount: Tensor, value: Tensor, action_value: Tensor, ratio: Tensor, going: Tensor, n: int, lam: float = 1.0
) -> Tensor:
    """Retrace (Munos et al. 2016, arXiv 1606.02647): Q + sum_k discount^k (prod_{i=1..k} lambda min(1, ratio_i)) delta_k.

    delta = r + discount V(s') - Q(s, a). `ratio` [B, T]: probability of each action now over that when it was taken. That of the first
    step does not count: its action is given.
    """
    delta = reward + discount * value[:, 1:] - action_value
    decay = discount * _shift(lam * ratio.clamp(max=1)) * _ahead(going)
    total = delta
    for _ in range(n - 1):
        total = delta + decay * _shift(total)
    return action_value + total


def vtrace_targets(reward: Tensor, discount: Tensor, value: Tensor, ratio: Tensor, going: Tensor, n: int, lam: float = 1.0) -> Tensor:
    """y_t = r_t + discount_t v_{t+1}, with v the V-trace estimate of the state (Espeholt et al. 2018, arXiv 1802.01561) over n - 1 steps.

    V-trace itself estimates V. As the target of Q(s, a) it would weight the first reward, too, and pull Q towards V.
    """
    weight = ratio.clamp(max=1)
    delta = weight * (reward + discount * value[:, 1:] - value[:, :-1])
    decay, ahead = discount * lam * weight, _ahead(going)
    total = torch.zeros_like(delta)  # v - V
    for _ in range(n - 1):
        total = delta + decay * ahead * _shift(total)
    return reward + discount * (value[:, 1:] + ahead * _shift(total))


def rescale(x: Tensor) -> Tensor:
    """h(x) = sign(x) (sqrt(|x| + 1) - 1) + 0.001 x (Pohlen et al. 2018, arXiv 1805.11593): large returns on a small scale."""
    return x.sign() * ((x.abs() + 1).sqrt() - 1) + RESCALE_SLOPE * x


def unscale(x: Tensor) -> Tensor:
    """The inverse of `rescale`."""
    root = (1 + 4 * RESCALE_SLOPE * (x.abs() + 1 + RESCALE_SLOPE)).sqrt()
    return x.sign() * (((root - 1) / (2 * RESCALE_SLOPE)).square() - 1)


def _shift(x: Tensor) -> Tensor:
    """x_{t+1}, and 0 after the end."""
    return torch.cat((x[:, 1:], torch.zeros_like(x[:, :1])), 1)


def _ahead(going: Tensor) -> Tensor:
    """Whether there is a step after each."""
    return _shift(going)
