"""A ring of preallocated columns.

Rows are numbered from the first one ever written (their serial); row s lies at place s mod length. Besides the user's
columns there is `link`: the serial of the row that came next in the same episode, or -1. So episodes, and stretches of
several lanes, may lie anywhere, and n-step windows are built when they are drawn.

The ring is longer than what may be drawn from (`capacity`): the surplus keeps what an earlier checkpoint could still
draw, so that going back to it needs no copy of the data. Columns in a folder are memory-mapped files: other processes
read them without copies, and a checkpoint only waits for what is not on the disk yet.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from baldwin.errors import ReplayError
from baldwin.ops import seeds
from baldwin.types import Arrays, Batch, State

RESERVE = 1 << 22  # bytes of a file that are claimed from the disk at a time
LINK, WRITTEN = "link", "written"


class Column(NamedTuple):
    """What one column holds in each row."""

    dtype: str
    shape: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class ReplayView:
    """What could be drawn at some moment: enough for another process to draw the same."""

    folder: Path | None  # where others can read it
    columns: dict[str, Column]
    length: int
    first: int  # the oldest serial that may be drawn
    total: int  # one past the newest
    arrays: dict[str, NDArray[Any]]

    def __getstate__(self) -> tuple[Any, ...]:
        """Files travel by name; without any, what can be drawn travels itself."""
        if self.folder is not None:
            return self.folder, self.columns, self.length, self.first, self.total, {}
        count, serials = len(self), np.arange(self.first, self.total)
        arrays = {name: np.empty((count, *a.shape[1:]), a.dtype) for name, a in self.arrays.items()}
        for name, array in arrays.items():
            array[serials % max(1, count)] = self.arrays[name][serials % self.length]
        return None, self.columns, count, self.first, self.total, arrays

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        folder, columns, length, first, total, arrays = state
        if folder is not None:
            arrays = {n: _mapped(folder / f"{n}.bin", c, length, "r") for n, c in _with_link(columns).items()}
        names = ("folder", "columns", "length", "first", "total", "arrays")
        for name, value in zip(names, (folder, columns, length, first, total, arrays), strict=True):
            object.__setattr__(self, name, value)

    def __len__(self) -> int:
        return self.total - self.first

    def draw(self, key: tuple[int, ...], k: int, batch: int, steps: int = 1, gamma: float = 1.0) -> Batch:
        """k uniform batches with replacement; a pure function of the view and the key (a seed and a path)."""
        if not len(self):
            raise ReplayError("the replay is empty: write to it before drawing")
        rng = seeds.generator(key[0], seeds.Stream.REPLAY, *key[1:])
        return self.rows(rng.integers(self.first, self.total, (k, batch)), steps, gamma)

    def source(self, *key: int) -> Drawer:
        """Draws in a row, for a learner: each with random numbers of its own."""
        return Drawer(self, key)

    def rows(self, serials: NDArray[np.int64], steps: int = 1, gamma: float = 1.0) -> Batch:
        """The transitions that begin at these rows: rewards of up to `steps` steps, summed with discounts.

        A window ends with its episode, and at the newest row; its real length comes with it.
        """
        a, at = self.arrays, serials % self.length
        first, reward, length = at, a["reward"][at], np.ones(at.shape, np.int64)
        going, factor = np.ones(at.shape, np.bool_), 1.0
        for _ in range(steps - 1):
            following = a[LINK][at]
            going &= (following >= 0) & (following < self.total) & ~(a["terminated"][at] | a["truncated"][at])
            factor *= gamma
            at = np.where(going, following % self.length, at)
            reward = reward + np.where(going, np.float32(factor) * a["reward"][at], np.float32(0))
            length += going
        return Batch(a["obs"][first], a["action"][first], reward, a["next_obs"][at], a["terminated"][at], a["truncated"][at], length)


@dataclass(slots=True)
class Drawer:
    """What a learner draws from where there is a view and no replay: in another process."""

    view: ReplayView
    key: tuple[int, ...]  # a seed and a path
    draws: int = 0

    def draw(self, k: int, batch: int, steps: int = 1, gamma: float = 1.0) -> Batch:
        """k uniform batches."""
        self.draws += 1
        return self.view.draw((*self.key, self.draws - 1), k, batch, steps, gamma)


class Replay:
    """The writer's side: appends, and remembers where it stands."""

    def __init__(
        self, columns: Mapping[str, Column], capacity: int, *, seed: int, folder: Path | None = None, surplus: int = 0, shared: bool = True
    ) -> None:
        """Files in `folder`, which others can read if it is `shared`; otherwise in memory."""
        self.columns, self.capacity, self._folder, self._seed = dict(columns), capacity, folder, seed
        self._seen_by_all = folder if shared else None
        self.length = capacity + surplus
        self.total = 0
        self._draws = 0
        if folder is None:
            self._arrays = {n: np.zeros((self.length, *c.shape), c.dtype) for n, c in _with_link(self.columns).items()}
            self._written = np.zeros(1, np.int64)
            return
        folder.mkdir(parents=True, exist_ok=True)
        self._files = {n: _File(folder / f"{n}.bin", c, self.length) for n, c in _with_link(self.columns).items()}
        self._arrays = {n: f.array for n, f in self._files.items()}
        self._written_file = _File(folder / f"{WRITTEN}.bin", Column("<i8"), 1)
        self._written_file.reserve(1)
        self._written = self._written_file.array

    def __len__(self) -> int:
        return min(self.total, self.capacity)

    def view(self, first: int | None = None, total: int | None = None) -> ReplayView:
        """What can be drawn now, or could be when the ring stood at these rows."""
        first = max(0, self.total - self.capacity) if first is None else first
        return ReplayView(self._seen_by_all, self.columns, self.length, first, self.total if total is None else total, self._arrays)

    def draw(self, k: int, batch: int, steps: int = 1, gamma: float = 1.0) -> Batch:
        """k batches by the replay's own generator: the n-th call ever is a function of (seed, n) and the rows."""
        drawn = self.view().draw((self._seed, self._draws), k, batch, steps, gamma)
        self._draws += 1
        return drawn

    def add(self, rows: Arrays, after: int = -1) -> int:
        """Append consecutive steps of one episode or of several; `after` is the serial of the row they continue, or -1.

        Returns the serial of the last one.
        """
        count, start = len(rows["reward"]), self.total
        if count > self.length:
            raise ReplayError(f"expected at most {self.length} rows at once, the length of the ring; got {count}. Raise its capacity.")
        link = np.arange(start + 1, start + count + 1)
        link[np.asarray(rows["terminated"]) | np.asarray(rows["truncated"])] = -1
        link[-1] = -1  # until its successor is written
        at = start % self.length
        head = min(count, self.length - at)
        for name, values in {**rows, LINK: link}.items():
            if self._folder is not None:
                self._files[name].reserve(min(self.length, start + count))
            self._arrays[name][at : at + head] = values[:head]
            self._arrays[name][: count - head] = values[head:]
        if after >= max(0, start + count - self.length):  # it may have been overwritten by then
            self._arrays[LINK][after % self.length] = start
        self.total += count
        self._written[0] = max(self._written[0], self.total)
        return self.total - 1

    def read(self, first: int, total: int) -> dict[str, NDArray[Any]]:
        """Rows as they were added."""
        at = np.arange(first, total) % self.length
        return {name: self._arrays[name][at] for name in self.columns}

    def state_dict(self) -> State:
        """Where it stands; the rows themselves are in the files, or in here when there are none."""
        state: State = {"total": self.total, "draws": self._draws, "length": self.length}
        if self._folder is None:
            return state | {"rows": {n: a[: min(self.total, self.length)].copy() for n, a in self._arrays.items()}}
        for file in (*self._files.values(), self._written_file):
            file.sync()
        return state

    def load_state_dict(self, state: State) -> None:
        """Be the replay that wrote `state`.

        Raises:
            ReplayError: rows that it could draw are gone.
        """
        total, written = state["total"], int(self._written[0])
        if state["length"] != self.length:
            raise ReplayError(f"expected a replay of {self.length} rows; the checkpoint is of one with {state['length']}")
        if self._folder is not None:
            damaged = [str(f.path) for f in self._files.values() if f.resized]
            if total and damaged:
                raise ReplayError(f"the replay of the run is not whole: {', '.join(damaged)} was missing or cut short")
            if written < total:
                raise ReplayError(f"the replay in {self._folder} ends at row {written}; the checkpoint knows {total}")
            needed = min(state.get("first", total), max(0, total - self.capacity))  # views of work that is out may reach further back
            if written > self.length and written - self.length > needed:
                raise ReplayError(
                    f"the replay in {self._folder} has overwritten rows that a checkpoint at row {total} needs (it is at {written})"
                )
            for name, file in self._files.items():
                file.reserve(min(self.length, total))
                self._arrays[name] = file.array
        self.total, self._draws = total, state["draws"]
        for name, rows in state.get("rows", {}).items():
            self._arrays[name][: len(rows)] = rows
        link = self._arrays[LINK]
        link[link >= total] = -1  # to rows of a future that may come differently


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


def _with_link(columns: Mapping[str, Column]) -> dict[str, Column]:
    return {**columns, LINK: Column("<i8")}


def _mapped(path: Path, column: Column, length: int, mode: str) -> NDArray[Any]:
    return np.asarray(np.memmap(path, column.dtype, mode, shape=(length, *column.shape)))  # type: ignore[call-overload]
