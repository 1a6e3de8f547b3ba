"""The cross-entropy method with a diagonal Gaussian, as CEM-RL uses it (Pourchot & Sigaud 2018, arXiv 1810.01222)."""

from __future__ import annotations

from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, PositiveFloat, PositiveInt

from baldwin.config_base import ConfigModel
from baldwin.ops import noise, seeds
from baldwin.ops.gaussians import decayed, elite_moments, log_density, log_weights
from baldwin.ops.shaping import Vector
from baldwin.strategies.evolution import EvolutionConfig, register_strategy
from baldwin.strategies.generational import GenerationalStrategy
from baldwin.types import Metrics, State


class CEMUpdateConfig(ConfigModel):
    """Population, parents, and the noise on the variance."""

    renamed: ClassVar[dict[str, str]] = {
        "extra_start": "noise_start",
        "extra_end": "noise_end",
        "extra_tau": "noise_tau",
        "divide": "divide_variance_by_k",
    }

    population: int = Field(10, ge=4, multiple_of=2, description="Individuals per generation: mirrored pairs, so an even number")
    parents: PositiveInt | None = Field(None, description="Number of parents; default: half the population")
    variance: PositiveFloat = Field(1e-3, description="Initial variance of every parameter; its square root is the step")
    noise_start: float = Field(1e-3, ge=0, description="Variance that is added after every generation, initially")
    noise_end: float = Field(1e-5, ge=0, description="And in the end")
    noise_tau: float = Field(0.95, ge=0, lt=1, description="How slowly it goes from one to the other; AES-RL has 0.9")
    divide_variance_by_k: bool = Field(
        False, description="Divide the parents' variance by their number once more, as CEM-RL's code and AES-RL's do"
    )
    importance_mixing: bool = Field(
        False,
        description="Individuals that the new distribution could as well have drawn stay, with their fitness, and are not played again",
    )


class CEMConfig(EvolutionConfig, CEMUpdateConfig):
    """Cross-entropy method: the mean and diagonal variance of the better half, with additive noise that decays."""

    name: Literal["cem"] = "cem"
    block: int = Field(10, ge=2, multiple_of=2, description="Individuals per job. Part of the run's identity: bits may change with it")


class CEM(GenerationalStrategy):
    """Even indices add the noise of their pair, odd ones subtract it."""

    def __init__(self, center: NDArray[np.float32], config: CEMUpdateConfig, *, seed: int) -> None:
        super().__init__(center, config.population, seed=seed)
        self.config = config
        self.variance = np.full(len(center), config.variance)
        self.weights = np.zeros(config.population)  # of the last generation's individuals in its update
        self.kept: list[int] = []  # indices in the last generation of those who stayed; they are the last ones of this one
        self._noise = config.noise_start
        self._old_distribution = (self.mean, self.variance)

    @property
    def floor_fraction(self) -> float:
        """Fraction of parameters whose variance is hardly more than the noise that is added to each."""
        return float((self.variance <= 1.01 * self._noise).mean())

    def set_center(self, center: NDArray[np.float32]) -> None:
        """Go on from there; between generations."""
        super().set_center(center)
        self.kept = []

    def state_dict(self) -> State:
        """State of the strategy, with the variance, its noise, and the individuals that were kept."""
        return super().state_dict() | {"variance": self.variance, "noise": self._noise, "kept": self.kept}

    def load_state_dict(self, state: State) -> None:
        """Continue from a `state_dict`."""
        super().load_state_dict(state)
        self.variance = np.array(state["variance"])
        self._noise = state["noise"]
        self.kept = [int(i) for i in state["kept"]]

    def _draw(self, index: int) -> NDArray[np.float32]:
        return self._sample(1.0 - 2.0 * (index % 2), index // 2)

    def _sample(self, sign: float, number: int) -> NDArray[np.float32]:
        normals = noise.draw(self._key, self.version, number, len(self.mean))
        return np.asarray(self.mean + sign * np.sqrt(self.variance) * normals, np.float32)

    def _update(self, individuals: Vector, indices: NDArray[np.int64]) -> Metrics:
        config, parents = self.config, min(self.config.parents or self.population // 2, len(individuals))
        self.weights = np.zeros(self.population)
        self.weights[indices[:parents]] = log_weights(parents)
        self._noise = decayed(self._noise, config.noise_tau, config.noise_end)
        self._old_distribution = (self.mean, self.variance)
        self.mean, self.variance = elite_moments(individuals[:parents], self.mean, self._noise, config.divide_variance_by_k)
        return {"variance_mean": float(self.variance.mean()), "variance_noise": self._noise, "reused": float(self.n_reused)}

    def _reuse(self, individuals: Vector, fitness: Vector, indices: NDArray[np.int64]) -> None:
        """Importance mixing: an old x stays with chance min(1, new / old density), a new one is taken with max(0, 1 - old / new)."""
        if not self.config.importance_mixing:
            return
        rng = seeds.generator(self._seed, seeds.Stream.MIXING, self.version)
        kept: list[int] = []  # positions in `individuals`
        fresh: list[NDArray[np.float32]] = []
        most = self.population - 1  # at least one has to be played
        for position in rng.permutation(len(individuals)).tolist():
            if len(kept) < most and np.log(rng.random()) < self._log_ratio(individuals[position]):
                kept.append(position)
            drawn = self._sample(1.0, position)
            if len(kept) + len(fresh) < self.population and rng.random() < -np.expm1(min(0.0, -self._log_ratio(drawn))):
                fresh.append(drawn)
            if len(kept) + len(fresh) >= self.population:
                break
        missing = self.population - len(kept) - len(fresh)
        fresh += [self._sample(1.0, self.population + n) for n in range(missing)]
        self.n_reused = len(kept)
        self.kept = indices[kept].tolist()
        self._overrides = dict(enumerate(fresh))
        for index, position in enumerate(kept, len(fresh)):
            self._overrides[index] = individuals[position].astype(np.float32)
            self._fitness[index] = fitness[position]
            self._told[index] = True

    def _log_ratio(self, x: Vector | NDArray[np.float32]) -> float:
        """Log of the new density over the old one."""
        point = np.asarray(x, np.float64)
        return float(log_density(point, self.mean, self.variance) - log_density(point, *self._old_distribution))


register_strategy(CEMConfig, lambda center, config, shapes, seed: CEM(center, config, seed=seed), "arXiv 1810.01222")
