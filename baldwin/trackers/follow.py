"""The process of one tracker: it reads the lines that a run writes, and hands them to the tracker.

A library that blocks, or a service that dies, costs this process and never the run. The lines in the files are the queue: nothing is lost if
the tracker is slow, memory does not grow, and a resumed run goes on with the first line that the tracker has not stored.
"""

from __future__ import annotations

import fcntl
import json
import os
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any

from baldwin.errors import describe_exception
from baldwin.trackers.tracker import TRACKERS, TrackedRun, Tracker, member_metrics, run_metrics
from baldwin.types import Metrics

FOLDER = "trackers"  # of the run directory: what each tracker has stored, its log and its lock
POLL_SECONDS = 0.5
GRACE_SECONDS = 20.0  # that a tracker has to finish after the run was killed
CLOSE = b"close"
"""What the run sends when it has written its last line. Without it, the end of the pipe means that the run was killed."""


@dataclass(frozen=True, slots=True)
class Instructions:
    """What the process is started with: one line of JSON."""

    tracker: str
    options: dict[str, Any] | None
    config: dict[str, Any]  # of the run, to be shown
    id: str
    folder: str
    name: str
    group: str
    files: dict[str, str]  # 'metrics' and, of a population, 'members'

    @property
    def run(self) -> TrackedRun:
        """The run as its tracker sees it."""
        return TrackedRun(self.id, Path(self.folder), self.name, self.group)


class LineReader:
    """Reads the lines that are added to a file, except the first `skip`."""

    def __init__(self, path: Path, skip: int) -> None:
        self._path, self._skip = path, skip
        self._offset = 0
        self.lines = 0  # that were read

    def read(self) -> Iterator[dict[str, Any]]:
        """The objects that were added since the last call. Damaged lines count, but give nothing."""
        if not self._path.is_file():
            return
        with open(self._path, "rb") as file:
            file.seek(self._offset)
            for raw in file:
                if not raw.endswith(b"\n"):  # it is being written
                    return
                self._offset += len(raw)
                self.lines += 1
                if self.lines > self._skip and (line := _parse(raw)) is not None:
                    yield line


def _parse(raw: bytes) -> dict[str, Any] | None:
    try:
        line = json.loads(raw)
    except ValueError:
        return None
    return line if isinstance(line, dict) else None


class Follower:
    """Hands new lines to the tracker, and remembers in a file how many it has stored."""

    readers: Mapping[str, Callable[[Mapping[str, Any]], tuple[Metrics, int]]] = {"members": member_metrics, "metrics": run_metrics}

    def __init__(self, instructions: Instructions, path: Path) -> None:
        self._path = path
        saved = _read_position(path)
        entry = TRACKERS.find(instructions.tracker)
        options = entry.options.model_validate(instructions.options) if entry.options else None
        self._tracker: Tracker = entry.build(options, replace(instructions.run, writes=sum(saved["lines"].values())))
        known = saved["lines"] if saved["destination"] == self._tracker.destination else {}
        self._files = {kind: LineReader(Path(file), known.get(kind, 0)) for kind, file in instructions.files.items()}
        self._stored: dict[str, int] = dict(known)
        self._tracker.log_config(instructions.config)

    def write_new_lines(self) -> None:
        """Write what was added to the files since the last call."""
        for kind, file in self._files.items():
            for line in file.read():
                self._tracker.write(*self.readers[kind](line))
                self._stored[kind] = file.lines
                self._save_position()

    def close(self) -> None:
        """Close the tracker."""
        self._tracker.close()

    def _save_position(self) -> None:
        temporary = self._path.with_suffix(".writing")
        temporary.write_text(json.dumps({"destination": self._tracker.destination, "lines": self._stored}))
        temporary.rename(self._path)


def _read_position(path: Path) -> dict[str, Any]:
    """What the tracker has stored; nothing, if the file is missing or damaged."""
    try:
        found = json.loads(path.read_text())
        return {"destination": str(found["destination"]), "lines": {str(kind): int(n) for kind, n in found["lines"].items()}}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {"destination": "", "lines": {}}


class RunEnd:
    """Listens for the end of the run, in a thread: the tracker may be busy or hang."""

    def __init__(self, commands: IO[bytes]) -> None:
        self._commands = commands
        self.came = threading.Event()
        self.killed = False
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        self.killed = self._commands.readline().strip() != CLOSE
        self.came.set()
        if self.killed:
            time.sleep(GRACE_SECONDS)
            os._exit(1)  # the tracker hangs: it must not keep the lock from the run when that is resumed


def follow(instructions: Instructions, end: RunEnd) -> None:
    """Write lines until the run is over, or was killed."""
    folder = Path(instructions.folder) / FOLDER
    with open(folder / f"{instructions.tracker}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # the process of a run that was killed may be about to end
        follower = Follower(instructions, folder / f"{instructions.tracker}.json")
        while not end.came.wait(POLL_SECONDS):
            follower.write_new_lines()
        if not end.killed:
            follower.write_new_lines()
        follower.close()


def main() -> None:
    """Follow the run that the first line of the standard input describes; after a failure, the last line of the output is its reason."""
    commands = os.fdopen(sys.stdin.fileno(), "rb", buffering=0, closefd=False)  # a lock of a buffer would be held when Python ends
    try:
        follow(Instructions(**json.loads(commands.readline())), RunEnd(commands))
    except Exception as error:
        traceback.print_exc()
        print(describe_exception(error), file=sys.stderr, flush=True)
        os._exit(1)  # what the library does at exit may raise, or hang, as its service did


if __name__ == "__main__":
    main()
