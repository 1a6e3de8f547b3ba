"""A sum tree: draws in proportion to values that change all the time, in O(log n)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

WIDTH = 16  # children of a node
MAX_TOP = 4096  # nodes of the top level, whose cumulative sums are searched at once
BELOW_ONE = 1 - 2**-52
TO_CUMULATIVE = np.triu(np.ones((WIDTH, WIDTH)))  # a product with it takes a third of the time of `cumsum`


class SumTree:
    """Values [size], none negative, and the sums of all subtrees above them; zero where nothing was set.

    Nodes have many children, so that a draw takes a few operations on whole arrays instead of twenty levels of pairs. A sum is always
    computed from all the values below it, never by adding differences: it does not drift, and equal values give an equal tree.
    """

    def __init__(self, size: int) -> None:
        self._levels: list[NDArray[np.float64]] = []  # [nodes, WIDTH]: the children of each node, values first; what is beyond stays zero
        while not self._levels or size > MAX_TOP:
            size = -(-size // WIDTH)
            self._levels.append(np.zeros((size, WIDTH)))
        self._values = self._levels[0].reshape(-1)
        self._top = np.zeros(size)  # sums of the nodes of the last level
        self._cumulative = np.zeros(size + 1)  # of those, from zero on
        self._is_current = True  # they are computed when somebody asks

    @property
    def total(self) -> float:
        """The sum of all values."""
        return float(self._cumulative_sums()[-1])

    def __getitem__(self, at: NDArray[np.int64] | slice) -> NDArray[np.float64]:
        return self._values[at]

    def set(self, at: NDArray[np.int64], values: NDArray[np.float64] | float) -> None:
        """Replace the values at these places; of a place that occurs several times, the last one counts."""
        self._values[at] = values
        for level, above in zip(self._levels, [*self._levels[1:], self._top], strict=True):
            at = at // WIDTH if len(at) <= len(level) else np.unique(at // WIDTH)
            above.reshape(-1)[at] = level.take(at, 0).sum(-1)
        self._is_current = False

    def find(self, mass: NDArray[np.float64]) -> NDArray[np.int64]:
        """The places at which the cumulative sum passes these numbers in [0, total): for uniform ones, draws in proportion to the values.

        A value of zero is never found, as long as the total is positive.
        """
        cumulative = self._cumulative_sums()
        rest = _below(mass, cumulative[-1])
        node = np.searchsorted(cumulative[1:], rest, side="right")
        rest = rest - cumulative[node]
        for level in reversed(self._levels):
            children = level.take(node, 0)
            sums = children @ TO_CUMULATIVE
            rest = _below(rest, sums[..., -1])
            child = ((sums > rest[..., None]) & (children > 0)).argmax(-1)
            node = node * WIDTH + child
            if level is not self._levels[0]:
                rest = rest - np.where(child, _at(sums, child - 1), 0.0)
        return np.asarray(node)

    def _cumulative_sums(self) -> NDArray[np.float64]:
        if not self._is_current:
            np.cumsum(self._top, out=self._cumulative[1:])
            self._is_current = True
        return self._cumulative


def _below(mass: NDArray[np.float64], limit: NDArray[np.float64]) -> NDArray[np.float64]:
    """The numbers, or one just below the limit: rounding may leave more than there is."""
    return np.minimum(mass, limit * BELOW_ONE)


def _at(rows: NDArray[np.float64], column: NDArray[np.int64]) -> NDArray[np.float64]:
    """rows[..., column], one of each row."""
    firsts = np.arange(0, rows.size, rows.shape[-1]).reshape(column.shape)
    return np.asarray(rows.reshape(-1)[firsts + column])
