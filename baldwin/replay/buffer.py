"""A ring of preallocated columns.

A row's index counts from the first row ever written; row i lies at position i mod length. Besides the user's columns
there is `next_index`: the index of the row that came next in the same episode, or -1. So episodes, and segments of
several environments, may lie anywhere, and n-step windows are built when they are sampled.

The ring is longer than what may be sampled (`capacity`): the slack keeps what an earlier checkpoint could still sample,
so that going back to it needs no copy of the data. Columns in a folder are memory-mapped files: other processes read
them without copies, and a checkpoint only waits for what is not on the disk yet. It holds checksums of the rows, chunk by
chunk, so that files that were damaged or exchanged are noticed when it is loaded.
"""

from __future__ import annotations

import mmap
import os
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from baldwin.errors import ReplayError
from baldwin.ops import seeds
from baldwin.types import Arrays, Batch, State

RESERVE = 1 << 22  # bytes of a file that are claimed from the disk at a time
CHUNK = 4096  # rows that share a checksum
NEXT_INDEX, WRITTEN = "next_index", "written"


class Column(NamedTuple):
    """What one column holds in each row."""

    dtype: str
    shape: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class ReplayView:
    """What could be sampled at some moment: enough for another process to sample the same."""

    folder: Path | None  # where others can read it
    columns: dict[str, Column]
    length: int
    first: int  # the oldest index that may be sampled
    total: int  # one past the newest
    arrays: dict[str, NDArray[Any]]

    def __getstate__(self) -> tuple[Any, ...]:
        """Files travel by name; without any, what can be sampled travels itself."""
        if self.folder is not None:
            return self.folder, self.columns, self.length, self.first, self.total, {}
        count, indices = len(self), np.arange(self.first, self.total)
        arrays = {name: np.empty((count, *a.shape[1:]), a.dtype) for name, a in self.arrays.items()}
        for name, array in arrays.items():
            array[indices % max(1, count)] = self.arrays[name][indices % self.length]
        return None, self.columns, count, self.first, self.total, arrays

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        folder, columns, length, first, total, arrays = state
        if folder is not None:
            arrays = {n: _mapped(folder / f"{n}.bin", c, length, "r") for n, c in _all_columns(columns).items()}
        names = ("folder", "columns", "length", "first", "total", "arrays")
        for name, value in zip(names, (folder, columns, length, first, total, arrays), strict=True):
            object.__setattr__(self, name, value)

    def __len__(self) -> int:
        return self.total - self.first

    def sample(self, key: tuple[int, ...], k: int, batch_size: int, n_step: int = 1, gamma: float = 1.0) -> Batch:
        """k uniform batches with replacement; a pure function of the view and the key (a seed and a path)."""
        if not len(self):
            raise ReplayError("the replay is empty: write to it before sampling")
        rng = seeds.generator(key[0], seeds.Stream.REPLAY, *key[1:])
        return self.rows(rng.integers(self.first, self.total, (k, batch_size)), n_step, gamma)

    def sampler(self, *key: int) -> ViewSampler:
        """A sampler for a learner: every call has random numbers of its own."""
        return ViewSampler(self, key)

    def rows(self, indices: NDArray[np.int64], n_step: int = 1, gamma: float = 1.0) -> Batch:
        """The transitions that begin at these rows: rewards of up to `n_step` steps, summed with discounts.

        A window ends with its episode, and at the newest row; its real length comes with it.
        """
        a, at = self.arrays, indices % self.length
        first, reward, length = at, a["reward"][at], np.ones(at.shape, np.int64)
        going, factor = np.ones(at.shape, np.bool_), 1.0
        for _ in range(n_step - 1):
            following = a[NEXT_INDEX][at]
            going &= (following >= 0) & (following < self.total) & ~(a["terminated"][at] | a["truncated"][at])
            factor *= gamma
            at = np.where(going, following % self.length, at)
            reward = reward + np.where(going, np.float32(factor) * a["reward"][at], np.float32(0))
            length += going
        return Batch(a["obs"][first], a["action"][first], reward, a["next_obs"][at], a["terminated"][at], a["truncated"][at], length)


@dataclass(slots=True)
class ViewSampler:
    """What a learner samples from where there is a view and no buffer: in another process."""

    view: ReplayView
    key: tuple[int, ...]  # a seed and a path
    samples: int = 0

    def sample(self, k: int, batch_size: int, n_step: int = 1, gamma: float = 1.0) -> Batch:
        """k uniform batches [k, B, ...]; the next call has other random numbers."""
        self.samples += 1
        return self.view.sample((*self.key, self.samples - 1), k, batch_size, n_step, gamma)


