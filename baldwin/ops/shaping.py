"""From returns to utilities: [n] -> [n], higher is better. Callers drop failed pairs first; a NaN here ranks last."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float64]


def average_ranks(fitness: Vector) -> Vector:
    """Ranks 0..n-1, worst first; ties share their mean rank; NaN counts as the worst.

    Sorting cannot break a tie by position, so the result does not depend on the order of the population.
    """
    f = np.where(np.isnan(fitness), -np.inf, fitness)
    _, place, count = np.unique(f, return_inverse=True, return_counts=True)
    first = np.cumsum(count) - count
    return np.asarray((first + (count - 1) / 2)[place], np.float64)


def centered_ranks(fitness: Vector) -> Vector:
    """u = r / (n - 1) - 1/2: in [-1/2, 1/2], summing to zero (Salimans et al. 2017, section 2.1)."""
    if len(fitness) < 2:
        return np.zeros(len(fitness))
    return average_ranks(fitness) / (len(fitness) - 1) - 0.5


def z_score(fitness: Vector) -> Vector:
    """(F - mean) / std over the population; all equal gives zero."""
    centered = fitness - fitness.mean()
    std = np.sqrt(np.square(centered).mean())
    # Rounding alone leaves about 1e-16 of the mean: that is a tie, not a signal.
    floor = 1e-12 * max(1.0, float(np.abs(fitness).max()))
    return np.asarray(centered / std if std > floor else np.zeros(len(fitness)))


def raw(fitness: Vector) -> Vector:
    """The fitness unchanged."""
    return np.asarray(fitness, np.float64)


def log_ranks(fitness: Vector) -> Vector:
    """The one-sided utilities of pytorch-es: w_k = max(0, log2(n/2 + 1) - log2(k + 1)), k = 0 the best; u = w / sum(w) + 1/n.

    Ties share their best place. The usual form (Wierstra et al. 2014) subtracts 1/n; over whole pairs both give the same step.
    """
    n = len(fitness)
    f = np.where(np.isnan(fitness), -np.inf, fitness)
    best_place = n - np.searchsorted(np.sort(f), f, side="right")  # how many are strictly better
    w = np.maximum(0.0, np.log2(n / 2 + 1) - np.log2(best_place + 1))
    return np.asarray(w / w.sum() + 1 / n, np.float64)


SHAPINGS: dict[str, Callable[[Vector], Vector]] = {
    "ranks": centered_ranks,
    "zscore": z_score,
    "raw": raw,
    "log-ranks": log_ranks,
}


def tie_fraction(fitness: Vector) -> float:
    """The share of individuals whose return another one has too."""
    _, count = np.unique(fitness, return_counts=True)
    return float(count[count > 1].sum() / max(1, len(fitness)))


def strict_rank(value: float, others: Vector) -> int:
    """1 + how many are strictly better: rank 1 means that no perturbation improved (pytorch-es's diagnostic)."""
    return 1 + int((others > value).sum())


def percentile(value: float, others: Vector) -> float:
    """The share of others below, ties counted half: 1.0 means better than all."""
    return float(((others < value).sum() + 0.5 * (others == value).sum()) / max(1, len(others)))
