"""The grid of MAP-Elites (Mouret & Clune 2015, arXiv 1504.04909): which cell a behaviour belongs to, and who stays there.

`elites` [C] is the fitness of the elite of each cell, `EMPTY` where there is none. Fitness is maximised.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

from baldwin.errors import ConfigError

Array = NDArray[np.float64]
Indices = NDArray[np.int64]
EMPTY = -np.inf  # so that any finite fitness is better than an empty cell's


def empty_grid(bins: tuple[int, ...]) -> Array:
    """The elites of a grid with so many bins per dimension of the descriptor: none yet."""
    return np.full(math.prod(bins), EMPTY)


def cell_index(descriptors: ArrayLike, low: ArrayLike, high: ArrayLike, bins: tuple[int, ...]) -> Indices:
    """The cells [N] of descriptors [N, K], in row-major order; what lies outside of the bounds [K] belongs to the nearest cell.

    Raises:
        ConfigError: shapes that do not fit, bounds that are not finite and increasing, bins below one, or NaN in a descriptor.
    """
    x, low, high = (np.asarray(values, np.float64) for values in (descriptors, low, high))
    k = len(bins)
    if x.ndim != 2 or x.shape[1] != k or low.shape != (k,) or high.shape != (k,):
        raise ConfigError(
            f"expected descriptors [N, {k}] and bounds [{k}], one for each entry of bins; got {list(x.shape)}, {list(low.shape)}, {list(high.shape)}"
        )
    if not (np.isfinite(low) & np.isfinite(high) & (low < high)).all() or min(bins, default=0) < 1:
        raise ConfigError(
            f"expected finite bounds, low < high, and at least one bin; got low {low.tolist()}, high {high.tolist()}, bins {bins}"
        )
    if np.isnan(x).any():
        raise ConfigError("a descriptor has NaN: it belongs to no cell. Leave that individual out.")
    share = (np.clip(x, low, high) - low) / (high - low)
    place = np.minimum((share * bins).astype(np.int64), np.array(bins) - 1)  # the upper bound belongs to the last bin
    return np.asarray(np.ravel_multi_index(tuple(place.T), bins), np.int64)


def insert(elites: Array, cells: ArrayLike, fitness: ArrayLike) -> tuple[Array, NDArray[np.bool_]]:
    """The elites [C] after individuals with this fitness [N] came to these cells [N], and who of them [N] is an elite now.

    An individual takes its cell if it is strictly better than who is there; of several, the best does, of equals the first. NaN is never better.

    Raises:
        ConfigError: not one cell for each individual, or a cell that the grid does not have.
    """
    cells, f = np.asarray(cells, np.int64), np.asarray(fitness, np.float64)
    if cells.shape != f.shape or not ((cells >= 0) & (cells < len(elites))).all():
        raise ConfigError(
            f"expected one cell between 0 and {len(elites) - 1} for each of {f.size} individuals; got {cells[:5].tolist()} ..."
        )
    f = np.where(np.isnan(f), EMPTY, f)
    best_first = np.lexsort((-f, cells))  # stable
    champion = np.zeros(len(f), np.bool_)
    champion[best_first[np.unique(cells[best_first], return_index=True)[1]]] = True
    accepted = champion & (f > elites[cells])
    updated = elites.copy()
    updated[cells[accepted]] = f[accepted]
    return updated, accepted


def coverage(elites: Array) -> float:
    """The share of cells that have an elite."""
    return float((elites != EMPTY).mean())


def qd_score(elites: Array, offset: float = 0.0) -> float:
    """The sum over all elites of fitness - offset.

    Take the smallest possible fitness as the offset: with negative terms a new elite would lower the score.
    """
    return float((elites[elites != EMPTY] - offset).sum())
