"""The journal: every ask and every result of a run, in order, appended as they happen.

Feeding it back to a fresh algorithm rebuilds any moment of the run without playing a single step. A record is
[size u32][crc32 u32][meta size u32][meta JSON][arrays as safetensors]; a torn last record is recognised and cut off.
The file begins with the id of its run.
"""

from __future__ import annotations

import json
import logging
import os
import struct
import zlib
from collections.abc import Callable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from safetensors.numpy import load

from baldwin.errors import RunDirectoryError, describe_exception
from baldwin.runs.checkpoint import UNREADABLE, translate_disk_errors
from baldwin.types import Algorithm, Arrays, Metrics, Outcome

log = logging.getLogger("baldwin")
MAGIC = b"baldwin journal 3 "
NO_RUN = "0" * 16
START = len(MAGIC) + len(NO_RUN) + 1  # the id of the run follows, and a line break
HEAD = struct.Struct("<II")
META = struct.Struct("<I")
SIZE = struct.Struct("<Q")  # of the header of safetensors
DTYPES = {np.dtype(kind).str: name for name, kind in {
    "BOOL": np.bool_, "I8": np.int8, "U8": np.uint8, "I16": np.int16, "U16": np.uint16, "I32": np.int32, "U32": np.uint32,
    "I64": np.int64, "U64": np.uint64, "F16": np.float16, "F32": np.float32, "F64": np.float64,
}.items()}  # fmt: skip


class Record(NamedTuple):
    """An event, and the position in the file where the next event begins."""

    meta: dict[str, Any]
    outcomes: list[Outcome]
    end: int


class Journal:
    """Appends records; what was appended survives a kill of the process, what was synced a loss of power."""

    def __init__(self, path: Path, at: int | None = None, run_id: str = NO_RUN) -> None:
        """Open for appending at `at`, cutting off what lies behind it; a new one gets the id of its run."""
        with translate_disk_errors("the journal"):
            new = not journal_size(path)
            self._file = open(path, "r+b" if not new else "w+b", buffering=0)  # noqa: SIM115 - closed by close()
            if new:
                self._file.write(MAGIC + run_id.encode() + b"\n")
            self._file.seek(0, os.SEEK_END)
            if at is not None:
                self.rewind(at)

    @property
    def offset(self) -> int:
        """Where the next record will begin."""
        return self._file.tell()

    def append(self, meta: dict[str, Any], outcomes: list[Outcome] | None = None) -> None:
        """Add a record, whole or not at all."""
        before = self.offset
        with translate_disk_errors("the journal"):
            try:
                self._write(encode(meta, outcomes or []))
            except OSError:
                self.rewind(before)
                raise

    def rewind(self, offset: int) -> None:
        """Forget everything from there on."""
        self._file.truncate(offset)
        self._file.seek(offset)

    def sync(self) -> None:
        """Force what was appended to the disk."""
        with translate_disk_errors("the journal"):
            os.fsync(self._file.fileno())

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _write(self, record: bytes) -> None:
        while record:
            record = record[self._file.write(record) :]


def journal_size(path: Path) -> int:
    """Size of a journal in bytes; 0 if there is no file, or a file without events."""
    return path.stat().st_size if path.is_file() and path.stat().st_size >= START else 0


def encode(meta: dict[str, Any], outcomes: list[Outcome]) -> bytes:
    """A record as bytes, with its size and checksum."""
    body = b""
    if outcomes:
        arrays: dict[str, Any] = {
            "tickets": np.array([o.ticket for o in outcomes], np.int64),
            "fitness": np.array([o.fitness for o in outcomes], np.float64),  # [N], or [N, objectives]
            "env_steps": np.array([o.env_steps for o in outcomes], np.int64),
            "truncated": np.array([o.truncated for o in outcomes], np.float64),
            "critic_steps": np.array([o.critic_steps for o in outcomes], np.int64),
            "actor_steps": np.array([o.actor_steps for o in outcomes], np.int64),
            "replayed_steps": np.array([o.replayed_steps for o in outcomes], np.int64),
        }
        arrays |= {f"{row}/{name}": np.asarray(a) for row, o in enumerate(outcomes) for name, a in o.arrays.items()}
        meta = meta | {"reasons": {row: o.reason for row, o in enumerate(outcomes) if o.reason}}
        if outcomes[0].objectives:
            meta = meta | {"objectives": list(outcomes[0].objectives)}
        body = to_safetensors(arrays)
    text = json.dumps(meta).encode()
    payload = META.pack(len(text)) + text + body
    return HEAD.pack(len(payload), zlib.crc32(payload)) + payload


