"""CMA-ES with a diagonal covariance: sep-CMA-ES (Ros & Hansen 2008)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from baldwin.ops.shaping import Vector


class Rates(NamedTuple):
    """What does not change: weights of the parents, their effective number, and learning rates."""

    weights: Vector  # [mu], best first, summing to one
    mu_eff: float
    sigma_path: float  # c_sigma
    damping: float
    path: float  # c_c
    rank_one: float  # c_1
    rank_mu: float  # c_mu


class CMAState(NamedTuple):
    """What does: the distribution N(mean, sigma^2 diag(scale)), and two evolution paths."""

    mean: Vector
    sigma: float
    scale: Vector  # variances
    sigma_path: Vector
    path: Vector


def rates(dim: int, population: int) -> Rates:
    """The customary ones; both learning rates of the covariance grow by (n + 2) / 3, as it has only n numbers to learn."""
    parents = population // 2
    raw = np.log(population / 2 + 0.5) - np.log(np.arange(1, parents + 1))
    weights = raw / raw.sum()
    mu = float(1 / np.square(weights).sum())
    c_sigma, faster = (mu + 2) / (dim + mu + 5), (dim + 2) / 3
    c_1 = min(1.0, faster * 2 / ((dim + 1.3) ** 2 + mu))
    c_mu = min(1 - c_1, faster * 2 * (mu - 2 + 1 / mu) / ((dim + 2) ** 2 + mu))
    return Rates(weights, mu, c_sigma, 2 * mu / population + 0.3 + c_sigma, (4 + mu / dim) / (dim + 4 + 2 * mu / dim), c_1, c_mu)


def cma_step(shape: CMAState, parents: Vector, rate: Rates, generation: int) -> CMAState:
    """After the parents [mu, D], best first, of the generation with this number, counted from one."""
    dim, y = len(shape.mean), (parents - shape.mean) / shape.sigma  # [mu, D]
    step = rate.weights @ y
    c = rate.sigma_path
    sigma_path = (1 - c) * shape.sigma_path + np.sqrt(c * (2 - c) * rate.mu_eff) * step / np.sqrt(shape.scale)
    length = float(np.square(sigma_path).mean())
    steady = float(length / (1 - (1 - c) ** (2 * generation)) < 2 + 4 / (dim + 1))  # else sigma grows: the other path waits
    c = rate.path
    path = (1 - c) * shape.path + steady * np.sqrt(c * (2 - c) * rate.mu_eff) * step
    kept = 1 - rate.rank_one * (1 - (1 - steady) * c * (2 - c)) - rate.rank_mu
    scale = kept * shape.scale + rate.rank_one * path**2 + rate.rank_mu * (rate.weights @ y**2)
    sigma = shape.sigma * float(np.exp(min(1.0, rate.sigma_path / rate.damping * (length - 1) / 2)))
    return CMAState(rate.weights @ parents, sigma, scale, sigma_path, path)
