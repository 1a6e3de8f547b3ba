"""Gradient learners as runs: exact at any number of workers, after any death, after kill -9 and resume; honest when they fail."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from baldwin.config import RunConfig, load_config
from baldwin.errors import ConfigError
from baldwin.replay import PrioritizedConfig
from baldwin.runs.checkpoint import list_checkpoints, policy_hash, read_checkpoint
from baldwin.runs.directory import RunDirectory
from baldwin.runs.history import load_policy, rebuild
from baldwin.runs.resume import resume
from baldwin.runs.run import Run, resolved, train
from tests.runs.test_exactness import lines
from tests.runs.tools import RunsWhenAsked, in_process, shown, train_and_kill_twice, train_run, worker_killer

SMALL = [
    "env.id=Hopper-v5",
    "env.max_episode_steps=60",
    "policy.hidden=[16,16]",
    "policy.normalize_obs=true",
    "algorithm.critic.hidden=[16,16]",
    "algorithm.start_steps=100",
    "algorithm.batch_size=32",
    "algorithm.n_step=2",
    "algorithm.rollout_length=25",
    "algorithm.steps_per_epoch=100",
    "algorithm.buffer_size=150",
    "algorithm.checkpoint_slack=200",
    "algorithm.threads=1",
    "executor.name=inline",
    "run.evaluate_every=2",
    "run.episodes=3",
    "run.checkpoint_every=1",
    "run.keep=2",
    "stop.env_steps=700",
]
KINDS = {
    "td3": ["algorithm.name=td3"],
    "sac": ["algorithm.name=sac", "algorithm.actor_lag=1"],
    "td3-prioritized": ["algorithm.name=td3", "algorithm.prioritized={beta_updates: 500}"],
}


def small(kind: str, *overrides: str) -> RunConfig:
    return load_config(None, [], [*SMALL, *KINDS[kind], *overrides])


@pytest.fixture(scope="module")
def quiet(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Run]:
    folder = tmp_path_factory.mktemp("quiet")
    return RunsWhenAsked(lambda kind: train_run(small(kind), folder / kind))


@pytest.mark.parametrize(  # other learners on simulated workers, and on Ray: tests/contracts
    ("kind", "executor", "workers"),
    [("td3", "process", 1), ("td3", "virtual", 4), *((kind, "process", 3) for kind in KINDS)],
)
def test_any_executor_gives_the_same_hash(quiet: dict[str, Run], kind: str, executor: str, workers: int, tmp_path: Path) -> None:
    run = train_run(small(kind, f"executor.name={executor}", f"executor.workers={workers}"), tmp_path / "run")
    assert run.params_sha256() == quiet[kind].params_sha256()
    assert lines(tmp_path / "run") == lines(quiet[kind].directory.path)


@pytest.mark.parametrize("kind", KINDS)
def test_killed_workers_change_nothing(quiet: dict[str, Run], kind: str, tmp_path: Path) -> None:
    with worker_killer(3) as killed:
        run = train_run(small(kind, "executor.name=process", "executor.workers=2", "executor.retries=9"), tmp_path / "run")
    assert killed
    assert run.params_sha256() == quiet[kind].params_sha256()


@pytest.mark.parametrize(("kind", "share"), [("td3", 0.2), ("sac", 0.5), ("td3-prioritized", 0.4)])
def test_kill_nine_and_resume_equals_the_unbroken_run(quiet: dict[str, Run], kind: str, share: float, tmp_path: Path) -> None:
    """Twice; the ring has wrapped around by the end."""
    out = tmp_path / "run"
    train_and_kill_twice([*SMALL, *KINDS[kind]], out, quiet[kind], share)
    assert shown(out)["params_sha256"] == quiet[kind].params_sha256()
    assert lines(out) == lines(quiet[kind].directory.path)


@pytest.mark.parametrize("kind", ["td3", "td3-prioritized"])
def test_a_damaged_checkpoint_costs_nothing_but_time(quiet: dict[str, Run], kind: str, tmp_path: Path) -> None:
    """The run goes back to the checkpoint before."""
    train_run(small(kind, "stop.env_steps=600"), tmp_path / "run")
    newest = list_checkpoints(tmp_path / "run" / "checkpoints")[-1]
    (newest / "state.safetensors").write_bytes(b"torn")
    run, complaints = resume(tmp_path / "run", ["stop.env_steps=700"])
    train(run)
    assert "state.safetensors is damaged" in complaints[0]
    assert run.params_sha256() == quiet[kind].params_sha256()


def test_without_its_replay_a_run_goes_on_from_the_journal(quiet: dict[str, Run], tmp_path: Path) -> None:
    train_run(small("td3", "stop.env_steps=600"), tmp_path / "run")
    (tmp_path / "run" / "replay" / "obs.vector.bin").unlink()
    run, complaints = resume(tmp_path / "run", ["stop.env_steps=700"])
    train(run)
    assert "obs.vector.bin was missing" in complaints[0]
    assert run.params_sha256() == quiet["td3"].params_sha256()
    assert lines(tmp_path / "run")[-1] == lines(quiet["td3"].directory.path)[-1]


@pytest.mark.parametrize("kind", KINDS)
def test_the_journal_alone_rebuilds_every_checkpoint(quiet: dict[str, Run], kind: str) -> None:
    directory = RunDirectory.find(quiet[kind].directory.path)
    for path in list_checkpoints(directory.checkpoints):
        checkpoint = read_checkpoint(path)
        assert policy_hash(rebuild(directory, checkpoint.generation)) == checkpoint.info["params_sha256"]
    assert load_policy(directory.path).action_map.size == 3


def test_a_checkpoint_does_not_hold_the_rows(quiet: dict[str, Run]) -> None:
    for run in map(quiet.__getitem__, KINDS):
        newest = list_checkpoints(run.directory.checkpoints)[-1]
        assert "replay" in read_checkpoint(newest).state
        assert "rows" not in read_checkpoint(newest).state["replay"]
        assert (run.directory.replay / "obs.vector.bin").exists()


def test_metrics_say_what_a_learner_does(quiet: dict[str, Run]) -> None:
    td3, sac = (quiet[kind].last for kind in ("td3", "sac"))
    common = {
        "critic_loss",
        "actor_loss",
        "q_mean",
        "q_bias",
        "critic_gradient_norm",
        "actor_gradient_norm",
        "update_to_data",
        "buffer_fill",
    }
    assert set(td3) >= common | {"env_steps_per_second", "updates_per_second"}
    assert set(sac) >= common | {"entropy", "alpha"}
    assert td3["update_to_data"] == 1.0
    assert td3["buffer_fill"] == 1.0
    assert td3["gradient_steps"] == 600


def config_of(path: Path) -> dict[str, Any]:
    return dict(load_config(None, [path / "config.yaml"]).model_dump())


def test_what_auto_means_is_settled_when_a_run_begins(tmp_path: Path) -> None:
    config = small("td3", "algorithm.threads=auto", "algorithm.device=auto", "stop.env_steps=100")
    train_run(config, tmp_path / "run")
    saved = config_of(tmp_path / "run")["algorithm"]
    assert isinstance(saved["threads"], int)
    assert saved["device"] in ("cpu", "cuda")


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["env.id=CartPole-v1", "algorithm.name=td3"], "td3 needs actions in a bounded Box; got Discrete(2)"),
        (["env.id=CartPole-v1", "algorithm.name=aes-rl"], "or use algorithm.learner=sac or algorithm.name=es"),
        (["env.id=tests.toys.worlds:Mixed", "algorithm.name=sac"], "sac needs choices or bounded boxes, also mixed; got Dict"),
        (["env.id=Hopper-v5", "algorithm.name=sac", "policy.head=deterministic"], "needs policy.squash=tanh and policy.head=gaussian"),
        (["env.id=Hopper-v5", "algorithm.name=td3", "algorithm.policy_dela=3"], "Did you mean 'policy_delay'?"),
        (
            ["env.id=Hopper-v5", "algorithm.name=td3", "algorithm.gamma=1.5"],
            "'algorithm.gamma': should be less than or equal to 1; got 1.5",
        ),
        (["env.id=Hopper-v5", "algorithm.name=td3", "run.checkpoint_every=1000"], "lower run.checkpoint_every"),
        (["env.id=Hopper-v5", "algorithm.name=td3", "algorithm.buffer_size=10000000000000"], "does not fit"),
        (["env.id=Hopper-v5", "algorithm.name=sacc"], "Did you mean 'sac'?"),
    ],
)
def test_what_cannot_be_is_said_before_there_is_a_directory(overrides: list[str], message: str, tmp_path: Path) -> None:
    done = in_process("train", *(f"-m{o}" for o in overrides), "--out", tmp_path / "run")
    assert done.returncode == 2, done.stderr
    assert message in done.stderr.replace("\n", " ")
    assert not (tmp_path / "run").exists()


def test_actor_lag_is_a_word_or_a_number() -> None:
    base = ["env.id=Hopper-v5", "algorithm.name=td3"]
    found = [load_config(None, [], [*base, f"algorithm.actor_lag={word}"]).algorithm.actor_lag for word in ("off", "on", "3", "false")]  # type: ignore[union-attr]
    assert found == [0, 1, 3, 0]
    with pytest.raises(ConfigError, match=r"algorithm.actor_lag"):
        load_config(None, [], [*base, "algorithm.actor_lag=maybe"])


def test_priorities_are_a_switch_or_settings() -> None:
    def read(*options: str) -> Any:
        return load_config(None, [], ["env.id=Hopper-v5", "algorithm.name=sac", *options]).algorithm.prioritized  # type: ignore[union-attr]

    assert read() is read("algorithm.prioritized=false") is read("algorithm.prioritized=null") is None
    assert read("algorithm.prioritized=true") == PrioritizedConfig()
    assert read("algorithm.prioritized.alpha=0.5").alpha == read("algorithm.prioritized={alpha: 0.5}").alpha == 0.5


SWEEP = "population={name: sweep, steps: 500, search: {algorithm.critic_lr: {log: [1e-4, 1e-3]}}}"


@pytest.mark.parametrize(
    ("own", "expected"),
    [
        (["stop.env_steps=600"], 250),  # (600 - 100) steps with half an update each
        (["stop.learning_steps=300"], 100),
        (["stop.generations=1"], "auto"),
        (["stop.env_steps=600", "population={name: pbt, members: 3}"], 50),
        ([SWEEP], 200),
    ],
)
def test_beta_reaches_its_end_with_the_run(own: list[str], expected: int | str) -> None:
    """By default, as in the paper; in a population with a member's share."""
    more = ["algorithm.prioritized=true", "algorithm.updates_per_step=0.5", "stop.env_steps=null", *own]
    algorithm: Any = resolved(load_config(None, [], [*SMALL, "algorithm.name=td3", *more])).algorithm
    assert algorithm.prioritized.beta_updates == expected


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            ["algorithm.name=sac", "algorithm.prioritized.alpha=2"],
            "'algorithm.prioritized.alpha': should be less than or equal to 1; got 2",
        ),
        (["algorithm.name=sac", "algorithm.prioritized.beta=1"], "unknown key 'algorithm.prioritized.beta'"),
        (["algorithm.name=sac", "algorithm.prioritized=often"], "expected true, false, or settings such as {alpha: 0.6}"),
        (["algorithm.name=aes-rl", "algorithm.prioritized=true"], "prioritised replay is for td3, sac and dqn alone"),
        (["algorithm.name=aes-rl", "algorithm.learner.prioritized=true"], "prioritised replay is for td3, sac and dqn alone"),
    ],
)
def test_priorities_that_cannot_be_are_refused(options: list[str], message: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(message)):
        load_config(None, [], ["env.id=Hopper-v5", *options])


