"""Population-based training (Jaderberg et al. 2017, arXiv 1711.09846): who copies whom, and how hyper-parameters are perturbed.

Fitness is maximised. A member whose fitness is NaN, for instance one that diverged, counts as the worst. The exploit rules give the index of the
member to copy, or None: go on as you are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from baldwin.errors import ConfigError
from baldwin.ops.ranges import FACTORS, Range, Value
from baldwin.ops.statistics import significantly_better

SHARE = 0.2
LEVEL = 0.05


def truncation(fitness: ArrayLike, member: int, rng: np.random.Generator, share: float = SHARE) -> int | None:
    """Truncation selection: a member of the worst share copies one of the best share, chosen uniformly.

    Both shares have round(share N) members, at least one and at most half of all; ties are ordered by index. Nobody copies an equal.

    Raises:
        ConfigError: the share is not in (0, 0.5], or there is no such member.
    """
    f = _worst_if_nan(np.asarray(fitness, np.float64))
    _check_member(member, len(f))
    if not 0 < share <= 0.5:
        raise ConfigError(f"expected a share above 0 and at most 0.5, so that the best and the worst do not overlap; got {share}")
    count = min(max(1, round(share * len(f))), len(f) // 2)
    order = np.argsort(-f, kind="stable")  # best first
    if member not in order[len(f) - count :]:
        return None
    other = int(rng.choice(order[:count]))
    return other if f[other] > f[member] else None


def welch(scores: Sequence[ArrayLike], member: int, rng: np.random.Generator, level: float = LEVEL) -> int | None:
    """t-test selection: compare the returns of one's evaluation episodes with those of a random other member, and copy it if it is better.

    Better is a larger mean with p < level in Welch's two-sided test. `scores` has one array of returns per member, at least two each. Members with
    returns that are not finite are worse than all others, and alike among themselves.

    Raises:
        ConfigError: there is no such member, or one has fewer than two returns.
    """
    _check_member(member, len(scores))
    if len(scores) < 2:
        return None
    other = int(rng.integers(len(scores) - 1))
    other += other >= member
    mine, theirs = np.asarray(scores[member], np.float64), np.asarray(scores[other], np.float64)
    if not np.isfinite(theirs).all():
        return None
    if not np.isfinite(mine).all():
        return other
    return other if significantly_better(theirs, mine, level) else None


def explore(
    values: Mapping[str, Value],
    ranges: Mapping[str, Range],
    rng: np.random.Generator,
    factors: tuple[float, ...] = FACTORS,
    resample_probability: float = 0.0,
) -> dict[str, Value]:
    """New hyper-parameters for a member that has copied another: each is perturbed, or with this probability drawn anew from its range.

    Names without a range keep their value. Random numbers are used in the order of names, not in that of the mapping.

    Raises:
        ConfigError: a range has no value, or a value is not within its range.
    """
    new = dict(values)
    for name in sorted(ranges):
        if name not in values or not ranges[name].contains(values[name]):
            raise ConfigError(f"expected a value of {name!r} within {ranges[name]}; got {values.get(name)!r}")
        resampled = rng.random() < resample_probability
        # mypy cannot know that the value is of its range's type; `contains` has just seen to it.
        new[name] = ranges[name].sample(rng) if resampled else ranges[name].perturb(values[name], rng, factors)  # type: ignore[arg-type]
    return new


def resample(ranges: Mapping[str, Range], rng: np.random.Generator) -> dict[str, Value]:
    """Hyper-parameters drawn anew, as a first member has them."""
    drawn = {name: ranges[name].sample(rng) for name in sorted(ranges)}
    return {name: drawn[name] for name in ranges}


def _worst_if_nan(fitness: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.where(np.isnan(fitness), -np.inf, fitness)


def _check_member(member: int, count: int) -> None:
    if not 0 <= member < count:
        raise ConfigError(f"expected a member between 0 and {count - 1}; got {member}")
