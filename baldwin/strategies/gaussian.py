"""A diagonal Gaussian over parameters that results update as they arrive: the distribution of asynchronous evolution."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, PositiveFloat

from baldwin.config_base import ConfigModel
from baldwin.ops import noise, seeds
from baldwin.ops.shaping import Vector
from baldwin.types import State


class GaussianConfig(ConfigModel):
    """Initial and smallest variance of the distribution."""

    variance: PositiveFloat = Field(1e-3, description="Initial variance of every parameter; its square root is the step")
    variance_floor: PositiveFloat = Field(1e-5, description="Smallest variance of a parameter")


class Gaussian(ABC):
    """Mean and variance in float64, whatever the precision of the policies."""

    needs_baseline: ClassVar[bool] = True  # the update compares individuals with the fitness of the mean

    def __init__(self, center: NDArray[np.float32], config: GaussianConfig, *, seed: int) -> None:
        self._floor, self._key = config.variance_floor, seeds.key(seed, seeds.Stream.NOISE)
        self.mean = np.array(center, np.float64)
        self.variance = np.full(len(center), config.variance)

    @property
    def center(self) -> NDArray[np.float32]:
        """The mean, in the precision of the policies."""
        return self.mean.astype(np.float32)

    def set_center(self, center: NDArray[np.float32]) -> None:
        """Go on from there; the variance stays."""
        self.mean = np.array(center, np.float64)

    def draw(self, number: int, row: int = 0) -> NDArray[np.float32]:
        """An individual of the current distribution; the noise is a function of both numbers."""
        normals = noise.draw(self._key, number, row, len(self.mean))
        return np.asarray(self.mean + np.sqrt(self.variance) * normals, np.float32)

    @abstractmethod
    def update(self, individuals: Vector, fitness: Vector, baseline: float) -> Vector:
        """Update mean and variance by individuals [n, D] of one distribution, all with equal weight.

        `baseline` is the fitness of the mean (not read unless `needs_baseline`). Returns how far each moved the mean
        towards itself, in [0, 1].
        """

    @property
    def floor_fraction(self) -> float:
        """Fraction of parameters whose variance is at its floor."""
        return float((self.variance <= self._floor).mean())

    def state_dict(self) -> State:
        """Mean and variance; a subclass adds what its rule remembers."""
        return {"mean": self.mean, "variance": self.variance}

    def load_state_dict(self, state: State) -> None:
        """Continue from a `state_dict`."""
        self.mean, self.variance = np.array(state["mean"]), np.array(state["variance"])
