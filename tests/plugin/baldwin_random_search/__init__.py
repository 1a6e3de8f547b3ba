"""Augmented random search V1-t (Mania et al. 2018, arXiv 1803.07055) as a plugin of Baldwin: one file, no change in Baldwin."""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, PositiveFloat

from baldwin.ops import noise
from baldwin.strategies import EvolutionConfig, GenerationalStrategy, register_strategy
from baldwin.types import Metrics


class RandomSearchConfig(EvolutionConfig):
    """Augmented random search: the best of several random directions, weighted by what they gained."""

    name: Literal["random-search"] = "random-search"
    population: int = Field(32, ge=4, multiple_of=2, description="Individuals per generation: mirrored pairs")
    top: int = Field(8, ge=1, description="Pairs that the update uses: those with the best individual")
    sigma: PositiveFloat = Field(0.1, description="Standard deviation of the perturbations")
    lr: PositiveFloat = Field(0.3, description="Step size, in units of the standard deviation of the returns that are used")


class RandomSearch(GenerationalStrategy):
    """Even indices add the noise of their pair, odd ones subtract it."""

    def __init__(self, center: NDArray[np.float32], config: RandomSearchConfig, *, seed: int) -> None:
        super().__init__(center, config.population, seed=seed)
        self.config = config

    def _direction(self, pair: int) -> NDArray[np.float32]:
        return noise.draw(self._key, self.version, pair, len(self.mean))

    def _draw(self, index: int) -> NDArray[np.float32]:
        sign = 1.0 - 2.0 * (index % 2)
        return np.asarray(self.mean + sign * self.config.sigma * self._direction(index // 2), np.float32)

    def _update(self, individuals: NDArray[np.float64], indices: NDArray[np.int64]) -> Metrics:
        pairs = self._fitness.reshape(-1, 2)
        usable = np.flatnonzero(np.isfinite(pairs).all(1))
        best = usable[np.argsort(-pairs[usable].max(1), kind="stable")[: self.config.top]]
        if not len(best):
            return {}
        gains = pairs[best, 0] - pairs[best, 1]
        step = sum(gain * self._direction(int(pair)).astype(np.float64) for gain, pair in zip(gains, best, strict=True))
        self.mean = self.mean + self.config.lr / (len(best) * (pairs[best].std() or 1.0)) * step
        return {"pairs_used": float(len(best))}


register_strategy(RandomSearchConfig, lambda center, config, shapes, seed: RandomSearch(center, config, seed=seed), "arXiv 1803.07055")