def test_what_is_sampled_by_priority_is_in_the_metrics_and_in_the_checkpoint(quiet: dict[str, Run]) -> None:
    run = quiet["td3-prioritized"]
    assert run.last["td_error"] > 0
    assert "td_error" not in quiet["td3"].last
    saved = read_checkpoint(list_checkpoints(run.directory.checkpoints)[-1]).state["priorities"]
    assert len(saved["priorities"]) == 150
    assert saved["batches"] == run.last["gradient_steps"]
    assert run.params_sha256() != quiet["td3"].params_sha256()


def test_divergence_stops_with_the_last_good_checkpoint(tmp_path: Path) -> None:
    options = [*SMALL, *KINDS["td3"], "algorithm.start_steps=420", "algorithm.critic_lr=1e30"]
    done = in_process("train", *(f"-m{o}" for o in options), "--out", tmp_path / "run", "--quiet")
    assert done.returncode == 1
    text = done.stderr.replace("\n", " ")
    assert "the learner has diverged" in text
    assert "The last good checkpoint stays" in text
    assert "Traceback" not in text
    assert [int(p.name) for p in list_checkpoints(tmp_path / "run" / "checkpoints")] == [3, 4]
    assert read_checkpoint(tmp_path / "run" / "checkpoints" / "00000004").generation == 4


