"""A ring of preallocated columns.

A row's index counts from the first row ever written; row i lies at position i mod length. Besides the user's columns
there is `next_index`: the index of the row that came next in the same episode, or -1. So episodes, and segments of
several environments, may lie anywhere, and n-step windows are built when they are sampled.

Images are stored once: the next observation of a row is the image of the row that came next, and a stack of frames is
found by going back along `previous_index` (windows of steps go back along it too: whoever samples them asks for that column). Only the image after the last row of an episode, or of rows that were added together, is
stored besides, in a ring of its own to which `tail_index` points; its files take space as they are written.

The ring is longer than what may be sampled (`capacity`): the slack keeps what an earlier checkpoint could still sample,
so that going back to it needs no copy of the data. Columns in a folder are memory-mapped files: other processes read
them without copies, and a checkpoint only waits for what is not on the disk yet. It holds checksums of the rows, chunk by
chunk, so that files that were damaged or exchanged are noticed when it is loaded. Of columns that are `mutable` it holds a copy
instead: their rows are replaced after they were added, so that files know only the newest values.
"""

from __future__ import annotations

import mmap
import os
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

import numpy as np
from numpy.typing import NDArray

from baldwin.errors import ReplayError
from baldwin.observations import Observation
from baldwin.ops import seeds
from baldwin.types import Arrays, Batch, State, Windows

RESERVE = 1 << 22  # bytes of a file that are claimed from the disk at a time
CHUNK = 4096  # rows that share a checksum
NEXT_INDEX, PREVIOUS_INDEX, TAIL_INDEX, WRITTEN = "next_index", "previous_index", "tail_index", "written"
LOG_PROB, MEMORY, ELAPSED = "log_prob", "memory", "elapsed"
OBS, NEXT_OBS, TAIL = "obs/", "next_obs/", "tail/"


class Column(NamedTuple):
    """What one column holds in each row."""

    dtype: str
    shape: tuple[int, ...] = ()
    frames: int = 0  # of an image: how many are seen at once; its next observation is not stored
    mutable: bool = False  # rows may be replaced after they were added


