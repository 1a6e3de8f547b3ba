"""A diagonal Gaussian over parameters that single results move: what asynchronous evolution has instead of a generation."""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, PositiveFloat

from baldwin.ops import noise, seeds
from baldwin.ops.shaping import Vector
from baldwin.types import State


class GaussianRule(BaseModel):
    """What every such distribution has."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    variance: PositiveFloat = Field(1e-3, description="Of every parameter at first. A variance: its root is the step")
    variance_floor: PositiveFloat = Field(1e-5, description="No parameter varies less than this")


class Gaussian(ABC):
    """Mean and variance in float64, whatever the precision of the policies."""

    def __init__(self, center: NDArray[np.float32], rule: GaussianRule, *, seed: int) -> None:
        self._floor, self._key = rule.variance_floor, seeds.key(seed, seeds.Stream.NOISE)
        self.mean = np.array(center, np.float64)
        self.spread = np.full(len(center), rule.variance)

    @property
    def center(self) -> NDArray[np.float32]:
        """The mean, as it is played."""
        return self.mean.astype(np.float32)

    def draw(self, number: int, row: int = 0) -> NDArray[np.float32]:
        """An individual of the distribution as it is now; the noise is a function of both numbers."""
        drawn = noise.draw(self._key, number, row, len(self.mean))
        return np.asarray(self.mean + np.sqrt(self.spread) * drawn, np.float32)

    @abstractmethod
    def move(self, x: Vector, fitness: float, baseline: float) -> float:
        """Let one individual move mean and variance, given the mean's own fitness; how far the mean went towards it, in [0, 1]."""

    @property
    def floor_fraction(self) -> float:
        """The share of parameters that vary as little as they may."""
        return float((self.spread <= self._floor).mean())

    def state_dict(self) -> State:
        """All that changes."""
        return {"mean": self.mean, "spread": self.spread}

    def load_state_dict(self, state: State) -> None:
        """Be the distribution that wrote `state`."""
        self.mean, self.spread = np.array(state["mean"]), np.array(state["spread"])
