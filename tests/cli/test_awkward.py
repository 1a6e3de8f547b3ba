"""What a new user may bring by mistake, or a hostile one on purpose: one clear message, exit code 2, nothing written elsewhere."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.runs.tools import in_process

TOY = "tests.toys.worlds:Chase"
FAST = ["-m", "policy.hidden=[4]", "algorithm.population=8", "stop.generations=1", "executor.name=inline", "run.episodes=2"]


def awkward(name: str) -> str:
    return f"tests.toys.awkward:{name}"


def refused(tmp_path: Path, *args: object) -> str:
    """The message of a command that must fail as the user's mistake, and leave no run."""
    done = in_process("train", *args, "--out", tmp_path / "run")
    assert done.returncode == 2, done.stderr + done.stdout
    assert done.stderr.startswith("error: ")
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "run").exists()
    return done.stderr


@pytest.mark.parametrize(
    ("env", "message"),
    [
        (awkward("NoObservationSpace"), "has no observation_space: expected a gymnasium.Space"),
        (awkward("NotAnEnv"), "expected a class derived from gymnasium.Env; 'tests.toys.awkward' has 'NotAnEnv', which is none"),
        (awkward("make_env"), "expected a class derived from gymnasium.Env"),
        ("os:system", "expected a class derived from gymnasium.Env; 'os' has 'system', which is none"),
        (awkward("EmptyObservation"), "has no numbers: expected at least one"),
        (awkward("TextObservation"), "sensor 'mission' is Text"),
        (awkward("OldReset"), "expected reset() to return (obs, info); got ndarray. That is the interface of Gym before 0.26"),
        (awkward("OldStep"), "got a tuple of 4. That is the interface of Gym before 0.26: wrap the environment in shimmy.GymV21"),
        (awkward("Speechless"), "SpeechlessError: (its message cannot be shown: ValueError)"),
        (awkward("Silent"), "failed in step(): RuntimeError"),
        ("a\0b", "expected a name without control characters"),
        ("x" * 5000, "no environment"),
    ],
)
def test_environments(env: str, message: str, tmp_path: Path) -> None:
    assert message in refused(tmp_path, "--env", env, *FAST)


def test_messages_are_cleaned_and_cut(tmp_path: Path) -> None:
    message = refused(tmp_path, "--env", awkward("Talkative"), *FAST)
    assert "red blah blah" in message
    assert len(message) < 1000
    assert not set(message) & {"\x1b", "\x07", "\r"}


def test_an_environment_that_cannot_be_closed_still_trains(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    done = in_process("train", "--env", awkward("Unclosable"), *FAST, "--out", tmp_path / "run")
    assert done.returncode == 0, done.stderr
    assert "the door is stuck" in caplog.text


def test_an_episode_that_never_ends_names_the_key_that_ends_it(tmp_path: Path) -> None:
    done = in_process("train", "--env", awkward("Endless"), *FAST, "executor.timeout=0.5", "--out", tmp_path / "run")
    assert done.returncode == 2
    assert "an episode that never ends needs env.max_episode_steps" in done.stderr


def test_networks_that_torch_func_cannot_stack(tmp_path: Path) -> None:
    message = refused(tmp_path, "--env", TOY, *FAST, "policy.module=tests.toys.awkward:Branching")
    assert "cannot be stacked" in message
    assert "use torch.where" in message


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("algorithm.lr=.inf", "'algorithm.lr': should be a finite number; got inf"),
        ("algorithm.lr=.nan", "'algorithm.lr': should be a finite number; got nan"),
        ("algorithm.lr=1e39", "'algorithm.lr': expected a number within +-1e+30; got 1e+39"),
        ("algorithm.lr=1e308", "'algorithm.lr'"),
        ("stop.env_steps=1e300", "'stop.env_steps'"),
        ("run.seed=99999999999999999999999", "'run.seed': expected a number within +-9.22e+18"),
        ("executor.timeout=.inf", "'executor.timeout'"),
        ("policy.hidden=[1000000000, 1000000000]", "does not fit into this machine's memory"),
        ("run.name=../../x", "expected the name of a folder"),
        ("run.name=..", "expected the name of a folder"),
        ('run.name="a\\0b"', "expected the name of a folder"),
        ("env.kwargs={render_mode: human}", "film the policy with baldwin render"),
        ("policy.module=os:system", "expected a class derived from torch.nn.Module; 'os' has 'system', which is none"),
        ("policy={a: &a [*a]}", "nested at most"),
        ("policy=" + "[" * 3000, "is not YAML"),
        ("policy=" + "[" * 100_000, "is not YAML"),
        ("policy=" + "{a: " * 30_000, "is not YAML"),
        ("policy={a: &a [1,1,1,1,1,1,1,1,1], b: &b [*a,*a,*a,*a,*a,*a,*a,*a], c: &c [*b,*b,*b,*b,*b,*b,*b,*b], "
         "d: &d [*c,*c,*c,*c,*c,*c,*c,*c], e: &e [*d,*d,*d,*d,*d,*d,*d,*d], f: [*e,*e,*e,*e,*e,*e,*e,*e]}", "YAML aliases"),
    ],
)  # fmt: skip
def test_settings(setting: str, message: str, tmp_path: Path) -> None:
    assert message in refused(tmp_path, "--env", TOY, *FAST, setting)


