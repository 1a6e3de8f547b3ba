"""Steady-state evolution: the distribution moves with every block of results, and there is always something to ask.

A block is a few individuals of one distribution and, where the rule compares them with the mean, the mean itself. It is
applied as one update when all its results are back, with equal weight for its individuals, in the order of arrival.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, PositiveInt, model_validator

from baldwin.algorithm import FAILURE_WINDOW, AlgorithmEntry, FailureLimits, too_many_failures
from baldwin.errors import EnvironmentFailure, TicketError
from baldwin.ops.shaping import Vector
from baldwin.ops.statistics import return_stats
from baldwin.strategies.evolution import EvolutionConfig, register_strategy
from baldwin.strategies.gaussian import Gaussian
from baldwin.types import Metrics, Outcome, State, Trial


class SteadyStateConfig(EvolutionConfig, FailureLimits):
    """How the individuals of a steady-state strategy are played."""

    block: int = Field(4, ge=1, description="Individuals per job, applied as one update. Part of the run's identity")
    common_random_numbers: Literal["block", "none"] = Field(
        "block", description="Who starts from the same states: all trials of a block, or nobody"
    )

    @property
    def mean_trials_per_block(self) -> int:
        """How often the mean is played beside a block: not at all, unless the rule compares individuals with it."""
        return 0

    @property
    def extra_trials(self) -> int:
        """The trials of the mean."""
        return self.mean_trials_per_block


class BaselineConfig(SteadyStateConfig):
    """A steady-state strategy that compares individuals with the mean."""

    mean_trials: PositiveInt = Field(1, description="How often the mean is played beside each block; AES-RL has 5")

    @property
    def mean_trials_per_block(self) -> int:
        """How often the mean is played beside a block."""
        return self.mean_trials

    @model_validator(mode="after")
    def _repeats_differ(self) -> Self:
        if self.mean_trials > 1 and self.common_random_numbers == "block":
            raise ValueError(
                "mean_trials > 1 would play the mean again from the same states: raise episodes instead, or set common_random_numbers=none"
            )
        return self


@dataclass(slots=True)
class OpenBlock:
    """A block whose results are not all back."""

    version: int  # when it was asked
    individuals: Vector  # [n + 1, D], the mean last
    fitness: Vector  # [n + mean trials]; inf where a result is missing, NaN where it failed


class SteadyState:
    """A strategy made of a Gaussian. Tickets count up; a block is `block` individuals and then the trials of the mean."""

    def __init__(self, gaussian: Gaussian, config: SteadyStateConfig) -> None:
        self.gaussian, self._config = gaussian, config
        self.version = 0  # blocks that were applied
        self._asked = 0  # blocks
        self._recent_failures: list[int] = []  # 1 for each of the last blocks that failed, 0 otherwise
        self._size = config.block + config.mean_trials_per_block
        self._open: dict[int, OpenBlock] = {}

    @property
    def center(self) -> NDArray[np.float32]:
        """The mean of the distribution."""
        return self.gaussian.center

    def set_center(self, center: NDArray[np.float32]) -> None:
        """Go on from there; between updates."""
        self.gaussian.set_center(center)

    def ask(self, n: int) -> list[Trial]:
        """The trials of one block, however many blocks are open."""
        number = self._asked
        self._asked += 1
        rows = [self.gaussian.draw(number, row) for row in range(self._config.block)] + [self.center]
        self._open[number] = OpenBlock(self.version, np.stack(rows).astype(np.float64), np.full(self._size, np.inf))
        return [self._trial(number, position) for position in range(self._size)]

    def reopen(self, ticket: int) -> Trial:
        """The trial of an open ticket again."""
        return self._trial(*self._position(ticket))

    def tell(self, outcomes: Sequence[Outcome]) -> Metrics | None:
        """Assign results by ticket; a complete block updates the distribution."""
        metrics: Metrics | None = None
        for outcome in outcomes:
            number, position = self._position(outcome.ticket)
            block = self._open[number]
            block.fitness[position] = outcome.scalar if not outcome.failed else np.nan
            if not np.isposinf(block.fitness).any():
                metrics = self._apply(self._open.pop(number), outcome.reason) or metrics
        return metrics

    def state_dict(self) -> State:
        """Distribution, counters and open blocks."""
        return {
            "gaussian": self.gaussian.state_dict(),
            "version": self.version,
            "asked": self._asked,
            "recent_failures": np.array(self._recent_failures, np.int8),
            "open": {str(n): {"version": b.version, "individuals": b.individuals, "fitness": b.fitness} for n, b in self._open.items()},
        }

    def load_state_dict(self, state: State) -> None:
        """Continue from a `state_dict`."""
        self.gaussian.load_state_dict(state["gaussian"])
        self.version = state["version"]
        self._asked = state["asked"]
        self._recent_failures = state["recent_failures"].tolist()
        self._open = {int(n): OpenBlock(b["version"], np.array(b["individuals"]), np.array(b["fitness"])) for n, b in state["open"].items()}

    def _trial(self, number: int, position: int) -> Trial:
        block = self._open[number]
        return Trial(number * self._size + position, block.version, block.individuals[min(position, self._config.block)].astype(np.float32))

    def _position(self, ticket: int) -> tuple[int, int]:
        number, position = divmod(ticket, self._size)
        if number not in self._open or not np.isposinf(self._open[number].fitness[position]):
            raise TicketError(f"ticket {ticket} was never given out, or came back twice")
        return number, position

    def _apply(self, block: OpenBlock, reason: str) -> Metrics | None:
        """Update the distribution by the individuals that did not fail; None if there is nothing to learn from."""
        count = self._config.block
        fitness, baselines = block.fitness[:count], block.fitness[count:]
        usable = np.isfinite(fitness)
        baseline = float(np.nanmean(baselines)) if np.isfinite(baselines).any() else None
        if not usable.any() or (self.gaussian.needs_baseline and baseline is None):
            self._recent_failures = [*self._recent_failures, 1][-FAILURE_WINDOW:]
            give_up = too_many_failures(self._recent_failures, self._config)
            if give_up:
                raise EnvironmentFailure(f"blocks of individuals {give_up}; the last reason: {reason or 'unknown'}")
            return None
        self._recent_failures = [*self._recent_failures, 0][-FAILURE_WINDOW:]
        old_mean = self.gaussian.mean
        steps = self.gaussian.update(block.individuals[:count][usable], fitness[usable], 0.0 if baseline is None else baseline)
        staleness = self.version - block.version
        self.version += 1
        return (
            return_stats(fitness[usable])
            | ({} if baseline is None else {"baseline": baseline})
            | {
                "step_size": float(steps.mean()),
                "staleness": float(staleness),
                "failed": float((~usable).sum()),
                "variance_mean": float(self.gaussian.variance.mean()),
                "variance_floor_fraction": self.gaussian.floor_fraction,
                "mean_moved": float(np.linalg.norm(self.gaussian.mean - old_mean)),
            }
        )


def register_steady_state(config: type[SteadyStateConfig], gaussian: Callable[..., Gaussian], paper: str) -> AlgorithmEntry:
    """Add a steady-state strategy to the registry: its config, and its distribution, made as gaussian(center, config, seed=...)."""
    return register_strategy(
        config,
        lambda center, chosen, shapes, seed: SteadyState(gaussian(center, chosen, seed=seed), chosen),
        paper,
        asynchronous=True,
    )
