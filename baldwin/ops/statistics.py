"""Honest summaries of scores (Agarwal et al. 2021)."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import ArrayLike

from baldwin.ops import seeds
from baldwin.ops.optimizers import norm
from baldwin.ops.shaping import Vector


def return_stats(returns: ArrayLike) -> dict[str, float]:
    """Mean, standard deviation, largest and smallest return, by the names that metrics have."""
    x = np.asarray(returns, np.float64)
    return {"return_mean": float(x.mean()), "return_std": float(x.std()), "return_max": float(x.max()), "return_min": float(x.min())}


def iqm(scores: ArrayLike, axis: int = -1) -> Vector:
    """Interquartile mean: the mean of the middle half, edge values weighted where a quarter is not whole."""
    x = np.sort(np.asarray(scores, np.float64), axis=axis)
    n = x.shape[axis]
    edges = np.arange(n + 1)
    lower, upper = n / 4, 3 * n / 4
    weight = np.clip(np.minimum(edges[1:], upper) - np.maximum(edges[:-1], lower), 0.0, None)  # overlap with the middle half
    return np.asarray(np.apply_along_axis(np.dot, axis, x, weight) / weight.sum())


def bootstrap_interval(scores: ArrayLike, level: float = 0.95, resamples: int = 2000, seed: int = 0) -> tuple[float, float]:
    """Percentile interval of the IQM under resampling of the scores."""
    x = np.asarray(scores, np.float64)
    rng = seeds.generator(seed, seeds.Stream.BOOTSTRAP)
    means = iqm(x[rng.integers(0, len(x), (resamples, len(x)))])
    low, high = np.quantile(means, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)


def latency_percentiles(seconds: Iterable[float]) -> dict[str, float]:
    """Latencies in milliseconds that 50, 95 and 99 % do not exceed, interpolated linearly; empty if there are none."""
    x = np.fromiter(seconds, np.float64) * 1e3
    return {f"latency_ms_p{q}": float(np.percentile(x, q)) for q in (50, 95, 99) if x.size}


def correlation(a: Vector, b: Vector) -> float:
    """Pearson's: between the two of each pair, the share of the difference's variance that common random numbers take away."""
    return cosine(a - a.mean(), b - b.mean())


def cosine(a: Vector, b: Vector) -> float:
    """The cosine of the angle between two vectors; 0 if one is zero."""
    norms = norm(a) * norm(b)
    return float(np.sum(a * b)) / norms if norms > 0 else 0.0
