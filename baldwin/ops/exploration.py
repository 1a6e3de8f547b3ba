"""Exploration: errors of which bonuses are made, and the probability of an action that was chosen as the best of several draws."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn.functional import log_softmax


def half_squared_error(predicted: Tensor, actual: Tensor) -> Tensor:
    """|predicted - actual|^2 / 2, over the last axis: the forward error of Pathak et al. 2017, equation 5 (ICM, arXiv 1705.05363)."""
    return 0.5 * (predicted - actual).square().sum(-1)


def action_error(predicted: Tensor, action: Tensor, discrete: tuple[int, ...]) -> Tensor:
    """How badly an inverse model explains actions [..., A]: -log p of each discrete branch, plus |a' - a|^2 / 2 of continuous ones.

    `discrete`: sizes of the branches, which are one-hot at the front of the action; their predictions are logits.
    """
    n_discrete = sum(discrete)
    error = half_squared_error(predicted[..., n_discrete:], action[..., n_discrete:])
    start = 0
    for size in discrete:
        branch = slice(start, start + size)
        error = error - (action[..., branch] * log_softmax(predicted[..., branch], -1)).sum(-1)
        start += size
    return error


def best_of_k_log_prob(probs: Tensor, scores: Tensor, action: Tensor, k: int) -> Tensor:
    """Exact log-probability that the discrete action [...] is executed: k draws from `probs` [..., n], the one with the best score is taken.

    P(the best score is that of a) = F(s <= s_a)^k - F(s < s_a)^k, F being the distribution of the score of one draw. Where actions have the
    same score, the first one drawn is taken, so each of them has its share.
    """
    own = scores.gather(-1, action[..., None])
    prob = probs.gather(-1, action[..., None]).squeeze(-1)
    tied = (probs * (scores == own)).sum(-1)
    at_most = (probs * (scores < own)).sum(-1) + tied
    # a^k - b^k = a^k (1 - (b/a)^k): b/a is close to 1 for a rare action, so 1 - b/a = tied / a is what has to be kept
    lower = torch.log1p(-(tied / at_most).clamp(max=1.0))
    return k * at_most.log() + (-torch.expm1(k * lower)).log() + (prob / tied).log()


def best_of_k_log_density(log_prob: Tensor, score: Tensor, draws: Tensor, k: int) -> Tensor:
    """Estimated log-density of the executed action [...]: the best-scored one of k draws from a policy whose own log-density is `log_prob`.

    log pi(a) + log k + (k - 1) log F(score(a)). F is estimated by the scores `draws` [..., m] of further actions of the policy, drawn
    independently of the k, as (1 + how many are at most score(a)) / (m + 1), which is never zero. Also for choices of several discrete
    branches, where ties have a negligible probability.
    """
    below = (draws <= score[..., None]).sum(-1)
    estimate = (1 + below).to(log_prob.dtype) / (draws.shape[-1] + 1)
    return log_prob + math.log(k) + (k - 1) * estimate.log()
