"""Nothing saved is lost: damaged checkpoints, full disks, second writers, Ctrl-C."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from baldwin.config.load import validate
from baldwin.errors import EnvironmentFailure, RunDirectoryError
from baldwin.runs.checkpoint import list_checkpoints, newest_checkpoint, read_checkpoint, write_checkpoint
from baldwin.runs.journal import Journal, read_journal
from baldwin.runs.resume import resume
from baldwin.runs.run import start, train
from baldwin.tree import join, split
from baldwin.types import Outcome
from tests.patience import PATIENCE, wait_until
from tests.runs.tools import SMALL, baldwin, in_process, shown, small, train_run


def test_state_trees_survive_the_disk(tmp_path: Path) -> None:
    state = {"a": np.arange(3), "b": {"c": [1, 2.5, None, "x"], "d": np.float32(2)}, "empty": {}}
    tensors: dict[str, np.ndarray] = {}
    tree = json.loads(json.dumps(split(state, tensors)))
    again = join(tree, tensors)
    assert (again["a"] == state["a"]).all()
    assert again["b"] == {"c": [1, 2.5, None, "x"], "d": 2.0}
    assert again["empty"] == {}


def test_the_newest_checkpoints_are_kept(tmp_path: Path) -> None:
    for generation in range(6):
        write_checkpoint(tmp_path, generation, {}, {}, {"params": np.zeros(2)}, keep=3)
    assert [p.name for p in list_checkpoints(tmp_path)] == ["00000003", "00000004", "00000005"]


@pytest.mark.parametrize("name", ["state.safetensors", "policy.safetensors", "manifest.json"])
@pytest.mark.parametrize("damage", ["cut", "alter", "remove"])
def test_a_damaged_newest_checkpoint_is_named_and_the_previous_one_used(name: str, damage: str, tmp_path: Path) -> None:
    for generation in (1, 2):
        write_checkpoint(tmp_path, generation, {"n": generation}, {"x": np.arange(9.0)}, {"params": np.zeros(2)}, keep=3)
    file = tmp_path / "00000002" / name
    content = file.read_bytes()
    if damage == "cut":
        file.write_bytes(content[: len(content) // 2])
    elif damage == "alter":
        file.write_bytes(content[:-9] + bytes([content[-9] ^ 1]) + content[-8:])
    else:
        file.unlink()
    checkpoint, complaints = newest_checkpoint(tmp_path)
    assert checkpoint is not None
    assert checkpoint.generation == 1
    assert len(complaints) == 1
    assert "00000002" in complaints[0]


def test_resume_from_a_damaged_checkpoint_ends_at_the_same_hash(tmp_path: Path) -> None:
    whole = train_run(small(), tmp_path / "run")
    expected = whole.params_sha256()
    for damaged in list_checkpoints(whole.directory.checkpoints)[1:]:
        (damaged / "state.safetensors").write_bytes(b"rubbish")
    run, complaints = resume(tmp_path / "run")
    train(run)
    assert len(complaints) == 2
    assert run.params_sha256() == expected


def test_a_torn_journal_record_is_cut_off(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "j")
    journal.append({"kind": "ask", "n": 2})
    journal.append({"kind": "tell"}, [Outcome(7, 1.5, 9, 0.5, "why", {"obs_moments": np.arange(3.0)})])
    good = journal.offset
    journal.append({"kind": "ask", "n": 3})
    journal.close()
    with open(tmp_path / "j", "r+b") as file:
        file.truncate(good + 9)
    records = list(read_journal(tmp_path / "j"))
    assert [r.meta["kind"] for r in records] == ["ask", "tell"]
    assert records[-1].end == good
    (outcome,) = records[1].outcomes
    assert (outcome.ticket, outcome.fitness, outcome.env_steps, outcome.truncated, outcome.reason) == (7, 1.5, 9, 0.5, "why")
    assert outcome.arrays["obs_moments"].tolist() == [0, 1, 2]
    again = Journal(tmp_path / "j", good)
    again.append({"kind": "ask", "n": 4})
    assert [r.meta.get("n") for r in read_journal(tmp_path / "j")] == [2, None, 4]


def test_something_else_is_not_a_journal(tmp_path: Path) -> None:
    (tmp_path / "j").write_text("hello")
    with pytest.raises(RunDirectoryError, match="not a journal"):
        list(read_journal(tmp_path / "j"))


def test_a_second_process_on_the_same_run_is_refused(tmp_path: Path) -> None:
    run = start(small(), tmp_path / "run")
    other = baldwin("resume", tmp_path / "run")
    assert other.returncode == 2
    assert "is in use by process" in other.stderr
    train(run)
    assert in_process("resume", tmp_path / "run", "--quiet").returncode == 0


def test_train_refuses_a_directory_that_has_a_run(tmp_path: Path) -> None:
    train_run(small(), tmp_path / "run")
    with pytest.raises(RunDirectoryError, match="baldwin resume"):
        start(small(), tmp_path / "run")


def test_resume_refuses_another_experiment(tmp_path: Path) -> None:
    train_run(small(), tmp_path / "run")
    with pytest.raises(RunDirectoryError, match=r"algorithm\.lr cannot change"):
        resume(tmp_path / "run", ["algorithm.lr=0.5"])
    with pytest.raises(RunDirectoryError, match="seed cannot change"):
        resume(tmp_path / "run", ["run.seed=5"])


FULL_DISK = """
import resource, sys
from baldwin.cli.main import main
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv.pop(1)),) * 2)
main()
"""


def test_a_full_disk_ends_with_a_clear_message_and_an_intact_checkpoint(tmp_path: Path) -> None:
    """The system refuses to let a file grow, as it does when the disk is full; the journal hits the limit first."""
    out = tmp_path / "run"
    options = [f"-m{o}" for o in ("env.id=CartPole-v1", *SMALL, "stop.generations=500", "run.checkpoint_every=1")]
    command = [sys.executable, "-c", FULL_DISK, "60000", "train", *options, "--out", str(out), "--quiet"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 1, done.stderr
    assert "Earlier checkpoints are intact" in done.stderr
    assert "Traceback" not in done.stderr
    checkpoint, complaints = newest_checkpoint(out / "checkpoints")
    assert checkpoint is not None
    assert complaints == []
    generation = checkpoint.generation
    done = in_process("resume", out, "-m", f"stop.generations={generation + 3}", "--quiet")
    assert done.returncode == 0, done.stderr
    assert shown(out)["generations"] == generation + 3


def test_ctrl_c_saves_and_says_how_to_go_on(tmp_path: Path) -> None:
    """How other executors take signals: test_interrupt.py."""
    out = tmp_path / "run"
    options = [f"-m{o}" for o in ("env.id=Hopper-v5", *SMALL, "executor.name=process", "stop.generations=100000")]
    process = subprocess.Popen(
        [sys.executable, "-m", "baldwin", "train", *options, "--out", out], stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    wait_until(lambda: bool(list_checkpoints(out / "checkpoints")), lambda: process.poll() is None)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=PATIENCE)
    assert process.returncode == 130
    assert f"baldwin resume {out}" in errors
    assert "Traceback" not in errors
    newest = read_checkpoint(list_checkpoints(out / "checkpoints")[-1])
    assert in_process("replay", out, "--generation", newest.generation).stdout.strip() == newest.info["params_sha256"]
    assert (out / "curve.png").exists()


def test_occasional_failures_cost_pairs_and_not_the_run(tmp_path: Path) -> None:
    config = small("tests.toys.worlds:Broken", "env.kwargs={how: raise}", "algorithm.population=32", "algorithm.episodes=1")
    run = train_run(config, tmp_path / "run")
    assert run.algorithm.version == 5
    assert run.last["failed_pairs"] > 0
    assert "the wheel came off" in shown(tmp_path / "run")["failures"][0]


def test_when_everything_fails_the_run_stops_and_keeps_what_it_had(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tests.toys.worlds import Chase

    run = start(small("tests.toys.worlds:Chase", "run.checkpoint_every=1"), tmp_path / "run")
    original = Chase.step

    def wear_out(line_run: object, line: dict[str, float]) -> None:
        if line["generation"] == 3:
            monkeypatch.setattr(Chase, "step", lambda self, action: 1 / 0)

    with pytest.raises(EnvironmentFailure, match=r"every pair of generation 3 failed.*division by zero"):
        train(run, [wear_out])
    monkeypatch.setattr(Chase, "step", original)
    again, complaints = resume(tmp_path / "run")
    assert again.algorithm.version == 3
    train(again)
    straight = train_run(small("tests.toys.worlds:Chase", "run.checkpoint_every=1"), tmp_path / "straight")
    assert complaints == []
    assert again.params_sha256() == straight.params_sha256()


def test_a_failed_evaluation_episode_is_left_out_and_told(tmp_path: Path) -> None:
    config = small(
        "tests.toys.worlds:Broken", "env.kwargs={how: raise}", "algorithm.population=32", "algorithm.episodes=1", "run.episodes=8"
    )
    run = train_run(config, tmp_path / "run")
    assert run.last["score_failed"] > 0
    assert run.score is not None
    assert np.isfinite(run.score)


def test_an_unwritten_config_or_journal_does_not_cost_the_run(tmp_path: Path) -> None:
    run = start(small(), tmp_path / "run")
    run.close()
    (tmp_path / "run" / "journal.bin").write_bytes(b"")  # killed before its first byte
    again, complaints = resume(tmp_path / "run")
    train(again)
    assert complaints == []
    assert again.algorithm.version == 5


def test_files_that_lost_their_end_are_not_filled_with_nothing(tmp_path: Path) -> None:
    train_run(small(), tmp_path / "run")
    for name in ("metrics.jsonl", "journal.bin"):
        file = tmp_path / "run" / name
        file.write_bytes(file.read_bytes()[:-700])
    run, complaints = resume(tmp_path / "run", ["stop.generations=7"])
    train(run)
    assert "cannot be replayed" in complaints[0]
    assert b"\0" not in (tmp_path / "run" / "metrics.jsonl").read_bytes()
    assert run.algorithm.version == 7


def test_other_library_versions_are_told_on_resume(tmp_path: Path) -> None:
    train_run(small(), tmp_path / "run")
    file = tmp_path / "run" / "environment.json"
    file.write_text(file.read_text().replace('"torch": "', '"torch": "0.'))
    run, complaints = resume(tmp_path / "run")
    run.close()
    assert "it may not go on bit for bit" in complaints[0]
    said = in_process("resume", tmp_path / "run").stderr
    assert "it may not go on bit for bit" in said
    assert "using an earlier one" not in said  # that is for damaged checkpoints


def test_the_saved_config_names_the_backend_that_served(tmp_path: Path) -> None:
    train_run(small(), tmp_path / "run")
    assert "backend: mujoco" in (tmp_path / "run" / "config.yaml").read_text()


def test_tensorboard_reads_the_events(tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    train_run(small(), tmp_path / "run")
    run, _ = resume(tmp_path / "run", ["stop.generations=6"])
    train(run)
    board = EventAccumulator(str(tmp_path / "run" / "tensorboard")).Reload()
    assert [round(e.value, 3) for e in board.Scalars("return_mean")][-1] == pytest.approx(run.last["return_mean"], rel=1e-3)
    assert len(board.Scalars("return_mean")) == 6
    assert len(board.Scalars("score")) >= 3


def test_stop_rules_hold_whichever_comes_first(tmp_path: Path) -> None:
    for rule, why in [
        ("stop.env_steps=500", "stop.env_steps"),
        ("stop.score=-1e9", "stop.score"),
        ("stop.wall_seconds=0.001", "stop.wall_seconds"),
    ]:
        run = train_run(small("Hopper-v5", rule), tmp_path / why)
        assert run.stopped_by.startswith(why)
        assert run.evaluated


def test_a_run_directory_holds_everything(tmp_path: Path) -> None:
    train_run(small(), tmp_path / "run")
    names = {p.name for p in (tmp_path / "run").iterdir()}
    assert {"config.yaml", "environment.json", "metrics.jsonl", "tensorboard", "journal.bin", "checkpoints"} <= names
    packages = json.loads((tmp_path / "run" / "environment.json").read_text())["packages"]
    assert {"torch", "gymnasium", "numpy"} <= set(packages)
    assert list((tmp_path / "run" / "tensorboard").glob("events.out.tfevents.*"))
    for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines():
        assert {"env_steps", "wall_seconds", "generation"} <= set(json.loads(line))


@pytest.mark.parametrize("how", ["SystemExit", "KeyboardInterrupt"])
def test_an_environment_that_wants_to_end_the_process_costs_its_job(how: str, tmp_path: Path) -> None:
    config = validate(
        {
            "env": {"id": "tests.toys.awkward:Quitter", "kwargs": {"how": how}},
            "algorithm": {"name": "es", "population": 16, "block": 2},
            "executor": {"workers": 1},
            "stop": {"generations": 6},
            "run": {"episodes": 2, "evaluate_every": 100},
        }
    )
    run = start(config, tmp_path / "run")
    seen: list[dict[str, float]] = []
    train(run, [lambda run, line: seen.append(line)])
    assert run.algorithm.version == 6
    assert sum(line.get("worker_deaths", 0) for line in seen) == 0
    assert how in read_checkpoint(list_checkpoints(run.directory.checkpoints)[-1]).info["failures"][0]