class ReplayBuffer:
    """The writer's side: appends rows and samples from them."""

    def __init__(
        self, columns: Mapping[str, Column], capacity: int, *, seed: int, folder: Path | None = None, slack: int = 0, shared: bool = True
    ) -> None:
        """Files in `folder`, which others can read if it is `shared`; otherwise in memory."""
        self.columns, self.capacity, self._folder, self._seed = dict(columns), capacity, folder, seed
        self._shared_folder = folder if shared else None
        self.length = capacity + slack
        self.total = 0
        self._samples = 0
        self._checksums: dict[tuple[str, int], int] = {}  # of chunks that are full: they do not change any more
        if folder is None:
            self._arrays = {n: np.zeros((self.length, *c.shape), c.dtype) for n, c in _all_columns(self.columns).items()}
            self._written = np.zeros(1, np.int64)
            return
        folder.mkdir(parents=True, exist_ok=True)
        self._files = {n: _File(folder / f"{n}.bin", c, self.length) for n, c in _all_columns(self.columns).items()}
        self._arrays = {n: f.array for n, f in self._files.items()}
        self._written_file = _File(folder / f"{WRITTEN}.bin", Column("<i8"), 1)
        self._written_file.reserve(1)
        self._written = self._written_file.array

    def __len__(self) -> int:
        return min(self.total, self.capacity)

    def view(self, first: int | None = None, total: int | None = None) -> ReplayView:
        """What can be sampled now, or could be when the buffer held the rows from `first` up to `total`."""
        first = max(0, self.total - self.capacity) if first is None else first
        return ReplayView(self._shared_folder, self.columns, self.length, first, self.total if total is None else total, self._arrays)

    def sample(self, k: int, batch_size: int, n_step: int = 1, gamma: float = 1.0) -> Batch:
        """k batches by the buffer's own generator: the n-th call ever is a function of (seed, n) and the rows."""
        batch = self.view().sample((self._seed, self._samples), k, batch_size, n_step, gamma)
        self._samples += 1
        return batch

    def add(self, rows: Arrays, after: int = -1) -> int:
        """Append consecutive steps of one episode or of several; `after` is the index of the row they continue, or -1.

        Returns the index of the last one.

        Raises:
            ReplayError: more rows than the buffer has places.
        """
        count, start = len(rows["reward"]), self.total
        if count > self.length:
            raise ReplayError(f"expected at most {self.length} rows at once, the length of the ring; got {count}. Raise its capacity.")
        next_index = np.arange(start + 1, start + count + 1)
        next_index[np.asarray(rows["terminated"]) | np.asarray(rows["truncated"])] = -1
        next_index[-1] = -1  # until its successor is written
        at = start % self.length
        head = min(count, self.length - at)
        for name, values in {**rows, NEXT_INDEX: next_index}.items():
            if self._folder is not None:
                self._files[name].reserve(min(self.length, start + count))
            self._arrays[name][at : at + head] = values[:head]
            self._arrays[name][: count - head] = values[head:]
        if after >= max(0, start + count - self.length):  # it may have been overwritten by then
            self._arrays[NEXT_INDEX][after % self.length] = start
        self.total += count
        self._written[0] = max(self._written[0], self.total)
        return self.total - 1

    def read(self, first: int, total: int) -> dict[str, NDArray[Any]]:
        """The rows from `first` up to `total`, as they were added."""
        at = np.arange(first, total) % self.length
        return {name: self._arrays[name][at] for name in self.columns}

    def state_dict(self, first: int | None = None) -> State:
        """Counters and checksums; the rows themselves are in the files, or in here when there are none.

        `first`: the oldest row that work which is out may still sample, if that is older than what can be sampled now.
        """
        state: State = {"total": self.total, "samples": self._samples, "length": self.length}
        if self._folder is None:
            return state | {"rows": {n: a[: min(self.total, self.length)].copy() for n, a in self._arrays.items()}}
        for file in (*self._files.values(), self._written_file):
            file.sync()
        first = min(self.total if first is None else first, max(0, self.total - self.capacity))
        return state | {"first": first, "checksums": {n: self._checksums_of(n, first, self.total) for n in self._arrays}}

    def load_state_dict(self, state: State) -> None:
        """Continue from a `state_dict`.

        Raises:
            ReplayError: rows that it could sample are gone or damaged.
        """
        if state["length"] != self.length:
            raise ReplayError(f"expected a replay of {self.length} rows; the checkpoint is of one with {state['length']}")
        self._checksums = {}
        if self._folder is not None:
            self._verify(state)
        self.total, self._samples = state["total"], state["samples"]
        for name, rows in state.get("rows", {}).items():
            self._arrays[name][: len(rows)] = rows
        next_index = self._arrays[NEXT_INDEX]
        next_index[next_index >= self.total] = -1  # to rows of a future that may come differently

    def _verify(self, state: State) -> None:
        """Check the files against a state that was saved with them, and claim their space."""
        first, total, written = state["first"], state["total"], int(self._written[0])
        missing = [str(f.path) for f in self._files.values() if f.resized]
        if total and missing:
            raise ReplayError(f"the replay of the run is not whole: {', '.join(missing)} was missing or cut short")
        if written < total:
            raise ReplayError(f"the replay in {self._folder} ends at row {written}; the checkpoint knows {total}")
        if written - self.length > first:
            raise ReplayError(
                f"the replay in {self._folder} has overwritten rows that a checkpoint at row {total} needs (it is at {written})"
            )
        for name, file in self._files.items():
            file.reserve(min(self.length, total))
            if not np.array_equal(self._checksums_of(name, first, total), state["checksums"][name]):
                raise ReplayError(
                    f"the replay of the run is damaged, or of another run: {file.path} differs from what the checkpoint knows"
                )

    def _checksums_of(self, name: str, first: int, total: int) -> NDArray[np.uint32]:
        """CRC-32 of the rows from `first` up to `total` of a column, by chunks of row indices; the first and the last may be cut."""
        bounds = [first, *range((first // CHUNK + 1) * CHUNK, total, CHUNK), total] if total > first else []
        return np.array([self._checksum(name, a, b, total) for a, b in pairwise(bounds)], np.uint32)

    def _checksum(self, name: str, first: int, end: int, total: int) -> int:
        key = (name, first // CHUNK)
        full = end - first == CHUNK and name != NEXT_INDEX  # the successor of a full chunk's row may come later
        if full and key in self._checksums:
            return self._checksums[key]
        at, array = first % self.length, self._arrays[name]
        head = min(end - first, self.length - at)
        parts = [array[at : at + head], array[: end - first - head]]
        if name == NEXT_INDEX:
            parts = [np.where(part >= total, -1, part) for part in parts]  # as it was when there were `total` rows
        checksum = 0
        for part in parts:
            checksum = zlib.crc32(np.ascontiguousarray(part).view(np.uint8).data if part.size else b"", checksum)
        if full:
            self._checksums[key] = checksum
        return checksum


class _File:
    """One column on the disk. Space is claimed before it is written to: a full disk is an error, not a crash."""

    def __init__(self, path: Path, column: Column, length: int) -> None:
        self._row = np.dtype(column.dtype).itemsize * int(np.prod(column.shape, dtype=np.int64))
        size = self._row * length
        self._handle, self.path = os.open(path, os.O_RDWR | os.O_CREAT), path
        self.resized = os.fstat(self._handle).st_size != size
        if self.resized:
            os.ftruncate(self._handle, size)
        self._claimed = 0
        self.array = _mapped(path, column, length, "r+")

    def reserve(self, rows: int) -> None:
        """Claim the space of the first so many rows."""
        end = rows * self._row
        if end > self._claimed:
            claim = min(-(-end // RESERVE) * RESERVE, os.fstat(self._handle).st_size)
            if hasattr(os, "posix_fallocate"):
                os.posix_fallocate(self._handle, self._claimed, claim - self._claimed)
            self._claimed = claim

    def sync(self) -> None:
        """Force what was written to the disk."""
        base = self.array.base
        while isinstance(base, np.ndarray):
            base = base.base
        if isinstance(base, mmap.mmap):
            base.flush()

    def __del__(self) -> None:
        os.close(self._handle)


def _all_columns(columns: Mapping[str, Column]) -> dict[str, Column]:
    return {**columns, NEXT_INDEX: Column("<i8")}


def _mapped(path: Path, column: Column, length: int, mode: str) -> NDArray[Any]:
    return np.asarray(np.memmap(path, column.dtype, mode, shape=(length, *column.shape)))  # type: ignore[call-overload]