def test_a_suggestion_is_never_the_same_word(tmp_path: Path) -> None:
    message = refused(tmp_path, "--env", "tests.toys.awkward:np", *FAST)
    assert "Did you mean 'np'" not in message


@pytest.mark.parametrize("name", ["x" * 300, "/".join(["y" * 200] * 25)])
def test_names_that_no_file_can_have(name: str, tmp_path: Path) -> None:
    done = in_process("train", "--env", TOY, *FAST, "--out", tmp_path / name)
    assert done.returncode == 2, done.stderr
    assert "cannot make a run directory" in done.stderr
    for command in ("show", "resume", "evaluate", "render", "timeline"):
        done = in_process(command, tmp_path / name)
        assert done.returncode == 2, done.stderr
        assert "no run in" in done.stderr
    done = in_process("train", "-c", tmp_path / f"{name}.yaml")
    assert done.returncode == 2
    assert "cannot read" in done.stderr


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    done = in_process("train", "--env", TOY, *FAST, "--out", tmp_path / "file" / "run")
    assert done.returncode == 2
    assert "cannot make a run directory" in done.stderr


@pytest.mark.parametrize("name", ["config.yaml", "journal.bin", "metrics.jsonl", "individuals.jsonl", "lock", "checkpoints"])
def test_a_folder_where_a_file_is_expected(name: str, tmp_path: Path) -> None:
    assert in_process("train", "--env", TOY, *FAST, "--out", tmp_path / "run").returncode == 0
    path = tmp_path / "run" / name
    if path.is_dir():
        path.rename(tmp_path / "elsewhere")
        path.write_text("a file where a folder is expected")
    else:
        path.unlink()
        path.mkdir()
    done = in_process("resume", tmp_path / "run", "-m", "stop.generations=2")
    assert done.returncode in (0, 2), done.stderr  # what can be made again is
    assert done.returncode == 0 or done.stderr.startswith("error: ")
    shown = in_process("show", tmp_path / "run")
    assert shown.returncode in (0, 2), shown.stderr


def test_an_environment_that_cannot_draw_is_named(tmp_path: Path) -> None:
    assert in_process("train", "--env", awkward("Undrawable"), *FAST, "--out", tmp_path / "run").returncode == 0
    done = in_process("render", tmp_path / "run")
    assert done.returncode == 2
    assert "cannot draw" in done.stderr


def test_one_seed_and_several_are_not_both(tmp_path: Path) -> None:
    assert "--seed or --seeds, not both" in refused(tmp_path, "--env", TOY, *FAST, "--seed", 3, "--seeds", "1-2")
    assert "--seeds takes numbers and ranges" in refused(tmp_path, "--env", TOY, *FAST, "--seeds", "1-")
