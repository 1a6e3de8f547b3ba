"""Several seeds of one configuration, side by side: a process each, as many at once as there are cores for."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from baldwin.config import RunConfig, dump_config
from baldwin.errors import UserError
from baldwin.ops.threads import cores
from baldwin.runs.interrupt import Signals
from baldwin.runs.run import resolved

MAX_SEEDS = 1000


def parse_seeds(text: str) -> list[int]:
    """'1-3,7' -> [1, 2, 3, 7].

    Raises:
        UserError: it is no list of seeds.
    """
    found: list[int] = []
    for part in text.split(","):
        match = re.fullmatch(r"\s*(\d{1,18})(?:\s*-\s*(\d{1,18}))?\s*", part)
        first, last = (int(match[1]), int(match[2] or match[1])) if match else (1, 0)
        if not first <= last < first + MAX_SEEDS:
            raise UserError(f"--seeds takes numbers and ranges, at most {MAX_SEEDS}, as in 1-5 or 1,3,7; got {text!r}")
        found += range(first, last + 1)
    return list(dict.fromkeys(found))


@dataclass(slots=True)
class SeedRun:
    """A run of one seed, and how it ended."""

    config: RunConfig
    path: Path | None = None  # its directory, once it has one
    ending: str = "not started"
    done: bool = False


def train_seeds(configs: Sequence[RunConfig], out: Path | None, report: Callable[[str], None]) -> tuple[list[SeedRun], bool]:
    """Train every config in a process of its own. With `out`, their directories are OUT/sSEED.

    Returns how each ended, and whether SIGINT or SIGTERM came: then those that run save and stop, and no more are started.
    """
    algorithm: Any = resolved(configs[0]).algorithm
    used = getattr(getattr(algorithm, "learner", algorithm), "threads", 1)
    at_once = max(1, cores() // (used if isinstance(used, int) else 1))
    report(f"{len(configs)} seeds, {min(at_once, len(configs))} at a time")
    runs, group, interrupted = [SeedRun(config) for config in configs], ProcessGroup(), False
    with Signals.held() as signals, ThreadPoolExecutor(at_once) as pool:
        futures = [pool.submit(_train_one, run, out, group, report) for run in runs]
        try:
            with signals.waiting():
                wait(futures)
        except KeyboardInterrupt:
            interrupted = True
            group.stop()
    return runs, interrupted


class ProcessGroup:
    """Processes that are told together to stop."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: set[subprocess.Popen[str]] = set()
        self._stopped = False

    def run(self, command: Sequence[str]) -> tuple[str, str] | None:
        """What a process printed, on both streams; None if it may not start any more. A session of its own keeps Ctrl-C from it."""
        with self._lock:
            if self._stopped:
                return None
            process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True)
            self._running.add(process)
        printed = process.communicate()
        with self._lock:
            self._running.remove(process)
        return printed

    def stop(self) -> None:
        """Interrupt those that run; start no more."""
        with self._lock:
            self._stopped = True
            for process in self._running:
                process.send_signal(signal.SIGINT)


def _train_one(run: SeedRun, out: Path | None, group: ProcessGroup, report: Callable[[str], None]) -> None:
    seed = run.config.run.seed
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
        file.write(dump_config(run.config))
        file.flush()
        command = [sys.executable, "-P", "-m", "baldwin", "train", "-c", file.name, "-m", "executor.workers=1"]
        printed = group.run([*command, "--out", str(out / f"s{seed}")] if out else command)
    if printed is None:
        return
    text, errors = printed
    found = {what: re.search(rf"^{what}.*$", text, re.MULTILINE) for what in ("run directory: ", "done ")}
    run.path = Path(found["run directory: "][0].removeprefix("run directory: ")) if found["run directory: "] else None
    run.done = found["done "] is not None
    last_line = (errors.strip().splitlines() or ["it was stopped"])[-1]
    run.ending = found["done "][0] if found["done "] else last_line.removeprefix("error: ")
    report(f"seed {seed}: {run.ending}")
