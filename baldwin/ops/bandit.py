"""Distributions of hyper-parameters that learn from the values of elites: Dirichlet for categories, truncated normal for real numbers.

Ranges that are logarithmic or whole are the caller's business: it passes logarithms, or rounds.
"""

from __future__ import annotations

from statistics import NormalDist

import numpy as np
from numpy.typing import ArrayLike, NDArray

from baldwin.errors import ConfigError

Array = NDArray[np.float64]


def dirichlet_sample(counts: ArrayLike, rng: np.random.Generator) -> int:
    """A category: probabilities are drawn from the Dirichlet distribution with these counts [K], then one category by them (Thompson sampling).

    Counts begin at one each, the uniform prior.

    Raises:
        ConfigError: a count is not above zero.
    """
    counts = _counts(counts)
    return int(rng.choice(len(counts), p=rng.dirichlet(counts)))


def dirichlet_update(counts: ArrayLike, chosen: ArrayLike, discount: float = 1.0) -> Array:
    """The counts [K] with one more for each of the elites' categories.

    `discount` below one pulls the counts to the prior of one first, so that old generations are forgotten.
    """
    counts, chosen = _counts(counts), np.asarray(chosen, np.int64)
    if chosen.size and not (chosen.min() >= 0 and chosen.max() < len(counts)):
        raise ConfigError(f"expected categories between 0 and {len(counts) - 1}; got {chosen.tolist()}")
    return np.asarray(1 + discount * (counts - 1) + np.bincount(chosen, minlength=len(counts)))


def truncated_normal_sample(mean: float, std: float, low: float, high: float, rng: np.random.Generator) -> float:
    """A number of the normal distribution given that it lies within the bounds, by inversion.

    Unlike clipping, this puts no extra weight on the bounds.

    Raises:
        ConfigError: the mean is not within the bounds, or std is negative.
    """
    if not (low <= mean <= high and std >= 0):
        raise ConfigError(f"expected low <= mean <= high and std >= 0; got mean {mean:g}, std {std:g}, low {low:g}, high {high:g}")
    if std == 0:
        return mean
    standard = NormalDist()
    below, above = standard.cdf((low - mean) / std), standard.cdf((high - mean) / std)
    u = min(max(rng.uniform(below, above), np.finfo(np.float64).tiny), 1 - 2**-53)  # the inverse exists inside of (0, 1) only
    return min(max(mean + std * standard.inv_cdf(u), low), high)


def truncated_normal_update(mean: float, std: float, elites: ArrayLike, rate: float = 1.0, std_floor: float = 0.0) -> tuple[float, float]:
    """Mean and standard deviation moved by `rate` towards those of the elites' values; the deviation does not fall below its floor.

    The mean of values within the bounds is within them, too.
    """
    values = np.asarray(elites, np.float64)
    if values.size == 0 or not np.isfinite(values).all():
        raise ConfigError(f"expected at least one elite, and finite values; got {values.tolist()}")
    new_mean = mean + rate * (float(values.mean()) - mean)
    new_std = std + rate * (float(values.std()) - std)
    return new_mean, max(new_std, std_floor)


def _counts(counts: ArrayLike) -> Array:
    x = np.asarray(counts, np.float64)
    if x.ndim != 1 or not (x > 0).all() or len(x) == 0:
        raise ConfigError(f"expected counts [K] above zero; got {x.tolist()}")
    return x
