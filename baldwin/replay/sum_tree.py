"""A sum tree: draws in proportion to values that change all the time, in O(log n)."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

WIDTH = 16  # children of a node
MAX_TOP = 4096  # nodes of the top level, whose cumulative sums are searched at once
BELOW_ONE = 1 - 2**-52


class SumTree:
    """Values [size], none negative, and the sums of all subtrees above them; zero where nothing was set.

    Nodes have many children, so that a draw takes a few operations on whole arrays instead of twenty levels of pairs. A sum is always
    computed from all the values below it, never by adding differences: it does not drift, and equal values give an equal tree.
    Cumulative sums are those of torch, which add one after the other as those of NumPy do, in a fifth of the time.
    """

    def __init__(self, size: int) -> None:
        self._levels: list[NDArray[np.float64]] = []  # [nodes, WIDTH]: the children of each node, values first; what is beyond stays zero
        while not self._levels or size > MAX_TOP:
            size = -(-size // WIDTH)
            self._levels.append(np.zeros((size, WIDTH)))
        self._values = self._levels[0].reshape(-1)
        self._top = np.zeros(size)  # sums of the nodes of the last level
        self._cumulative = np.zeros(size + 1)  # of those, from zero on
        self._top_tensor, self._cumulative_tensor = torch.from_numpy(self._top), torch.from_numpy(self._cumulative)[1:]
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
            above.reshape(-1)[at] = np.einsum("nw->n", level.take(at, 0))
        self._is_current = False

    def find(self, mass: NDArray[np.float64]) -> NDArray[np.int64]:
        """The places at which the cumulative sum passes these numbers in [0, total): for uniform ones, draws in proportion to the values.

        A value of zero is never found, as long as the total is positive.
        """
        cumulative = self._cumulative_sums()
        rest = np.minimum(mass.reshape(-1), cumulative[-1] * BELOW_ONE)
        node: NDArray[np.int64] = cumulative[1:].searchsorted(rest, side="right")
        rest -= cumulative.take(node)
        for level in reversed(self._levels):
            children = level.take(node, 0)
            sums = torch.from_numpy(children).cumsum(1).numpy()
            np.minimum(rest, sums[:, -1] * BELOW_ONE, out=rest)  # rounding may leave more than there is, or less than nothing
            child = (sums > rest[:, None]).argmax(1)
            node *= WIDTH
            node += child
            if level is not self._levels[0]:
                at = np.arange(0, sums.size, WIDTH) + child
                rest -= sums.take(at) - children.take(at)
                np.maximum(rest, 0, out=rest)
        return node.reshape(mass.shape)

    def _cumulative_sums(self) -> NDArray[np.float64]:
        if not self._is_current:
            torch.cumsum(self._top_tensor, 0, out=self._cumulative_tensor)
            self._is_current = True
        return self._cumulative
