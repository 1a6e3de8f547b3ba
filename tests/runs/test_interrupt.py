"""Ctrl-C, SIGTERM and workers that cannot be started: from the first line on, a run is saved and says how to go on."""

from __future__ import annotations

import multiprocessing.forkserver
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from baldwin.errors import BaldwinError
from baldwin.executors import ExecutorConfig
from baldwin.executors.process import ProcessExecutor
from baldwin.runs.interrupt import Signals
from baldwin.runs.run import start, train
from tests.patience import PATIENCE
from tests.runs.tools import in_process, small
from tests.toys.sphere import SphereWorker

TRAIN = ["train", "--env", "CartPole-v1", "-m", "policy.hidden=[8]", "algorithm.population=16", "stop.env_steps=1e9", "stop.score=null"]


def start_and_signal(out: Path, executor: str, delay: float, number: int, group: bool, burners: int = 0) -> tuple[int, str]:
    """Exit code and messages of a run that gets a signal so long after its first line; with its children, as a terminal does it.

    From that line on, so many other processes keep the machine busy.
    """
    command = [sys.executable, "-m", "baldwin", *TRAIN, f"executor.name={executor}", "--out", str(out)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True)
    assert process.stdout is not None
    assert "run directory" in process.stdout.readline()
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(burners)]
    try:
        time.sleep(delay)  # the moment of the signal is what is varied, not waited for
        (os.killpg if group else os.kill)(process.pid, number)
        _, errors = process.communicate(timeout=PATIENCE)
    finally:
        for burner in busy:
            burner.kill()
            burner.wait()
    return process.returncode, errors


@pytest.mark.parametrize(("executor", "delay"), [("process", 0.0), ("process", 0.5), ("process", 2.0), ("inline", 0.0)])
def test_ctrl_c_at_any_moment_saves_and_says_how_to_go_on(executor: str, delay: float, tmp_path: Path) -> None:
    code, errors = start_and_signal(tmp_path / "run", executor, delay, signal.SIGINT, group=True)
    assert code == 130, errors
    assert re.search(r"stopped at generation \d+; saved. Go on with: baldwin resume", errors)
    assert "Traceback" not in errors
    assert in_process("evaluate", tmp_path / "run", "--episodes", 2).returncode == 0


@pytest.mark.parametrize(("executor", "number"), [("ray", signal.SIGTERM), ("ray", signal.SIGINT), ("process", signal.SIGTERM)])
def test_other_executors_and_signals(executor: str, number: int, tmp_path: Path) -> None:
    """Ray is started by the run, because it then has a handler of its own for SIGTERM."""
    code, errors = start_and_signal(tmp_path / "run", executor, 0.5, number, group=False)
    assert code == 130, errors
    assert "saved. Go on with" in errors


def test_ctrl_c_on_a_busy_machine(tmp_path: Path) -> None:
    code, errors = start_and_signal(tmp_path / "run", "process", 0.2, signal.SIGINT, group=True, burners=6)
    assert code == 130, errors
    assert "saved. Go on with" in errors


def test_a_signal_after_the_last_result_is_not_lost(tmp_path: Path) -> None:
    run = start(small("CartPole-v1", "run.evaluate_every=100"), tmp_path / "run")
    checkpoint = run.checkpoint

    def signalled(force: bool = False) -> Path | None:
        if force and run.stopped_by:  # the last one, when nobody waits any more
            os.kill(os.getpid(), signal.SIGINT)
        return checkpoint(force)

    run.checkpoint = signalled  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt):
        train(run)
    assert run.stopped_by


def test_a_second_signal_does_not_interrupt_the_saving() -> None:
    with Signals.held() as signals:
        with pytest.raises(KeyboardInterrupt), signals.waiting():
            os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGINT)  # while it saves
        with pytest.raises(KeyboardInterrupt), signals.waiting():
            pytest.fail("it should have been raised at once")


def test_a_server_that_dies_is_started_again(monkeypatch: pytest.MonkeyPatch) -> None:
    server = multiprocessing.forkserver._forkserver
    executor = ProcessExecutor(SphereWorker, ExecutorConfig(workers=1))
    try:
        for _ in range(2):
            assert server._forkserver_pid is not None
            os.kill(server._forkserver_pid, signal.SIGKILL)
            executor._replace(0, "killed by the test")
        assert executor.deaths == 2
    finally:
        executor.close()


def test_workers_that_cannot_be_started_are_an_error_with_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    def dead(*args: object) -> None:
        raise EOFError

    monkeypatch.setattr("multiprocessing.popen_forkserver.forkserver.connect_to_new_process", dead)
    with pytest.raises(BaldwinError, match="no worker process could be started in 5 tries: EOFError"):
        ProcessExecutor(SphereWorker, ExecutorConfig(workers=1))
