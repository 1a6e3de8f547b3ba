"""A run directory that someone else wrote is data: nothing in it runs, and nothing outside it is written."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from baldwin import load_policy
from baldwin.errors import RunDirectoryError
from baldwin.runs.checkpoint import MANIFEST, _manifest_hash, list_checkpoints, newest_checkpoint, read_checkpoint
from baldwin.runs.directory import RunDirectory
from baldwin.runs.journal import encode
from baldwin.runs.resume import resume
from baldwin.runs.trust import key_path
from tests.patience import PATIENCE
from tests.runs.test_learner_runs import small as small_learner
from tests.runs.tools import in_process, small, train_run

OWN = ("tests.toys.worlds:Chase",)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run in a user's own environment."""
    out = tmp_path_factory.mktemp("trust") / "run"
    train_run(small(*OWN, "policy.hidden=[4]"), out)
    return out


@pytest.fixture
def run(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made, tmp_path / "run"))


@pytest.fixture
def other_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "other"))


def edit_config(run: Path, old: str, new: str) -> None:
    text = (run / "config.yaml").read_text()
    assert old in text
    (run / "config.yaml").write_text(text.replace(old, new))


COMMANDS = [("evaluate",), ("resume", "-m", "stop.generations=6"), ("render",), ("replay", "--generation", "1")]


@pytest.mark.parametrize("command", COMMANDS, ids=lambda c: c[0])
def test_a_foreign_run_imports_nothing(command: tuple[str, ...], run: Path, other_user: None, tmp_path: Path) -> None:
    (tmp_path / "evil.py").write_text(f"open({str(tmp_path / 'executed')!r}, 'w').close()\n")
    edit_config(run, "tests.toys.worlds:Chase", "evil:Chase")
    done = in_process(command[0], run, *command[1:])
    assert done.returncode == 2
    assert "would use env.id=evil:Chase" in done.stderr
    assert "--trust" in done.stderr
    assert "evil" not in sys.modules
    assert not (tmp_path / "executed").exists()
    with pytest.raises(RunDirectoryError, match="evil:Chase"):
        load_policy(run)


@pytest.mark.parametrize(
    ("old", "new", "named"),
    [
        ("\n  kind: mlp\n  module: null\n", "\n  kind: module\n  module: evil:Net\n", "policy.module=evil:Net"),
        ("  address: local\n", "  address: 203.0.113.1:6379\n", "executor.address=203.0.113.1:6379"),
        ("  runtime_env: {}\n", "  runtime_env: {py_executable: sh}\n", "executor.runtime_env={'py_executable': 'sh'}"),
    ],
)
def test_everything_that_would_run_code_is_named(old: str, new: str, named: str, run: Path, other_user: None) -> None:
    edit_config(run, old, new)
    with pytest.raises(RunDirectoryError) as refusal:
        resume(run)
    assert named in str(refusal.value)


def test_an_own_run_that_was_edited_is_foreign(run: Path) -> None:
    edit_config(run, "evaluate_every: 2", "evaluate_every: 3")
    with pytest.raises(RunDirectoryError, match="was edited"):
        load_policy(run)
    assert load_policy(run, trust=True) is not None


@pytest.mark.parametrize("command", COMMANDS, ids=lambda c: c[0])
def test_trust_is_given_explicitly(command: tuple[str, ...], run: Path, other_user: None) -> None:
    done = in_process(command[0], run, *command[1:], "--trust")
    assert done.returncode == 0 or "cannot draw" in done.stderr, done.stderr  # Chase has no pictures


def test_own_runs_need_no_word(run: Path) -> None:
    assert in_process("evaluate", run, "--episodes", 2).returncode == 0
    assert in_process("resume", run, "-m", "stop.generations=6").returncode == 0
    assert in_process("resume", run, "-m", "stop.generations=7").returncode == 0  # the changed config was signed again
    assert key_path().stat().st_mode & 0o077 == 0


