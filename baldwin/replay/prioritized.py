"""Prioritised experience replay (Schaul et al. 2016, arXiv 1511.05952), proportional variant."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, PositiveFloat, PositiveInt

from baldwin.config_base import ConfigModel
from baldwin.errors import ReplayError
from baldwin.ops import seeds
from baldwin.ops.priorities import importance_weights, priority
from baldwin.ops.schedules import scheduled
from baldwin.replay.buffer import ReplayBuffer
from baldwin.replay.sum_tree import SumTree
from baldwin.types import Batch, State, Windows

DEFAULT_BETA_UPDATES = 100_000  # of auto, where nobody knows how long the run is
FIRST_PRIORITY = 1.0  # of the first rows, before there is any TD error


class PrioritizedConfig(ConfigModel):
    """How often transitions are sampled: P(i) ~ (|TD error| + epsilon)^alpha, corrected by weights (N P(i))^-beta on their losses."""

    alpha: float = Field(0.6, ge=0, le=1, description="How much priorities count; 0: uniform draws")
    beta_start: float = Field(0.4, ge=0, le=1, description="How much of the bias the importance weights correct at the start; 1: all of it")
    beta_end: float = Field(1.0, ge=0, le=1, description="And in the end")
    beta_updates: PositiveInt | Literal["auto"] = Field(
        "auto",
        description="Updates until then; auto: those of the whole run, as in the paper, where stop.env_steps or stop.learning_steps says "
        "how long it is, in populations those of a member; else 100,000",
    )
    eta: float = Field(0.9, ge=0, le=1, description="Of a sequence: eta x the largest of its TD errors + (1 - eta) x their mean (R2D2)")
    initial: Literal["max", "td-error"] = Field(
        "max",
        description="Priority of new transitions: the largest of all; or by their TD error, as in Ape-X: that of the Q-network that acts (dqn), or of the critics "
        "when they arrive",
    )
    epsilon: PositiveFloat = Field(1e-6, description="Added to |TD error|, so that every transition can be sampled again")


class PrioritizedSampler:
    """Samples a replay buffer by priorities.

    New rows have the largest priority of all, so that each is likely to be seen soon. Priorities are kept for the rows that
    can be sampled now, and are saved with a checkpoint: going back to an earlier one needs nothing else.
    """

    def __init__(self, replay: ReplayBuffer, config: PrioritizedConfig, *, seed: int) -> None:
        self._replay, self._config = replay, config
        self._generators = seeds.NumberedGenerators(seed, seeds.Stream.REPLAY)
        self._tree = SumTree(replay.capacity)  # row i is at i mod capacity
        self._total = 0  # rows that were given a priority so far
        self._batches = 0  # sampled so far: one for each update

    @property
    def replay(self) -> ReplayBuffer:
        """The replay buffer whose rows it samples."""
        return self._replay

    @property
    def beta(self) -> float:
        """The exponent of the next batch's importance weights."""
        config = self._config
        updates = DEFAULT_BETA_UPDATES if config.beta_updates == "auto" else config.beta_updates
        return scheduled("linear", config.beta_start, config.beta_end, updates, self._batches)

    def sample(self, k: int, batch_size: int, n_step: int = 1, gamma: float = 1.0) -> Batch:
        """k batches [k, B, ...] by the priorities as they are now, with row indices and importance weights.

        A batch is stratified: one draw out of each of B equal parts of the total. A window of `n_step` steps has the priority of its first row.

        Raises:
            ReplayError: there are no rows yet.
        """
        indices, weights = self._draw(k, batch_size)
        return self._replay.view().rows(indices, n_step, gamma)._replace(indices=indices, weights=weights)

    def sample_windows(self, k: int, batch_size: int, before: int, steps: int) -> Windows:
        """k batches [k, B, T, ...] of windows around rows drawn as in `sample`."""
        indices, weights = self._draw(k, batch_size)
        return self._replay.view().windows(indices, before, steps)._replace(weights=weights)

    def _draw(self, k: int, batch_size: int) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        self._add_new_rows()
        if not self._total:
            raise ReplayError("the replay is empty: write to it before sampling")
        mass = self._generators[self._batches].random((k, batch_size))
        mass += np.arange(batch_size)
        mass *= self._tree.total / batch_size
        at = self._tree.find(mass)
        newest = self._total - 1
        indices = newest - (newest - at) % self._replay.capacity
        weights = importance_weights(self._tree[at], self.beta)
        self._batches += k
        return indices, weights

    def update_priorities(self, indices: NDArray[np.int64], td_error: NDArray[np.floating[Any]]) -> None:
        """Set the priorities of these rows by their newest TD errors.

        Rows that were overwritten since they were sampled are left out, and errors that are not finite: the learner says so itself.
        """
        self._add_new_rows()
        valid = np.isfinite(td_error)
        valid &= indices >= self._total - self._replay.capacity
        if not valid.all():
            indices, td_error = indices[valid], td_error[valid]
        self._tree.set(indices % self._replay.capacity, priority(td_error, self._config.alpha, self._config.epsilon))

    def state_dict(self) -> State:
        """Priorities and counters; sums follow from the priorities."""
        self._add_new_rows()
        return {"total": self._total, "batches": self._batches, "priorities": self._tree[: len(self._replay)].copy()}

    def load_state_dict(self, state: State) -> None:
        """Continue from a `state_dict`, after the replay buffer did."""
        self._total, self._batches = int(state["total"]), int(state["batches"])
        self._tree = SumTree(self._replay.capacity)
        self._tree.set(np.arange(len(state["priorities"])), state["priorities"])

    def _add_new_rows(self) -> None:
        """Rows that were written since the last call get the largest priority."""
        capacity = self._replay.capacity
        if self._total == self._replay.total:
            return
        new = np.arange(max(self._total, self._replay.total - capacity), self._replay.total)
        largest = self._tree[: min(self._total, capacity)].max(initial=0.0)
        self._tree.set(new % capacity, float(largest) or FIRST_PRIORITY)
        self._total = self._replay.total