def test_an_environment_that_sometimes_breaks_costs_its_episode_only(tmp_path: Path) -> None:
    own = ["env.id=tests.toys.worlds:Broken", "env.kwargs={how: raise}", "env.max_episode_steps=10", "algorithm.rollout_length=10"]
    run = train_run(small("td3", *own), tmp_path / "run")
    assert run.algorithm.env_steps >= 700
    assert (run.last["failed_episodes"] > 0, run.last["failed_segments"]) == (True, 0)
    assert "the wheel came off" in shown(tmp_path / "run")["failures"][0]


def test_an_environment_that_always_breaks_ends_the_run(tmp_path: Path) -> None:
    own = ["env.id=tests.toys.worlds:BreaksLater", "env.max_episode_steps=10"]
    done = in_process("train", *(f"-m{o}" for o in (*SMALL, *KINDS["td3"], *own)), "--out", tmp_path / "run", "--quiet")
    assert done.returncode == 2
    assert "the wheel came off" in done.stderr


def test_a_run_can_be_shown_compared_and_evaluated(quiet: dict[str, Run], tmp_path: Path) -> None:
    paths = [run.directory.path for run in map(quiet.__getitem__, KINDS)]
    assert in_process("compare", *paths, "--plot", tmp_path / "plot.png").returncode == 0
    found = json.loads(in_process("evaluate", paths[1], "--episodes", 4, "--json").stdout)
    assert found["params_sha256"] == quiet["sac"].params_sha256()


