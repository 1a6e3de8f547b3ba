"""What a run writes down for people and tools: metrics.jsonl, individuals.jsonl and lineage.jsonl."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

from baldwin.errors import RunDirectoryError
from baldwin.runs.checkpoint import translate_disk_errors
from baldwin.runs.directory import RunDirectory

NUMBERS = {"generation", "env_steps", "learning_steps", "wall_seconds"}
"""What every line of metrics.jsonl has."""


class JsonLines:
    """A file with one JSON object a line, each with the id of its run."""

    def __init__(self, path: Path, run_id: str, at: int = 0) -> None:
        """Go on at byte `at`; lines behind it belong to a future that was lost.

        Raises:
            RunDirectoryError: it is the file of another run.
        """
        self._run_id = run_id
        self.warnings = self._check(path, at)
        with translate_disk_errors(path.stem):
            self._file: IO[bytes] = open(path, "ab", buffering=0)  # noqa: SIM115 - closed by close()
            self._file.truncate(min(at, self.offset))
            self._end_torn_line(path)
        self._what = path.stem

    @property
    def offset(self) -> int:
        """How many bytes of lines there are."""
        return self._file.seek(0, 2)

    def write(self, content: Mapping[str, float | str]) -> None:
        """Append a JSON object; numbers that are not finite become null."""
        line = {k: (None if isinstance(v, float) and not math.isfinite(v) else v) for k, v in content.items()} | {"run": self._run_id}
        with translate_disk_errors(self._what):
            self._file.write(json.dumps(line).encode() + b"\n")

    def _check(self, path: Path, at: int) -> list[str]:
        lines, damaged = read_lines(path)
        foreign = sum(line.get("run") != self._run_id for line in lines)
        if lines and foreign == len(lines):
            raise RunDirectoryError(f"{path} is of another run than {self._run_id}. Put the right file back, or remove it")
        if (path.is_file() and path.stat().st_size < at) or (at and not path.is_file()):
            return [f"{path} is missing or shorter than its checkpoint says: earlier lines are gone"]
        return [f"{path}: {damaged + foreign} lines are damaged or of another run"] if damaged + foreign else []

    def _end_torn_line(self, path: Path) -> None:
        """A file that someone cut short must not swallow the next line."""
        if self.offset and not path.read_bytes().endswith(b"\n"):
            self._file.write(b"\n")

    def sync(self) -> None:
        """Force the lines to the disk."""
        with translate_disk_errors(self._what):
            os.fsync(self._file.fileno())

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def read_lines(path: Path) -> tuple[list[dict[str, Any]], int]:
    """The objects of a file with one a line, and how many lines were left out because they are damaged."""
    if not path.is_file():
        return [], 0
    lines: list[dict[str, Any]] = []
    damaged = 0
    for raw in path.read_bytes().splitlines():
        try:
            line = json.loads(raw)
        except (ValueError, RecursionError):
            line = None
        if isinstance(line, dict):
            lines.append(line)
        else:
            damaged += bool(raw.strip())
    return lines, damaged


def read_metrics(directory: RunDirectory) -> tuple[list[dict[str, Any]], list[str]]:
    """The run's lines of metrics.jsonl, and a warning if some were left out: damaged, or of another run."""
    lines, damaged = read_lines(directory.metrics)
    run_id = directory.id
    own = [line for line in lines if line.get("run") == run_id and {k for k, v in line.items() if _is_number(v)} >= NUMBERS]
    left_out = damaged + len(lines) - len(own)
    warning = f"{directory.metrics}: {left_out} of {damaged + len(lines)} lines are damaged or of another run; they are left out"
    return own, [warning] if left_out else []


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e300
