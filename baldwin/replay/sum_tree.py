"""A sum tree: draws in proportion to values that change all the time, in O(log n)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


class SumTree:
    """Values [size], none negative, and the sums of all subtrees above them; zero where nothing was set.

    Node i has the children 2i and 2i + 1; node 1 is the root, and the leaves come last. A sum is always computed from the
    two below it, never by adding differences: it does not drift, and equal values give an equal tree.
    """

    def __init__(self, size: int) -> None:
        self._depth = (size - 1).bit_length()
        self._first = 1 << self._depth  # of the leaves; those beyond `size` stay zero
        self._nodes = np.zeros(2 * self._first)

    @property
    def total(self) -> float:
        """The sum of all values."""
        return float(self._nodes[1])

    def __getitem__(self, at: NDArray[np.int64] | slice) -> NDArray[np.float64]:
        return self._nodes[self._first :][at]

    def set(self, at: NDArray[np.int64], values: NDArray[np.float64] | float) -> None:
        """Replace the values at these places; of a place that occurs several times, the last one counts."""
        node = at + self._first
        self._nodes[node] = values
        for _ in range(self._depth):
            node = node >> 1
            self._nodes[node] = self._nodes[2 * node] + self._nodes[2 * node + 1]

    def find(self, mass: NDArray[np.float64]) -> NDArray[np.int64]:
        """The places at which the cumulative sum passes these numbers in [0, total): for uniform ones, draws in proportion to the values.

        A value of zero is never found, as long as the total is positive.
        """
        node = np.ones(mass.shape, np.int64)
        for _ in range(self._depth):
            node = 2 * node
            left = self._nodes[node]
            right = (mass >= left) & (self._nodes[node + 1] > 0)  # rounding may leave more than there is on the right
            mass = mass - right * left
            node += right
        return node - self._first
