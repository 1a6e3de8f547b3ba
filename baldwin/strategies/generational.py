"""Generations over vectors: who was asked, who is back, and what came back changed. A subclass draws and updates."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from baldwin.errors import EnvironmentFailure, TicketError
from baldwin.ops import seeds
from baldwin.ops.shaping import Vector
from baldwin.ops.statistics import return_stats
from baldwin.types import Metrics, Outcome, State, Trial


class GenerationalStrategy(ABC):
    """Ticket = generation x population + index."""

    def __init__(self, center: NDArray[np.float32], population: int, *, seed: int) -> None:
        self.population, self._seed, self._key = population, seed, seeds.key(seed, seeds.Stream.NOISE)
        self.mean = np.array(center, np.float64)
        self.version = 0
        self.n_reused = 0  # individuals of this generation that were played in an earlier one: the last ones
        self._asked = 0
        self._fitness = np.full(population, np.nan)
        self._told = np.zeros(population, np.bool_)
        self._reason = ""  # why the first one failed
        self._overrides: dict[int, NDArray[np.float32]] = {}  # individuals that are not drawn: changed by gradient, or kept

    @property
    def center(self) -> NDArray[np.float32]:
        """The mean, in the precision of the policies."""
        return self.mean.astype(np.float32)

    def set_center(self, center: NDArray[np.float32]) -> None:
        """Go on from there; between generations. Individuals of this one are drawn anew, and none is kept of the last."""
        self.mean = np.array(center, np.float64)
        self._start_generation()

    def ask(self, n: int) -> list[Trial]:
        """The next n of this generation, none when all are out."""
        first = self._asked
        self._asked = min(first + n, self.population - self.n_reused)
        return [self._trial(index) for index in range(first, self._asked)]

    def reopen(self, ticket: int) -> Trial:
        """The trial of an open ticket again."""
        return self._trial(self.index_of(ticket))

    def tell(self, outcomes: Sequence[Outcome]) -> Metrics | None:
        """Assign results by ticket; the last one of the generation updates the distribution."""
        for outcome in outcomes:
            index = self.index_of(outcome.ticket)
            self._told[index] = True
            self._fitness[index] = outcome.scalar if not outcome.failed else np.nan
            self._reason = self._reason or outcome.reason
            if "params" in outcome.arrays:
                self._overrides[index] = np.asarray(outcome.arrays["params"], np.float32)
        return self._finish_generation() if self._told.all() else None

    def index_of(self, ticket: int) -> int:
        """Which individual of this generation has the ticket.

        Raises:
            TicketError: it is not open.
        """
        generation, index = divmod(ticket, self.population)
        if generation != self.version or index >= self._asked or self._told[index]:
            raise TicketError(f"ticket {ticket} was never given out, came back twice, or its generation is closed (open: {self.version})")
        return index

    def state_dict(self) -> State:
        """Mean, counters, and this generation's results so far."""
        return {
            "mean": self.mean,
            "version": self.version,
            "asked": self._asked,
            "n_reused": self.n_reused,
            "fitness": self._fitness,
            "told": self._told,
            "reason": self._reason,
            "overrides": {str(index): x for index, x in self._overrides.items()},
        }

    def load_state_dict(self, state: State) -> None:
        """Continue from a `state_dict`."""
        self.mean = np.array(state["mean"])
        self.version = state["version"]
        self._asked = state["asked"]
        self.n_reused = state["n_reused"]
        self._fitness = np.array(state["fitness"])
        self._told = np.array(state["told"])
        self._reason = state["reason"]
        self._overrides = {int(index): np.array(x, np.float32) for index, x in state["overrides"].items()}

    @abstractmethod
    def _draw(self, index: int) -> NDArray[np.float32]:
        """An individual of this generation."""

    @abstractmethod
    def _update(self, individuals: Vector, indices: NDArray[np.int64]) -> Metrics:
        """Update the distribution by individuals [n, D], best first; `indices` are theirs in the generation."""

    def _reuse(self, individuals: Vector, fitness: Vector, indices: NDArray[np.int64]) -> None:
        """Called when a generation begins, with the last one's individuals: a subclass may keep some of them."""
        return

    def _start_generation(self) -> None:
        self._asked = 0
        self._fitness = np.full(self.population, np.nan)
        self._told = np.zeros(self.population, np.bool_)
        self._reason = ""
        self._overrides = {}
        self.n_reused = 0

    def _individual(self, index: int) -> NDArray[np.float32]:
        return self._overrides[index] if index in self._overrides else self._draw(index)

    def _trial(self, index: int) -> Trial:
        return Trial(self.version * self.population + index, self.version, self._individual(index))

    def _finish_generation(self) -> Metrics:
        """Rank, update, begin the next generation. A failed individual is no parent."""
        usable = np.isfinite(self._fitness)
        if not usable.any():
            raise EnvironmentFailure(f"every individual of generation {self.version} failed; the first reason: {self._reason or 'unknown'}")
        best_first = np.argsort(-np.where(usable, self._fitness, -np.inf), kind="stable")[: int(usable.sum())]
        individuals = np.stack([self._individual(int(i)) for i in best_first]).astype(np.float64)
        fitness, old_mean = self._fitness, self.mean
        metrics = self._update(individuals, best_first)
        self.version += 1
        self._start_generation()
        self._reuse(individuals, fitness[best_first], best_first)
        return (
            metrics
            | return_stats(fitness[usable])
            | {"failed": float((~usable).sum()), "mean_moved": float(np.linalg.norm(self.mean - old_mean))}
        )
