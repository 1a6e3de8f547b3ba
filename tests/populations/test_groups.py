"""One policy for each group of players: they learn side by side, and play each other."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from baldwin import load_policy
from baldwin.config import RunConfig, load_config
from baldwin.errors import ConfigError, EnvironmentFailure
from baldwin.populations.groups import Groups
from baldwin.runs.build import build
from baldwin.runs.checkpoint import policy_hash
from baldwin.runs.evaluation import evaluate_run
from baldwin.runs.groups import group_scores
from baldwin.runs.history import rebuild
from baldwin.runs.run import Run
from baldwin.types import Outcome, failed
from tests.runs.test_exactness import lines
from tests.runs.tools import in_process, shown, train_and_kill_twice, train_run, worker_killer

TWO = "population.groups={callers: [caller_0, caller_1], listener: [listener]}"
COMMON = [
    "env.id=tests.toys.signals:Signals",
    "policy.hidden=[8]",
    "policy.normalize_obs=false",
    "population.name=groups",
    "population.episodes=4",
    "run.evaluate_every=1",
    "run.checkpoint_every=1",
    "run.episodes=16",
    "executor.name=inline",
]
PPO = [
    *COMMON,
    "algorithm.name=ppo",
    "algorithm.critic.hidden=[8]",
    "algorithm.normalize_reward=false",
    "algorithm.n_envs=16",
    "algorithm.block=16",
    "algorithm.rollout_length=16",
    "algorithm.batch_size=64",
    "algorithm.epochs=4",
    "algorithm.lr=0.01",
    "algorithm.steps_per_epoch=256",
    "population.steps=1024",
]
SHORT = ["algorithm.rollout_length=11", "algorithm.steps_per_epoch=176", "population.steps=176", "run.episodes=2", "stop.generations=3"]


def config(*overrides: str, base: list[str] = PPO) -> RunConfig:
    return load_config(None, [], [*base, *overrides])


@pytest.fixture(scope="module")
def learned(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return train_run(config(TWO, "stop.generations=3"), tmp_path_factory.mktemp("groups") / "run")


@pytest.fixture(scope="module")
def short(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return train_run(config(TWO, *SHORT), tmp_path_factory.mktemp("short") / "run")


def states(run: Run) -> list[str]:
    return [member.state_sha256 for member in run.algorithm.members]  # type: ignore[attr-defined]


def scores(path: Path) -> list[dict[str, Any]]:
    return [line for line in map(json.loads, (path / "metrics.jsonl").read_text().splitlines()) if "score" in line]


def test_both_groups_learn_and_the_second_needs_the_first(learned: Run) -> None:
    """Callers learn in the first round, with the listener at random. The listener, who cannot learn from random calls, does in the next."""
    found = scores(learned.directory.path)
    assert [line["generation"] for line in found] == [0, 1, 2, 3]
    assert found[-1]["score/callers"] == found[-1]["score"] == 8
    assert found[-1]["score/listener"] == 7
    assert found[0]["score/callers"] < 6
    assert found[1]["score/listener"] < 6


def test_every_group_is_shown_evaluated_and_loaded(learned: Run) -> None:
    path = learned.directory.path
    assert [member["group"] for member in shown(path)["members"]] == ["callers", "listener"]
    assert [evaluate_run(path, 4, trust=True, member=name).mean for name in ("callers", "listener", "0", "1")] == [8, 7, 8, 7]
    assert evaluate_run(path, 4, trust=True).mean == 8  # the first group
    assert load_policy(path, trust=True).act(np.array([1, 1])) == 1
    assert load_policy(path, trust=True, member="listener").act(np.array([-1, -1, 1])) == 0
    assert "member 1: mean 7.00" in in_process("evaluate", path, "--member", "front", "--episodes", 2, "--trust").stdout
    wrong = in_process("evaluate", path, "--member", "listenerr", "--trust")
    assert (wrong.returncode, "Did you mean 'listener'?" in wrong.stderr) == (2, True)
    assert {record["group"] for record in map(json.loads, learned.directory.lineage.read_text().splitlines())} == {"callers", "listener"}


def test_groups_are_exact(short: Run, tmp_path: Path) -> None:
    other = train_run(config(TWO, *SHORT, "executor.name=process", "executor.workers=3"), tmp_path / "three")
    assert states(other) == states(short)
    assert lines(tmp_path / "three") == lines(short.directory.path)
    assert policy_hash(rebuild(other.directory, 2, trust=True)) == policy_hash(rebuild(short.directory, 2, trust=True))


def test_groups_are_exact_after_killed_workers(short: Run, tmp_path: Path) -> None:
    with worker_killer(2) as killed:
        other = train_run(config(TWO, *SHORT, "executor.name=process", "executor.workers=2", "executor.retries=9"), tmp_path / "run")
    assert killed
    assert states(other) == states(short)
    assert lines(tmp_path / "run") == lines(short.directory.path)


@pytest.mark.parametrize("executor", ["inline", "process"])
def test_groups_are_exact_after_kill_nine(short: Run, tmp_path: Path, executor: str) -> None:
    train_and_kill_twice([*PPO, TWO, *SHORT, f"executor.name={executor}"], tmp_path / "run", short, 0.2, "evolve")
    assert [member["state_sha256"] for member in shown(tmp_path / "run")["members"]] == states(short)
    assert scores(tmp_path / "run")[-1]["score/listener"] == scores(short.directory.path)[-1]["score/listener"]


def test_policies_of_all_groups_play_the_same_matches(tmp_path: Path) -> None:
    """What one wins in a duel the other loses: both scores are of the same matches. Before the first round, each meets the script."""
    options = ["env.id=tests.toys.duels:Duel", "env.kwargs={rounds: 9}", "algorithm.rollout_length=16", "stop.generations=2"]
    train_run(config(*options, "population.settings={blue: {algorithm.lr: 1e-12}}", "population.steps=512"), tmp_path / "run")
    found = scores(tmp_path / "run")
    assert all(line["score/red"] == -line["score/blue"] for line in found[1:])
    assert found[-1]["score/red"] > 2


def test_who_is_in_no_group_is_played_by_the_script(tmp_path: Path) -> None:
    run = train_run(config("population.groups={one: [caller_1], listener: [listener]}", "stop.generations=2"), tmp_path / "run")
    algorithm = run.algorithm
    assert isinstance(algorithm, Groups)
    sections, _ = algorithm.policy_at_play("listener")
    assert [other.names for other in sections.others] == [("caller_1",)]
    assert scores(tmp_path / "run")[-1]["score/one"] == 8
    assert scores(tmp_path / "run")[-1]["score/listener"] > 5.5  # it has one caller to trust


def test_a_group_may_have_settings_of_its_own(tmp_path: Path) -> None:
    own = "population.settings={listener: {algorithm.lr: 1e-12, policy.memory: gru, policy.hidden: [9]}}"
    run = train_run(config(TWO, own, *SHORT, "stop.generations=1"), tmp_path / "run")
    listener = load_policy(tmp_path / "run", trust=True, member="listener")
    assert len(listener.params) > len(load_policy(tmp_path / "run", trust=True).params)
    algorithm = run.algorithm
    assert isinstance(algorithm, Groups)
    _, trained = algorithm.policy_at_play("listener")
    _, fresh = build(config(TWO, own, *SHORT)).algorithm.policy_at_play("listener")  # type: ignore[attr-defined]
    np.testing.assert_allclose(trained["params"], fresh["params"], atol=1e-9)  # its step size is next to nothing
    assert evaluate_run(tmp_path / "run", 2, trust=True, member="callers").episodes == 2


def test_a_group_that_failed_tries_again_with_another_seed() -> None:
    algorithm = build(config(TWO, *SHORT)).algorithm
    assert isinstance(algorithm, Groups)
    jobs = algorithm.ask(5)
    assert len(jobs) == 2  # one waits for all
    metrics = algorithm.tell([outcome for job in jobs for outcome in failed(job, "the wheel came off")])
    assert metrics is not None
    assert metrics["failed_members"] == 2
    again: Any = algorithm.ask(5)
    assert {job.seed for job in again}.isdisjoint({job.seed for job in jobs})  # type: ignore[attr-defined]
    assert [job.parent_sha256 for job in again] == ["", ""]


def test_scores_of_groups_are_means_of_what_did_not_fail() -> None:
    returns = [1.0, 2.0, 6.0, float("nan"), float("nan"), float("nan")]
    assert group_scores(["a", "b", "c"], [Outcome(n, value) for n, value in enumerate(returns)]) == {"score/a": 1.5, "score/b": 6.0}


TAG = [
    *(option for option in COMMON if "env.id" not in option),
    "env.id=pettingzoo:mpe2.simple_tag_v3",
    "env.kwargs={max_cycles: 10}",
    "population.groups={hunters: [adversary_0, adversary_1, adversary_2], prey: [agent_0]}",
    "population.episodes=2",
    "run.episodes=2",
    "stop.generations=2",
]
REPLAY = ["algorithm.n_envs=6", "algorithm.rollout_length=20", "algorithm.start_steps=60", "algorithm.batch_size=32"]
REPLAY += ["algorithm.buffer_size=500", "algorithm.steps_per_epoch=120", "population.steps=120"]
ALGORITHMS = {
    "ppo": [
        "algorithm.n_envs=6",
        "algorithm.block=6",
        "algorithm.rollout_length=20",
        "algorithm.steps_per_epoch=120",
        "population.steps=120",
    ],
    "es": ["algorithm.population=4", "algorithm.block=2", "population.steps=40", "policy.memory=gru"],
    "dqn": REPLAY,
    "sac": [*REPLAY, "env.kwargs.continuous_actions=true"],
}


@pytest.mark.parametrize("name", ALGORITHMS)
def test_simple_tag_with_every_kind_of_algorithm(name: str, tmp_path: Path) -> None:
    """Three hunters and a prey with other observations, by gradients on and off the policy and by evolution."""
    options = [*TAG, f"algorithm.name={name}", *ALGORITHMS[name]]
    run = train_run(load_config(None, [], options), tmp_path / "run")
    assert run.last["failed_members"] == 0
    assert {"score/hunters", "score/prey", "return/hunters", "return/prey"} <= set(run.last)
    assert (run.last["score"] or 0) == run.last["score/hunters"]
    sizes = {len(load_policy(tmp_path / "run", member=member).params) for member in ("hunters", "prey")}
    assert len(sizes) == 2
    if name == "es":
        for member in ("hunters", "prey"):
            done = in_process("render", tmp_path / "run", "--member", member, "--video", tmp_path / f"{member}.gif")
            assert done.returncode == 0, done.stderr
            assert (tmp_path / f"{member}.gif").stat().st_size > 1000


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        (
            ["population.groups={a: [caller_9]}"],
            ConfigError,
            "no player 'caller_9' for group 'a'; there are: caller_0.*Did you mean 'caller_",
        ),
        (
            ["population.groups={a: [caller_0], b: [caller_0]}"],
            ConfigError,
            "player 'caller_0' is in groups 'a' and 'b': a player has one policy",
        ),
        (["population.groups={a: [caller_0, caller_0]}"], ConfigError, "'caller_0' is in group 'a' twice"),
        (
            ["population.groups={a: [caller_0, listener]}"],
            EnvironmentFailure,
            "a: players 'caller_0' and 'listener' see or do different things",
        ),
        (["population.groups={a: []}"], ConfigError, "group 'a' has no players"),
        (["population.groups={}"], ConfigError, "expected at least one group, or each"),
        (["population.groups={best: [caller_0]}"], ConfigError, "expected a name without / other than best, front"),
        (["env.id=CartPole-v1"], ConfigError, "'CartPole-v1' has one player: there is nothing to group"),
        ([TWO, "env.players=[listener]"], ConfigError, "every group plays its own players. Leave it out"),
        ([TWO, "env.self_play=true"], ConfigError, "env.self_play: with population.name=groups every group plays its own"),
        ([TWO, "env.kwargs={player: listener}"], ConfigError, "env.kwargs.player: with population.name=groups"),
        (
            [TWO, "algorithm.n_envs=3", "algorithm.block=3"],
            ConfigError,
            "group 'callers': env.players: algorithm.n_envs=3 must be a multiple of the 2",
        ),
        ([TWO, "population.settings={listenerr: {algorithm.lr: 1}}"], ConfigError, "no group 'listenerr'.*Did you mean 'listener'?"),
        ([TWO, "population.settings={listener: {env.id: x}}"], ConfigError, "expected keys of policy and algorithm"),
        (
            [TWO, "population.settings={listener: {algorithm.lr: -1.0}}"],
            ConfigError,
            "population.settings.listener: .*got {'algorithm.lr': -1.0}",
        ),
        ([TWO, "population.settings={listener: {algorithm.lrr: 0.1}}"], ConfigError, "settings.listener: lrr: Extra inputs"),
        ([TWO, "algorithm.lr={log: [1e-4, 1e-2]}"], ConfigError, "groups do not search hyper-parameters"),
    ],
)
def test_bad_groups_are_refused(options: list[str], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        build(config(*options))


def test_a_group_of_a_preset_may_be_left_out() -> None:
    only = config(TWO, "population.groups={callers: null}")
    assert build(only).algorithm.names == ["listener"]  # type: ignore[attr-defined]


def test_a_hybrid_plays_one_player_of_a_match() -> None:
    hybrid = [*COMMON, "algorithm.name=cem-rl", "env.id=pettingzoo:mpe2.simple_tag_v3", "env.kwargs={continuous_actions: true}"]
    with pytest.raises(ConfigError, match="cem-rl collects whole episodes one by one"):
        build(load_config(None, [], [*hybrid, "population.groups={a: [adversary_0, adversary_1], b: [agent_0]}"]))
    assert build(load_config(None, [], [*hybrid, "population.groups={a: [adversary_0], b: [agent_0]}"])).algorithm
