"""Members of a pool of opponents at play: the networks of a worker, and what each opponent remembers of its match."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from baldwin.networks import ActionMap, Forward, ObservationBuffer
from baldwin.observations import ACTION_MASK, Observation, ObservationSpec, take


class PoolPolicies:
    """Greedy actions of members. A row is one opponent in one match, whoever plays it, with its memory and earlier frames.

    A member's network always sees all rows, so that an action has the same bits whoever else decides at the same time.
    """

    def __init__(
        self, forward_of: Callable[[int, int], Forward], spec: ObservationSpec, act: ActionMap, state_size: int, rows: int
    ) -> None:
        """`forward_of`: (number of a member, rows) -> its network, (observations [rows, ...], memory [rows, S]) -> (outputs, memory)."""
        self._forward_of, self._act = forward_of, act
        self._seen = ObservationBuffer(spec, rows)
        self._memory = torch.zeros(rows, state_size)
        self._begins = np.ones(rows, np.bool_)

    def begin(self, rows: NDArray[np.intp]) -> None:
        """A match begins in these rows."""
        self._begins[rows] = True

    @torch.inference_mode()
    def act(self, members: NDArray[np.int64], obs: Observation, rows: NDArray[np.intp]) -> NDArray[Any]:
        """Actions [k, ...] of these members [k], who see these observations [k, ...] in these rows."""
        first = self._begins[rows]
        self._seen.begin(rows[first], take(obs, first))
        self._seen.advance(rows[~first], take(obs, ~first))
        self._begins[rows] = False
        memory, tensors = self._memory, self._seen.tensors
        memory[torch.from_numpy(rows[first])] = 0.0
        self._memory = memory.clone()
        found: NDArray[Any] | None = None
        for number in np.unique(members).tolist():
            out, after = self._forward_of(number, len(memory))(tensors, memory)
            actions = self._act(out, mask=tensors.get(ACTION_MASK))
            found = np.array(actions) if found is None else found
            own = rows[members == number]
            found[own] = actions[own]
            self._memory[torch.from_numpy(own)] = after[torch.from_numpy(own)]
        return members if found is None else found[rows]
