"""Files that were damaged, cut or exchanged behind a run's back: noticed, named, and the same hash in the end."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from baldwin.errors import Diverged, StorageError
from baldwin.runs.checkpoint import list_checkpoints, policy_hash, read_checkpoint
from baldwin.runs.directory import RunDirectory
from baldwin.runs.journal import START, read_journal
from baldwin.runs.metrics import read_metrics
from baldwin.runs.resume import resume
from baldwin.runs.run import Run, start, train
from tests.runs.test_learner_runs import small as small_learner
from tests.runs.tools import in_process, shown, small, train_run

LONGER = ["stop.generations=6"]


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A TD3 run that was paused, and the hash that it has when it is continued undisturbed."""
    folder = tmp_path_factory.mktemp("td3")
    train_run(small_learner("td3", "stop.generations=4"), folder / "paused")
    shutil.copytree(folder / "paused", folder / "whole")
    run, warnings = resume(folder / "whole", LONGER)
    train(run)
    assert not warnings
    return folder / "paused", run.params_sha256()


def resumed(path: Path) -> tuple[Run, list[str]]:
    run, warnings = resume(path, LONGER)
    train(run)
    return run, warnings


@pytest.mark.parametrize("column", ["obs.vector", "action", "reward", "next_obs.vector", "terminated", "truncated", "next_index"])
def test_one_flipped_bit_in_the_replay_is_noticed(column: str, finished: tuple[Path, str], tmp_path: Path) -> None:
    paused, whole = finished
    path = Path(shutil.copytree(paused, tmp_path / "run"))
    file = path / "replay" / f"{column}.bin"
    state = read_checkpoint(list_checkpoints(path / "checkpoints")[-1]).state["replay"]
    content = bytearray(file.read_bytes())
    row = (state["first"] + state["total"]) // 2 % state["length"]
    position = row * (len(content) // state["length"])
    content[position] ^= 1
    file.write_bytes(content)
    run, warnings = resumed(path)
    assert any(f"{column}.bin differs" in w and "journal is done again" in w for w in warnings)
    assert run.params_sha256() == whole


def test_the_replay_of_another_run_is_noticed(finished: tuple[Path, str], tmp_path: Path) -> None:
    paused, whole = finished
    path = Path(shutil.copytree(paused, tmp_path / "run"))
    other = train_run(small_learner("td3", "stop.generations=4", "run.seed=9"), tmp_path / "other").directory
    shutil.rmtree(path / "replay")
    shutil.copytree(other.replay, path / "replay")
    run, warnings = resumed(path)
    assert any("of another run" in w for w in warnings)
    assert run.params_sha256() == whole


def test_every_byte_of_the_replay_that_can_be_sampled_is_covered(finished: tuple[Path, str]) -> None:
    paused, _ = finished
    state = read_checkpoint(list_checkpoints(paused / "checkpoints")[-1]).state["replay"]
    assert state["first"] > 0  # the ring has wrapped
    assert {name.replace("/", ".") for name in state["checksums"]} == {p.stem for p in (paused / "replay").iterdir()} - {"written"}


def test_a_full_disk_under_a_resumed_replay_is_an_error_and_not_a_crash(
    finished: tuple[Path, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = Path(shutil.copytree(finished[0], tmp_path / "run"))

    def full(*args: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(StorageError, match="the disk is full"):
        resume(path, LONGER)
    monkeypatch.undo()
    assert resumed(path)[0].params_sha256() == finished[1]


def test_a_really_full_disk(finished: tuple[Path, str], tmp_path: Path) -> None:
    mount = tmp_path / "small"
    mount.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", mount], capture_output=True, check=False).returncode:
        pytest.skip("this user cannot mount a small disk")
    try:
        shutil.copytree(finished[0], mount / "run")
        for column in (mount / "run" / "replay").iterdir():  # as a copy without holes would not have them: nothing is claimed any more
            subprocess.run(["fallocate", "--dig-holes", column], check=False)
        free = os.statvfs(mount).f_bavail * os.statvfs(mount).f_bsize
        (mount / "filler").write_bytes(b"x" * max(0, free - 4096))
        done = in_process("resume", mount / "run", "-m", *LONGER)
        assert done.returncode == 1
        assert "the disk is full" in done.stderr
        (mount / "filler").unlink()
    finally:
        subprocess.run(["umount", "--lazy", mount], check=False)


def test_damaged_lines_of_metrics_are_left_out_and_told(tmp_path: Path) -> None:
    train_run(small("CartPole-v1"), tmp_path / "run")
    file = tmp_path / "run" / "metrics.jsonl"
    lines = file.read_bytes().splitlines(keepends=True)
    whole = len(lines)
    file.write_bytes(b"\xff\xfe\n" + b"".join(lines[:-1]) + b'[1, 2]\n{"score": 3}\n' + lines[-1][:20])
    found, warnings = read_metrics(RunDirectory(tmp_path / "run"))
    assert len(found) == whole - 1
    assert "4 of" in warnings[0]
    assert any("metrics.jsonl: 4 of" in text for text in shown(tmp_path / "run")["damaged"])
    assert in_process("compare", tmp_path / "run").returncode == 0
    (tmp_path / "run" / "individuals.jsonl").write_bytes(b"\xff{\n")
    done = in_process("resume", tmp_path / "run", "-m", "stop.generations=7")
    assert done.returncode == 0, done.stderr
    for line in file.read_bytes().splitlines()[whole + 3 :]:
        json.loads(line)  # what was written after the cut line is whole


def test_a_damaged_journal_is_told_and_played_again(tmp_path: Path) -> None:
    whole = train_run(small("CartPole-v1", "stop.generations=6"), tmp_path / "whole").params_sha256()
    run = start(small("CartPole-v1", "run.checkpoint_every=100"), tmp_path / "run")
    train(run)
    journal = tmp_path / "run" / "journal.bin"
    content = bytearray(journal.read_bytes())
    shutil.rmtree(tmp_path / "run" / "checkpoints")
    content[len(content) // 2] ^= 1
    journal.write_bytes(content)
    again, warnings = resume(tmp_path / "run", LONGER)
    assert any("torn or damaged at byte" in w for w in warnings)
    train(again)
    assert again.params_sha256() == whole


def test_a_journal_that_is_damaged_in_its_first_record_can_be_replayed_again(tmp_path: Path) -> None:
    train_run(small("CartPole-v1", "run.checkpoint_every=100"), tmp_path / "run")
    shutil.rmtree(tmp_path / "run" / "checkpoints")
    journal = tmp_path / "run" / "journal.bin"
    content = bytearray(journal.read_bytes())
    content[START + 20] ^= 1
    journal.write_bytes(content)
    run, warnings = resumed(tmp_path / "run")
    assert any("torn or damaged at byte" in w for w in warnings)
    assert next(read_journal(journal)).meta["kind"] == "config"
    assert in_process("replay", tmp_path / "run", "--generation", 6).stdout.strip() == run.params_sha256()


@pytest.mark.parametrize("algorithm", ["es", "cem"])
def test_parameters_that_are_not_finite_stop_the_run_and_are_never_saved(
    algorithm: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = start(small("CartPole-v1", f"algorithm.name={algorithm}", "algorithm.population=8", "run.checkpoint_every=1"), tmp_path / "run")
    tell = run.algorithm.tell

    def diverge(outcomes: object) -> object:
        metrics = tell(outcomes)  # type: ignore[arg-type]
        if run.algorithm.version == 3:
            strategy = run.algorithm.strategy  # type: ignore[attr-defined]
            where = strategy.center if algorithm == "es" else strategy.mean
            where[0] = np.inf
        return metrics

    monkeypatch.setattr(run.algorithm, "tell", diverge)
    with pytest.raises(Diverged, match=r"1 of .* numbers are not finite.*last good checkpoint stays"):
        train(run)
    newest = read_checkpoint(list_checkpoints(tmp_path / "run" / "checkpoints")[-1])
    assert newest.generation == 2
    assert all(np.isfinite(a).all() for a in newest.policy.values())
    assert policy_hash(newest.policy) == newest.info["params_sha256"]


def test_a_learning_rate_beyond_reason_ends_with_a_reason(tmp_path: Path) -> None:
    done = in_process(
        "train", "--env", "CartPole-v1", "--out", tmp_path / "run", "-m", "algorithm.lr=1e30", "algorithm.optimizer=sgd",
        "policy.hidden=[4]", "algorithm.population=8", "stop.generations=9", "executor.name=inline", "run.episodes=2",
    )  # fmt: skip
    assert done.returncode == 1, done.stdout
    assert "not finite" in done.stderr
