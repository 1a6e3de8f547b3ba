"""Pieces of policy-gradient losses: pure functions of arrays, and of tensors where autograd needs them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import mse_loss

Array = NDArray[np.float32]
LossAndGradient = tuple[float, Array]
"""A loss, and its gradient [B] with respect to the log-probabilities (or log-ratios) that it is a function of."""


def surrogate_loss(log_ratio: Array, advantage: Array, clip: float) -> LossAndGradient:
    """- mean min(r A, clip(r, 1 - eps, 1 + eps) A) of PPO (arXiv 1707.06347, equation 7), for ratios r = exp(log_ratio) [B]."""
    ratio = np.exp(log_ratio)
    free = ratio * advantage
    clipped = np.minimum(np.maximum(ratio, np.float32(1 - clip)), np.float32(1 + clip)) * advantage
    gradient = np.where(free <= clipped, free, np.float32(0))  # d ratio / d log_ratio = ratio
    gradient /= np.float32(-len(free))
    return -float(np.minimum(free, clipped).sum()) / len(free), gradient


def score_loss(log_prob: Array, advantage: Array) -> LossAndGradient:
    """- mean A log pi(a|s), the policy gradient's (Williams 1992)."""
    return -float(advantage @ log_prob) / len(log_prob), advantage / np.float32(-len(log_prob))


def clipped_value_loss(value: Tensor, target: Tensor, old_value: Tensor, clip: float) -> Tensor:
    """Squared errors [B, C], averaged over B and summed over C, of values that move at most `clip` from the old ones."""
    return (old_value + (value - old_value).clamp(-clip, clip) - target).square().mean(0).sum()


def squared_error(value: Tensor, target: Tensor) -> Tensor:
    """(V - target)^2 of [B, C], averaged over B and summed over C."""
    loss = mse_loss(value, target)
    return loss * value.shape[1] if value.shape[1] > 1 else loss


def approx_kl(log_ratios: Sequence[Array]) -> float:
    """Mean of (r - 1) - log r, an estimate of KL(old || new) that is never negative (Schulman 2020); mean of the minibatches' means."""
    log_ratio = np.concatenate(log_ratios)
    return _mean_of_means(np.exp(log_ratio) - 1 - log_ratio, log_ratios)


def clip_fraction(log_ratios: Sequence[Array], clip: float) -> float:
    """The share of ratios further than `clip` from 1; mean of the minibatches' shares."""
    return _mean_of_means(np.abs(np.exp(np.concatenate(log_ratios)) - 1) > clip, log_ratios)


def _mean_of_means(values: NDArray[Any], minibatches: Sequence[Array]) -> float:
    """Of the values of minibatches one after the other."""
    sizes = np.array([len(own) for own in minibatches])
    return float((np.add.reduceat(values, np.cumsum(sizes) - sizes, dtype=np.float64) / sizes).mean())