@dataclass(frozen=True, slots=True)
class ReplayView:
    """What could be sampled at some moment: enough for another process to sample the same."""

    folder: Path | None  # where others can read it
    columns: dict[str, Column]
    length: int
    first: int  # the oldest index that may be sampled
    total: int  # one past the newest
    arrays: dict[str, NDArray[Any]]
    tail_length: int = 0

    def __getstate__(self) -> tuple[Any, ...]:
        """Files travel by name; without any, what can be sampled travels itself."""
        if self.folder is not None:
            return self.folder, self.columns, self.length, self.first, self.total, {}, self.tail_length
        indices = np.arange(self.first, self.total)
        arrays = {n: _ring(a, indices, self.length) for n, a in self.arrays.items() if not n.startswith(TAIL)}
        tails = np.zeros(0, np.int64)
        if TAIL_INDEX in self.arrays:
            tails = self.arrays[TAIL_INDEX][indices % self.length]
            tails = tails[tails >= 0]
            arrays |= {n: _ring(a, tails, self.tail_length) for n, a in self.arrays.items() if n.startswith(TAIL)}
        return None, self.columns, len(self), self.first, self.total, arrays, len(tails)

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        folder, columns, length, first, total, arrays, tail_length = state
        if folder is not None:
            arrays = {n: _mapped(_path(folder, n), c, length, "r") for n, c in _all_columns(columns).items()}
        names = ("folder", "columns", "length", "first", "total", "arrays", "tail_length")
        for name, value in zip(names, (folder, columns, length, first, total, arrays, tail_length), strict=True):
            object.__setattr__(self, name, value)

    def __len__(self) -> int:
        return self.total - self.first

    def sample(self, key: tuple[int, ...], k: int, batch_size: int, n_step: int = 1, gamma: float = 1.0) -> Batch:
        """k uniform batches with replacement; a pure function of the view and the key (a seed and a path)."""
        return self.rows(self.draw(key, k, batch_size), n_step, gamma)

    def draw(self, key: tuple[int, ...], k: int, batch_size: int) -> NDArray[np.int64]:
        """Indices [k, B] of rows, uniform and with replacement; a pure function of the view and the key.

        Raises:
            ReplayError: there are no rows yet.
        """
        if not len(self):
            raise ReplayError("the replay is empty: write to it before sampling")
        rng = seeds.generator(key[0], seeds.Stream.REPLAY, *key[1:])
        return rng.integers(self.first, self.total, (k, batch_size))

    def sampler(self, *key: int) -> ViewSampler:
        """A sampler for a learner: every call has random numbers of its own."""
        return ViewSampler(self, key)

    def rows(self, indices: NDArray[np.int64], n_step: int = 1, gamma: float = 1.0) -> Batch:
        """The transitions that begin at these rows: rewards of up to `n_step` steps, summed with discounts.

        A window ends with its episode, and at the newest row; its real length comes with it: in frames, where steps last several.
        """
        a, at = self.arrays, indices % self.length
        frames = a.get(ELAPSED)
        first, reward = at, a["reward"][at]
        length = np.ones(at.shape, np.int64) if frames is None else frames[at].astype(np.int64)
        going, factor = np.ones(at.shape, np.bool_), 1.0
        for _ in range(n_step - 1):
            following = a[NEXT_INDEX][at]
            going &= (following >= 0) & (following < self.total) & ~(a["terminated"][at] | a["truncated"][at])
            factor *= gamma
            at = np.where(going, following % self.length, at)
            discount = np.float32(factor) if frames is None else (gamma**length).astype(np.float32)
            reward = reward + np.where(going, discount * a["reward"][at], np.float32(0))
            length += going if frames is None else going * frames[at]
        obs, next_obs = self._observations(first), self._next_observations(at)
        return Batch(obs, a["action"].take(first, 0), reward, next_obs, a["terminated"][at], a["truncated"][at], length)

    def windows(self, indices: NDArray[np.int64], before: int, steps: int) -> Windows:
        """`before` steps ahead of these rows [...], and `steps` from them on, as far as their episodes go."""
        a, at = self.arrays, indices % self.length
        ahead, ahead_valid = self._walk(at, before, PREVIOUS_INDEX)
        later, later_valid = self._walk(at, steps - 1, NEXT_INDEX)
        rows = np.concatenate([ahead[..., :0:-1], later], -1)
        valid = np.concatenate([ahead_valid[..., :0:-1], later_valid], -1)
        obs, last = self._observations(rows), self._next_observations(later[..., -1])
        trained = (*(slice(None),) * indices.ndim, slice(before, -1))
        behind = np.nonzero(~later_valid)  # after the last step that is there
        for key, array in obs.items():
            obs[key] = np.concatenate([array, np.expand_dims(last[key], indices.ndim)], indices.ndim)
            obs[key][trained][behind] = last[key][behind[:-1]]
        none = np.zeros((*indices.shape, 0), np.float32)
        return Windows(
            obs,
            a["action"].take(rows, 0),
            a["reward"][rows],
            a["terminated"][rows],
            valid,
            a[LOG_PROB][rows] if LOG_PROB in a else none,
            a[MEMORY][ahead[..., -1]] if MEMORY in a else none,
            indices,
            rows=self.total - 1 - (self.total - 1 - rows) % self.length,
            elapsed=a[ELAPSED][rows] if ELAPSED in a else None,
        )

    def _walk(self, at: NDArray[np.int64], steps: int, link: str) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """Positions [..., 1 + steps] of these rows and of those to which a link leads from them, and which of these are there.

        Where an episode ends, or what can be sampled, the last row is repeated.
        """
        if not steps:
            return at[..., None], np.ones((*at.shape, 1), np.bool_)
        links, walked = self.arrays[link], [at]
        for _ in range(steps):
            walked.append(links.take(walked[-1]) % self.length)
        rows = np.stack(walked, -1)
        linked = links.take(rows[..., :-1])
        there = np.ones(rows.shape, np.bool_)
        there[..., 1:] = (linked >= self.first) & (linked < self.total)
        if link == NEXT_INDEX:
            there[..., 1:] &= ~(self.arrays["terminated"][rows[..., :-1]] | self.arrays["truncated"][rows[..., :-1]])
        if there.all():  # what follows would change nothing
            return rows, there
        there = np.logical_and.accumulate(there, -1)
        last = there.sum(-1, keepdims=True) - 1
        return np.take_along_axis(rows, np.minimum(np.arange(1 + steps), last), -1), there

    def _observations(self, at: NDArray[np.int64]) -> Observation:
        """Observations of the rows at these positions, with all frames."""
        found = {}
        for name, column in self.columns.items():
            if name.startswith(OBS):
                frames = [self.arrays[name].take(row, 0) for row in self._back(at, column.frames)]
                found[name.removeprefix(OBS)] = frames[0] if len(frames) == 1 else np.concatenate(frames[::-1], -3)
        return found

    def _next_observations(self, at: NDArray[np.int64]) -> Observation:
        """Observations after the rows at these positions."""
        a, found = self.arrays, {}
        for name, column in self.columns.items():
            key = name.removeprefix(OBS)
            if name.startswith(OBS) and not column.frames:
                found[key] = a[NEXT_OBS + key].take(at, 0)
            elif name.startswith(OBS):
                tail = a[TAIL_INDEX][at]
                newest = a[name][a[NEXT_INDEX][at] % self.length]
                newest[tail >= 0] = a[TAIL + key][tail[tail >= 0] % max(1, self.tail_length)]
                older = [a[name][row] for row in self._back(at, column.frames - 1)] if column.frames > 1 else []
                found[key] = np.concatenate([*older[::-1], newest], -3) if older else newest
        return found

    def _back(self, at: NDArray[np.int64], frames: int) -> Iterator[NDArray[np.int64]]:
        """Positions of the rows themselves and of those before them; the first of an episode, or of what can be sampled, is repeated."""
        yield at
        for _ in range(frames - 1):
            before = self.arrays[PREVIOUS_INDEX][at]
            at = np.where(before >= self.first, before % self.length, at)
            yield at


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
        self.tails = 0  # images that were stored besides the rows
        self._images = [n.removeprefix(OBS) for n, c in self.columns.items() if c.frames]
        self._mutable = [n for n, c in self.columns.items() if c.mutable]
        self._checksums: dict[tuple[str, int], int] = {}  # of chunks that are full: they do not change any more
        if folder is None:
            self._arrays = {n: np.zeros((self.length, *c.shape), c.dtype) for n, c in _all_columns(self.columns).items()}
            self._written = np.zeros(1, np.int64)
            return
        folder.mkdir(parents=True, exist_ok=True)
        self._files = {n: _File(_path(folder, n), c, self.length) for n, c in _all_columns(self.columns).items()}
        self._arrays = {n: f.array for n, f in self._files.items()}
        self._written_file = _File(_path(folder, WRITTEN), Column("<i8"), 1)
        self._written_file.reserve(1)
        self._written = self._written_file.array

    def __len__(self) -> int:
        return min(self.total, self.capacity)

    def view(self, first: int | None = None, total: int | None = None) -> ReplayView:
        """What can be sampled now, or could be when the buffer held the rows from `first` up to `total`."""
        first = max(0, self.total - self.capacity) if first is None else first
        total = self.total if total is None else total
        return ReplayView(self._shared_folder, self.columns, self.length, first, total, self._arrays, self.length)

    def sample(self, k: int, batch_size: int, n_step: int = 1, gamma: float = 1.0) -> Batch:
        """k batches by the buffer's own generator: the n-th call ever is a function of (seed, n) and the rows."""
        batch = self.view().sample((self._seed, self._samples), k, batch_size, n_step, gamma)
        self._samples += 1
        return batch

    def sample_windows(self, k: int, batch_size: int, before: int, steps: int) -> Windows:
        """k batches [k, B, T, ...] of windows around uniformly drawn rows: `before` steps ahead of them, `steps` from them on."""
        view = self.view()
        self._samples += 1
        return view.windows(view.draw((self._seed, self._samples - 1), k, batch_size), before, steps)

    def add(self, rows: Arrays, after: int = -1) -> int:
        """Append consecutive steps of one episode or of several; `after` is the index of the row they continue, or -1.

        Returns the index of the last one.

        Raises:
            ReplayError: more rows than the buffer has places.
        """
        count, start = len(rows["reward"]), self.total
        if count > self.length:
            raise ReplayError(f"expected at most {self.length} rows at once, the length of the ring; got {count}. Raise its capacity.")
        ended = np.asarray(rows["terminated"]) | np.asarray(rows["truncated"])
        next_index = np.arange(start + 1, start + count + 1)
        next_index[ended] = -1
        next_index[-1] = -1  # until its successor is written
        links = {NEXT_INDEX: next_index}
        if PREVIOUS_INDEX in self._arrays:
            previous_index = np.arange(start - 1, start + count - 1)
            previous_index[1:][ended[:-1]] = -1
            previous_index[0] = after
            links[PREVIOUS_INDEX] = previous_index
        if self._images:
            ended[-1] = True
            links[TAIL_INDEX] = np.where(ended, self.tails + np.cumsum(ended) - 1, -1)
            for key in self._images:
                self._write(TAIL + key, self.tails, rows[NEXT_OBS + key][ended])
            self.tails += int(ended.sum())
        for name in self.columns.keys() - links.keys():
            self._write(name, start, rows[name])
        for name, values in links.items():
            self._write(name, start, values)
        if after >= max(0, start + count - self.length):  # it may have been overwritten by then
            self._arrays[NEXT_INDEX][after % self.length] = start
        self.total += count
        self._written[0] = max(self._written[0], self.total)
        return self.total - 1

    def replace(self, name: str, indices: NDArray[np.int64], values: NDArray[Any]) -> None:
        """Set these rows of a mutable column, but those that cannot be sampled any more. Of a row that comes twice, the last value counts."""
        there = indices >= self.total - self.capacity
        self._arrays[name][indices[there] % self.length] = values[there]

    def _write(self, name: str, start: int, values: NDArray[Any]) -> None:
        """Write values to a column from an index on, around the end of the ring if need be."""
        count, at = len(values), start % self.length
        head = min(count, self.length - at)
        if self._folder is not None:
            self._files[name].reserve(min(self.length, start + count))
        self._arrays[name][at : at + head] = values[:head]
        if head < count:
            self._arrays[name][: count - head] = values[head:]

    def read(self, first: int, total: int) -> dict[str, NDArray[Any]]:
        """The rows from `first` up to `total`, as they were added."""
        at = np.arange(first, total) % self.length
        view = self.view(first, total)
        following = view._next_observations(at) if self._images else {}
        images = {NEXT_OBS + key: following[key][:, -self.columns[OBS + key].shape[0] :] for key in self._images}
        return {name: self._arrays[name][at] for name in self.columns if name != PREVIOUS_INDEX} | images

    def state_dict(self, first: int | None = None) -> State:
        """Counters and checksums; the rows themselves are in the files, or in here when there are none.

        `first`: the oldest row that work which is out may still sample, if that is older than what can be sampled now.
        """
        state: State = {"total": self.total, "samples": self._samples, "length": self.length, "tails": self.tails}
        if self._folder is None:
            return state | {"rows": {n: a[: min(self._count(n), self.length)].copy() for n, a in self._arrays.items()}}
        for file in (*self._files.values(), self._written_file):
            file.sync()
        first = min(self.total if first is None else first, max(0, self.total - self.capacity))
        kept = np.arange(first, self.total) % self.length
        return state | {
            "first": first,
            "checksums": {n: self._checksums_of(n, *self._span(n, first, state)) for n in self._arrays if n not in self._mutable},
            "mutable": {n: self._arrays[n][kept] for n in self._mutable},
        }

    def load_state_dict(self, state: State) -> None:
        """Continue from a `state_dict`.

        Raises:
            ReplayError: rows that it could sample are gone or damaged.
        """
        if state["length"] != self.length:
            raise ReplayError(f"expected a replay of {self.length} rows; the checkpoint is of one with {state['length']}")
        if "rows" in state and set(state["rows"]) != set(self._arrays):
            other = ", ".join(sorted(set(state["rows"]) ^ set(self._arrays)))
            raise ReplayError(f"the checkpoint is of a replay with other columns: {other}. It is of another version of Baldwin: train anew")
        self._checksums = {}
        if self._folder is not None:
            self._verify(state)
        self.total, self._samples, self.tails = state["total"], state["samples"], state["tails"]
        for name, rows in state.get("rows", {}).items():
            self._arrays[name][: len(rows)] = rows
        for name, rows in state.get("mutable", {}).items():
            self._arrays[name][np.arange(state["first"], self.total) % self.length] = rows
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
            begin, end = self._span(name, first, state)
            file.reserve(min(self.length, end))
            if name not in self._mutable and not np.array_equal(self._checksums_of(name, begin, end), state["checksums"][name]):
                raise ReplayError(
                    f"the replay of the run is damaged, or of another run: {file.path} differs from what the checkpoint knows"
                )

    def _count(self, name: str) -> int:
        """How many values were ever written to a column."""
        return self.tails if name.startswith(TAIL) else self.total

    def _span(self, name: str, first: int, state: State) -> tuple[int, int]:
        """The part of a column that the rows from `first` on need; of the images besides rows, those that the rows point to."""
        if not name.startswith(TAIL):
            return first, state["total"]
        pointers = self._arrays[TAIL_INDEX][np.arange(first, state["total"]) % self.length]
        used = pointers[pointers >= 0]
        return int(used.min(initial=state["tails"])), state["tails"]

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
    """The user's columns, the links between rows, and the images besides the rows."""
    images = {n.removeprefix(OBS): c for n, c in columns.items() if c.frames}
    links = {name: Column("<i8") for name in ((NEXT_INDEX, PREVIOUS_INDEX, TAIL_INDEX) if images else (NEXT_INDEX,))}
    return {**columns, **links, **{TAIL + key: column for key, column in images.items()}}


def _path(folder: Path, column: str) -> Path:
    """The file of a column, such as obs.camera.bin; sensors may have any name."""
    return folder / f"{'.'.join(quote(part, safe='') for part in column.split('/', 1))}.bin"


def _ring(array: NDArray[Any], indices: NDArray[np.int64], length: int) -> NDArray[Any]:
    """A ring just long enough for the values of these indices, which follow each other."""
    ring = np.empty((len(indices), *array.shape[1:]), array.dtype)
    ring[indices % max(1, len(indices))] = array[indices % max(1, length)]
    return ring


def _mapped(path: Path, column: Column, length: int, mode: str) -> NDArray[Any]:
    return np.asarray(np.memmap(path, column.dtype, mode, shape=(length, *column.shape)))  # type: ignore[call-overload]
