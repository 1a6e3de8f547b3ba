"""Targets of critics and actors: pure functions of tensors."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn.functional import softplus

LOG_STD_RANGE = (-20.0, 2.0)
MAX_ACTION = 1 - 1e-6  # beyond, float32 has no inverse of tanh


def bootstrap_discount(gamma: float, steps: Tensor, terminated: Tensor) -> Tensor:
    """gamma^m after m real steps; nothing follows a termination. A time limit is no termination."""
    return torch.pow(gamma, steps.to(torch.float32)) * (~terminated).to(torch.float32)


def split_gaussian(out: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and log of the standard deviation from a network's outputs [..., 2 A]."""
    mean, log_std = out.chunk(2, -1)
    return mean, log_std.clamp(*LOG_STD_RANGE)


def tanh_log_slope(u: Tensor) -> Tensor:
    """log(1 - tanh(u)^2) = 2 (log 2 - u - softplus(-2 u)), which neither overflows nor needs an epsilon."""
    return 2.0 * (math.log(2.0) - u - softplus(-2.0 * u))


def tanh_gaussian(mean: Tensor, log_std: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
    """Action tanh(u) and its log-density, u = mean + std noise."""
    u = mean + log_std.exp() * noise
    normal = -0.5 * noise.square() - log_std - 0.5 * math.log(2 * math.pi)
    return torch.tanh(u), (normal - tanh_log_slope(u)).sum(-1)


def tanh_gaussian_log_prob(mean: Tensor, log_std: Tensor, action: Tensor) -> Tensor:
    """Log-density of given actions tanh(u) [..., A] in [-1, 1], u Gaussian."""
    u = torch.atanh(action.clamp(-MAX_ACTION, MAX_ACTION))
    normal = -0.5 * ((u - mean) / log_std.exp()).square() - log_std - 0.5 * math.log(2 * math.pi)
    return (normal - tanh_log_slope(u)).sum(-1)


def soft_value(q: Tensor, log_prob: Tensor, alpha: Tensor) -> Tensor:
    """V = Q - alpha log pi, for a sampled action."""
    return q - alpha * log_prob


def expected_soft_value(probs: Tensor, log_probs: Tensor, q: Tensor, alpha: Tensor) -> Tensor:
    """V = sum_a pi(a) (Q(a) - alpha log pi(a)), over all actions of the last axis."""
    return (probs * (q - alpha * log_probs)).sum(-1)
