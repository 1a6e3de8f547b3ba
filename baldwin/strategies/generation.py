"""Generations over vectors: tickets, who is back, and what came back changed. What is learned from a whole one is the strategy's."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from baldwin.errors import EnvironmentFailure, TicketError
from baldwin.ops import seeds
from baldwin.ops.shaping import Vector
from baldwin.types import Metrics, Outcome, State, Trial


class Generation(ABC):
    """Ticket = generation x population + index."""

    def __init__(self, center: NDArray[np.float32], population: int, *, seed: int) -> None:
        self.population, self._seed, self._key = population, seed, seeds.key(seed, seeds.Stream.NOISE)
        self.mean = np.array(center, np.float64)
        self.version = self._asked = 0
        self.reused = 0  # individuals of this generation that were played in an earlier one: the last ones
        self._fitness, self._told = np.full(population, np.nan), np.zeros(population, np.bool_)
        self._reason = ""
        self._given: dict[int, NDArray[np.float32]] = {}  # individuals that are not drawn: changed on their way, or kept

    @property
    def center(self) -> NDArray[np.float32]:
        """The mean, as it is played."""
        return self.mean.astype(np.float32)

    def ask(self, n: int) -> list[Trial]:
        """The next n of this generation, none when all are out."""
        first, self._asked = self._asked, min(self._asked + n, self.population - self.reused)
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
            self._reason = self._reason or outcome.reason
            if "params" in outcome.arrays:
                self._given[index] = np.asarray(outcome.arrays["params"], np.float32)
        return self._turn() if self._told.all() else None

    def state_dict(self) -> State:
        """All that changes."""
        return {
            "mean": self.mean,
            "numbers": [self.version, self._asked, self.reused],
            "fitness": self._fitness,
            "told": self._told,
            "reason": self._reason,
            "given": {str(index): x for index, x in self._given.items()},
        }

    def load_state_dict(self, state: State) -> None:
        """Be the strategy that wrote `state`."""
        self.mean, self._reason = np.array(state["mean"]), state["reason"]
        self.version, self._asked, self.reused = state["numbers"]
        self._fitness, self._told = np.array(state["fitness"]), np.array(state["told"])
        self._given = {int(index): np.array(x, np.float32) for index, x in state["given"].items()}

    @abstractmethod
    def _draw(self, index: int) -> NDArray[np.float32]:
        """An individual of this generation."""

    @abstractmethod
    def _learn(self, rows: Vector, order: NDArray[np.int64]) -> Metrics:
        """Move by individuals [n, D], best first; `order` are their indices."""

    def _individual(self, index: int) -> NDArray[np.float32]:
        return self._given[index] if index in self._given else self._draw(index)

    def _trial(self, index: int) -> Trial:
        return Trial(self.version * self.population + index, self.version, self._individual(index))

    def _index(self, ticket: int) -> int:
        generation, index = divmod(ticket, self.population)
        if generation != self.version or index >= self._asked or self._told[index]:
            raise TicketError(f"ticket {ticket} was never given out, came back twice, or its generation is closed (open: {self.version})")
        return index

    def _turn(self) -> Metrics:
        """Rank, learn, begin the next generation. A failed individual is no parent."""
        whole = np.isfinite(self._fitness)
        if not whole.any():
            raise EnvironmentFailure(f"every individual of generation {self.version} failed; the first reason: {self._reason or 'unknown'}")
        order = np.argsort(-np.where(whole, self._fitness, -np.inf), kind="stable")[: int(whole.sum())]
        rows = np.stack([self._individual(int(i)) for i in order]).astype(np.float64)
        returns, old, fitness = self._fitness[whole], self.mean, self._fitness
        metrics = self._learn(rows, order)
        self.version += 1
        self._fitness, self._told = np.full(self.population, np.nan), np.zeros(self.population, np.bool_)
        self._asked, self._reason, self._given, self.reused = 0, "", {}, 0
        self._begin(rows, fitness[order], order)
        return metrics | {
            "return_mean": float(returns.mean()),
            "return_std": float(returns.std()),
            "return_max": float(returns.max()),
            "return_min": float(returns.min()),
            "failed": float((~whole).sum()),
            "mean_moved": float(np.linalg.norm(self.mean - old)),
        }

    def _begin(self, rows: Vector, fitness: NDArray[np.float64], order: NDArray[np.int64]) -> None:
        """A generation begins; given the last one's individuals, their fitness and their indices. Most strategies forget them."""
        return
