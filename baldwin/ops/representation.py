"""Losses that shape features, and the gate that keeps their gradients from working against the main loss."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import cosine_similarity, cross_entropy

STD_RANGE = (0.1, 1.0)  # of predicted features, in github.com/BlueFisher/Advanced-Soft-Actor-Critic


def info_nce(logits: Tensor) -> Tensor:
    """Mean of -log softmax(logits)_ii of a matrix [M, M]: anchor i against its positive i among all M (van den Oord et al. 2018, equation 4)."""
    return cross_entropy(logits, torch.arange(len(logits), device=logits.device))


def cosine_distance(predicted: Tensor, target: Tensor) -> Tensor:
    """2 - 2 cos, over the last axis: 0 at agreement, 4 for opposites (Grill et al. 2020, equation 2: BYOL, arXiv 2006.07733)."""
    return 2.0 - 2.0 * cosine_similarity(predicted, target, dim=-1)


def split_latent(out: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and standard deviation of predicted features from a network's outputs [..., 2 F]."""
    mean, log_std = out.chunk(2, -1)
    return mean, log_std.exp().clamp(*STD_RANGE)


def kl_to_standard_normal(mean: Tensor, std: Tensor) -> Tensor:
    """KL(N(mean, std^2) || N(0, 1)) of each number: (mean^2 + std^2 - 1) / 2 - log std."""
    return 0.5 * (mean.square() + std.square() - 1.0) - std.log()


def gated_sum(main: Tensor, auxiliary: Tensor) -> Tensor:
    """The main gradient plus the auxiliary one, unless that opposes it: where their cosine is negative, the main one alone.

    The gate is one for the whole gradient, as in github.com/BlueFisher/Advanced-Soft-Actor-Critic; pass the gradients of single tensors
    to gate each of them. Without a main gradient nothing is opposed, and the auxiliary one is used.
    """
    return main + auxiliary * ((main * auxiliary).sum() >= 0)
