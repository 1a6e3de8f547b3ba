"""Checkpoints: a folder of safetensors and a JSON manifest with checksums, made aside, fsynced, renamed."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load, save

from baldwin.errors import Diverged, RunDirectoryError, StorageError, describe_exception
from baldwin.tree import join, split
from baldwin.types import Arrays, State

SCHEMA = 3
STATE, POLICY, MANIFEST = "state.safetensors", "policy.safetensors", "manifest.json"
REFUSALS = {
    errno.ENOSPC: "the disk is full",
    errno.EDQUOT: "the disk quota is used up",
    errno.EFBIG: "a file may not grow further",
    errno.EROFS: "the disk is read-only",
}


UNREADABLE = (OSError, ValueError, KeyError, IndexError, TypeError, AttributeError, RecursionError, OverflowError, SafetensorError)
"""What reading damaged or hostile files can raise."""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """What a checkpoint folder holds."""

    path: Path
    generation: int
    info: dict[str, Any]  # where journal and metrics stood, clocks, scores
    state: State
    policy: dict[str, Any]


@contextmanager
def translate_disk_errors(what: str) -> Iterator[None]:
    """Say clearly what the disk refused.

    Raises:
        StorageError: it is full, read-only or over quota.
        RunDirectoryError: a file cannot be opened: permissions, a folder where a file should be, too long a name.
    """
    try:
        yield
    except OSError as error:
        if error.errno in REFUSALS:
            raise StorageError(
                f"could not write {what}: {REFUSALS[error.errno]}. Earlier checkpoints are intact; free some space, then: baldwin resume DIR"
            ) from error
        if error.filename is None:
            raise
        raise RunDirectoryError(f"could not use {what}: {str(error.filename)[:200]!r}: {error.strerror}") from error


def require_finite(arrays: Arrays, what: str) -> None:
    """Refuse parameters and statistics that are not numbers.

    Raises:
        Diverged: names the array.
    """
    for name, array in arrays.items():
        if np.issubdtype(array.dtype, np.floating) and not np.isfinite(array).all():
            bad = int((~np.isfinite(array)).sum())
            raise Diverged(f"{name} of {what}: {bad:,} of {array.size:,} numbers are not finite. Lower the learning rate or the noise")


def policy_hash(policy: Arrays) -> str:
    """params_sha256: over parameters and observation statistics, bit by bit."""
    digest = hashlib.sha256()
    for name in sorted(policy):
        digest.update(f"{name}:{policy[name].dtype.str}:{policy[name].shape};".encode())
        digest.update(policy[name].tobytes())
    return digest.hexdigest()


def write_checkpoint(folder: Path, generation: int, info: dict[str, Any], state: State, policy: Arrays, keep: int) -> Path:
    """Save whole or not at all; then forget all but the newest `keep`. `info["run"]` is the id of the run.

    Raises:
        Diverged: the policy is not finite; nothing was written.
        StorageError: the disk refused.
    """
    require_finite(policy, "the policy")
    final, temporary = folder / f"{generation:08d}", folder / f".writing-{generation:08d}"
    with translate_disk_errors("a checkpoint"):
        try:
            _write_temporary(temporary, generation, info, state, policy)
            if final.exists():  # the same generation again, after a resume: the old one stays until the new one has its name
                old = folder / f".old-{generation:08d}"
                shutil.rmtree(old, ignore_errors=True)
                final.rename(old)
            temporary.rename(final)
            _fsync(folder)
        except BaseException:
            shutil.rmtree(temporary, ignore_errors=True)
            raise
    read_checkpoint(final)  # the previous ones go only when this one verifies
    for stale in [*folder.glob(".old-*"), *folder.glob(".writing-*"), *list_checkpoints(folder)[:-keep]]:
        shutil.rmtree(stale, ignore_errors=True)
    return final


def _write_temporary(temporary: Path, generation: int, info: dict[str, Any], state: State, policy: Arrays) -> None:
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir(parents=True)
    tensors: dict[str, Any] = {}
    tree = split(state, tensors)
    files = {STATE: save(tensors), POLICY: save(dict(policy))}
    body = {"schema": SCHEMA, "generation": generation, "params_sha256": policy_hash(policy), **info, "tree": tree}
    body["files"] = {name: hashlib.sha256(content).hexdigest() for name, content in files.items()}
    body["manifest_sha256"] = _manifest_hash(body)
    for name, content in [*files.items(), (MANIFEST, json.dumps(body, indent=1).encode())]:
        with open(temporary / name, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
    _fsync(temporary)


def read_checkpoint(path: Path, run_id: str | None = None) -> Checkpoint:
    """Read and verify, also that it is of this run, if its id is given.

    Raises:
        RunDirectoryError: something is missing, cut short, altered, or of another run; names the file.
    """
    try:
        body = json.loads((path / MANIFEST).read_bytes())
        if body["manifest_sha256"] != _manifest_hash(body):
            raise RunDirectoryError(f"checkpoint {path}: {MANIFEST} was altered")
        if body["schema"] != SCHEMA:
            raise RunDirectoryError(
                f"checkpoint {path}: expected schema {SCHEMA}, got {body['schema']}. Use the version of baldwin that wrote it."
            )
        if set(body["files"]) != {STATE, POLICY}:
            raise RunDirectoryError(f"checkpoint {path}: {MANIFEST} names other files than {STATE} and {POLICY}")
        if run_id is not None and body["run"] != run_id:
            raise RunDirectoryError(f"checkpoint {path} is of another run ({body['run']}, not {run_id})")
        hashes = dict(body["files"])
    except UNREADABLE as error:
        raise RunDirectoryError(f"checkpoint {path}: {MANIFEST} is missing or damaged ({describe_exception(error)})") from error
    contents: dict[str, bytes] = {}
    for name, expected in hashes.items():
        try:
            contents[name] = (path / name).read_bytes()
        except OSError as error:
            raise RunDirectoryError(f"checkpoint {path}: {name} cannot be read ({error.strerror})") from error
        if hashlib.sha256(contents[name]).hexdigest() != expected:
            raise RunDirectoryError(f"checkpoint {path}: {name} is damaged (its checksum differs from the manifest's)")
    try:
        return Checkpoint(path, int(body["generation"]), body, join(body["tree"], load(contents[STATE])), load(contents[POLICY]))
    except UNREADABLE as error:
        raise RunDirectoryError(f"checkpoint {path}: it does not hold what its manifest says ({describe_exception(error)})") from error


def list_checkpoints(folder: Path) -> list[Path]:
    """Folders of all checkpoints, oldest first."""
    return sorted(p for p in folder.glob("[0-9]*") if p.is_dir() and p.name.isdecimal()) if folder.is_dir() else []


def newest_checkpoint(folder: Path, run_id: str | None = None) -> tuple[Checkpoint | None, list[str]]:
    """The newest one that verifies and is of this run, and a warning for each newer one that does not."""
    warnings: list[str] = []
    for path in reversed(list_checkpoints(folder)):
        try:
            return read_checkpoint(path, run_id), warnings
        except RunDirectoryError as error:
            warnings.append(f"{error}; using an earlier one")
    return None, warnings


def _manifest_hash(body: dict[str, Any]) -> str:
    rest = {k: v for k, v in body.items() if k != "manifest_sha256"}
    return hashlib.sha256(json.dumps(rest, sort_keys=True).encode()).hexdigest()


def _fsync(folder: Path) -> None:
    with contextlib.suppress(OSError):  # some file systems cannot sync a folder
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
