"""The trackers of a run: local ones are called directly, each other one follows the run's files in a process of its own."""

from __future__ import annotations

import contextlib
import json
import logging
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

from baldwin.config import RunConfig
from baldwin.config.preset import folder_name
from baldwin.errors import clean_text
from baldwin.runs.checkpoint import translate_disk_errors
from baldwin.runs.directory import RunDirectory
from baldwin.trackers import TRACKERS, TrackedRun
from baldwin.trackers.follow import CLOSE, FOLDER, Instructions
from baldwin.trackers.tracker import member_metrics, run_metrics
from baldwin.types import Individual, Metrics

log = logging.getLogger("baldwin")

CLOSE_SECONDS = 30.0  # that a tracker has to store the last lines when the run is over
PRIVATE = {"run": {"wandb", "mlflow"}, "executor": {"runtime_env"}}
"""What is not shown to trackers: addresses and variables may hold passwords."""


class Trackers:
    """All trackers of a run. They observe: one that fails is switched off with a warning, and the run goes on."""

    def __init__(self, directory: RunDirectory, config: RunConfig, env_steps: int = 0) -> None:
        """Open the local ones. `env_steps`: where a resumed run goes on."""
        group = config.run.name or folder_name(config.env.id)
        run = TrackedRun(directory.id, directory.path, directory.path.name, group, env_steps)
        entries = [TRACKERS.find(name) for name in config.run.trackers]
        with translate_disk_errors("metrics"):
            self._local = [entry.build(None, run) for entry in entries if entry.local]
        self._processes = [TrackerProcess(_instructions(entry.name, run, directory, config)) for entry in entries if not entry.local]

    def start(self) -> None:
        """Start the processes of the others; they write what the run's files hold already, too, if the tracker has not stored it."""
        for process in self._processes:
            process.start()

    def write(self, line: Metrics) -> None:
        """A line of metrics.jsonl was written."""
        self._write_local(*run_metrics(line))

    def write_member(self, record: Individual) -> None:
        """A line of lineage.jsonl was written."""
        self._write_local(*member_metrics(record))

    def close(self) -> None:
        """Close all; waits for the processes, but not for ever."""
        for tracker in self._local:
            tracker.close()
        for process in self._processes:
            process.close()

    def _write_local(self, metrics: Metrics, step: int) -> None:
        with translate_disk_errors("metrics"):
            for tracker in self._local:
                tracker.write(metrics, step)
        for process in self._processes:
            process.check()


class TrackerProcess:
    """The process of one tracker, seen from the run."""

    def __init__(self, instructions: Instructions) -> None:
        self._instructions = instructions
        self._name = instructions.tracker
        self._folder = Path(instructions.folder) / FOLDER
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it; if that fails, the run goes on without it."""
        try:
            self._folder.mkdir(exist_ok=True)
            with open(self._folder / f"{self._name}.log", "wb") as output:
                self._process = subprocess.Popen(
                    [sys.executable, "-P", "-m", "baldwin.trackers.follow"],  # -P: nothing is imported from the working directory
                    stdin=subprocess.PIPE,
                    stdout=output,
                    stderr=output,
                    start_new_session=True,  # Ctrl-C is for the run, which then closes its trackers
                )
            self._send(json.dumps(asdict(self._instructions)).encode())
        except OSError as error:
            self._switch_off(str(error))

    def check(self) -> None:
        """Notice that it ended before the run."""
        if self._process and self._process.poll() is not None:
            self._switch_off(self._reason())

    def close(self) -> None:
        """Let it store the last lines; one that takes too long is killed."""
        if not self._process:
            return
        with contextlib.suppress(OSError):  # it is gone already, and its exit code says how
            self._send(CLOSE)
        try:
            failed = self._process.wait(CLOSE_SECONDS) != 0
        except subprocess.TimeoutExpired:
            self._switch_off(f"it did not finish within {CLOSE_SECONDS:g} s of the end of the run")
            return
        if failed:
            self._switch_off(self._reason())
        self._end()

    def _send(self, line: bytes) -> None:
        if self._process and self._process.stdin:
            self._process.stdin.write(line + b"\n")
            self._process.stdin.flush()

    def _reason(self) -> str:
        """The last line that the process has printed."""
        try:
            lines = (self._folder / f"{self._name}.log").read_text(errors="replace").splitlines()
        except OSError:
            lines = []
        return clean_text(lines[-1]).rstrip(".") if lines else "its process ended without a message"

    def _switch_off(self, reason: str) -> None:
        self._end()
        log.warning(
            "tracker %r is switched off, the run goes on: %s. Details are in %s; baldwin resume writes what is missing",
            self._name,
            reason,
            self._folder / f"{self._name}.log",
        )

    def _end(self) -> None:
        """Leave no process behind, and no open pipe."""
        if self._process:
            self._process.kill()
            with contextlib.suppress(subprocess.TimeoutExpired):  # not even a killed process ends while a dead network disk holds it
                self._process.wait(1.0)
            if self._process.stdin:
                with contextlib.suppress(OSError):
                    self._process.stdin.close()
        self._process = None


def _instructions(name: str, run: TrackedRun, directory: RunDirectory, config: RunConfig) -> Instructions:
    options = config.run.tracker_options(name)
    return Instructions(
        tracker=name,
        options=options.model_dump(mode="json") if options else None,
        config=config.model_dump(mode="json", exclude=PRIVATE),
        id=run.id,
        folder=str(run.folder.absolute()),
        name=run.name,
        group=run.group,
        files={"metrics": str(directory.metrics.absolute())}
        | ({"members": str(directory.lineage.absolute())} if config.population else {}),
    )
