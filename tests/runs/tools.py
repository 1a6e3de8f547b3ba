"""Small runs for the tests."""

from __future__ import annotations

import contextlib
import io
import json
import multiprocessing as mp
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from baldwin.cli.main import main
from baldwin.config import RunConfig, load_config
from baldwin.runs.run import Run, start, train
from tests.patience import PATIENCE, wait_until
from tests.toys.processes import start_command

SMALL = [
    "policy.hidden=[8]",
    "algorithm.population=16",
    "algorithm.block=4",
    "algorithm.episodes=2",
    "algorithm.action_noise=0.05",
    "executor.name=inline",
    "run.evaluate_every=2",
    "run.episodes=3",
    "run.checkpoint_every=2",
    "stop.generations=5",
]


def small(env: str = "Hopper-v5", *overrides: str, backend: str = "auto") -> RunConfig:
    return load_config(None, [], [f"env.id={env}", f"env.backend={backend}", "env.max_episode_steps=25", *SMALL, *overrides])


def train_run(config: RunConfig, out: Path, **kwargs: Any) -> Run:
    run = start(config, out)
    train(run, **kwargs)
    return run


class RunsWhenAsked(dict[str, Run]):
    """Runs by name, each made when a test first asks for it."""

    def __init__(self, make: Callable[[str], Run]) -> None:
        super().__init__()
        self._make = make

    def __missing__(self, name: str) -> Run:
        self[name] = self._make(name)
        return self[name]


def baldwin(*args: object, **kwargs: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "baldwin", *map(str, args)], capture_output=True, text=True, timeout=PATIENCE, **kwargs)


def in_process(*args: object) -> subprocess.CompletedProcess[str]:
    """The same command without a new Python, which takes seconds to import torch."""
    out, err, code = io.StringIO(), io.StringIO(), 0
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        patch.setattr(sys, "argv", ["baldwin", *map(str, args)])
        patch.setattr(sys, "path", list(sys.path))
        try:
            main()
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else int(end.code is not None)
    return subprocess.CompletedProcess(args, code, out.getvalue(), err.getvalue())


def shown(path: Path) -> dict[str, Any]:
    return json.loads(in_process("show", path, "--json").stdout)


@contextmanager
def worker_killer(victims: int) -> Iterator[list[int]]:
    """Kills a worker process now and then, up to so many; gives the list of the dead.

    After ever longer pauses: on a fast machine the first worker dies before the run is over, on a slow one the last dies at work.
    """
    killed: list[int] = []
    over = threading.Event()

    def work() -> None:
        pause = 0.05
        while not over.wait(pause) and len(killed) < victims:
            children = mp.active_children()
            if children and children[0].pid:
                os.kill(children[0].pid, signal.SIGKILL)
                killed.append(children[0].pid)
                pause *= 2

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield killed
    finally:
        over.set()
        thread.join()


def train_and_kill_twice(options: Sequence[str], out: Path, unbroken: Run, share: float = 0.3, verb: str = "train") -> None:
    """kill -9 with this share of the unbroken run's journal written, resume, kill again halfway from there to the end, and resume."""
    command = [verb, *(f"-m{o}" for o in options), "--out", str(out), "--quiet"]
    journal, whole = out / "journal.bin", unbroken.directory.journal.stat().st_size
    for written in (share, (1 + share) / 2):
        process = start_command(command)
        wait_until(lambda size=written * whole: journal.exists() and journal.stat().st_size > size, process.is_alive, 0.002)  # type: ignore[misc]
        process.kill()
        process.join()
        command = ["resume", str(out), "--quiet"]
    done = in_process("resume", out, "--quiet")
    assert done.returncode == 0, done.stderr