def test_registered_environments_need_no_word(tmp_path: Path, other_user: None, monkeypatch: pytest.MonkeyPatch) -> None:
    train_run(small("CartPole-v1"), tmp_path / "run")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "third"))
    assert in_process("evaluate", tmp_path / "run", "--episodes", 2).returncode == 0


def test_looking_never_imports(run: Path, other_user: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("evil", "envpool", "mujoco"):
        (tmp_path / f"{name}.py").write_text(f"open({str(tmp_path / 'executed')!r}, 'w').close()\n")
    edit_config(run, "tests.toys.worlds:Chase", "evil:Chase")
    monkeypatch.chdir(tmp_path)
    for command in (("show", run), ("compare", run), ("timeline", run)):
        assert in_process(*command).returncode == 0
    assert not (tmp_path / "executed").exists()


def test_links_of_a_foreign_run_are_not_followed(tmp_path: Path, other_user: None, monkeypatch: pytest.MonkeyPatch) -> None:
    train_run(small("CartPole-v1"), tmp_path / "run")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "third"))
    treasure = tmp_path / "treasure"
    treasure.write_text("precious")
    (tmp_path / "run" / "metrics.jsonl").unlink()
    (tmp_path / "run" / "metrics.jsonl").symlink_to(treasure)
    with pytest.raises(RunDirectoryError, match=r"link metrics\.jsonl"):
        resume(tmp_path / "run", ["stop.generations=6"])
    assert treasure.read_text() == "precious"


def forge(checkpoint: Path, **changes: Any) -> None:
    body = json.loads((checkpoint / MANIFEST).read_text()) | changes
    body["manifest_sha256"] = _manifest_hash(body)
    (checkpoint / MANIFEST).write_text(json.dumps(body))


def test_a_manifest_names_only_its_own_files(run: Path, tmp_path: Path) -> None:
    newest = list_checkpoints(run / "checkpoints")[-1]
    files = json.loads((newest / MANIFEST).read_text())["files"]
    forge(newest, files=files | {"../../../secret": "0" * 64})
    with pytest.raises(RunDirectoryError, match="names other files"):
        read_checkpoint(newest)


def test_files_of_another_run_are_refused_by_name(run: Path, tmp_path: Path) -> None:
    other = train_run(small(*OWN, "policy.hidden=[4]", "run.seed=2"), tmp_path / "other").directory
    newest = list_checkpoints(other.checkpoints)[-1].name
    shutil.rmtree(run / "checkpoints" / newest)
    shutil.copytree(other.checkpoints / newest, run / "checkpoints" / newest)
    checkpoint, warnings = newest_checkpoint(run / "checkpoints", RunDirectory(run).id)
    assert checkpoint is not None
    assert checkpoint.path.name < newest
    assert f"{newest} is of another run" in warnings[0]
    own = (run / "environment.json").read_bytes()
    shutil.copy(other.path / "environment.json", run / "environment.json")
    assert "environment.json is of another run" in RunDirectory(run).changed_versions()[0]
    (run / "environment.json").write_bytes(own)
    for name in ("journal.bin", "metrics.jsonl"):
        before = (run / name).read_bytes()
        shutil.copy(other.path / name, run / name)
        done = in_process("resume", run, "-m", "stop.generations=6")
        assert done.returncode == 2
        assert name in done.stderr
        assert "another run" in done.stderr
        (run / name).write_bytes(before)
    shutil.copy(other.config, run / "config.yaml")
    done = in_process("resume", run)
    assert done.returncode == 2
    assert "another run" in done.stderr


def test_a_checkpoint_that_does_not_fit_its_config_is_named(run: Path) -> None:
    for checkpoint in list_checkpoints(run / "checkpoints"):
        forge(checkpoint, tree={"nothing": 1})
    done = in_process("resume", run)
    assert done.returncode == 2
    assert "does not fit its config" in done.stderr


def test_without_a_place_for_a_key_runs_still_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "file"))
    train_run(small("CartPole-v1"), tmp_path / "run")
    assert in_process("evaluate", tmp_path / "run", "--episodes", 2).returncode == 0


