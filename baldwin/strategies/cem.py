"""The cross-entropy method with a diagonal Gaussian, as CEM-RL uses it (Pourchot & Sigaud 2018, arXiv 1810.01222)."""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, PositiveFloat, PositiveInt

from baldwin.ops import noise, seeds
from baldwin.ops.gaussians import decayed, elite_moments, log_density, log_weights
from baldwin.ops.shaping import Vector
from baldwin.strategies.generation import Generation
from baldwin.strategies.search import SearchConfig
from baldwin.types import Metrics, State


class CEMRule(BaseModel):
    """Of the elite and of the extra variance."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    population: int = Field(10, ge=4, multiple_of=2, description="Individuals a generation: the second half mirrors the first")
    parents: PositiveInt | None = Field(None, description="The elite; default: half the population")
    variance: PositiveFloat = Field(1e-3, description="Of every parameter at first. A variance: its root is the step")
    extra_start: float = Field(1e-3, ge=0, description="Variance added after every generation, at first")
    extra_end: float = Field(1e-5, ge=0, description="And in the end")
    extra_tau: float = Field(0.95, ge=0, lt=1, description="How slowly it goes from one to the other; AES-RL has 0.9")
    divide: bool = Field(False, description="Divide the elite's variance by their number once more, as CEM-RL's code and AES-RL's do")
    importance_mixing: bool = Field(
        False,
        description="Individuals that the new distribution could as well have drawn stay, with their fitness, and are not played again",
    )


class CEMConfig(SearchConfig, CEMRule):
    """Cross-entropy method: the mean and diagonal variance of the better half, with an extra variance that decays."""

    name: Literal["cem"] = "cem"
    block: int = Field(10, ge=2, multiple_of=2, description="Individuals of one job. Part of the run's identity: bits may change with it")


class CEM(Generation):
    """The indices of the second half mirror those of the first."""

    def __init__(self, center: NDArray[np.float32], config: CEMRule, *, seed: int) -> None:
        super().__init__(center, config.population, seed=seed)
        self.config = config
        self.variance = np.full(len(center), config.variance)
        self.weights = np.zeros(config.population)  # of the last generation's individuals in its step
        self.kept: list[int] = []  # of the last generation's individuals, who stayed: they are the last ones of this one
        self._extra = config.extra_start
        self._old = (self.mean, self.variance)

    @property
    def floor_fraction(self) -> float:
        """The share of parameters whose variance is hardly more than what is added to each."""
        return float((self.variance <= 1.01 * self._extra).mean())

    def state_dict(self) -> State:
        """All that changes."""
        return super().state_dict() | {"variance": self.variance, "extra": self._extra, "kept": self.kept}

    def load_state_dict(self, state: State) -> None:
        """Be the strategy that wrote `state`."""
        super().load_state_dict(state)
        self.variance, self._extra, self.kept = np.array(state["variance"]), state["extra"], [int(i) for i in state["kept"]]

    def _draw(self, index: int) -> NDArray[np.float32]:
        sign, pair = (1.0, index) if index < self.population // 2 else (-1.0, index - self.population // 2)
        return self._sample(sign, pair)

    def _sample(self, sign: float, number: int) -> NDArray[np.float32]:
        drawn = noise.draw(self._key, self.version, number, len(self.mean))
        return np.asarray(self.mean + sign * np.sqrt(self.variance) * drawn, np.float32)

    def _learn(self, rows: Vector, order: NDArray[np.int64]) -> Metrics:
        config, parents = self.config, min(self.config.parents or self.population // 2, len(rows))
        self.weights = np.zeros(self.population)
        self.weights[order[:parents]] = log_weights(parents)
        self._extra = decayed(self._extra, config.extra_tau, config.extra_end)
        self._old = (self.mean, self.variance)
        self.mean, self.variance = elite_moments(rows[:parents], self.mean, self._extra, config.divide)
        return {"variance_mean": float(self.variance.mean()), "extra_variance": self._extra, "reused": float(self.reused)}

    def _begin(self, rows: Vector, fitness: NDArray[np.float64], order: NDArray[np.int64]) -> None:
        """Importance mixing: an old x stays with chance min(1, new / old density), a new one is taken with max(0, 1 - old / new)."""
        if not self.config.importance_mixing:
            return
        chance = seeds.generator(self._seed, seeds.Stream.MIXING, self.version)
        kept: list[int] = []  # places in `rows`
        fresh: list[NDArray[np.float32]] = []
        most = self.population - 1  # somebody has to be played
        for place in chance.permutation(len(rows)).tolist():
            if len(kept) < most and np.log(chance.random()) < self._log_ratio(rows[place]):
                kept.append(place)
            drawn = self._sample(1.0, place)
            if len(kept) + len(fresh) < self.population and chance.random() < -np.expm1(min(0.0, -self._log_ratio(drawn))):
                fresh.append(drawn)
            if len(kept) + len(fresh) >= self.population:
                break
        missing = self.population - len(kept) - len(fresh)
        fresh += [self._sample(1.0, self.population + n) for n in range(missing)]
        self.reused, self.kept = len(kept), order[kept].tolist()
        self._given = dict(enumerate(fresh))
        for index, place in enumerate(kept, len(fresh)):
            self._given[index] = rows[place].astype(np.float32)
            self._fitness[index], self._told[index] = fitness[place], True

    def _log_ratio(self, x: Vector | NDArray[np.float32]) -> float:
        """Of the new density to the old one."""
        return float(log_density(np.asarray(x, np.float64), self.mean, self.variance) - log_density(np.asarray(x, np.float64), *self._old))
