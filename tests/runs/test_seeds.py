"""Several seeds side by side: the same runs as one at a time."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from baldwin.errors import UserError
from baldwin.runs.checkpoint import list_checkpoints
from baldwin.runs.seeds import parse_seeds
from tests.patience import PATIENCE, wait_until
from tests.runs.tools import baldwin, in_process, shown

TRAIN = ["train", "--env", "CartPole-v1", "-m", "policy.hidden=[4]", "algorithm.population=8", "run.episodes=2", "stop.score=null"]


def test_lists_of_seeds() -> None:
    assert parse_seeds("1-3,7, 2") == [1, 2, 3, 7]
    for wrong in ("", "3-1", "a", "1-", "-1", "1-99999", "1.5", "9" * 30):
        with pytest.raises(UserError, match="--seeds takes numbers and ranges"):
            parse_seeds(wrong)


def test_seeds_side_by_side_are_the_same_runs(tmp_path: Path) -> None:
    done = baldwin(*TRAIN, "stop.generations=2", "--seeds", "3,5", "--out", tmp_path / "both")
    assert done.returncode == 0, done.stderr
    assert "2 seeds" in done.stdout
    assert "seed 3: done" in done.stdout
    assert "IQM" in done.stdout  # compared as one group
    alone = in_process(*TRAIN, "stop.generations=2", "--seed", 5, "--out", tmp_path / "alone")
    assert alone.returncode == 0, alone.stderr
    assert shown(tmp_path / "both" / "s5")["params_sha256"] == shown(tmp_path / "alone")["params_sha256"]
    assert shown(tmp_path / "both" / "s3")["seed"] == 3


def test_a_seed_that_fails_is_named_and_the_others_are_done(tmp_path: Path) -> None:
    (tmp_path / "s2").write_text("in the way")
    done = baldwin(*TRAIN, "executor.name=inline", "stop.generations=1", "--seeds", "1-2", "--out", tmp_path)
    assert done.returncode == 1
    assert "seed 2: cannot make a run directory" in done.stderr
    assert shown(tmp_path / "s1")["generations"] == 1


def test_ctrl_c_saves_all_of_them(tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "baldwin",
        *TRAIN,
        "executor.name=inline",
        "stop.env_steps=1e9",
        "run.checkpoint_every=1",
        "--seeds",
        "1-2",
        "--out",
        str(tmp_path),
    ]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    wait_until(lambda: all(list_checkpoints(tmp_path / f"s{n}" / "checkpoints") for n in (1, 2)), lambda: process.poll() is None)
    assert process.poll() is None
    os.kill(process.pid, signal.SIGINT)
    process.communicate(timeout=PATIENCE)
    assert process.returncode == 130
    for n in (1, 2):
        assert in_process("evaluate", tmp_path / f"s{n}", "--episodes", 1).returncode == 0
