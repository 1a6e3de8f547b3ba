"""Runs with many options of the off-policy learners at once are exact: whoever collects, after killed workers, after kill -9 and resume."""

from __future__ import annotations

from pathlib import Path

import pytest

from baldwin.config import RunConfig, load_config
from baldwin.runs.checkpoint import list_checkpoints, policy_hash, read_checkpoint
from baldwin.runs.directory import RunDirectory
from baldwin.runs.history import rebuild
from baldwin.runs.run import Run
from tests.runs.test_exactness import lines
from tests.runs.tools import RunsWhenAsked, shown, train_and_kill_twice, train_run, worker_killer

COMMON = [
    *("policy.hidden=[8]", "algorithm.threads=1", "executor.name=inline", "algorithm.buffer_size=100", "algorithm.checkpoint_slack=200"),
    *("algorithm.start_steps=60", "algorithm.steps_per_epoch=60", "algorithm.rollout_length=10", "algorithm.batch_size=8"),
    *("algorithm.n_envs=2", "algorithm.updates_per_step=0.2", "run.checkpoint_every=1", "run.keep=2", "stop.env_steps=240"),
    *("run.evaluate_every=3", "run.episodes=2"),
]
SAC = ["algorithm.name=sac", "policy.normalize_obs=true", "algorithm.critic.hidden=[8]"]
SMALL = "hidden: [8]"
KINDS = {
    "recurrent": [
        *("env.id=Pendulum-v1", "env.max_episode_steps=25", "env.previous_action=true", "policy.memory={kind: gru, size: 6}"),
        *(*SAC, "algorithm.actor_lag=1", "algorithm.burn_in=3", "algorithm.sequence=3", "algorithm.n_step=2", "algorithm.refresh=true"),
        *("algorithm.target=retrace", "algorithm.trace_lambda=0.9", "algorithm.prioritized={beta_updates: 50, eta: 0.8}"),
        *("algorithm.noisy=true", "algorithm.n_critics=3", "algorithm.clip_epsilon=0.5", "algorithm.actor_trains_encoder=true"),
        *(f"algorithm.rnd={{kind: reward, {SMALL}, output_size: 4}}", f"algorithm.curiosity={{kind: icm, {SMALL}, feature_size: 4}}"),
        f"algorithm.siamese={{kind: atc, {SMALL}, size: 4, contrastive_q: true, adaptive: true}}",
        f"algorithm.prediction={{{SMALL}}}",
    ],
    "mixed": [
        *(*SAC, "env.id=tests.toys.delayed:Dart", "env.kwargs={masked: true}", "algorithm.target=vtrace", "algorithm.n_step=2"),
        *("policy.encoders={obs: {kind: mlp, hidden: [8]}}", "algorithm.shared_encoder=false", "algorithm.prioritized=true"),
        f"algorithm.curiosity={{kind: inverse, {SMALL}}}",
    ],
    "choices": [
        *(*SAC, "env.id=tests.toys.delayed:Dart", "algorithm.discrete_dqn_like=true", "algorithm.exploration_spread=2"),
        *("algorithm.ensemble=3", "algorithm.prioritized={initial: td-error}"),
    ],
    "td3": [
        *("algorithm.name=td3", "env.id=Pendulum-v1", "env.max_episode_steps=25", "algorithm.critic.hidden=[8]", "algorithm.burn_in=2"),
        *("policy.memory={kind: attention, size: 4, window: 3, heads: 2}", "algorithm.sequence=3", "algorithm.n_step=2"),
        *(f"algorithm.siamese={{kind: byol, {SMALL}, size: 4}}", f"algorithm.curiosity={{kind: forward, {SMALL}}}"),
        *("algorithm.exploration_spread=2", "algorithm.rescale_values=true"),
    ],
    "dqn": [
        *("algorithm.name=dqn", "env.id=CartPole-v1", "policy.memory={kind: lstm, size: 4}", "algorithm.sequence=3", "algorithm.n_step=2"),
        *(f"algorithm.rnd={{kind: action, {SMALL}, output_size: 4, n_samples: 3}}", "algorithm.target=retrace", "algorithm.burn_in=2"),
        *("algorithm.rescale_values=true", "algorithm.target_update_interval=5", "algorithm.prioritized=true", "algorithm.dueling=true"),
    ],
    "pictures": [
        *(*SAC, "policy.normalize_obs=false", "env.id=tests.toys.sensors:Catch", "policy.images={conv: strided, hidden: [4]}"),
        f"algorithm.siamese={{kind: atc, {SMALL}, size: 4, steps: 2, pixels: 1}}",
        *("algorithm.sequence=2", "algorithm.n_step=2", "algorithm.updates_per_step=0.1", "algorithm.n_envs=1"),
    ],
}


