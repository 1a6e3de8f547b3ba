"""sep-CMA-ES: covariance matrix adaptation with a diagonal, so that it takes linear time and memory (Ros & Hansen 2008)."""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, PositiveFloat

from baldwin.ops import noise
from baldwin.ops.cma import CMAState, cma_step, rates
from baldwin.ops.shaping import Vector
from baldwin.strategies.evolution import EvolutionConfig, register_strategy
from baldwin.strategies.generational import GenerationalStrategy
from baldwin.types import Metrics, State


class SepCMAConfig(EvolutionConfig):
    """sep-CMA-ES: a diagonal Gaussian whose step size and shape follow the evolution paths of its mean."""

    name: Literal["sep-cma-es"] = "sep-cma-es"
    population: int = Field(32, ge=4, description="Individuals per generation; the better half are the parents")
    sigma: PositiveFloat = Field(0.1, description="Initial standard deviation of every parameter")


class SepCMA(GenerationalStrategy):
    """Individuals are drawn independently: mirrored pairs would shorten the evolution paths."""

    def __init__(self, center: NDArray[np.float32], config: SepCMAConfig, *, seed: int) -> None:
        super().__init__(center, config.population, seed=seed)
        zeros = np.zeros(len(center))
        self.cma = CMAState(self.mean, config.sigma, np.ones(len(center)), zeros, zeros)
        self.rates = rates(len(center), config.population)

    def set_center(self, center: NDArray[np.float32]) -> None:
        """Go on from there; between generations."""
        super().set_center(center)
        self.cma = self.cma._replace(mean=self.mean)

    def state_dict(self) -> State:
        """State of the strategy, with step size, covariance and evolution paths."""
        return super().state_dict() | {"cma": self.cma._asdict()}

    def load_state_dict(self, state: State) -> None:
        """Continue from a `state_dict`."""
        super().load_state_dict(state)
        self.cma = CMAState(**state["cma"])

    def _draw(self, index: int) -> NDArray[np.float32]:
        normals = noise.draw(self._key, self.version, index, len(self.mean))
        return np.asarray(self.mean + self.cma.sigma * np.sqrt(self.cma.scale) * normals, np.float32)

    def _update(self, individuals: Vector, indices: NDArray[np.int64]) -> Metrics:
        rate, count = self.rates, min(len(individuals), len(self.rates.weights))
        weights = rate.weights[:count] / rate.weights[:count].sum()  # fewer, if so many failed
        self.cma = cma_step(self.cma, individuals[:count], rate._replace(weights=weights), self.version + 1)
        self.mean = self.cma.mean
        std = self.cma.sigma * np.sqrt(self.cma.scale)
        return {"sigma": self.cma.sigma, "sigma_min": float(std.min()), "sigma_max": float(std.max())}


register_strategy(SepCMAConfig, lambda center, config, shapes, seed: SepCMA(center, config, seed=seed), "Ros & Hansen 2008")
