"""Players that take turns: a step of theirs is from one decision to the next, whatever the others do in between."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from baldwin.rollout import NEXT_OBS
from baldwin.types import Arrays, State

SUMMED = ("reward", "elapsed")
OF_THE_END = ("terminated", "truncated")


def complete_spans(decided: NDArray[np.bool_], ended: NDArray[np.bool_]) -> list[tuple[int, int]]:
    """(row of a decision, one past its last row) for every decision of a player [T + 1] that is answered within its segment [T]."""
    never = len(decided)
    decisions = [*np.flatnonzero(decided).tolist(), never]
    ends = [*(np.flatnonzero(ended) + 1).tolist(), never]
    found = []
    for start, following in pairwise(decisions):
        stop = min(following, next(end for end in ends if end > start))
        if stop < never:
            found.append((start, stop))
    return found


class OpenDecisions:
    """For a replay buffer: decisions that were not answered when a segment ended are completed by the next one of their environment."""

    def __init__(self) -> None:
        self._rows: dict[int, dict[str, NDArray[Any]]] = {}  # environment -> its rows from the open decision on
        self._last_index: dict[int, int] = {}  # environment -> its newest row in the buffer, or -1 where an episode ended with it

    def __contains__(self, env: int) -> bool:
        """Whether the player of this environment takes turns, as far as was seen."""
        return env in self._last_index

    def last_index(self, env: int) -> int:
        """Index in the buffer of the row that the next decision follows, or -1."""
        return self._last_index.get(env, -1)

    def stored(self, env: int, index: int, ended: bool) -> None:
        """The newest row of an environment is there in the buffer, and whether an episode ended with it."""
        self._last_index[env] = -1 if ended else index

    def forget(self, env: int) -> None:
        """The episode is given up."""
        self._rows.pop(env, None)
        if env in self._last_index:
            self._last_index[env] = -1

    def answered(self, env: int, rows: Arrays, decided: NDArray[np.bool_]) -> dict[str, NDArray[Any]]:
        """Steps from one decision to the next: rewards and frames are those of all rows between. `decided` [T + 1]: rows in which the player decides."""
        self._last_index.setdefault(env, -1)
        before = self._rows.pop(env, None)
        if before:
            waited = np.arange(len(before["reward"])) == 0  # its first row is the decision
            rows = {name: np.concatenate((before[name], array)) for name, array in rows.items()}
            decided = np.concatenate((waited, decided))
        spans = complete_spans(decided, rows["terminated"] | rows["truncated"])
        newest = np.flatnonzero(decided[:-1])[-1:].tolist()
        if newest and newest[0] not in [start for start, _ in spans]:
            self._rows[env] = {name: array[newest[0] :].copy() for name, array in rows.items()}
        return {name: _of_spans(name, array, spans) for name, array in rows.items()}

    def state_dict(self) -> State:
        """The open rows, and where their environments are in the buffer."""
        return {
            "rows": {str(env): dict(rows) for env, rows in self._rows.items()},
            "last_index": {str(env): index for env, index in self._last_index.items()},
        }

    def load_state_dict(self, state: State) -> None:
        """Continue from a `state_dict`."""
        self._rows = {int(env): dict(rows) for env, rows in state["rows"].items()}
        self._last_index = {int(env): int(index) for env, index in state["last_index"].items()}


def _of_spans(name: str, array: NDArray[Any], spans: list[tuple[int, int]]) -> NDArray[Any]:
    if name in SUMMED:
        return np.array([array[start:stop].sum(0) for start, stop in spans], array.dtype).reshape(-1, *array.shape[1:])
    is_last = name in OF_THE_END or name.startswith(NEXT_OBS)
    return array[[stop - 1 if is_last else start for start, stop in spans]]