def to_safetensors(arrays: Arrays) -> bytes:
    """Arrays in the format of safetensors, whose own `save` takes five times as long for small ones."""
    head = _header(tuple((name, array.dtype.str, array.shape, array.nbytes) for name, array in arrays.items()))
    return b"".join([head, *(array.tobytes() for array in arrays.values())])


@lru_cache(maxsize=64)
def _header(columns: tuple[tuple[str, str, tuple[int, ...], int], ...]) -> bytes:
    """The header of arrays of these names, dtypes, shapes and bytes: most records of a run have the same one."""
    header, at = {}, 0
    for name, dtype, shape, size in columns:
        header[name] = {"dtype": DTYPES[dtype], "shape": shape, "data_offsets": (at, at + size)}
        at += size
    text = json.dumps(header).encode()
    return SIZE.pack(len(text)) + text


def decode(payload: bytes, end: int, outcomes: bool = True) -> Record:
    """The inverse of `encode`, without the head; without its outcomes too, if nobody wants them."""
    (size,) = META.unpack_from(payload)
    meta = json.loads(payload[META.size : META.size + size])
    if not isinstance(meta, dict) or not isinstance(meta["kind"], str):
        raise ValueError(f"expected a map with a kind, got {type(meta).__name__}")
    body = payload[META.size + size :]
    if not body or not outcomes:
        return Record(meta, [], end)
    arrays = load(body)
    objectives = tuple(meta.get("objectives", ()))
    decoded = []
    for row, ticket in enumerate(arrays["tickets"].tolist()):
        fitness = arrays["fitness"][row]
        decoded.append(
            Outcome(
                ticket,
                fitness if objectives else float(fitness),
                env_steps=int(arrays["env_steps"][row]),
                truncated=float(arrays["truncated"][row]),
                reason=meta["reasons"].get(str(row), ""),
                arrays={k.partition("/")[2]: a for k, a in arrays.items() if k.startswith(f"{row}/")},
                critic_steps=int(arrays["critic_steps"][row]),
                actor_steps=int(arrays["actor_steps"][row]),
                replayed_steps=int(arrays["replayed_steps"][row]),
                objectives=objectives,
            )
        )
    return Record(meta, decoded, end)


def read_journal(
    path: Path, start: int = 0, outcomes: bool = True, run_id: str | None = None, on_damage: Callable[[str], None] = log.warning
) -> Iterator[Record]:
    """The whole records from `start` on, up to the end or to one that is torn or damaged, which `on_damage` is told.

    Raises:
        RunDirectoryError: there is no journal, it is not one, or it is of another run than `run_id`.
    """
    try:
        file = open(path, "rb")  # noqa: SIM115 - closed below
    except OSError as error:
        raise RunDirectoryError(f"cannot read the journal {path}: {error.strerror}") from error
    with file:
        head = file.read(START)
        if not head.startswith(MAGIC):
            raise RunDirectoryError(f"{path} is not a journal of this version of baldwin")
        if run_id is not None and head != MAGIC + run_id.encode() + b"\n":
            raise RunDirectoryError(f"{path} is the journal of another run than {run_id}. Put the right one back")
        file.seek(max(start, START))
        while head := file.read(HEAD.size):
            at = file.tell() - len(head)
            size, crc = HEAD.unpack(head) if len(head) == HEAD.size else (0, 1)
            payload = file.read(size)
            if len(payload) < size or zlib.crc32(payload) != crc:
                on_damage(f"{path} is torn or damaged at byte {at}: the last {path.stat().st_size - at} bytes are left out")
                return
            try:
                record = decode(payload, file.tell(), outcomes)
            except (*UNREADABLE, struct.error) as error:
                raise RunDirectoryError(f"{path} has a record that is none ({describe_exception(error)})") from error
            yield record


def apply_record(algorithm: Algorithm, record: Record) -> Metrics | None:
    """Repeat the call of the algorithm that the record describes, without playing a step; metrics if it completed an update."""
    if record.meta["kind"] == "ask":
        algorithm.ask(record.meta["n"])
    elif record.meta["kind"] == "reissue":
        algorithm.reissue()
    elif record.meta["kind"] == "tell":
        return algorithm.tell(record.outcomes)
    return None
