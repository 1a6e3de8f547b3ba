"""Several seeds of one configuration, side by side: a process each, as many at once as there are cores for."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from baldwin.config import RunConfig, dump_config
from baldwin.errors import BaldwinError, UserError
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


def train_seeds(configs: Sequence[RunConfig], out: Path | None, report: Callable[[str], None]) -> list[Path]:
    """Train every config in a process of its own; returns the run directories. With `out`, they are OUT/sSEED.

    Raises:
        BaldwinError: some failed; the others are done.
        KeyboardInterrupt: after SIGINT or SIGTERM, when all have saved.
    """
    threads = getattr(resolved(configs[0]).algorithm, "threads", 1)
    at_once = max(1, cores() // int(threads))
    report(f"{len(configs)} seeds, {min(at_once, len(configs))} at a time")
    running: dict[int, subprocess.Popen[str]] = {}
    stopping = threading.Event()

    def work(config: RunConfig) -> tuple[int, Path | None, str]:
        return _train_one(config, out, running, stopping, report)

    with Signals.held() as signals, ThreadPoolExecutor(at_once) as pool:
        futures = [pool.submit(work, config) for config in configs]
        try:
            with signals.waiting():
                results = [future.result() for future in futures]
        except KeyboardInterrupt:
            stopping.set()
            for process in list(running.values()):
                process.send_signal(signal.SIGINT)
            raise
    failures = [f"seed {seed}: {reason}" for seed, path, reason in results if reason]
    if failures:
        raise BaldwinError("\n".join(failures))
    return [path for _, path, _ in results if path]


def _train_one(
    config: RunConfig, out: Path | None, running: dict[int, subprocess.Popen[str]], stopping: threading.Event, report: Callable[[str], None]
) -> tuple[int, Path | None, str]:
    """Seed, run directory, and why it failed."""
    seed = config.run.seed
    if stopping.is_set():
        return seed, None, "not started"
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
        file.write(dump_config(config))
        file.flush()
        command = [sys.executable, "-m", "baldwin", "train", "-c", file.name, "-m", "executor.workers=1"]
        command += ["--out", str(out / f"s{seed}")] if out else []
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True)
        running[seed] = process
        text, errors = process.communicate()
        del running[seed]
    found = re.search(r"^run directory: (.*)$", text, re.MULTILINE)
    path = Path(found[1]) if found else None
    done = re.search(r"^done .*$", text, re.MULTILINE)
    reason = "" if done else (errors.strip().removeprefix("error: ") or f"exit code {process.returncode}")
    report(f"seed {seed}: {done[0] if done else reason}")
    return seed, path, reason
