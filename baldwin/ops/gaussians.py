"""Updates of a diagonal Gaussian over parameters: cross-entropy, sliding windows, single results."""

from __future__ import annotations

import math

import numpy as np

from baldwin.ops.shaping import Vector

MIN_STEP = 1e-3  # below this step size of the mean, the variance is left alone


def log_weights(parents: int) -> Vector:
    """w_i ~ ln((K + 1) / i) for the i-th best of K, summing to one."""
    raw = np.log((parents + 1) / np.arange(1, parents + 1))
    return np.asarray(raw / raw.sum())


def decayed(value: float, tau: float, limit: float) -> float:
    """One step of an exponential decay towards a limit: tau value + (1 - tau) limit."""
    return tau * value + (1 - tau) * limit


def elite_moments(elite: Vector, mean: Vector, noise: float, divide_by_k: bool) -> tuple[Vector, Vector]:
    """Weighted mean of the elite [K, D], best first, and its variance around the old mean, plus `noise`.

    `divide_by_k`: to divide by K once more is what two code bases do, and no derivation asks for: it understates the spread of the elite.
    """
    weights = log_weights(len(elite))
    variance = weights @ np.square(elite - mean)
    return weights @ elite, variance / (len(elite) if divide_by_k else 1) + noise


def step_size_linear(gain: float, scale: float, negative: float = 0.0) -> float:
    """p = clip(d / c, -1, 1), times `negative` where the individual is worse; d is its gain over the mean."""
    p = min(max(gain / scale, -1.0), 1.0)
    return p * negative if gain < 0 else p


def step_size_sigmoid(gain: float, scale: float) -> float:
    """p = 1 / (1 + exp(-d / c)), in a form that cannot overflow."""
    return 0.5 * (1.0 + math.tanh(0.5 * gain / scale))


def step_size_absolute(fitness: float, baseline: float, floor: float) -> float:
    """p = A / (A + M), A and M being how far the individual and the mean are above a fixed floor b."""
    above, mean = fitness - floor, baseline - floor
    if above < 0:
        return 0.0
    return min(max(above / (above + mean), 0.0), 1.0) if above + mean > 0 else 1.0


def step_size_relative(gain: float, scale: float) -> float:
    """p = (d + c) / (d + 2 c): the floor moves with the mean, c below it."""
    return 0.0 if gain < -scale else min(max((gain + scale) / (gain + 2 * scale), 0.0), 1.0)


def updated_mean_var(mean: Vector, variance: Vector, x: Vector, p: float, memory: float | None, floor: float) -> tuple[Vector, Vector]:
    """Mean and variance after one individual: the mean moves by p, then v += ((x - old)(x - new) - v) / n (Welford).

    n is `memory`, or, if there is none, what p says itself: max(1 / p - 1, 1).
    """
    moved = (1 - p) * mean + p * x
    if p < MIN_STEP:
        return moved, variance
    n = memory if memory is not None else max(1 / p - 1, 1.0)
    return moved, np.maximum(variance + ((x - mean) * (x - moved) - variance) / n, floor)


def log_density(x: Vector, mean: Vector, variance: Vector) -> Vector:
    """Of rows [..., D] under a diagonal Gaussian, without the constant that cancels in ratios."""
    return np.asarray(-0.5 * (np.square(x - mean) / variance + np.log(variance)).sum(-1))
