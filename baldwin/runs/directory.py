"""A run's folder: what lies where, and who may write."""

from __future__ import annotations

import contextlib
import fcntl
import itertools
import json
import os
import platform
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any

from baldwin.config import RunConfig, dump_config, read_config
from baldwin.config.preset import folder_name
from baldwin.errors import RunDirectoryError, nearest
from baldwin.ops.threads import cores
from baldwin.rollout.fingerprint import PACKAGES, versions
from baldwin.runs.checkpoint import translate_disk_errors
from baldwin.runs.trust import header_of, new_run_id, read_header

CONFIG = "config.yaml"


class RunDirectory:
    """Paths of one run, and a lock that the operating system frees if its holder dies."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.config, self.versions = path / CONFIG, path / "environment.json"
        self.metrics, self.journal = path / "metrics.jsonl", path / "journal.bin"
        self.checkpoints, self.tensorboard = path / "checkpoints", path / "tensorboard"
        self.individuals, self.replay = path / "individuals.jsonl", path / "replay"
        self.lineage, self.members = path / "lineage.jsonl", path / "members"
        self.opponents = path / "opponents.safetensors"
        self.curve, self.timeline = path / "curve.png", path / "timeline.png"
        self._lock: IO[str] | None = None

    @staticmethod
    def create(config: RunConfig, out: Path | None) -> RunDirectory:
        """A new one at `out`, or at the first free name under run.out.

        Raises:
            RunDirectoryError: there is a run at `out` already.
        """
        run_id = new_run_id()
        try:
            directory = RunDirectory(_new_folder(config) if out is None else out)
            if _exists(directory.config):
                raise RunDirectoryError(f"there is a run in {out} already. Go on with it: baldwin resume {out}; or give another --out")
            leftovers = [p.name for p in (directory.journal, directory.checkpoints, directory.replay, directory.metrics) if _exists(p)]
            if leftovers:
                raise RunDirectoryError(f"{out} has parts of another run: {', '.join(leftovers)}. Remove them, or give another --out")
            directory.path.mkdir(parents=True, exist_ok=True)
            with translate_disk_errors("the run directory"):
                directory.lock()
                directory.versions.write_text(json.dumps({"run": run_id, **describe_machine()}, indent=1))
                directory.write_config(config, run_id)
        except (OSError, ValueError) as error:  # ValueError: a NUL in the name
            where = str(out or config.run.out)[:200]
            raise RunDirectoryError(f"cannot make a run directory at {where!r}: {_reason(error)}. Give another --out") from error
        return directory

    @staticmethod
    def find(path: Path) -> RunDirectory:
        """An existing one.

        Raises:
            RunDirectoryError: there is none; names the nearest.
        """
        if not _exists(path / CONFIG):
            near = nearest(str(path), _siblings(path))
            raise RunDirectoryError(f"no run in {str(path)[:200]!r}: expected a folder with {CONFIG}.{near}")
        return RunDirectory(path)

    @property
    def id(self) -> str:
        """The id of the run, which all of its files carry.

        Raises:
            RunDirectoryError: its config has none.
        """
        run_id, _ = self._header()
        if run_id is None:
            raise RunDirectoryError(
                f"{self.config} has no line '# baldwin run ...' at its top, so nobody knows which run's files these are"
            )
        return run_id

    def records_of(self, config: RunConfig) -> Path:
        """Where the records of individuals go: of a population, its lineage."""
        return self.lineage if config.population else self.individuals

    def states_of(self, config: RunConfig) -> Path:
        """Where the algorithm keeps files of its own: the states of members, or the replay."""
        return self.members if config.population else self.replay

    def read_config(self) -> RunConfig:
        """What was chosen when the run was made. Nothing that it names is imported."""
        return read_config(self.config)

    def write_config(self, config: RunConfig, run_id: str, sign: bool = True) -> None:
        """Save every key, signed by this user if `sign`; whole or not at all: without it nothing can be resumed."""
        body = dump_config(config)
        temporary = self.config.with_suffix(".writing")
        with open(temporary, "w", encoding="utf-8") as file:
            file.write(header_of(run_id, body, sign) + body)
            file.flush()
            os.fsync(file.fileno())
        temporary.rename(self.config)

    def require_trust(self, config: RunConfig, trust: bool, sections: Sequence[str] = ("env", "policy", "algorithm")) -> None:
        """Refuse a directory that this user did not write if using it would import code, or write through links.

        Raises:
            RunDirectoryError: names what it would import, and how to allow it.
        """
        if trust or self.is_own():
            return
        code = [found for found in config.foreign_code() if found.partition(".")[0] in sections]
        code += [f"link {p.relative_to(self.path)}" for p in sorted(self.path.rglob("*")) if p.is_symlink()]
        if code:
            raise RunDirectoryError(
                f"{self.config} was not written by you on this machine (or was edited), and would use {', '.join(code)}. "
                "If you trust whoever wrote it, add --trust (in Python: trust=True)"
            )

    def is_own(self) -> bool:
        """Whether this user wrote the config, and nobody changed it since."""
        return self._header()[1]

    def _header(self) -> tuple[str | None, bool]:
        try:
            return read_header(self.config.read_text(encoding="utf-8"))
        except (OSError, UnicodeError) as error:
            raise RunDirectoryError(f"cannot read {self.config}: {_reason(error)}") from error

    def changed_versions(self) -> list[str]:
        """Libraries that are not those the run began with: results may differ in the last bits from here on."""
        try:
            found = json.loads(self.versions.read_text())
            then = {str(name): str(version) for name, version in found["packages"].items()}
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return [f"{self.versions} is missing or damaged: nobody knows which library versions the run began with"]
        if found.get("run") != self.id:
            return [f"{self.versions} is of another run: nobody knows which library versions this one began with"]
        now = describe_machine()["packages"]
        changed = [f"{name} {then[name]} -> {now.get(name, 'missing')}" for name in then if now.get(name) != then[name]]
        return [f"other library versions than the run began with ({', '.join(changed)}): it may not go on bit for bit"] if changed else []

    def lock(self) -> None:
        """Be the only one that writes here.

        Raises:
            RunDirectoryError: another process does.
        """
        try:
            self._lock = open(self.path / "lock", "a+")  # noqa: SIM115 - held until unlock() or death
        except OSError as error:
            raise RunDirectoryError(f"cannot write to {self.path}: {_reason(error)}") from error
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            self._lock.seek(0)
            holder = self._lock.read().strip() or "unknown"
            self._lock.close()
            raise RunDirectoryError(f"{self.path} is in use by process {holder}. Wait for it or stop it first.") from error
        self._lock.seek(0)
        self._lock.truncate()
        self._lock.write(str(os.getpid()))
        self._lock.flush()

    def unlock(self) -> None:
        """Let other processes write to this directory again."""
        if self._lock:
            self._lock.close()
            self._lock = None


def _new_folder(config: RunConfig) -> Path:
    """Make the first free one under run.out."""
    name = config.run.name or folder_name(config.env.id)
    for n in itertools.count(1):
        folder = config.run.out / f"{name}-s{config.run.seed}{'' if n == 1 else f'-{n}'}"
        with contextlib.suppress(FileExistsError):
            folder.mkdir(parents=True)
            break
    return folder


def _siblings(path: Path) -> list[str]:
    """Run directories beside this path."""
    try:
        return [str(p.parent) for p in path.parent.glob(f"*/{CONFIG}")]
    except (OSError, ValueError):
        return []


def _exists(path: Path) -> bool:
    """Whether there is something of that name; a name that no file can have is not there."""
    try:
        return path.exists()
    except (OSError, ValueError):
        return False


def _reason(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error)


def describe_machine() -> dict[str, Any]:
    """What the run ran on."""
    packages = versions((*PACKAGES, "safetensors", "pydantic", "ray"))
    return {"python": sys.version.split()[0], "platform": platform.platform(), "cores": cores(), "packages": packages}
