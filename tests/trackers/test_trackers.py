"""Trackers store what a run writes, once; and whatever happens to them, the run goes on."""

from __future__ import annotations

import importlib.util
import json
import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from baldwin.config import load_config
from baldwin.errors import ConfigError, MissingExtra
from baldwin.registry import load_plugins
from baldwin.runs import trackers as run_trackers
from baldwin.runs.metrics import read_lines
from baldwin.runs.resume import resume
from baldwin.runs.run import Run, start, train
from baldwin.trackers.follow import LineReader
from baldwin.trackers.mlflow import flatten
from baldwin.trackers.tracker import member_metrics, run_metrics
from baldwin.types import Metrics
from tests.patience import wait_until
from tests.runs.tools import SMALL, in_process, small, train_run
from tests.trackers.tools import install_plugin, wandb_rows

needs_wandb = pytest.mark.skipif(importlib.util.find_spec("wandb") is None, reason="needs the extra: pip install 'baldwin-rl[wandb]'")
needs_mlflow = pytest.mark.skipif(importlib.util.find_spec("mlflow") is None, reason="needs the extra: pip install 'baldwin-rl[mlflow]'")
OFFLINE = ["run.trackers=[wandb]", "run.wandb.mode=offline"]
POPULATION = [
    "population.name=pbt",
    "population.members=2",
    "population.steps=100",
    "population.episodes=2",
    "algorithm.lr={log: [1e-3, 1e-1]}",
]


@pytest.fixture(scope="module", autouse=True)
def _misbehaving_trackers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    site = tmp_path_factory.mktemp("site")
    install_plugin(site)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(site)
        patch.setenv("PYTHONPATH", os.pathsep.join([str(site), *filter(None, [os.environ.get("PYTHONPATH")])]))
        load_plugins.cache_clear()
        load_plugins()
        yield


@pytest.fixture(autouse=True)
def _slow_machines_have_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_trackers, "CLOSE_SECONDS", 200.0)


