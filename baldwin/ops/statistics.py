"""Honest summaries and comparisons of scores (Agarwal et al. 2021; Welch 1947)."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from baldwin.errors import ConfigError
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


class WelchTest(NamedTuple):
    """Welch's t-test of two samples with unequal variances."""

    statistic: float  # positive if the first sample has the larger mean
    dof: float  # degrees of freedom, by Welch and Satterthwaite
    p_value: float  # two-sided


def welch_test(a: ArrayLike, b: ArrayLike) -> WelchTest:
    """Whether the means of two samples differ.

    Samples without any variance differ for certain (p = 0) if their means do, else not at all (p = 1); dof is NaN then.

    Raises:
        ConfigError: a sample has fewer than two values, or one that is not finite.
    """
    x, y = _sample(a), _sample(b)
    difference = _mean(x) - _mean(y)
    error_x, error_y = _standard_error(x), _standard_error(y)
    error = math.hypot(error_x, error_y)
    if error == 0:
        return WelchTest(math.copysign(math.inf, difference) if difference else 0.0, math.nan, 0.0 if difference else 1.0)
    t = difference / error
    dof = 1 / ((error_x / error) ** 4 / (len(x) - 1) + (error_y / error) ** 4 / (len(y) - 1))
    return WelchTest(t, dof, student_t_two_sided(t, dof))


def significantly_better(a: ArrayLike, b: ArrayLike, level: float = 0.05) -> bool:
    """Whether sample a has the larger mean and Welch's two-sided test says p < level."""
    test = welch_test(a, b)
    return test.statistic > 0 and test.p_value < level


def student_t_two_sided(t: float, dof: float) -> float:
    """P(|T| > |t|) of Student's distribution: the regularised incomplete beta function I_x(dof / 2, 1 / 2) at x = dof / (dof + t^2)."""
    return incomplete_beta(dof / 2, 0.5, dof / (dof + t * t)) if math.isfinite(t) else 0.0


def incomplete_beta(a: float, b: float, x: float) -> float:
    """The regularised incomplete beta function I_x(a, b), by its continued fraction (Lentz's method; DLMF 8.17.22)."""
    if x <= 0 or x >= 1:
        return float(x >= 1)
    if x > (a + 1) / (a + b + 2):  # where the fraction of the complement converges faster
        return 1 - incomplete_beta(b, a, 1 - x)
    log_front = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)
    value, c, d = 1.0, 1.0, 0.0
    for n in range(1, 10_000):
        m = n // 2
        term = m * (b - m) * x / ((a + n - 1) * (a + n)) if n % 2 == 0 else -(a + m) * (a + b + m) * x / ((a + n - 1) * (a + n))
        d = 1 / (1 + term * d)
        c = 1 + term / c
        value *= c * d
        if abs(c * d - 1) < 1e-15:
            break
    return math.exp(log_front) / (a * value)


def _mean(x: Vector) -> float:
    return float(x[0] if _is_constant(x) else x.mean())


def _standard_error(x: Vector) -> float:
    return 0.0 if _is_constant(x) else float(x.std(ddof=1)) / math.sqrt(len(x))


def _is_constant(x: Vector) -> bool:
    """Equal values are treated apart, because the rounding of their sum would give them a variance and move their mean."""
    return bool((x == x[0]).all())


def _sample(values: ArrayLike) -> Vector:
    x = np.asarray(values, np.float64).ravel()
    if len(x) < 2 or not np.isfinite(x).all():
        raise ConfigError(f"Welch's test needs at least two finite values in each sample; got {x[:5].tolist()} ({len(x)} values)")
    return x


def explained_share(values: Sequence[Any], scores: ArrayLike, bins: int = 4) -> float:
    """The share of the variance of the scores [N] that is between groups of equal values, or quantiles of numbers (correlation ratio, eta squared)."""
    y = np.asarray(scores, np.float64)
    total = float(((y - y.mean()) ** 2).sum())
    if not total:
        return 0.0
    if len(set(map(str, values))) > bins and all(isinstance(v, int | float) for v in values):
        edges = np.quantile(np.asarray(values, np.float64), np.linspace(0, 1, bins + 1)[1:-1])
        groups = np.searchsorted(edges, np.asarray(values, np.float64), side="right")
    else:
        names = sorted(set(map(str, values)))
        groups = np.array([names.index(str(v)) for v in values])
    between = sum(float((groups == g).sum()) * (float(y[groups == g].mean()) - float(y.mean())) ** 2 for g in np.unique(groups))
    return between / total
