"""The same seed gives the same bits: for any number of workers, after any death, after kill -9 and resume."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from baldwin.config import load_config
from baldwin.runs.checkpoint import list_checkpoints, policy_hash, read_checkpoint
from baldwin.runs.directory import RunDirectory
from baldwin.runs.history import rebuild
from baldwin.runs.resume import resume
from baldwin.runs.run import Run, train
from tests.runs.tools import SMALL, RunsWhenAsked, in_process, shown, small, train_and_kill_twice, train_run, worker_killer

BACKENDS = ["gymnasium", "envpool", "mujoco"]


def lines(path: Path) -> list[dict[str, Any]]:
    timing = {"wall_seconds", "cpu_seconds", "env_steps_per_second", "updates_per_second", "straggler_fraction"}
    about_workers = {"workers", "worker_deaths", "timeouts", "retries", "mismatches", "jobs_failed", "bytes_sent", "replayed_steps", "run"}
    rows = [json.loads(line) for line in (path / "metrics.jsonl").read_text().splitlines()]
    return [{k: v for k, v in row.items() if k not in timing | about_workers and not k.startswith("idle/")} for row in rows]


@pytest.fixture(scope="module")
def quiet(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Run]:
    folder = tmp_path_factory.mktemp("quiet")
    return RunsWhenAsked(lambda kind: train_run(small(backend=kind), folder / kind))


@pytest.mark.parametrize(("backend", "workers"), [("gymnasium", 3), ("envpool", 3), ("mujoco", 1), ("mujoco", 7)])
def test_any_number_of_workers_gives_the_same_hash(quiet: dict[str, Run], backend: str, workers: int, tmp_path: Path) -> None:
    config = small("Hopper-v5", "executor.name=process", f"executor.workers={workers}", backend=backend)
    run = train_run(config, tmp_path / "run")
    assert run.params_sha256() == quiet[backend].params_sha256()
    assert run.score == quiet[backend].score
    assert lines(tmp_path / "run") == lines(quiet[backend].directory.path)


def test_the_mujoco_backend_is_gymnasium_to_the_last_bit(quiet: dict[str, Run]) -> None:
    assert quiet["mujoco"].params_sha256() == quiet["gymnasium"].params_sha256() != quiet["envpool"].params_sha256()
    assert lines(quiet["mujoco"].directory.path) == lines(quiet["gymnasium"].directory.path)


def test_virtual_workers_too(quiet: dict[str, Run], tmp_path: Path) -> None:
    run = train_run(small("Hopper-v5", "executor.name=virtual", "executor.workers=5", backend="envpool"), tmp_path / "run")
    assert run.params_sha256() == quiet["envpool"].params_sha256()


@pytest.mark.parametrize("backend", BACKENDS)
def test_killed_workers_change_nothing(quiet: dict[str, Run], backend: str, tmp_path: Path) -> None:
    with worker_killer(4) as killed:
        run = train_run(
            small("Hopper-v5", "executor.name=process", "executor.workers=2", "executor.retries=9", backend=backend), tmp_path / "run"
        )
    assert killed
    assert run.params_sha256() == quiet[backend].params_sha256()


@pytest.mark.parametrize(("executor", "share"), [("inline", 0.01), ("process", 0.5)])
def test_kill_nine_of_the_whole_run_and_resume(quiet: dict[str, Run], executor: str, share: float, tmp_path: Path) -> None:
    out = tmp_path / "run"
    options = ["env.id=Hopper-v5", "env.backend=envpool", "env.max_episode_steps=25", *SMALL, f"executor.name={executor}"]
    train_and_kill_twice(options, out, quiet["envpool"], share)
    assert shown(out)["params_sha256"] == quiet["envpool"].params_sha256()
    assert lines(out) == lines(quiet["envpool"].directory.path)
    assert in_process("replay", out, "--generation", 5).stdout.strip() == quiet["envpool"].params_sha256()


def test_a_longer_budget_goes_on_as_if_it_had_always_been_longer(tmp_path: Path) -> None:
    train_run(small("Hopper-v5", "stop.generations=3"), tmp_path / "short")
    run, complaints = resume(tmp_path / "short", ["stop.generations=6"])
    train(run)
    straight = train_run(small("Hopper-v5", "stop.generations=6"), tmp_path / "straight")
    assert complaints == []
    assert run.params_sha256() == straight.params_sha256()


@pytest.mark.parametrize("backend", BACKENDS)
def test_replay_from_rewards_alone_gives_the_hash_of_the_checkpoints(quiet: dict[str, Run], backend: str) -> None:
    directory = RunDirectory.find(quiet[backend].directory.path)
    checkpoints = [read_checkpoint(p) for p in list_checkpoints(directory.checkpoints)]
    assert [c.generation for c in checkpoints] == [2, 4, 5]
    for checkpoint in checkpoints:
        assert policy_hash(rebuild(directory, checkpoint.generation)) == checkpoint.info["params_sha256"]


@pytest.mark.parametrize("name", ["cem", "acem", "one-plus-one", "aes"])
def test_gaussians_replay_from_their_journal_and_resume(name: str, tmp_path: Path) -> None:
    """Steady-state ones move as results arrive, from two processes here: the journal knows the order."""
    common = ["env.id=Hopper-v5", "env.max_episode_steps=25", "policy.hidden=[8]", f"algorithm.name={name}", "run.evaluate_every=5"]
    config = load_config(None, [], [*common, "executor.workers=2", "run.episodes=3", "run.checkpoint_every=5", "stop.generations=10"])
    train_run(config, tmp_path / "run")
    run, complaints = resume(tmp_path / "run", ["stop.generations=20"])
    train(run)
    assert complaints == []
    directory = RunDirectory.find(tmp_path / "run")
    for checkpoint in (read_checkpoint(p) for p in list_checkpoints(directory.checkpoints)):
        assert policy_hash(rebuild(directory, checkpoint.generation)) == checkpoint.info["params_sha256"]
    assert run.algorithm.version == 20


def test_low_rank_and_caps_are_exact_too(tmp_path: Path) -> None:
    extra = ["algorithm.rank=1", "algorithm.cap.rule=grow", "algorithm.cap.start=10", "stop.generations=3"]
    one = train_run(small("Hopper-v5", *extra), tmp_path / "one")
    two = train_run(small("Hopper-v5", *extra, "executor.name=process", "executor.workers=2"), tmp_path / "two")
    assert one.params_sha256() == two.params_sha256()
