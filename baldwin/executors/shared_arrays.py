"""Arrays in shared memory: written once, read by every worker on the machine."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from multiprocessing.shared_memory import SharedMemory
from typing import Any

import numpy as np
from numpy.typing import NDArray

from baldwin.types import Shared


@dataclass(frozen=True, slots=True)
class SharedArrays:
    """Where a shared value lies; small enough for a pipe."""

    number: int  # counts all values ever shared
    key: str
    version: int
    oldest: int
    memory: str
    layout: tuple[tuple[str, str, tuple[int, ...], int], ...]  # name, dtype, shape, offset

    @staticmethod
    def write(number: int, shared: Shared) -> SharedArrays:
        """Copy a value into a new segment."""
        layout, offset = [], 0
        for name, array in shared.arrays.items():
            layout.append((name, array.dtype.str, array.shape, offset))
            offset += -(-array.nbytes // 64) * 64
        memory = SharedMemory(create=True, size=max(1, offset))
        for name, dtype, shape, at in layout:
            np.ndarray(shape, dtype, memory.buf, at)[...] = shared.arrays[name]
        memory.close()
        return SharedArrays(number, shared.key, shared.version, shared.oldest, memory.name, tuple(layout))

    def read(self) -> Shared:
        """The value, its arrays copied out of the shared memory."""
        memory = SharedMemory(self.memory)
        try:
            arrays: dict[str, NDArray[Any]] = {
                name: np.ndarray(shape, dtype, memory.buf, at).copy() for name, dtype, shape, at in self.layout
            }
        finally:
            memory.close()
        return Shared(self.key, self.version, arrays, self.oldest)

    def free(self) -> None:
        """Give the shared memory back to the system."""
        memory = SharedMemory(self.memory)
        memory.close()
        memory.unlink()


@dataclass(slots=True)
class SharedStore:
    """The values in shared memory: those that workers keep, and dropped ones that someone may still have to read."""

    kept: list[SharedArrays] = field(default_factory=list)
    dropped: list[SharedArrays] = field(default_factory=list)
    count: int = 0

    def add(self, shared: Shared) -> SharedArrays:
        """Write a value; versions of its key before `oldest` are dropped, and an earlier value of the same version."""
        self.count += 1
        written = SharedArrays.write(self.count, shared)
        self.dropped += [s for s in self.kept if s.key == shared.key and (s.version < shared.oldest or s.version == shared.version)]
        self.kept = [s for s in self.kept if s not in self.dropped] + [written]
        return written

    def free_dropped(self, still_read: Callable[[int], bool]) -> None:
        """Free dropped values, except those that a worker has yet to read, by number."""
        for shared in [s for s in self.dropped if not still_read(s.number)]:
            shared.free()
            self.dropped.remove(shared)

    def close(self) -> None:
        """Free the shared memory of all values, also of those that workers may still read."""
        for shared in [*self.kept, *self.dropped]:
            shared.free()
        self.kept = []
        self.dropped = []
