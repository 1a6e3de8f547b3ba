"""What a person does, through the real command."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest
from typer.testing import CliRunner

from baldwin import __version__
from baldwin.cli.main import app
from tests.runs.tools import SMALL, baldwin, in_process

OPTIONS = [f"-m{o}" for o in SMALL]
Command = Callable[..., CompletedProcess[str]]


@pytest.fixture(scope="module")
def run_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("cli") / "run"
    done = baldwin("train", "cartpole", *OPTIONS, "-m", "stop.score=null", "--out", out)
    assert done.returncode == 0, done.stderr
    assert re.search(r"generation +4 +env steps +[\d,]+ +score", done.stdout)  # plain lines, for this is no terminal
    assert "params_sha256" in done.stdout
    assert "\x1b" not in done.stdout
    return out


def test_show(run_dir: Path) -> None:
    found = json.loads(in_process("show", run_dir, "--json").stdout)
    assert {"params_sha256", "env_steps", "gradient_steps", "generations", "wall_seconds", "cpu_seconds", "score"} <= set(found)
    assert found["generations"] == 5
    assert found["gradient_steps"] == 0
    assert found["params_sha256"][:20] in in_process("show", run_dir).stdout


def test_evaluate_is_repeatable_and_held_out(run_dir: Path) -> None:
    first = json.loads(in_process("evaluate", run_dir, "--episodes", 20, "--json").stdout)
    again = json.loads(in_process("evaluate", run_dir, "--episodes", 20, "--json").stdout)
    other = json.loads(in_process("evaluate", run_dir, "--episodes", 20, "--seed", 1, "--json").stdout)
    assert {"mean", "std", "iqm", "ci"} <= set(first)
    assert first == again
    assert first["returns"] != other["returns"]
    assert first["ci"][0] <= first["iqm"] <= first["ci"][1]
    assert "95 % CI" in in_process("evaluate", run_dir, "--episodes", 3).stdout


def test_evaluate_any_generation(run_dir: Path) -> None:
    saved = json.loads(in_process("evaluate", run_dir, "--checkpoint", 4, "--json", "--episodes", 2).stdout)
    rebuilt = json.loads(in_process("evaluate", run_dir, "--checkpoint", 1, "--json", "--episodes", 2).stdout)
    assert (saved["generation"], rebuilt["generation"]) == (4, 1)
    assert in_process("replay", run_dir, "--generation", 1).stdout.strip() == rebuilt["params_sha256"]


@pytest.mark.parametrize(("name", "command"), [("film.mp4", baldwin), ("film.gif", in_process)])
def test_render_on_a_machine_without_a_screen(run_dir: Path, name: str, command: Command, tmp_path: Path) -> None:
    import imageio.v3 as iio

    done = command("render", run_dir, "--video", tmp_path / name, "--generation", 1, "--episodes", 2)
    assert done.returncode == 0, done.stderr
    frames = iio.imread(tmp_path / name)
    assert frames.shape[0] > 10
    assert frames.std() > 0


def test_compare(run_dir: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    in_process("train", "cartpole", *OPTIONS, "-m", "run.seed=2", "--out", other, "--quiet")
    done = in_process("compare", run_dir, other, "--plot", tmp_path / "plot.png", "--json")
    (row,) = json.loads(done.stdout)
    assert row["seeds"] == 2
    assert row["ci"][0] <= row["iqm"] <= row["ci"][1]
    assert (tmp_path / "plot.png").stat().st_size > 10_000
    assert "cartpole" in in_process("compare", run_dir, other).stdout


def test_list() -> None:
    assert "halfcheetah" in in_process("list", "presets").stdout
    assert [row.split()[0] for row in in_process("list", "presets", "--algo", "sac", "--env", "Walker*").stdout.splitlines()] == [
        "walker2d-sac"
    ]
    (row,) = json.loads(in_process("list", "presets", "halfcheetah-td3", "--json").stdout)
    assert (row["algorithm"], row["env"]) == ("td3", "HalfCheetah-v5")
    assert {"source", "measured"} <= set(row)
    assert {"es", "random-search"} <= {row["name"] for row in json.loads(in_process("list", "algorithms", "--json").stdout)}
    assert "\nsac " in in_process("list", "algorithms").stdout
    lines = in_process("list", "envs", "halfcheetah-v5").stdout.splitlines()
    assert any(re.fullmatch(r"HalfCheetah-v5 +mujoco", line) for line in lines)


def test_a_plugin_trains_from_the_command_line(tmp_path: Path) -> None:
    options = ["-m", "stop.generations=3", "executor.workers=1", "run.episodes=2", "algorithm.population=8"]
    done = in_process("train", "--algo", "random-search", "--env", "CartPole-v1", *options, "--out", tmp_path / "run", "--quiet")
    assert done.returncode == 0, done.stderr
    assert json.loads(in_process("show", tmp_path / "run", "--json").stdout)["generations"] == 3


def test_algorithm_and_environment_instead_of_a_preset(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("algorithm: {population: 8, block: 4}")
    (tmp_path / "b.yaml").write_text("stop: {generations: 2}")
    files = ["-c", tmp_path / "a.yaml", tmp_path / "b.yaml", "-m", "executor.name=inline", "run.episodes=2"]
    done = in_process("train", "--algo", "cem", "--env", "Pendulum-v1", *files, "--out", tmp_path / "run", "--quiet")
    assert done.returncode == 0, done.stderr
    config = (tmp_path / "run" / "config.yaml").read_text()
    assert "name: Pendulum-v1-cem" in config
    assert "population: 8" in config


def test_schema_is_json() -> None:
    schema = json.loads(in_process("train", "--schema").stdout)
    assert {"env", "policy", "algorithm", "opponents", "population", "executor", "run", "stop"} == set(schema["properties"])


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["train"], "needs a PRESET"),
        (["train", "cartpol"], "Did you mean 'cartpole'?"),
        (["train", "cartpole", "-m", "algorithm.lrr=1"], "Did you mean 'lr'?"),
        (["train", "cartpole", "-m", "algorithm.population=7"], "multiple of 2; got 7"),
        (["train", "cartpole", "-m", "executor.workers=0"], "executor.workers"),
        (["train", "cartpole", "-m", "env.id=CartPole-v9"], "Did you mean"),
        (["train", "cartpole", "-m", "env.id=tests.toys.worlds:Broken", "-m", "env.kwargs={how: nan, always: true}"], "not finite"),
        (["train", "cartpole", "-m", "policy.kind=module", "-m", "policy.module=a.b:C"], "cannot import"),
        (["train", "cartpole", "-m", "policy.module=tests.toys.worlds:Chase"], "expected a class derived from torch.nn.Module"),
        (["train", "cartpole", "-m", "policy.module=torch.nn:Flatten"], "It is made as Class(4, 2, **kwargs) and was called with (1, 4)"),
        (["train", "cartpole", "-m", "policy.module=torch.nn:Identity"], "expected parameters and an output of shape (1, 2)"),
        (["train", "cartpole", "-m", "policy.module=tests.toys.worlds:TinyNet", "-m", "algorithm.rank=1"], "needs policy.kind=mlp"),
        (["train", "cartpole", "-m", "env.id=cannot_be_imported:Env"], "SyntaxError"),
        (["train", "cartpole", "-c", "tests/toys/binary.yaml"], "not a text file"),
        (["show", "/nowhere"], "no run in '/nowhere'"),
        (["list", "preset"], "Did you mean 'presets'?"),
    ],
)
def test_a_users_mistake_is_one_clear_message_and_exit_code_two(args: list[str], message: str, tmp_path: Path) -> None:
    extra = ["--out", str(tmp_path / "run")] if args[0] == "train" else []
    done = in_process(*args, *extra)
    assert done.returncode == 2
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "run").exists()


def test_a_hanging_environment_is_named_before_the_run(tmp_path: Path) -> None:
    args = ["-m", "env.id=tests.toys.worlds:Broken", "-m", "env.kwargs={how: hang, always: true}", "-m", "executor.timeout=0.5"]
    done = in_process("train", "cartpole", *args, "--out", tmp_path / "run")
    assert done.returncode == 2
    assert "took longer than executor.timeout=0.5 s" in done.stderr


def test_an_environment_that_hangs_later_costs_pairs(tmp_path: Path) -> None:
    env = ["env.id=tests.toys.worlds:Broken", "env.kwargs={how: hang}", "executor.timeout=4", "executor.retries=0", "executor.name=process"]
    size = [
        "algorithm.population=8",
        "algorithm.block=2",
        "algorithm.episodes=1",
        "stop.generations=1",
        "stop.score=null",
        "run.episodes=1",
        "run.seed=7",  # its evaluation does not hang
    ]
    done = in_process("train", "cartpole", *OPTIONS, *(f"-m{o}" for o in env + size), "--out", tmp_path / "run")
    assert done.returncode == 0, done.stderr
    found = json.loads(in_process("show", tmp_path / "run", "--json").stdout)
    assert found["generations"] == 1
    assert "executor.timeout=4 s" in found["failures"][0]


def test_replay_beyond_the_end_says_what_there_is(run_dir: Path) -> None:
    done = in_process("replay", run_dir, "--generation", 99)
    assert done.returncode == 2
    assert "has generations 0 to 5; got 99" in done.stderr


def test_runs_that_differ_are_not_seeds_of_each_other(run_dir: Path, tmp_path: Path) -> None:
    in_process("train", "cartpole", *OPTIONS, "-m", "algorithm.lr=0.3", "--out", tmp_path / "other", "--quiet")
    rows = json.loads(in_process("compare", run_dir, run_dir, tmp_path / "other", "--json").stdout)
    assert [(r["name"], r["seeds"]) for r in rows] == [("cartpole #1", 1), ("cartpole #2", 1)]


def test_a_video_that_cannot_be_written_is_named(run_dir: Path) -> None:
    done = in_process("render", run_dir, "--video", "/proc/nowhere/film.gif")
    assert done.returncode == 2
    assert "cannot write the video" in done.stderr


def test_an_unknown_video_format_is_refused(run_dir: Path) -> None:
    done = in_process("render", run_dir, "--video", "film.avi")
    assert done.returncode == 2
    assert ".mp4 or .gif" in done.stderr


def test_own_package_in_the_working_directory(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "world.py").write_text(
        Path("tests/toys/worlds.py").read_text().replace("tests.toys.worlds:Chase", "mine.world:Chase")
    )
    args = ["-m", "env.id=mine.world:Chase", "-m", "executor.name=process", "-m", "executor.workers=2", "-m", "stop.score=null"]
    net = ["-m", "policy.kind=module", "-m", "policy.module=mine.world:TinyNet"]
    done = baldwin("train", "cartpole", *OPTIONS, *args, *net, "--out", "run", cwd=tmp_path)
    assert done.returncode == 0, done.stderr


def test_help_is_complete() -> None:
    runner = CliRunner()
    top = runner.invoke(app, ["--help"]).output
    commands = ("train", "evolve", "sweep", "resume", "evaluate", "render", "replay", "show", "compare", "league", "lineage", "timeline")
    for command in (*commands, "list", "import", "cluster"):
        assert command in top
        page = runner.invoke(app, [command, "--help"]).output
        assert len(page.splitlines()) > 5
    assert runner.invoke(app, ["--version"]).output.strip() == __version__


def test_cluster_status(local_ray: None) -> None:
    import ray

    address = ray.get_runtime_context().gcs_address  # auto might find that of another test process
    found = json.loads(baldwin("cluster", "status", "--address", address, "--json").stdout)
    assert found["nodes"][0]["alive"]
    assert found["cpus"] >= 4
    shown = in_process("cluster", "status", "--address", address).stdout
    assert "127.0.0.1" in shown
    assert "no run of Baldwin's is using it now" in shown


def test_cluster_status_without_a_cluster_says_how_to_make_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ray.is_initialized", lambda: False)
    done = in_process("cluster", "status", "--address", "127.0.0.1:1")
    assert done.returncode == 2
    assert "cannot join a Ray cluster at 127.0.0.1:1" in done.stderr
    assert "ray start --head" in done.stderr
    assert "Traceback" not in done.stderr
