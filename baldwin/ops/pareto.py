"""Several objectives at once: dominance, NSGA-II's order (Deb et al. 2002), hypervolume. All objectives are maximised.

`fitness` is [N, M]: N individuals, M objectives. NaN is refused, because it can neither dominate nor be dominated; -inf is allowed.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from baldwin.errors import ConfigError

Array = NDArray[np.float64]
Indices = NDArray[np.int64]
LARGEST = 1e300  # infinite values count as this in distances, so that inf - inf does not become NaN


def dominates(a: ArrayLike, b: ArrayLike) -> NDArray[np.bool_]:
    """Whether a is at least as good as b in every objective and better in one; [..., M] against [..., M], broadcast."""
    a, b = np.asarray(a, np.float64), np.asarray(b, np.float64)
    return np.asarray((a >= b).all(-1) & (a > b).any(-1))


def non_dominated_sort(fitness: ArrayLike) -> Indices:
    """The front [N] that each individual belongs to: 0 for those nobody dominates, 1 for those only front 0 dominates, and so on.

    Raises:
        ConfigError: the fitness is not [N, M] or has NaN.
    """
    f = _checked(fitness)
    dominated = dominates(f[:, None], f[None])  # [N, N]: row dominates column
    dominators = dominated.sum(0)
    rank = np.full(len(f), -1, np.int64)
    current = 0
    while (rank < 0).any():
        front = (dominators == 0) & (rank < 0)
        rank[front] = current
        dominators -= dominated[front].sum(0)
        current += 1
    return rank


def pareto_front(fitness: ArrayLike) -> Indices:
    """Indices of the individuals that nobody dominates, in ascending order; equal ones are all kept."""
    f = _checked(fitness)
    return np.flatnonzero(~dominates(f[:, None], f[None]).any(0))


def crowding_distance(fitness: ArrayLike, rank: Indices) -> Array:
    """How far [N] the neighbours within the same front are apart, summed over objectives in units of the front's range.

    The two extremes of an objective are infinitely far. An objective in which a front does not differ counts for nothing.
    """
    f = np.clip(_checked(fitness), -LARGEST, LARGEST)
    distance = np.zeros(len(f))
    for front in range(int(rank.max(initial=-1)) + 1):
        members = np.flatnonzero(rank == front)
        distance[members] = _crowding_of_front(f[members])
    return distance


def nsga2_order(fitness: ArrayLike) -> Indices:
    """All indices [N], best first: by front, then the less crowded first, then by index."""
    rank = non_dominated_sort(fitness)
    return np.lexsort((-crowding_distance(fitness, rank), rank)).astype(np.int64)  # stable: ties stay in order of index


def select_survivors(fitness: ArrayLike, k: int) -> Indices:
    """Indices [k] of those that NSGA-II keeps, best first.

    Raises:
        ConfigError: there are fewer than k.
    """
    order = nsga2_order(fitness)
    if not 0 <= k <= len(order):
        raise ConfigError(f"expected to keep between 0 and {len(order)} individuals, as many as there are; got {k}")
    return order[:k]


def tournament(rank: Indices, crowding: Array, count: int, rng: np.random.Generator, size: int = 2) -> Indices:
    """Winners [count] of tournaments between `size` different individuals: the lower front wins, then the less crowded, then chance.

    Raises:
        ConfigError: fewer individuals than a tournament needs.
    """
    if not 1 <= size <= len(rank):
        raise ConfigError(f"a tournament of {size} needs at least as many individuals; there are {len(rank)}")
    keys = np.stack([rank, -crowding], 1)
    place = np.unique(keys, axis=0, return_inverse=True)[1].ravel()  # equal keys share a place, so that no index is preferred
    everybody = np.broadcast_to(np.arange(len(rank)), (count, len(rank)))
    contestants = rng.permuted(everybody, axis=1)[:, :size]
    winner = place[contestants].argmin(1)
    return np.asarray(contestants[np.arange(count), winner])


def hypervolume(fitness: ArrayLike, reference: ArrayLike) -> float:
    """The volume that is dominated by the individuals and better than the reference point [M] in every objective, exactly.

    Two objectives by sorting, more by the exclusive volumes of While et al. 2012 (WFG). Individuals that are not better than the reference
    in every objective add nothing.

    Raises:
        ConfigError: the shapes do not fit, or there is NaN, or an individual is infinitely good.
    """
    f, origin = _checked(fitness), np.asarray(reference, np.float64)
    if origin.shape != (f.shape[1],) or not np.isfinite(origin).all():
        raise ConfigError(f"expected a finite reference point with {f.shape[1]} objectives; got {origin.tolist()}")
    above = f[(f > origin).all(1)] - origin
    if np.isinf(above).any():
        raise ConfigError("the hypervolume of a fitness of +inf is infinite; leave that individual out")
    return _volume(above)


def _checked(fitness: ArrayLike) -> Array:
    f = np.asarray(fitness, np.float64)
    if f.ndim != 2 or f.shape[1] == 0:
        raise ConfigError(f"expected fitness as [individuals, objectives]; got the shape {list(f.shape)}")
    bad = np.flatnonzero(np.isnan(f).any(1))
    if len(bad):
        raise ConfigError(f"the fitness of individual {bad[0]} is {f[bad[0]].tolist()}: NaN cannot be compared. Drop it or give it -inf.")
    return f


def _crowding_of_front(f: Array) -> Array:
    order = np.argsort(f, axis=0, kind="stable")
    ordered = np.take_along_axis(f, order, 0)
    width = ordered[-1] - ordered[0]
    gaps = np.full(f.shape, np.inf)
    gaps[1:-1] = (ordered[2:] - ordered[:-2]) / np.where(width > 0, width, 1.0)
    by_individual = np.empty_like(gaps)
    np.put_along_axis(by_individual, order, gaps, 0)
    return np.asarray(by_individual[:, width > 0].sum(1))


def _volume(points: Array) -> float:
    """Volume of the union of boxes between zero and each of the points [N, M], all positive."""
    if len(points) == 0:
        return 0.0
    if points.shape[1] == 1:
        return float(points.max())
    if points.shape[1] == 2:
        first, second = points[np.argsort(-points[:, 0], kind="stable")].T
        height = np.maximum.accumulate(second)
        return float((first * np.diff(height, prepend=0.0)).sum())
    front = np.unique(points, axis=0)  # without doubles, and sorted, so that the boxes shrink quickly
    front = front[pareto_front(front)]
    # What each point adds to those behind it: its own box, less the part that they cover.
    return sum(float(point.prod()) - _volume(np.minimum(front[n + 1 :], point)) for n, point in enumerate(front))
