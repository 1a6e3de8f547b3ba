"""What a run writes down for people and tools: metrics.jsonl, individuals.jsonl and TensorBoard."""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

from baldwin.errors import RunDirectoryError
from baldwin.runs.checkpoint import translate_disk_errors
from baldwin.runs.directory import RunDirectory
from baldwin.types import Metrics

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


class MetricsWriter(JsonLines):
    """Lines, and the same numbers as TensorBoard scalars over environment steps."""

    def __init__(self, directory: RunDirectory, run_id: str, at: int = 0, env_steps: int = 0) -> None:
        super().__init__(directory.metrics, run_id, at)
        with translate_disk_errors("metrics"):
            self._tensorboard = TensorBoardWriter(directory.tensorboard, env_steps)

    def write_metrics(self, metrics: Metrics) -> None:
        """Add a line, and scalars."""
        self.write(metrics)
        with translate_disk_errors("metrics"):
            self._tensorboard.write({k: v for k, v in metrics.items() if k not in ("env_steps", "generation")}, int(metrics["env_steps"]))

    def close(self) -> None:
        """Close the file."""
        super().close()
        self._tensorboard.close()


class TensorBoardWriter:
    """TensorBoard events, written at once: a writer with a thread of its own would meet a full disk where nobody can catch it."""

    def __init__(self, folder: Path, env_steps: int) -> None:
        from tensorboard.compat.proto.event_pb2 import Event, SessionLog
        from tensorboard.compat.proto.summary_pb2 import Summary
        from tensorboard.summary.writer.record_writer import RecordWriter

        folder.mkdir(exist_ok=True)
        self._file = open(folder / f"events.out.tfevents.{time.time_ns()}", "wb", buffering=0)  # noqa: SIM115 - closed by close()
        self._records, self._event, self._summary = RecordWriter(self._file), Event, Summary
        self._add(file_version="brain.Event:2")
        if env_steps:  # tells TensorBoard to forget what an earlier file has behind this step
            self._add(step=env_steps + 1, session_log=SessionLog(status=SessionLog.START))

    def write(self, metrics: Metrics, step: int) -> None:
        """Add scalars at an environment step."""
        values = [self._summary.Value(tag=name, simple_value=value) for name, value in metrics.items()]
        self._add(step=step, summary=self._summary(value=values))

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _add(self, **content: Any) -> None:
        self._records.write(self._event(wall_time=time.time(), **content).SerializeToString())


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
