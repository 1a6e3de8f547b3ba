"""Signals at random moments to the driver and its workers; in the end the hash of the undisturbed run."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

from baldwin.config import dump_config
from tests.patience import PATIENCE
from tests.runs.tools import baldwin
from tests.torture.runs import EXACT, WHOLE, config_of, final_hash, reference, verb


def children(parent: int) -> list[int]:
    """Worker processes below a driver: those of the process executor, and Ray's."""
    parents: dict[int, int] = {}
    for process in Path("/proc").iterdir():
        if process.name.isdigit():
            with contextlib.suppress(OSError):
                parents[int(process.name)] = int((process / "stat").read_text().rpartition(")")[2].split()[1])

    def below(pid: int) -> bool:
        while pid in parents and pid != parent:
            pid = parents[pid]
        return pid == parent

    return sorted(pid for pid in parents if pid != parent and below(pid) and _is_worker(pid))


def _is_worker(pid: int) -> bool:
    with contextlib.suppress(OSError):
        name = Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ")
        return "RayWorker" in name or "forkserver" in name
    return False


def killed_run(rng: np.random.Generator, scratch: Path, references: Path) -> str:
    """A run that gets signals until it ends."""
    algorithm = str(rng.choice(EXACT))
    executor = str(rng.choice(["process", "process", "ray"]))
    workers = int(rng.integers(1, 4))
    _, expected = reference(algorithm, 1, references)
    config = config_of(algorithm, WHOLE, "run.seed=1", f"executor.name={executor}", f"executor.workers={workers}", "executor.retries=100")
    (scratch / "c.yaml").write_text(dump_config(config))
    out = scratch / "run"
    command = [verb(algorithm), "-c", scratch / "c.yaml", "--out", out]
    sent: list[str] = []
    for _ in range(int(rng.integers(1, 4))):
        process = subprocess.Popen(
            [sys.executable, "-m", "baldwin", *map(str, command)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        _disturb(rng, process, sent)
        stdout, stderr = process.communicate(timeout=PATIENCE)
        done = subprocess.CompletedProcess(command, process.returncode, stdout, stderr)
        assert "Traceback" not in stderr, stderr[-3000:]
        if process.returncode == 0:
            break
        assert process.returncode in (130, -signal.SIGKILL, -signal.SIGTERM, -signal.SIGINT), (
            f"{process.returncode} after {sent}: {stderr[-2000:]}"
        )
        command = ["resume", out] if (out / "config.yaml").exists() else command
    else:
        done = baldwin(*command)
    assert done.returncode == 0, f"after {sent}: {done.stderr[-2000:]}"
    assert final_hash(done) == expected, f"{algorithm} on {executor} x {workers} after {sent}"
    return f"{algorithm} on {executor}: {workers} workers, {', '.join(sent) or 'undisturbed'}"


def _disturb(rng: np.random.Generator, process: subprocess.Popen[str], sent: list[str]) -> None:
    """Send signals to a driver and its workers until it is told to end, or ends."""
    time.sleep(float(rng.uniform(0, 5)))
    for _ in range(int(rng.integers(1, 5))):
        if process.poll() is not None:
            return
        below = children(process.pid)
        target = int(rng.choice(below)) if below and rng.random() < 0.6 else process.pid
        number = signal.Signals(int(rng.choice([signal.SIGKILL, signal.SIGSTOP, signal.SIGTERM])))
        sent.append(f"{number.name} to {'driver' if target == process.pid else 'worker'}")
        with contextlib.suppress(ProcessLookupError):
            os.kill(target, number)
            if number == signal.SIGSTOP:
                time.sleep(float(rng.uniform(0.1, 1.5)))
                os.kill(target, signal.SIGCONT)
            elif target == process.pid:
                return
        time.sleep(float(rng.uniform(0, 1.5)))
