"""Steady-state evolution: the distribution moves with every result, and there is always something to ask.

The blocks that `ask` gives carry the mean itself along, played as often as `mean_trials` says: an individual is judged by
its gain over the mean that was played beside it. Blocks move the distribution in the order in which they come back.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, PositiveInt

from baldwin.errors import EnvironmentFailure, TicketError
from baldwin.ops.shaping import Vector
from baldwin.strategies.gaussian import Gaussian
from baldwin.strategies.search import SearchConfig
from baldwin.types import Metrics, Outcome, State, Trial

PATIENCE = 100  # blocks without a single usable result


class SteadyConfig(SearchConfig):
    """How the individuals of such a strategy are played."""

    block: int = Field(4, ge=2, multiple_of=2, description="Individuals of one job, beside the mean. Part of the run's identity")
    mean_trials: PositiveInt = Field(1, description="How often the mean is played beside each block, to judge it by; AES-RL has 5")

    @property
    def companions(self) -> int:
        """The mean rides along."""
        return self.mean_trials


class Steady:
    """Tickets count up. A block is `block` individuals and then the mean; it moves the distribution when it is whole."""

    def __init__(self, gaussian: Gaussian, config: SteadyConfig) -> None:
        self.gaussian, self._config = gaussian, config
        self.version = 0  # blocks that have moved it
        self._asked = 0  # blocks
        self._failed = 0  # blocks in a row
        self._open: dict[int, tuple[int, Vector, NDArray[np.float64]]] = {}  # block -> version, individuals [n + 1, D], fitness

    @property
    def center(self) -> NDArray[np.float32]:
        """The mean, as it is played."""
        return self.gaussian.center

    @property
    def _size(self) -> int:
        return self._config.block + self._config.mean_trials

    def ask(self, n: int) -> list[Trial]:
        """One block, whatever happens elsewhere."""
        number, self._asked = self._asked, self._asked + 1
        rows = [self.gaussian.draw(number, row) for row in range(self._config.block)] + [self.center]
        self._open[number] = (self.version, np.stack(rows).astype(np.float64), np.full(self._size, np.inf))
        return [self._trial(number, place) for place in range(self._size)]

    def reopen(self, ticket: int) -> Trial:
        """The trial of an open ticket again."""
        return self._trial(*self._place(ticket))

    def tell(self, outcomes: Sequence[Outcome]) -> Metrics | None:
        """Each whole block moves the distribution; metrics if one did."""
        found: Metrics | None = None
        for outcome in outcomes:
            number, place = self._place(outcome.ticket)
            fitness = self._open[number][2]
            fitness[place] = outcome.fitness if not outcome.failed else np.nan
            if not np.isposinf(fitness).any():
                found = self._close(number, outcome.reason) or found
        return found

    def state_dict(self) -> State:
        """All that changes."""
        return {
            "gaussian": self.gaussian.state_dict(),
            "numbers": [self.version, self._asked, self._failed],
            "open": {str(n): {"version": v, "rows": rows, "fitness": fitness} for n, (v, rows, fitness) in self._open.items()},
        }

    def load_state_dict(self, state: State) -> None:
        """Be the strategy that wrote `state`."""
        self.gaussian.load_state_dict(state["gaussian"])
        self.version, self._asked, self._failed = state["numbers"]
        self._open = {int(n): (o["version"], np.array(o["rows"]), np.array(o["fitness"])) for n, o in state["open"].items()}

    def _trial(self, number: int, place: int) -> Trial:
        version, rows, _ = self._open[number]
        return Trial(number * self._size + place, version, rows[min(place, self._config.block)].astype(np.float32))

    def _place(self, ticket: int) -> tuple[int, int]:
        number, place = divmod(ticket, self._size)
        if number not in self._open or not np.isposinf(self._open[number][2][place]):
            raise TicketError(f"ticket {ticket} was never given out, or came back twice")
        return number, place

    def _close(self, number: int, reason: str) -> Metrics | None:
        version, rows, fitness = self._open.pop(number)
        count = self._config.block
        judged, own = fitness[:count], fitness[count:]
        usable = np.isfinite(judged)
        if not usable.any() or not np.isfinite(own).any():
            self._failed += 1
            if self._failed >= PATIENCE:
                raise EnvironmentFailure(f"{PATIENCE} blocks failed one after the other; the last reason: {reason or 'unknown'}")
            return None
        self._failed, old, baseline = 0, self.gaussian.mean, float(np.nanmean(own))
        told = [self.gaussian.move(rows[row], float(judged[row]), baseline) for row in np.flatnonzero(usable)]
        staleness, self.version = self.version - version, self.version + 1
        returns = judged[usable]
        return {
            "return_mean": float(returns.mean()),
            "return_std": float(returns.std()),
            "return_max": float(returns.max()),
            "return_min": float(returns.min()),
            "baseline": baseline,
            "pull": float(np.mean(told)),
            "staleness": float(staleness),
            "failed": float((~usable).sum()),
            "variance_mean": float(self.gaussian.spread.mean()),
            "variance_floor_fraction": self.gaussian.floor_fraction,
            "mean_moved": float(np.linalg.norm(self.gaussian.mean - old)),
        }
