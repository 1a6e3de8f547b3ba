"""States of members as files, named by the hash of what they hold: a copy of a member is the same name, and no file is written twice."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import reduce
from io import BufferedReader
from operator import getitem
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import load, save

from baldwin.errors import RunDirectoryError
from baldwin.tree import FlatArrays, join, split
from baldwin.types import Shared, State

TREE, CONTENT = "$tree", "content"
SUFFIX = ".safetensors"


def pack_state(state: State) -> bytes:
    """A nested state as one file: its arrays as safetensors, the rest as JSON beside them."""
    arrays: FlatArrays = {}
    tree = json.dumps(split(state, arrays), sort_keys=True)
    return save({**arrays, TREE: np.frombuffer(tree.encode(), np.uint8)})


def unpack_state(content: bytes) -> State:
    """The inverse of `pack_state`."""
    arrays = load(content)
    state: State = join(json.loads(arrays.pop(TREE).tobytes()), arrays)
    return state


def state_hash(content: bytes) -> str:
    """The name of a state."""
    return hashlib.sha256(content).hexdigest()


def state_key(name: str) -> str:
    """The key that a state is shared under, where workers cannot read the run's files."""
    return f"state {name}"


def shared_state(content: bytes) -> Shared:
    """A state for those workers that begin from it."""
    return Shared(state_key(state_hash(content)), 0, {CONTENT: np.frombuffer(content, np.uint8)}, 0, on_demand=True)


def dropped_state(name: str) -> Shared:
    """The same state when nobody will begin from it any more."""
    return Shared(state_key(name), 0, {}, 1, on_demand=True)


@dataclass(frozen=True, slots=True)
class StateFiles:
    """The folder of a run's states."""

    folder: Path

    def write(self, content: bytes) -> str:
        """Keep a state, whole or not at all; returns its hash."""
        name = state_hash(content)
        target = self._path(name)
        if not target.exists():
            self.folder.mkdir(parents=True, exist_ok=True)
            temporary = self.folder / f".writing-{os.getpid()}-{name}"
            with open(temporary, "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(target)
        return name

    def has(self, name: str) -> bool:
        """Whether there is a file of this state."""
        return self._path(name).exists()

    def read(self, name: str) -> bytes:
        """A state by its hash.

        Raises:
            RunDirectoryError: it is missing or damaged.
        """
        with self._open(name) as file:
            content = file.read()
        self._require_hash(name, state_hash(content))
        return content

    def load(self, name: str) -> State:
        """A state by its hash, unpacked.

        Raises:
            RunDirectoryError: it is missing or damaged.
        """
        content = self.read(name)
        with self._unpacking(name):
            return unpack_state(content)

    def load_part(self, name: str, *keys: str) -> Any:
        """What a state has under these keys, each within the one before. The rest, such as a replay buffer, is not kept in memory.

        Raises:
            RunDirectoryError: the state is missing or damaged.
        """
        with self._open(name) as file:
            self._require_hash(name, hashlib.file_digest(file, "sha256").hexdigest())
        place = "".join(f"/{key}" for key in keys)
        with self._unpacking(name), safe_open(self._path(name), "numpy") as arrays:
            tree = json.loads(arrays.get_tensor(TREE).tobytes())
            wanted = [path for path in arrays.keys() if f"{path}/".startswith(f"{place}/")]  # noqa: SIM118 - it is no dict
            return join(reduce(getitem, keys, tree), {path: arrays.get_tensor(path) for path in wanted})

    def remove(self, names: Iterable[str]) -> None:
        """Remove the files of these states; those that are not there are passed over."""
        for name in names:
            self._path(name).unlink(missing_ok=True)

    def _open(self, name: str) -> BufferedReader:
        try:
            return open(self._path(name), "rb")
        except OSError as error:
            raise RunDirectoryError(f"the state of a member is missing: {self._path(name)} ({error.strerror})") from error

    def _require_hash(self, name: str, found: str) -> None:
        if found != name:
            raise RunDirectoryError(f"the state of a member is damaged: {self._path(name)} does not have the hash that it is named by")

    @contextmanager
    def _unpacking(self, name: str) -> Iterator[None]:
        """Errors in what a file holds as errors of the run's directory."""
        try:
            yield
        except (ValueError, KeyError, TypeError, SafetensorError) as error:
            raise RunDirectoryError(f"{self._path(name)} does not hold the state of a member: {error}") from error

    def _path(self, name: str) -> Path:
        return self.folder / f"{name}{SUFFIX}"
