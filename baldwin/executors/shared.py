"""Arrays in shared memory: written once, read by every worker on the machine."""

from __future__ import annotations

from dataclasses import dataclass
from multiprocessing.shared_memory import SharedMemory
from typing import Any

import numpy as np
from numpy.typing import NDArray

from baldwin.types import Arrays


@dataclass(frozen=True, slots=True)
class Parcel:
    """Where a shared value lies; small enough for a pipe."""

    number: int
    key: str
    version: int
    name: str
    layout: tuple[tuple[str, str, tuple[int, ...], int], ...]  # name, dtype, shape, offset

    @staticmethod
    def pack(number: int, key: str, version: int, arrays: Arrays) -> Parcel:
        """Copy the arrays into a new segment."""
        layout, offset = [], 0
        for name, array in arrays.items():
            layout.append((name, array.dtype.str, array.shape, offset))
            offset += -(-array.nbytes // 64) * 64
        memory = SharedMemory(create=True, size=max(1, offset))
        for name, dtype, shape, at in layout:
            np.ndarray(shape, dtype, memory.buf, at)[...] = arrays[name]
        memory.close()
        return Parcel(number, key, version, memory.name, tuple(layout))

    def free(self) -> None:
        """Give the memory back."""
        memory = SharedMemory(self.name)
        memory.close()
        memory.unlink()


def open_parcel(parcel: Parcel) -> dict[str, NDArray[Any]]:
    """The arrays, copied out."""
    memory = SharedMemory(parcel.name)
    try:
        return {name: np.ndarray(shape, dtype, memory.buf, at).copy() for name, dtype, shape, at in parcel.layout}
    finally:
        memory.close()
