"""Hybrids as runs: synchronous ones exact whatever happens, asynchronous ones exactly what their journal says."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path

import pytest

from baldwin.config import RunConfig, load_config
from baldwin.runs.checkpoint import list_checkpoints, policy_hash, read_checkpoint
from baldwin.runs.directory import RunDirectory
from baldwin.runs.history import rebuild
from baldwin.runs.resume import resume
from baldwin.runs.run import Run, train
from baldwin.runs.timeline import read_timeline
from tests.runs.test_exactness import lines
from tests.runs.tools import RunsWhenAsked, in_process, shown, train_and_kill_twice, train_run, worker_killer

SMALL = [
    "env.id=Hopper-v5",
    "env.max_episode_steps=20",
    "policy.hidden=[16,16]",
    "policy.normalize_obs=true",
    "algorithm.learner.critic.hidden=[16,16]",
    "algorithm.learner.batch_size=32",
    "algorithm.start_steps=60",
    "algorithm.buffer_size=150",
    "algorithm.checkpoint_slack=2000",
    "executor.name=inline",
    "run.evaluate_every=2",
    "run.episodes=3",
    "run.checkpoint_every=1",
    "run.keep=2",
]
POPULATION = ["algorithm.strategy.population=6", "algorithm.rl_individuals=3", "stop.generations=5"]
KINDS = {
    "cem-rl": ["algorithm.name=cem-rl", *POPULATION],
    "p-cem-rl": ["algorithm.name=p-cem-rl", *POPULATION, "algorithm.critic_schedule=parallel", "algorithm.learner.name=sac"],
    "aes-rl": [
        "algorithm.name=aes-rl",
        "algorithm.critic_steps_per_job=20",
        "algorithm.steps_per_epoch=40",
        "algorithm.mean_episodes=2",
        "stop.generations=8",
    ],
}
SYNCHRONOUS = ("cem-rl", "p-cem-rl")


def small(kind: str, *overrides: str) -> RunConfig:
    return load_config(None, [], [*SMALL, *KINDS[kind], *overrides])


def people(path: Path) -> list[dict[str, object]]:
    lines = [json.loads(line) for line in (path / "individuals.jsonl").read_text().splitlines()]
    return [{k: v for k, v in line.items() if k != "run"} for line in lines]


@pytest.fixture(scope="module")
def quiet(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Run]:
    folder = tmp_path_factory.mktemp("quiet")
    return RunsWhenAsked(lambda kind: train_run(small(kind), folder / kind))


@pytest.mark.parametrize(("kind", "executor", "workers"), [(kind, "process", n) for kind in SYNCHRONOUS for n in (1, 3)])
def test_any_executor_gives_the_same_hash(quiet: dict[str, Run], kind: str, executor: str, workers: int, tmp_path: Path) -> None:
    run = train_run(small(kind, f"executor.name={executor}", f"executor.workers={workers}"), tmp_path / "run")
    assert run.params_sha256() == quiet[kind].params_sha256()
    assert lines(tmp_path / "run") == lines(quiet[kind].directory.path)


@pytest.mark.parametrize("kind", SYNCHRONOUS)
def test_killed_workers_change_nothing(quiet: dict[str, Run], kind: str, tmp_path: Path) -> None:
    with worker_killer(3) as killed:
        run = train_run(small(kind, "executor.name=process", "executor.workers=2", "executor.retries=9"), tmp_path / "run")
    assert killed
    assert run.params_sha256() == quiet[kind].params_sha256()


@pytest.mark.parametrize(("kind", "share"), [("cem-rl", 0.4), ("p-cem-rl", 0.6), ("aes-rl", 0.2)])
def test_kill_nine_and_resume_equals_the_unbroken_run(quiet: dict[str, Run], kind: str, share: float, tmp_path: Path) -> None:
    """One at a time an asynchronous run has no choice of order either: open work asked again makes it the same."""
    out = tmp_path / "run"
    train_and_kill_twice([*SMALL, *KINDS[kind]], out, quiet[kind], share)
    assert shown(out)["params_sha256"] == quiet[kind].params_sha256()
    assert lines(out) == lines(quiet[kind].directory.path)
    assert people(out) == people(quiet[kind].directory.path)


@pytest.mark.parametrize("kind", KINDS)
def test_the_journal_alone_rebuilds_every_checkpoint(quiet: dict[str, Run], kind: str) -> None:
    directory = RunDirectory.find(quiet[kind].directory.path)
    for path in list_checkpoints(directory.checkpoints):
        checkpoint = read_checkpoint(path)
        assert policy_hash(rebuild(directory, checkpoint.generation)) == checkpoint.info["params_sha256"]


def test_asynchronous_runs_go_on_with_open_work_and_replay_from_their_arrivals(tmp_path: Path) -> None:
    """Three workers, stopped with work under way; it is asked again under the same tickets, and the journal knows the rest."""
    out = tmp_path / "run"
    train_run(small("aes-rl", "executor.name=process", "executor.workers=3", "stop.generations=5"), out)
    newest = read_checkpoint(list_checkpoints(out / "checkpoints")[-1])
    waiting = {int(t) for t in newest.state["open"]}
    assert waiting
    run, complaints = resume(out, ["stop.generations=9"])
    assert complaints == []
    assert {t for job in run.algorithm.ask(len(waiting)) for t in job.tickets} == waiting
    run.close()
    run, _ = resume(out, ["stop.generations=9"])
    train(run)
    directory = RunDirectory.find(out)
    for checkpoint in (read_checkpoint(p) for p in list_checkpoints(directory.checkpoints)):
        assert policy_hash(rebuild(directory, checkpoint.generation)) == checkpoint.info["params_sha256"]
    assert in_process("replay", out, "--generation", 9).stdout.strip() == run.params_sha256()


@pytest.mark.usefixtures("local_ray")
def test_on_ray_they_replay_from_their_arrivals_too(tmp_path: Path) -> None:
    run = train_run(small("aes-rl", "executor.name=ray", "executor.workers=2", "stop.generations=5"), tmp_path / "run")
    assert policy_hash(rebuild(RunDirectory.find(tmp_path / "run"), 5)) == run.params_sha256()


def test_asynchronous_runs_outlive_their_workers(tmp_path: Path) -> None:
    options = ["executor.name=process", "executor.workers=3", "executor.retries=9"]
    with worker_killer(3) as killed:
        run = train_run(small("aes-rl", *options), tmp_path / "run")
    assert killed
    assert run.algorithm.version == 8
    assert policy_hash(rebuild(RunDirectory.find(tmp_path / "run"), 8)) == run.params_sha256()


def test_on_simulated_workers_asynchrony_is_deterministic(tmp_path: Path) -> None:
    own = ["executor.name=virtual", "executor.workers=4"]
    one, two = (train_run(small("aes-rl", *own), tmp_path / name) for name in ("one", "two"))
    assert one.params_sha256() == two.params_sha256()
    assert people(tmp_path / "one") == people(tmp_path / "two")
    assert one.params_sha256() != train_run(small("aes-rl", "executor.name=virtual", "executor.workers=2"), tmp_path / "x").params_sha256()


def test_metrics_say_what_a_hybrid_does(quiet: dict[str, Run]) -> None:
    common = {"critic_loss", "actor_loss", "q_mean", "critic_steps_per_learning_step", "learning_steps", "simulator_steps", "rl_fraction"}
    common |= {
        "critic_steps",
        "actor_steps",
        "buffer_fill",
        "staleness",
        "step_size",
        "distance",
        "variance_floor_fraction",
        "episode_length",
    }
    for run in map(quiet.__getitem__, KINDS):
        assert set(run.last) >= common
        assert run.last["failed"] == 0
    last = quiet["aes-rl"].last
    assert last["env_steps"] == last["simulator_steps"] > last["learning_steps"]
    assert set(last) >= {"baseline", "es_return", "rl_return", "variance_mean"}
    assert quiet["cem-rl"].last["env_steps"] == quiet["cem-rl"].last["learning_steps"]


def test_who_did_what_when_can_be_seen(quiet: dict[str, Run], tmp_path: Path) -> None:
    train_run(small("aes-rl", "executor.name=virtual", "executor.workers=3"), tmp_path / "run")
    found = read_timeline(tmp_path / "run")
    assert {s.kind for s in found.spans} == {"random", "critic", "rl", "es", "mean", "evaluate"}
    assert set(found.busy()) == {0, 1, 2}
    rows = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert any({"idle/0", "idle/1", "idle/2"} <= set(row) for row in rows)
    assert all(0 <= value <= 1 for row in rows for name, value in row.items() if name.startswith("idle/"))
    assert all(0 <= idle < 1 for idle in found.idle().values())
    for worker in (0, 1, 2):  # nobody does two things at once
        own = sorted((s.started, s.finished) for s in found.spans if s.worker == worker)
        assert all(b[0] >= a[1] - 1e-3 for a, b in pairwise(own))
    said = in_process("timeline", tmp_path / "run", "--seconds", 1, "--json")
    assert json.loads(said.stdout)["seconds"] <= 1
    assert (tmp_path / "run" / "timeline.png").stat().st_size > 5000
    late = in_process("timeline", quiet["cem-rl"].directory.path, "--start", 1e6)
    assert late.returncode == 2
    assert "no job from 1e+06 s on" in late.stderr


def test_a_hybrid_learns_pendulum(tmp_path: Path) -> None:
    """Episodes of half the length are as hard: what counts is the swing-up."""
    shorter = ["env.max_episode_steps=100", "algorithm.start_steps=500", "stop.learning_steps=10_000", "stop.score=-250"]
    run = train_run(load_config("pendulum-cem-rl", [], shorter), tmp_path / "run")
    assert run.score is not None
    assert run.score >= -250  # random actions give about -650


@pytest.mark.slow  # their contracts have a toy that they learn in seconds
@pytest.mark.parametrize("preset", [f"pendulum-{name}" for name in ("cem-rl", "aes-rl", "p-cem-rl", "acem-rl", "opo")])
def test_every_variant_learns_pendulum(preset: str, tmp_path: Path) -> None:
    run = train_run(load_config(preset, [], ["stop.score=-200"]), tmp_path / "run")
    assert run.score is not None
    assert run.score >= -200  # random actions give about -1200
