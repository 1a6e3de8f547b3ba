"""On-policy learners and DQN as runs: exact at any number of workers, after any death, after kill -9 and resume; and they learn."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from baldwin.config import RunConfig, load_config
from baldwin.errors import ConfigError, EnvironmentFailure, RunDirectoryError
from baldwin.runs.checkpoint import list_checkpoints, policy_hash, read_checkpoint
from baldwin.runs.directory import RunDirectory
from baldwin.runs.history import load_policy, rebuild
from baldwin.runs.run import Run
from tests.runs.test_exactness import lines
from tests.runs.tools import RunsWhenAsked, shown, train_and_kill_twice, train_run, worker_killer

COMMON = [
    "env.max_episode_steps=60",
    "policy.hidden=[16]",
    "policy.normalize_obs=true",
    "algorithm.steps_per_epoch=120",
    "executor.name=inline",
    "run.evaluate_every=2",
    "run.episodes=3",
    "run.checkpoint_every=1",
    "run.keep=2",
    "stop.generations=5",
]
SEGMENTS = ["algorithm.n_envs=4", "algorithm.block=2", "algorithm.rollout_length=15"]
KINDS = {
    "ppo": [
        "algorithm.name=ppo",
        "env.id=Hopper-v5",
        *SEGMENTS,
        "algorithm.batch_size=30",
        "algorithm.epochs=2",
        "algorithm.normalize_reward=true",
    ],
    "ppo-lag": [
        "algorithm.name=ppo",
        "env.id=CartPole-v1",
        *SEGMENTS,
        "algorithm.actor_lag=1",
        "policy.memory.kind=lstm",
        "policy.memory.size=8",
    ],
    "a2c": ["algorithm.name=a2c", "env.id=Hopper-v5", *SEGMENTS],
    "reinforce": ["algorithm.name=reinforce", "env.id=Hopper-v5", "algorithm.episodes_per_update=3"],
    "dqn": [
        "algorithm.name=dqn",
        "env.id=CartPole-v1",
        "algorithm.buffer_size=200",
        "algorithm.checkpoint_slack=300",
        "algorithm.noisy=true",
    ],
}
IMAGES = {
    "ppo-images": [
        "algorithm.name=ppo",
        "env.id=tests.toys.sensors:Catch",
        *("algorithm.n_envs=4", "algorithm.block=2", "algorithm.rollout_length=12", "algorithm.steps_per_epoch=48", "algorithm.epochs=2"),
        *("algorithm.threads=1", "policy.normalize_obs=false", "run.checkpoint_every=3", "run.evaluate_every=100", "stop.generations=7"),
    ]
}
ASYNCHRONOUS = {
    "impala": ["algorithm.name=impala", "env.id=Hopper-v5", *SEGMENTS],
    "a3c": ["algorithm.name=a3c", "env.id=Hopper-v5", *SEGMENTS],
}


def small(kind: str, *overrides: str) -> RunConfig:
    return load_config(None, [], [*COMMON, *(KINDS | IMAGES | ASYNCHRONOUS)[kind], *overrides])


@pytest.fixture(scope="module")
def quiet(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Run]:
    folder = tmp_path_factory.mktemp("quiet")
    return RunsWhenAsked(lambda kind: train_run(small(kind), folder / kind))


@pytest.mark.parametrize(("kind", "executor", "workers"), [("ppo", "virtual", 5), ("ppo-lag", "virtual", 3), ("ppo", "ray", 2)])
def test_any_executor_gives_the_same_hash(quiet: dict[str, Run], kind: str, executor: str, workers: int, tmp_path: Path) -> None:
    run = train_run(small(kind, f"executor.name={executor}", f"executor.workers={workers}"), tmp_path / "run")
    assert run.params_sha256() == quiet[kind].params_sha256()
    assert lines(tmp_path / "run") == lines(quiet[kind].directory.path)


@pytest.mark.parametrize("kind", [*KINDS, *IMAGES])
def test_several_processes_that_are_killed_now_and_then_change_nothing(quiet: dict[str, Run], kind: str, tmp_path: Path) -> None:
    with worker_killer(3) as killed:
        run = train_run(small(kind, "executor.name=process", "executor.workers=2", "executor.retries=9"), tmp_path / "run")
    assert killed
    assert run.params_sha256() == quiet[kind].params_sha256()
    assert lines(tmp_path / "run") == lines(quiet[kind].directory.path)


KILLED = [("ppo", 0.2), ("ppo-lag", 0.5), ("dqn", 0.4), ("a2c", 0.3), ("reinforce", 0.3), ("ppo-images", 0.3)]


@pytest.mark.parametrize(("kind", "share"), KILLED)
def test_kill_nine_and_resume_equals_the_unbroken_run(quiet: dict[str, Run], kind: str, share: float, tmp_path: Path) -> None:
    out = tmp_path / "run"
    train_and_kill_twice([*COMMON, *(KINDS | IMAGES)[kind]], out, quiet[kind], share)
    assert shown(out)["params_sha256"] == quiet[kind].params_sha256()
    assert lines(out) == lines(quiet[kind].directory.path)


@pytest.mark.parametrize("kind", KINDS)
def test_the_journal_alone_rebuilds_every_checkpoint(quiet: dict[str, Run], kind: str) -> None:
    directory = RunDirectory.find(quiet[kind].directory.path)
    for path in list_checkpoints(directory.checkpoints):
        checkpoint = read_checkpoint(path)
        assert policy_hash(rebuild(directory, checkpoint.generation)) == checkpoint.info["params_sha256"]
    obs = np.zeros(4 if "env.id=CartPole-v1" in KINDS[kind] else 11, np.float32)
    load_policy(directory.path).act(obs)


@pytest.mark.parametrize(("kind", "executor", "workers"), [("impala", "process", 2), ("a3c", "virtual", 3)])
def test_asynchronous_ones_go_on_after_kill_nine_as_their_journal_says(kind: str, executor: str, workers: int, tmp_path: Path) -> None:
    """Killed twice: what was learned before and after is in one journal, which rebuilds the end, and a checkpoint before it."""
    unbroken = train_run(small(kind), tmp_path / "unbroken")
    own = [*COMMON, *ASYNCHRONOUS[kind], f"executor.name={executor}", f"executor.workers={workers}"]
    train_and_kill_twice(own, tmp_path / "run", unbroken)
    directory = RunDirectory.find(tmp_path / "run")
    assert shown(tmp_path / "run")["params_sha256"] == policy_hash(rebuild(directory, 5))
    checkpoint = read_checkpoint(list_checkpoints(directory.checkpoints)[0])
    assert policy_hash(rebuild(directory, checkpoint.generation)) == checkpoint.info["params_sha256"]
    steps, whole = ([line["env_steps"] for line in lines(path)] for path in (tmp_path / "run", tmp_path / "unbroken"))
    assert steps == whole  # no generation twice


@pytest.mark.parametrize("kind", ASYNCHRONOUS)
def test_asynchronous_ones_survive_killed_workers(kind: str, tmp_path: Path) -> None:
    with worker_killer(2) as killed:
        run = train_run(small(kind, "executor.name=process", "executor.workers=2", "executor.retries=9"), tmp_path / "run")
    assert killed
    assert run.algorithm.version == 5
    assert policy_hash(rebuild(RunDirectory.find(tmp_path / "run"), 5)) == run.params_sha256()
    assert {"staleness", "entropy", "explained_variance", "policy_loss", "value_loss", "gradient_norm"} <= set(run.last)


def test_metrics_say_what_a_learner_does(quiet: dict[str, Run]) -> None:
    named = {
        "policy_loss",
        "value_loss",
        "entropy",
        "approx_kl",
        "clip_fraction",
        "explained_variance",
        "staleness",
        "gradient_norm",
        "return_mean",
    }
    assert named <= set(quiet["ppo"].last)
    assert quiet["ppo"].last["staleness"] == 0.0
    assert quiet["ppo-lag"].last["staleness"] == 1.0


@pytest.mark.parametrize("kind", IMAGES)
def test_the_journal_of_a_run_that_sees_images_leaves_them_out(quiet: dict[str, Run], kind: str) -> None:
    with pytest.raises(RunDirectoryError, match="leaves out its images"):
        rebuild(quiet[kind].directory, 2)


def score(*options: str, out: Path) -> float:
    run = train_run(load_config(None, [], ["executor.name=inline", "run.evaluate_every=10", "run.checkpoint_every=100", *options]), out)
    assert run.score is not None
    return run.score


@pytest.mark.parametrize(
    ("algorithm", "steps"),
    [
        *(("ppo", 60_000), ("a2c", 150_000), ("reinforce", 100_000), ("impala", 150_000), ("dqn", 60_000)),
        pytest.param("a3c", 150_000, marks=pytest.mark.slow),  # the loss of A2C, and the lag of IMPALA; its contracts have a toy
    ],
)
def test_cartpole_is_solved(algorithm: str, steps: int, tmp_path: Path) -> None:
    """475 within so many steps, as the preset is."""
    config = load_config(f"cartpole-{algorithm}", [], ["executor.name=inline", f"stop.env_steps={steps}", "stop.score=475"])
    run = train_run(config, tmp_path / "run")
    assert run.score is not None
    assert run.score >= 475


def test_pendulum_by_ppo(tmp_path: Path) -> None:
    config = load_config("pendulum-ppo", [], ["executor.name=inline", "stop.score=-200", "stop.env_steps=200_000"])
    run = train_run(config, tmp_path / "run")
    assert run.score is not None
    assert run.score >= -200


SMALL_PPO = ["algorithm.name=ppo", "algorithm.n_envs=8", "algorithm.block=8", "algorithm.rollout_length=40", "algorithm.batch_size=80"]
SMALL_PPO += ["algorithm.steps_per_epoch=320", "algorithm.lr=3e-3", "algorithm.entropy_coef=0.01"]


@pytest.mark.parametrize(
    ("env", "options", "solved"),
    [
        ("worlds:Chase", ["policy.head=gaussian"], -0.75),
        ("worlds:Chase", ["policy.squash=tanh"], -0.75),
        ("worlds:Chase", ["policy.head=gaussian", "policy.squash=tanh"], -0.75),
        ("worlds:Choices", [], 20),
        ("worlds:Mixed", ["algorithm.gamma=0.1"], 18.5),
        ("sensors:Catch", ["algorithm.threads=1", "run.episodes=32"], 0.8),
    ],
    ids=["spread-of-state", "squashed", "squashed-spread-of-state", "multi-discrete", "mixed", "images"],
)
def test_ppo_learns_with_every_kind_of_policy(env: str, options: list[str], solved: float, tmp_path: Path) -> None:
    """Untrained ones get -6.4, 10, 4 and -0.75."""
    kwargs = ["env.kwargs={size: 1}"] if env == "worlds:Chase" else []
    own = [f"env.id=tests.toys.{env}", *kwargs, "algorithm.gamma=0.8", *options, "run.evaluate_every=5", "stop.generations=60"]
    assert score(*SMALL_PPO, *own, f"stop.score={solved}", out=tmp_path / "run") >= solved


def test_illegal_actions_are_never_taken(tmp_path: Path) -> None:
    """The world raises at an illegal action; a failed segment would show in the metrics."""
    env = ["env.id=tests.toys.worlds:DiscreteChase", "env.kwargs.masked=true"]
    run = train_run(
        load_config(None, [], [*SMALL_PPO, *env, "executor.name=inline", "algorithm.gamma=0.8", "stop.generations=15"]), tmp_path / "run"
    )
    assert run.score is not None
    assert run.score > -2.5
    assert run.last["failed_segments"] == 0


@pytest.mark.parametrize(("memory", "solved"), [("lstm", True), ("gru", True), ("none", False)])
def test_recall_needs_memory(memory: str, solved: bool, tmp_path: Path) -> None:
    own = [
        "env.id=tests.toys.delayed:Recall",
        f"policy.memory.kind={memory}",
        "policy.memory.size=8",
        "policy.hidden=[]",
        "stop.generations=20",
    ]
    found = score(*SMALL_PPO, *own, "stop.score=1", "run.episodes=32", "run.evaluate_every=5", out=tmp_path / "run")
    assert (found == 1.0) == solved
    assert solved or abs(found) < 0.7


@pytest.mark.parametrize("vector", ["false", "true"])
def test_reward_components_with_discounts_of_their_own(vector: str, tmp_path: Path) -> None:
    """The patient action pays 3 late; what is paid at once tempts to others, unless each component has its own discount."""
    env = ["env.id=tests.toys.delayed:TwoRewards", f"env.kwargs.vector={vector}", "algorithm.gae_lambda=1"]
    late = "reward_1" if vector == "true" else "late"
    both = score(
        *SMALL_PPO, *env, "algorithm.gamma=0.1", "algorithm.gammas={" + f"{late}: 1.0" + "}", "stop.generations=25", out=tmp_path / "own"
    )
    one = score(*SMALL_PPO, *env, "algorithm.gamma=0.1", "stop.generations=25", out=tmp_path / "one")
    assert both == 3.0
    assert one < 3.0


def test_unknown_reward_components_are_refused(tmp_path: Path) -> None:
    env = ["env.id=tests.toys.delayed:TwoRewards", *SMALL_PPO]
    with pytest.raises(EnvironmentFailure, match=r"no reward component 'later'; it gives soon, late\. Did you mean 'late'"):
        score(*env, "env.reward_weights={later: 2}", out=tmp_path / "run")
    with pytest.raises(ConfigError, match="no reward component 'later'"):
        score(*env, "algorithm.gammas={later: 0.5}", out=tmp_path / "run")


def test_reward_components_that_change_are_a_failure(tmp_path: Path) -> None:
    with pytest.raises(EnvironmentFailure, match="expected the reward components soon, late"):
        score("env.id=tests.toys.delayed:Changes", *SMALL_PPO, out=tmp_path / "run")


def test_numbers_that_cannot_be_are_refused() -> None:
    for wrong in ("algorithm.gammas={late: 99}", "algorithm.gae_lambdas={late: -1}"):
        with pytest.raises(ConfigError, match="late"):
            load_config(None, [], ["env.id=tests.toys.delayed:TwoRewards", *SMALL_PPO, wrong])
    with pytest.raises(ConfigError, match="target_kl measures"):
        load_config(None, [], ["env.id=CartPole-v1", *SMALL_PPO, "algorithm.target_kl=0.01", "algorithm.actor_lag=1"])


def test_threads_are_part_of_the_run_s_identity(tmp_path: Path) -> None:
    run = train_run(small("ppo", "stop.generations=1"), tmp_path / "run")
    assert run.config.algorithm.threads == 1  # type: ignore[attr-defined]


def test_weights_decide_what_is_learned(tmp_path: Path) -> None:
    """With no weight on what is late, the trap is best: 2 at once."""
    env = ["env.id=tests.toys.delayed:TwoRewards", "algorithm.gae_lambda=1", "algorithm.gamma=1"]
    assert score(*SMALL_PPO, *env, "env.reward_weights={late: 0}", "stop.generations=25", out=tmp_path / "run") == 2.0


@pytest.mark.parametrize(("says", "expected"), [("true", 1.0), ("false", 1.5)])
def test_frames_of_a_step_are_discounted(says: str, expected: float, tmp_path: Path) -> None:
    """1.5 after 20 frames is worth less than 1 after 2; counted in steps it is worth more."""
    env = ["env.id=tests.toys.delayed:Skips", f"env.kwargs.says={says}", "algorithm.gamma=0.9"]
    assert score(*SMALL_PPO, *env, "stop.generations=20", out=tmp_path / "run") == expected


@pytest.mark.slow
def test_lunarlander_by_ppo(tmp_path: Path) -> None:
    run = train_run(load_config("lunarlander-ppo", [], ["stop.score=200"]), tmp_path / "run")
    assert run.score is not None
    assert run.score >= 200
