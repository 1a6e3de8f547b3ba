"""Scripts that start a run with worker processes, as users write them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.patience import PATIENCE

SCRIPT = """
import gymnasium
from gymnasium.envs.classic_control import CartPoleEnv

from baldwin import load_config, start, train

gymnasium.register("Mine-v0", lambda: CartPoleEnv(), max_episode_steps=20)
config = load_config(
    algorithm="es",
    env="Mine-v0",
    overrides=["policy.hidden=[4]", "algorithm.population=4", "stop.generations=1", "run.episodes=1", "executor.workers=1"],
)
run = start(config, "run")
train(run)
print("trained", run.algorithm.version, run.score)
"""


@pytest.mark.parametrize("how", ["file", "standard input"])
def test_a_script_without_a_guard_trains_in_the_environment_that_it_registers(how: str, tmp_path: Path) -> None:
    """Its workers import it up to where it starts the run; on standard input there is nothing to import, and so no environment of its own."""
    text = SCRIPT.replace('env="Mine-v0"', 'env="CartPole-v1"') if how == "standard input" else SCRIPT
    (tmp_path / "script").write_text(text)  # a program need not end in .py
    command = [sys.executable, "script" if how == "file" else "-"]
    done = subprocess.run(command, input=text, capture_output=True, text=True, timeout=PATIENCE, cwd=tmp_path, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("trained 1 ") == 1
    assert "Traceback" not in done.stderr


def test_a_script_that_fails_in_a_worker_is_said_to(tmp_path: Path) -> None:
    script = "import multiprocessing\nif multiprocessing.parent_process(): raise EOFError('only for the main process')\n" + SCRIPT
    (tmp_path / "script.py").write_text(script)
    done = subprocess.run([sys.executable, "script.py"], capture_output=True, text=True, timeout=PATIENCE, cwd=tmp_path, check=False)
    assert done.returncode != 0
    assert "a worker could not be made: EOFError: only for the main process" in done.stderr
