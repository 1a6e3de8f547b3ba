"""Pieces of policy-gradient losses: pure functions of tensors."""

from __future__ import annotations

import torch
from torch import Tensor


def clipped_surrogate(ratio: Tensor, advantage: Tensor, clip: float) -> Tensor:
    """min(ratio A, clip(ratio, 1 - eps, 1 + eps) A) of PPO (arXiv 1707.06347, equation 7)."""
    return torch.min(ratio * advantage, ratio.clamp(1 - clip, 1 + clip) * advantage)


def clipped_value_loss(value: Tensor, old_value: Tensor, target: Tensor, clip: float) -> Tensor:
    """Squared errors [B, C], averaged over B and summed over C, of values that move at most `clip` from the old ones."""
    return (old_value + (value - old_value).clamp(-clip, clip) - target).square().mean(0).sum()


def approx_kl(log_ratio: Tensor) -> Tensor:
    """Mean of (r - 1) - log r: an estimate of KL(old || new) that is never negative (Schulman 2020)."""
    return (log_ratio.exp() - 1 - log_ratio).mean()


def clip_fraction(ratio: Tensor, clip: float) -> Tensor:
    """The share of ratios further than `clip` from 1."""
    return ((ratio - 1).abs() > clip).float().mean()