def test_nothing_beside_a_run_is_imported_by_any_process(run: Path, other_user: None, tmp_path: Path) -> None:
    for name in ("numpy", "multiprocessing", "torch", "yaml"):
        (run / f"{name}.py").write_text(f"open({str(tmp_path / 'executed')!r}, 'w').close()\nraise ImportError\n")
    script = [sys.executable, "-P", "-m", "baldwin", "resume", ".", "-m", "stop.generations=6"]
    done = subprocess.run(script, cwd=run, capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 2
    assert "was not written by you" in done.stderr
    subprocess.run([*script, "--trust"], cwd=run, capture_output=True, text=True, timeout=PATIENCE)  # with workers
    assert not (tmp_path / "executed").exists()


def test_trust_is_for_one_call(run: Path, other_user: None) -> None:
    assert in_process("resume", run, "-m", "stop.generations=6", "--trust").returncode == 0
    assert in_process("evaluate", run, "--episodes", 1).returncode == 2


def test_pictures_are_not_written_through_links(run: Path, other_user: None, tmp_path: Path) -> None:
    treasure = tmp_path / "treasure"
    treasure.write_text("precious")
    (run / "timeline.png").symlink_to(treasure)
    assert in_process("timeline", run).returncode == 0
    assert treasure.read_text() == "precious"


def test_what_makes_a_run_cannot_change(tmp_path: Path) -> None:
    train_run(small("CartPole-v1", "run.checkpoint_every=100"), tmp_path / "run")
    for change in ("env.kwargs.sutton_barto_reward=true", "policy.hidden=[9]", "run.seed=9"):
        with pytest.raises(RunDirectoryError, match="cannot change"):
            resume(tmp_path / "run", [change])
    shutil.rmtree(tmp_path / "run" / "checkpoints")
    edit_config(tmp_path / "run", "population: 16", "population: 32")
    with pytest.raises(RunDirectoryError, match=r"algorithm\.population. Put the old values back"):
        resume(tmp_path / "run", [])


def test_a_refused_resume_leaves_the_replay_alone(tmp_path: Path) -> None:
    train_run(small_learner("td3"), tmp_path / "run")
    size = (tmp_path / "run" / "replay" / "reward.bin").stat().st_size
    edit_config(tmp_path / "run", "buffer_size: 150", "buffer_size: 15")
    with pytest.raises(RunDirectoryError, match="buffer_size"):
        resume(tmp_path / "run", [])
    assert (tmp_path / "run" / "replay" / "reward.bin").stat().st_size == size


def test_when_to_give_up_may_change(tmp_path: Path) -> None:
    train_run(small_learner("td3"), tmp_path / "run")
    again, _ = resume(tmp_path / "run", ["algorithm.max_failures_in_a_row=50"])
    again.close()
    assert again.config.algorithm.max_failures_in_a_row == 50  # type: ignore[attr-defined]


def test_parts_of_another_run_are_not_taken_over(run: Path) -> None:
    (run / "config.yaml").unlink()
    with pytest.raises(RunDirectoryError, match=r"has parts of another run: journal\.bin, checkpoints"):
        train_run(small(*OWN, "policy.hidden=[4]"), run)


@pytest.mark.parametrize("content", ["[]", '{"packages": [1]}', "{", '{"run": 3}'])
def test_any_environment_json(content: str, run: Path) -> None:
    (run / "environment.json").write_text(content)
    again, warnings = resume(run, ["stop.generations=6"])
    again.close()
    assert any("environment.json" in text for text in warnings)


def test_a_whole_record_that_does_not_fit_is_named(run: Path) -> None:
    with open(run / "journal.bin", "ab") as file:
        file.write(encode({"kind": "ask", "n": "x", "spans": [[1]]}, []))
    for command in (("resume", run, "-m", "stop.generations=6"), ("timeline", run)):
        done = in_process(*command)
        assert done.returncode == 2
        assert "journal.bin has a record that" in done.stderr
