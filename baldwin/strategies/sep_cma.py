"""sep-CMA-ES: covariance matrix adaptation with a diagonal, so that it takes linear time and memory (Ros & Hansen 2008)."""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, PositiveFloat

from baldwin.ops import noise
from baldwin.ops.cma import Shape, adapted, rates
from baldwin.ops.shaping import Vector
from baldwin.strategies.generation import Generation
from baldwin.strategies.search import SearchConfig
from baldwin.types import Metrics, State


class SepCMAConfig(SearchConfig):
    """sep-CMA-ES: a diagonal Gaussian whose step and shape follow the paths of its mean."""

    name: Literal["sep-cma-es"] = "sep-cma-es"
    population: int = Field(32, ge=4, description="Individuals a generation; the better half are the parents")
    sigma: PositiveFloat = Field(0.1, description="Standard deviation of every parameter at first")


class SepCMA(Generation):
    """Individuals are drawn one by one: no mirror images, which would shorten the paths."""

    def __init__(self, center: NDArray[np.float32], config: SepCMAConfig, *, seed: int) -> None:
        super().__init__(center, config.population, seed=seed)
        nothing = np.zeros(len(center))
        self.shape = Shape(self.mean, config.sigma, np.ones(len(center)), nothing, nothing)
        self.rates = rates(len(center), config.population)

    def state_dict(self) -> State:
        """All that changes."""
        return super().state_dict() | {"shape": self.shape._asdict()}

    def load_state_dict(self, state: State) -> None:
        """Be the strategy that wrote `state`."""
        super().load_state_dict(state)
        self.shape = Shape(**state["shape"])

    def _draw(self, index: int) -> NDArray[np.float32]:
        drawn = noise.draw(self._key, self.version, index, len(self.mean))
        return np.asarray(self.mean + self.shape.sigma * np.sqrt(self.shape.scale) * drawn, np.float32)

    def _learn(self, rows: Vector, order: NDArray[np.int64]) -> Metrics:
        rate, count = self.rates, min(len(rows), len(self.rates.weights))
        weights = rate.weights[:count] / rate.weights[:count].sum()  # fewer, if so many failed
        self.shape = adapted(self.shape, rows[:count], rate._replace(weights=weights), self.version + 1)
        self.mean = self.shape.mean
        spread = self.shape.sigma * np.sqrt(self.shape.scale)
        return {"sigma": self.shape.sigma, "sigma_min": float(spread.min()), "sigma_max": float(spread.max())}