def reports(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [r.getMessage() for r in caplog.records if "switched off" in r.getMessage()]


def lines_of(run: Run) -> list[tuple[int, float | None]]:
    """Environment steps and score of each line of metrics.jsonl."""
    return [(line["env_steps"], line.get("score")) for line in read_lines(run.directory.metrics)[0]]


def stored(rows: list[dict[str, Any]]) -> list[tuple[int, float | None]]:
    return [(row["env_steps"], row.get("score")) for row in rows]


def test_a_line_is_split_into_numbers_and_their_step() -> None:
    assert run_metrics({"env_steps": 40, "generation": 2, "score": 1.5, "best": None, "run": "ab"}) == ({"generation": 2, "score": 1.5}, 40)


def test_a_round_of_a_member_has_its_number_score_and_hyperparameters() -> None:
    record = {
        "learning_steps": 900,
        "member": 3,
        "score": 7.0,
        "env_steps": 300,
        "hyperparameters": {"algorithm.lr": 0.1, "algorithm.optimizer": "adam"},
        "state_sha256": "ab",
    }
    assert member_metrics(record) == ({"member/3/score": 7.0, "member/3/env_steps": 300.0, "member/3/algorithm.lr": 0.1}, 900)
    assert "member/3/score" not in member_metrics(record | {"score": None})[0]  # the round failed


def test_nested_configs_become_dotted_parameters() -> None:
    assert flatten({"a": {"b": 1, "c": {"d": [2]}}, "e": {}}) == {"a.b": 1, "a.c.d": [2], "e": {}}


def test_lines_are_read_once_and_only_when_they_are_whole(tmp_path: Path) -> None:
    file = tmp_path / "lines"
    reader = LineReader(file, skip=1)
    assert list(reader.read()) == []
    file.write_bytes(b'{"n": 1}\n{"n": 2}\nrubbish\n{"n"')
    assert list(reader.read()) == [{"n": 2}]
    with file.open("ab") as more:
        more.write(b": 4}\n")
    assert list(reader.read()) == [{"n": 4}]
    assert reader.lines == 4


def test_an_unknown_tracker_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(ConfigError, match="Did you mean 'tensorboard'"):
        small("CartPole-v1", "run.trackers=[tensorbord]")


def test_a_missing_library_is_told_before_there_is_a_run(tmp_path: Path) -> None:
    with pytest.raises(MissingExtra, match=r"tracker 'needs-more' needs .* pip install 'baldwin-rl\[wandb\]'"):
        start(small("CartPole-v1", "run.trackers=[needs-more]"), tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.skipif(importlib.util.find_spec("wandb") is not None, reason="W&B is installed")
def test_the_command_line_names_the_extra_of_wandb(tmp_path: Path) -> None:
    said = in_process("train", "--env", "CartPole-v1", "-m", "run.trackers=[wandb]", "--out", tmp_path / "run")
    assert said.returncode == 2
    assert "pip install 'baldwin-rl[wandb]'" in said.stderr


def test_without_trackers_there_are_only_the_runs_own_files(tmp_path: Path) -> None:
    run = train_run(small("CartPole-v1", "run.trackers=[]"), tmp_path / "run")
    assert not (tmp_path / "run" / "tensorboard").exists()
    assert not (tmp_path / "run" / "trackers").exists()
    assert len(lines_of(run)) > 5


@pytest.mark.parametrize(
    ("how", "reason"),
    [("refuses", "no such account"), ("raises", "the network is gone"), ("dies", "its process ended"), ("blocks", "did not finish within")],
)
def test_a_tracker_that_fails_costs_one_warning(
    how: str, reason: str, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def wait_until_it_fails(run: Run, line: Metrics) -> None:
        """So that it fails while the run goes, however fast that is."""
        (tracker,) = run.trackers._processes
        while how == "blocks" and not (tmp_path / "run" / "blocked").exists():
            time.sleep(0.01)
        if how != "blocks" and tracker._process:
            tracker._process.wait()

    if how == "blocks":
        monkeypatch.setattr(run_trackers, "CLOSE_SECONDS", 0.1)
    with caplog.at_level(logging.WARNING, "baldwin"):
        run = train_run(small("CartPole-v1", f"run.trackers=[tensorboard, {how}]"), tmp_path / "run", watchers=[wait_until_it_fails])
    assert run.algorithm.version == 5
    assert run.params_sha256() == train_run(small("CartPole-v1"), tmp_path / "plain").params_sha256()
    assert len(reports(caplog)) == 1
    assert reason in reports(caplog)[0]


def test_members_of_a_population_are_written_to_tensorboard(tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    run = train_run(small("CartPole-v1", *POPULATION, "stop.generations=2"), tmp_path / "run")
    board = EventAccumulator(str(tmp_path / "run" / "tensorboard")).Reload()
    records = [r for r in read_lines(run.directory.lineage)[0] if r["member"] == 1]
    assert [e.value for e in board.Scalars("member/1/score")] == pytest.approx([r["score"] for r in records])
    rates = [r["hyperparameters"]["algorithm.lr"] for r in records]
    assert [e.value for e in board.Scalars("member/1/algorithm.lr")] == pytest.approx(rates)


def test_trials_of_a_sweep_are_written_to_tensorboard(tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    options = [*(o for o in POPULATION if "pbt" not in o and "members" not in o), "population.name=sweep", "population.seeds=2"]
    run = train_run(small("CartPole-v1", *options, "population.trials=2", "stop.generations=2"), tmp_path / "run")
    board = EventAccumulator(str(tmp_path / "run" / "tensorboard")).Reload()
    records = read_lines(run.directory.lineage)[0]
    assert len(records) == 4
    for record in records:
        assert [e.value for e in board.Scalars(f"member/{record['member']}/score")] == pytest.approx([record["score"]])
        rate = record["hyperparameters"]["algorithm.lr"]
        assert [e.value for e in board.Scalars(f"member/{record['member']}/algorithm.lr")] == pytest.approx([rate])
    medians = [line["best_median"] for line in read_lines(run.directory.metrics)[0] if "best_median" in line]
    assert [e.value for e in board.Scalars("best_median")] == pytest.approx(medians)
    assert len(medians) == 2


@needs_wandb
def test_wandb_stores_every_line_once_also_of_a_resumed_run(tmp_path: Path) -> None:
    run = train_run(small("CartPole-v1", *OFFLINE), tmp_path / "run")
    rows = wandb_rows(tmp_path / "run")
    assert stored(rows) == lines_of(run)
    assert rows[-1]["score"] == run.score
    again, _ = resume(tmp_path / "run", ["stop.generations=7"])
    train(again)
    rows = wandb_rows(tmp_path / "run")
    assert stored(rows) == lines_of(again)
    assert [row["_step"] for row in rows] == list(range(len(rows)))  # one W&B run with one count of rows
    assert {file.name for file in (tmp_path / "run").glob("wandb/*/run-*.wandb")} == {f"run-{run.id}.wandb"}


@needs_wandb
def test_wandb_stores_members_and_another_tracker_may_be_chosen_on_resume(tmp_path: Path) -> None:
    run = train_run(small("CartPole-v1", *POPULATION, "stop.generations=2"), tmp_path / "run")
    assert wandb_rows(tmp_path / "run") == []
    again, _ = resume(tmp_path / "run", OFFLINE)
    train(again)
    rows = wandb_rows(tmp_path / "run")
    assert stored([row for row in rows if "generation" in row]) == lines_of(run)  # all that happened before, too
    records = [r for r in read_lines(run.directory.lineage)[0] if r["member"] == 0]
    assert [row["member/0/score"] for row in rows if "member/0/score" in row] == [r["score"] for r in records]


@needs_wandb
def test_a_run_that_was_killed_goes_on_in_the_same_wandb_run(tmp_path: Path) -> None:
    out = tmp_path / "run"
    options = [f"-m{o}" for o in ("env.id=CartPole-v1", *SMALL, *OFFLINE, "stop.generations=100000", "run.checkpoint_every=50")]
    command = [sys.executable, "-m", "baldwin", "train", *options, "--out", str(out), "--quiet"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    wait_until((out / "trackers" / "wandb.json").is_file, lambda: process.poll() is None)
    process.kill()
    process.wait()
    version = sum("score" not in line for line in read_lines(out / "metrics.jsonl")[0])
    assert in_process("resume", out, "--quiet", "-m", f"stop.generations={version + 2}").returncode == 0
    lines = read_lines(out / "metrics.jsonl")[0]
    assert stored(wandb_rows(out)) == [(line["env_steps"], line.get("score")) for line in lines]


@needs_wandb
def test_a_killed_wandb_service_costs_a_warning_and_resume_stores_the_rest(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    position = tmp_path / "run" / "trackers" / "wandb.json"
    killed: list[int] = []

    def kill_service(run: Run, line: Metrics) -> None:
        if line["generation"] == 2 and not killed:
            while not position.is_file():
                time.sleep(0.01)
            killed.extend(_services_of(tmp_path / "run"))
            for service in killed:
                os.kill(service, signal.SIGKILL)

    with caplog.at_level(logging.WARNING, "baldwin"):
        run = train_run(small("CartPole-v1", *OFFLINE), tmp_path / "run", watchers=[kill_service])
    assert len(killed) == 1
    assert run.algorithm.version == 5
    assert len(reports(caplog)) == 1
    again, _ = resume(tmp_path / "run", ["stop.generations=6"])
    train(again)
    assert len(reports(caplog)) == 1
    assert stored(wandb_rows(tmp_path / "run"))[-1] == lines_of(again)[-1]
    assert json.loads(position.read_text())["lines"]["metrics"] == len(lines_of(again))


def _services_of(run: Path) -> list[int]:
    """W&B's service processes whose parent has this run's log as its output."""
    log = str(run / "trackers" / "wandb.log")
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if process.joinpath("comm").read_text().strip() == "wandb-core":
                parent = process.joinpath("stat").read_text().rpartition(")")[2].split()[1]
                if os.readlink(f"/proc/{parent}/fd/1") == log:
                    found.append(int(process.name))
        except OSError:
            continue
    return found


@needs_mlflow
def test_mlflow_stores_every_line_once_also_of_a_resumed_run(tmp_path: Path) -> None:
    from mlflow import MlflowClient

    uri = f"sqlite:///{tmp_path / 'store.db'}"
    run = train_run(
        small("CartPole-v1", *POPULATION, "stop.generations=2", "run.trackers=[mlflow]", f"run.mlflow.uri={uri}"), tmp_path / "run"
    )
    again, _ = resume(tmp_path / "run", ["stop.generations=3"])
    train(again)
    client = MlflowClient(tracking_uri=uri)
    experiment = client.get_experiment_by_name("baldwin")
    (found,) = client.search_runs([experiment.experiment_id])
    scores = [(m.step, m.value) for m in client.get_metric_history(found.info.run_id, "score")]
    assert scores == [(step, score) for step, score in lines_of(again) if score is not None]
    assert len(client.get_metric_history(found.info.run_id, "return_mean")) == 3
    rounds = [r["score"] for r in read_lines(run.directory.lineage)[0] if r["member"] == 1]
    assert [m.value for m in client.get_metric_history(found.info.run_id, "member/1/score")] == rounds
    assert found.data.params["env.id"] == "CartPole-v1"
    assert not any(key.startswith("run.mlflow") for key in found.data.params)  # an address may hold a password
    assert found.info.status == "FINISHED"


def test_a_foreign_run_does_not_send_metrics_where_its_author_says() -> None:
    config = load_config(None, [], ["env.id=CartPole-v1", "run.mlflow.uri=http://127.0.0.1:9"])
    assert "run.mlflow.uri=http://127.0.0.1:9" in config.foreign_code()
