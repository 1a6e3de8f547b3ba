"""Cross-entropy step on the weights of learners that are trained side by side. Fitness is maximised; NaN counts as the worst.

Members must descend from one initialisation: the mean of networks that were initialised apart is none of them, because their units are ordered
differently.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from baldwin.errors import ConfigError

Array = NDArray[np.float64]
Indices = NDArray[np.int64]


def elite_indices(fitness: ArrayLike, share: float) -> Indices:
    """Indices [K] of the best share, best first, ties by index; K = max(1, floor(share N)).

    Raises:
        ConfigError: the share is not in (0, 1], or nobody has a fitness.
    """
    f = np.asarray(fitness, np.float64)
    if not 0 < share <= 1:
        raise ConfigError(f"expected an elite share above 0 and at most 1; got {share}")
    f = np.where(np.isnan(f), -np.inf, f)
    usable = int((f > -np.inf).sum())
    if usable == 0:
        raise ConfigError("no member has a fitness above -inf, so that there is no elite")
    count = max(1, int(share * len(f) + 1e-9))  # 0.29 * 100 is 28.999...
    return np.argsort(-f, kind="stable")[: min(count, usable)]


def elite_distribution(elites: ArrayLike, std_floor: float = 0.0, std_cap: float = 1.0) -> tuple[Array, Array]:
    """Mean and population standard deviation [D] of the elites' weights [K, D], the latter between floor and cap.

    A single elite has no deviation: without a floor everybody becomes its copy.

    Raises:
        ConfigError: no elite, weights that are not finite, or a floor above the cap.
    """
    x = np.asarray(elites, np.float64)
    if x.ndim != 2 or len(x) == 0 or not np.isfinite(x).all():
        raise ConfigError(
            f"expected finite weights [elites, parameters]; got the shape {list(x.shape)}, or NaN. Leave diverged members out."
        )
    if not 0 <= std_floor <= std_cap:
        raise ConfigError(f"expected 0 <= std_floor <= std_cap; got {std_floor:g} and {std_cap:g}")
    return x.mean(0), np.clip(x.std(0), std_floor, std_cap)


def least_selected(times_elite: ArrayLike, threshold: float) -> int | None:
    """The member that was least often an elite, if it is at least so far below the mean; the one to replace, else None."""
    times = np.asarray(times_elite, np.float64)
    worst = int(times.argmin())
    return worst if times.mean() - times[worst] >= threshold else None