def small(kind: str, *overrides: str) -> RunConfig:
    return load_config(None, [], [*COMMON, *KINDS[kind], *overrides])


@pytest.fixture(scope="module")
def quiet(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Run]:
    folder = tmp_path_factory.mktemp("quiet")
    return RunsWhenAsked(lambda kind: train_run(small(kind), folder / kind))


@pytest.mark.parametrize("executor", ["ray"])
def test_a_worker_on_ray_changes_nothing(quiet: dict[str, Run], executor: str, tmp_path: Path) -> None:
    run = train_run(small("recurrent", f"executor.name={executor}", "executor.workers=1"), tmp_path / "run")
    assert run.params_sha256() == quiet["recurrent"].params_sha256()
    assert lines(tmp_path / "run") == lines(quiet["recurrent"].directory.path)


@pytest.mark.parametrize("kind", KINDS)
def test_killed_workers_change_nothing(quiet: dict[str, Run], kind: str, tmp_path: Path) -> None:
    with worker_killer(2) as killed:
        run = train_run(small(kind, "executor.name=process", "executor.workers=2", "executor.retries=9"), tmp_path / "run")
    assert killed
    assert run.params_sha256() == quiet[kind].params_sha256()
    assert lines(tmp_path / "run") == lines(quiet[kind].directory.path)


@pytest.mark.parametrize(
    ("kind", "share"), [("recurrent", 0.5), ("mixed", 0.3), ("choices", 0.4), ("td3", 0.5), ("dqn", 0.3), ("pictures", 0.4)]
)
def test_kill_nine_and_resume_equals_the_unbroken_run(quiet: dict[str, Run], kind: str, share: float, tmp_path: Path) -> None:
    """Twice; the ring has wrapped around by the end."""
    out = tmp_path / "run"
    train_and_kill_twice([*COMMON, *KINDS[kind]], out, quiet[kind], share)
    assert shown(out)["params_sha256"] == quiet[kind].params_sha256()
    assert lines(out) == lines(quiet[kind].directory.path)


@pytest.mark.parametrize("kind", KINDS)
def test_the_journal_alone_rebuilds_the_last_checkpoint(quiet: dict[str, Run], kind: str) -> None:
    directory = RunDirectory.find(quiet[kind].directory.path)
    checkpoint = read_checkpoint(list_checkpoints(directory.checkpoints)[-1])
    assert policy_hash(rebuild(directory, checkpoint.generation)) == checkpoint.info["params_sha256"]


def test_refreshed_states_change_the_run_and_are_in_its_checkpoints(quiet: dict[str, Run], tmp_path: Path) -> None:
    run = train_run(small("recurrent", "algorithm.refresh=false"), tmp_path / "run")
    assert run.params_sha256() != quiet["recurrent"].params_sha256()
    state = read_checkpoint(list_checkpoints(quiet["recurrent"].directory.checkpoints)[-1]).state["replay"]
    assert state["mutable"]["memory"].shape == (100, 6)
    assert "memory" not in state["checksums"]