@pytest.mark.parametrize("preset", ["pendulum-sac", "pendulum-td3"])
def test_presets_learn_within_their_steps(preset: str, tmp_path: Path) -> None:
    run = train_run(load_config(preset, [], ["executor.name=inline", "algorithm.threads=1", "stop.score=-200"]), tmp_path / "run")
    assert run.score is not None
    assert run.score > -200
    assert run.algorithm.env_steps <= 20_000


@pytest.mark.parametrize("seed", [2, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (1, 3))])
def test_discrete_sac_balances_a_pole_with_a_temperature_that_stays(seed: int, tmp_path: Path) -> None:
    """475 of 500 within 50,000 steps; the temperature neither vanishes nor explodes."""
    own, seen = ["executor.name=inline", "algorithm.threads=1", "stop.score=475", "run.evaluate_every=1", f"run.seed={seed}"], []
    run = train_run(load_config("cartpole-sac", [], own), tmp_path / "run", watchers=[lambda run, line: seen.append(line)])
    assert run.score is not None
    assert run.score >= 475
    assert run.algorithm.env_steps <= 50_000
    alpha = [line["alpha"] for line in seen if "alpha" in line]
    assert 0.05 < min(alpha) <= max(alpha) < 2


@pytest.mark.parametrize("executor", ["process", "ray"])
def test_a_stream_stays_with_its_worker(executor: str, tmp_path: Path) -> None:
    """Three streams on two workers: elsewhere, every segment would begin by simulating the episode so far again."""
    options = [
        "algorithm.actor_lag=2",
        f"executor.name={executor}",
        "executor.workers=2",
        "env.id=Pendulum-v1",
        "env.max_episode_steps=100",
        "algorithm.rollout_length=10",
        "run.evaluate_every=100",
        f"stop.env_steps={500 if executor == 'ray' else 1000}",
    ]
    run = train_run(small("td3", *options), tmp_path / "run")
    assert run.last["env_steps"] >= 500
    late = 2 * 100 if executor == "ray" else 0  # an actor that starts late takes over a stream, and one episode is simulated again
    assert run.last["replayed_steps"] <= 0.02 * run.last["env_steps"] + late  # not sticky: several times the steps of the run
