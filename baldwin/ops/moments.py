"""Running mean and variance that can be merged in a fixed order (Chan, Golub & LeVeque 1979), in float64."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from baldwin.ops.shaping import Vector


@dataclass(frozen=True, slots=True)
class Moments:
    """Count, mean and sum of squared deviations of each column."""

    count: float
    mean: Vector  # [D]
    m2: Vector  # [D]

    @staticmethod
    def empty(size: int) -> Moments:
        """Moments of no observations."""
        return Moments(0.0, np.zeros(size), np.zeros(size))

    @staticmethod
    def of(rows: NDArray[Any]) -> Moments:
        """Moments of the rows of a matrix [B, D]."""
        rows = np.asarray(rows, np.float64)
        mean = rows.mean(0)
        return Moments(float(len(rows)), mean, np.square(rows - mean).sum(0))

    def merge(self, other: Moments) -> Moments:
        """Moments of both sets of observations together."""
        if not other.count:
            return self
        count = self.count + other.count
        delta = other.mean - self.mean
        mean = self.mean + delta * (other.count / count)
        m2 = self.m2 + other.m2 + np.square(delta) * (self.count * other.count / count)
        return Moments(count, mean, m2)

    def pack(self) -> Vector:
        """One array [1 + 2 D]: how moments travel and are saved."""
        return np.concatenate([[self.count], self.mean, self.m2])

    @staticmethod
    def unpack(packed: Vector) -> Moments:
        """The inverse of `pack`."""
        size = (len(packed) - 1) // 2
        return Moments(float(packed[0]), packed[1 : 1 + size].copy(), packed[1 + size :].copy())

    def std(self, floor: float) -> Vector:
        """Population standard deviation, at least `floor`; ones before anything was seen."""
        if not self.count:
            return np.ones_like(self.mean)
        return np.maximum(np.sqrt(self.m2 / self.count), floor)
