"""A run's folder: what lies where, and who may write."""

from __future__ import annotations

import fcntl
import json
import os
import platform
import sys
from pathlib import Path
from typing import IO, Any

from baldwin.config import RunConfig, read_config, write_config
from baldwin.errors import RunDirectoryError, nearest
from baldwin.ops.threads import cores
from baldwin.rollout.fingerprint import PACKAGES, versions
from baldwin.runs.checkpoint import translate_disk_errors


class RunDirectory:
    """Paths of one run, and a lock that the operating system frees if its holder dies."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.config, self.versions = path / "config.yaml", path / "environment.json"
        self.metrics, self.journal = path / "metrics.jsonl", path / "journal.bin"
        self.checkpoints, self.tensorboard = path / "checkpoints", path / "tensorboard"
        self.individuals, self.replay = path / "individuals.jsonl", path / "replay"
        self.curve, self.timeline = path / "curve.png", path / "timeline.png"
        self._lock: IO[str] | None = None

    @staticmethod
    def create(config: RunConfig, out: Path | None) -> RunDirectory:
        """A new one at `out`, or at the first free name under run.out.

        Raises:
            RunDirectoryError: there is a run at `out` already.
        """
        if out is None:
            name = config.run.name or config.env.id.replace(":", "-").replace("/", "-")
            stem = config.run.out / f"{name}-s{config.run.seed}"
            tries = (stem if n == 1 else stem.with_name(f"{stem.name}-{n}") for n in range(1, 100_000))
            out = next(p for p in tries if not p.exists())
        elif (out / "config.yaml").exists():
            raise RunDirectoryError(f"there is a run in {out} already. Go on with it: baldwin resume {out}; or give another --out")
        try:
            out.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise RunDirectoryError(f"cannot make the run directory {out}: {error.strerror}") from error
        directory = RunDirectory(out)
        with translate_disk_errors("the run directory"):
            directory.lock()
            directory.versions.write_text(json.dumps(describe_machine(), indent=1))
            write_config(config, directory.config)
        return directory

    @staticmethod
    def find(path: Path) -> RunDirectory:
        """An existing one.

        Raises:
            RunDirectoryError: there is none; names the nearest.
        """
        if not (path / "config.yaml").is_file():
            siblings = [str(p.parent) for p in path.parent.glob("*/config.yaml")] if path.parent.is_dir() else []
            raise RunDirectoryError(f"no run in {path}: expected a folder with config.yaml.{nearest(str(path), siblings)}")
        return RunDirectory(path)

    def read_config(self) -> RunConfig:
        """What was chosen when the run was made."""
        return read_config(self.config)

    def changed_versions(self) -> list[str]:
        """Libraries that are not those the run began with: results may differ in the last bits from here on."""
        try:
            then = json.loads(self.versions.read_text())["packages"]
        except (OSError, ValueError, KeyError):
            return []
        now = describe_machine()["packages"]
        changed = [f"{name} {then[name]} -> {now.get(name, 'missing')}" for name in then if now.get(name) != then[name]]
        return [f"other library versions than the run began with ({', '.join(changed)}): it may not go on bit for bit"] if changed else []

    def lock(self) -> None:
        """Be the only one that writes here.

        Raises:
            RunDirectoryError: another process does.
        """
        self._lock = open(self.path / "lock", "a+")  # noqa: SIM115 - held until unlock() or death
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
        """Release the lock."""
        if self._lock:
            self._lock.close()
            self._lock = None


def describe_machine() -> dict[str, Any]:
    """What the run ran on."""
    packages = versions((*PACKAGES, "safetensors", "pydantic", "ray"))
    return {"python": sys.version.split()[0], "platform": platform.platform(), "cores": cores(), "packages": packages}
