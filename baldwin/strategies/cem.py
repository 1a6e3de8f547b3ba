"""The cross-entropy method with a diagonal Gaussian, as CEM-RL uses it (Pourchot & Sigaud 2018, arXiv 1810.01222)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, PositiveFloat, PositiveInt

from baldwin.errors import EnvironmentFailure, TicketError
from baldwin.ops import noise, seeds
from baldwin.ops.gaussians import decayed, elite_moments, log_weights
from baldwin.strategies.search import SearchConfig
from baldwin.types import Metrics, Outcome, State, Trial


class CEMRule(BaseModel):
    """Cross-entropy method: the mean and diagonal variance of the better half, with an extra variance that decays."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    population: int = Field(10, ge=4, multiple_of=2, description="Individuals a generation: the second half mirrors the first")
    parents: PositiveInt | None = Field(None, description="The elite; default: half the population")
    variance: PositiveFloat = Field(1e-3, description="Of every parameter at first. A variance: its root is the step")
    extra_start: float = Field(1e-3, ge=0, description="Variance added after every generation, at first")
    extra_end: float = Field(1e-5, ge=0, description="And in the end")
    extra_tau: float = Field(0.95, ge=0, lt=1, description="How slowly it goes from one to the other; AES-RL has 0.9")
    divide: bool = Field(False, description="Divide the elite's variance by their number once more, as CEM-RL's code and AES-RL's do")


class CEMConfig(SearchConfig, CEMRule):
    """The cross-entropy method as a black box: vectors and returns."""

    name: Literal["cem"] = "cem"
    block: int = Field(10, ge=2, multiple_of=2, description="Individuals of one job. Part of the run's identity: bits may change with it")


class CEM:
    """Ticket = generation x population + index; the indices of the second half mirror those of the first."""

    def __init__(self, center: NDArray[np.float32], config: CEMRule, *, seed: int) -> None:
        self.config, self._key = config, seeds.key(seed, seeds.Stream.NOISE)
        self._parents = config.parents or config.population // 2
        self.mean = np.array(center, np.float64)
        self.variance = np.full(len(center), config.variance)
        self._extra = config.extra_start
        self.version = self._asked = 0
        self._reason = ""
        self.weights = np.zeros(config.population)  # of the last generation's individuals in its step
        self._changed: dict[int, NDArray[np.float32]] = {}  # individuals that came back otherwise than they went
        self._begin()

    @property
    def center(self) -> NDArray[np.float32]:
        """The mean, as it is played."""
        return self.mean.astype(np.float32)

    @property
    def floor_fraction(self) -> float:
        """The share of parameters whose variance is hardly more than what is added to each."""
        return float((self.variance <= 1.01 * self._extra).mean())

    def ask(self, n: int) -> list[Trial]:
        """The next n of this generation, none when all are out."""
        first, self._asked = self._asked, min(self._asked + n, self.config.population)
        return [self._trial(index) for index in range(first, self._asked)]

    def reopen(self, ticket: int) -> Trial:
        """The trial of an open ticket again."""
        return self._trial(self._index(ticket))

    def tell(self, outcomes: Sequence[Outcome]) -> Metrics | None:
        """Assign returns by ticket; the last one of the generation moves the distribution."""
        for outcome in outcomes:
            index = self._index(outcome.ticket)
            self._told[index] = True
            self._fitness[index] = outcome.fitness if not outcome.failed else np.nan
            if "params" in outcome.arrays:
                self._changed[index] = np.asarray(outcome.arrays["params"], np.float32)
            self._reason = self._reason or outcome.reason
        return self._update() if self._told.all() else None

    def state_dict(self) -> State:
        """All that changes."""
        return {
            "mean": self.mean,
            "variance": self.variance,
            "extra": self._extra,
            "version": self.version,
            "fitness": self._fitness,
            "told": self._told,
            "asked": self._asked,
            "reason": self._reason,
            "changed": {str(index): x for index, x in self._changed.items()},
        }

    def load_state_dict(self, state: State) -> None:
        """Be the strategy that wrote `state`."""
        self.mean, self.variance, self._extra = np.array(state["mean"]), np.array(state["variance"]), state["extra"]
        self.version, self._asked, self._reason = state["version"], state["asked"], state["reason"]
        self._fitness, self._told = np.array(state["fitness"]), np.array(state["told"])
        self._changed = {int(index): np.array(x, np.float32) for index, x in state["changed"].items()}

    def _begin(self) -> None:
        self._fitness, self._told = np.full(self.config.population, np.nan), np.zeros(self.config.population, np.bool_)
        self._asked, self._reason = 0, ""
        self._changed = {}

    def _individual(self, index: int) -> NDArray[np.float32]:
        if index in self._changed:
            return self._changed[index]
        sign, pair = (1.0, index) if index < self.config.population // 2 else (-1.0, index - self.config.population // 2)
        drawn = noise.draw(self._key, self.version, pair, len(self.mean))
        return np.asarray(self.mean + sign * np.sqrt(self.variance) * drawn, np.float32)

    def _trial(self, index: int) -> Trial:
        return Trial(self.version * self.config.population + index, self.version, self._individual(index))

    def _index(self, ticket: int) -> int:
        generation, index = divmod(ticket, self.config.population)
        if generation != self.version or index >= self._asked or self._told[index]:
            raise TicketError(f"ticket {ticket} was never given out, came back twice, or its generation is closed (open: {self.version})")
        return index

    def _update(self) -> Metrics:
        """A failed individual is no parent."""
        whole = np.isfinite(self._fitness)
        if not whole.any():
            raise EnvironmentFailure(f"every individual of generation {self.version} failed; the first reason: {self._reason or 'unknown'}")
        order = np.argsort(-np.where(whole, self._fitness, -np.inf), kind="stable")[: min(self._parents, int(whole.sum()))]
        elite = np.stack([self._individual(int(i)) for i in order]).astype(np.float64)
        config, returns, old = self.config, self._fitness[whole], self.mean
        self.weights = np.zeros(config.population)
        self.weights[order] = log_weights(len(order))
        self._extra = decayed(self._extra, config.extra_tau, config.extra_end)
        self.mean, self.variance = elite_moments(elite, old, self._extra, config.divide)
        self.version += 1
        self._begin()
        return {
            "return_mean": float(returns.mean()),
            "return_std": float(returns.std()),
            "return_max": float(returns.max()),
            "return_min": float(returns.min()),
            "failed": float((~whole).sum()),
            "variance_mean": float(self.variance.mean()),
            "extra_variance": self._extra,
            "mean_moved": float(np.linalg.norm(self.mean - old)),
        }
