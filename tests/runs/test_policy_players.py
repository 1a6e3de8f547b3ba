"""env.players: one policy plays several players of a match, in training and in evaluations, by learners and by evolution."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from baldwin.config import RunConfig, load_config
from baldwin.envs import EnvConfig, check_env
from baldwin.errors import ConfigError, EnvironmentFailure
from baldwin.networks import PolicyConfig, make_network
from baldwin.ops.moments import Moments
from baldwin.rollout import RolloutSpec, WorkerSpec
from baldwin.runs.build import build
from baldwin.runs.evaluation import evaluate_run
from baldwin.types import Trial
from tests.runs.test_exactness import lines
from tests.runs.tools import in_process, shown, train_and_kill_twice, train_run

COMMON = ["policy.hidden=[8]", "policy.normalize_obs=false", "executor.name=inline", "run.evaluate_every=2", "run.checkpoint_every=1"]
PPO = ["algorithm.name=ppo", "algorithm.n_envs=12", "algorithm.block=6", "algorithm.rollout_length=16", "algorithm.batch_size=64"]
PPO += ["algorithm.steps_per_epoch=192", "algorithm.normalize_reward=false", "algorithm.lr=0.01"]
ES = ["algorithm.name=es", "algorithm.population=8", "algorithm.block=4", "algorithm.episodes=2", "algorithm.action_noise=0.05"]
CALLERS = ["env.id=tests.toys.signals:Signals", "env.players=[caller_0, caller_1]"]
SPREAD = ["env.id=pettingzoo:mpe2.simple_spread_v3", "env.players=all", "env.kwargs={N: 2, max_cycles: 10, continuous_actions: true}"]
TURNS = ["env.id=tests.toys.duels:TurnDuel", "env.players=all", "policy.memory=gru"]
RUNS = {"ppo": [*PPO, *CALLERS], "es": [*ES, *SPREAD], "es-turns": [*ES, *TURNS]}


def config(kind: str, *overrides: str) -> RunConfig:
    return load_config(None, [], [*COMMON, *RUNS[kind], "run.episodes=2", "stop.generations=3", *overrides])


@pytest.mark.parametrize("kind", RUNS)
def test_any_number_of_workers_gives_the_same_hash(kind: str, tmp_path: Path) -> None:
    quiet = train_run(config(kind), tmp_path / "quiet")
    run = train_run(config(kind, "executor.name=process", "executor.workers=3"), tmp_path / "run")
    assert run.params_sha256() == quiet.params_sha256()
    assert lines(tmp_path / "run") == lines(tmp_path / "quiet")


def test_kill_nine_and_resume_equals_the_unbroken_run(tmp_path: Path) -> None:
    options = [*COMMON, *RUNS["ppo"], "run.episodes=2", "stop.generations=6"]
    quiet = train_run(load_config(None, [], options), tmp_path / "quiet")
    train_and_kill_twice(options, tmp_path / "killed", quiet, 0.2)
    assert shown(tmp_path / "killed")["params_sha256"] == quiet.params_sha256()


@pytest.mark.parametrize("kind", ["ppo", "es"])
def test_both_callers_are_learned_and_evaluated(kind: str, tmp_path: Path) -> None:
    own = (
        [*PPO, "stop.env_steps=4000"]
        if kind == "ppo"
        else [*ES, "policy.hidden=[]", "algorithm.population=16", "algorithm.sigma=0.2", "algorithm.lr=0.1", "stop.env_steps=15_000"]
    )
    run = train_run(load_config(None, [], [*COMMON, *own, *CALLERS, "run.episodes=8", "stop.score=7.9"]), tmp_path / "run")
    assert run.score == 8
    assert run.last["score_length"] == 16  # eight decisions of each


def test_a_policy_that_learned_by_self_play_is_evaluated_on_all_players(tmp_path: Path) -> None:
    """In a duel of shared points, eight rounds: the policy is always right, the script every other time."""
    duel = ["env.id=tests.toys.duels:Duel", "env.kwargs={shared: true}", "env.self_play=true"]
    train_run(load_config(None, [], [*COMMON, *PPO, *duel, "run.episodes=2", "stop.env_steps=4000"]), tmp_path / "run")
    assert 9 < evaluate_run(tmp_path / "run", 16, trust=True).mean < 15
    both = evaluate_run(tmp_path / "run", 16, trust=True, all_players=True)
    assert (both.mean, both.length) == (16, 16)
    assert "mean 16.00" in in_process("evaluate", tmp_path / "run", "--all-players", "--episodes", 4, "--trust").stdout


def evaluate(env: EnvConfig) -> list[float]:
    """Returns of four policies in two games each, and moments of what they saw."""
    policy, env_spec = PolicyConfig(hidden=[4], normalize_obs=False, output_scale=1.0), check_env(env)
    network = make_network(policy, env_spec.obs, 3)
    worker = WorkerSpec(env, env_spec, policy)()
    moments = Moments.empty(env_spec.obs.vector_size).pack()
    spec = RolloutSpec("train", 0, np.array([1, 2]), 0, episodes=2, max_steps=120, obs_moments=moments, collect_moments=True)
    found = worker.evaluate([Trial(n, 0, network.init(n)) for n in range(4)], spec)
    worker.close()
    seen = Moments.unpack(found[0].arrays["obs_moments"])
    return [*(outcome.scalar for outcome in found), seen.count, *seen.mean.tolist()]


def test_one_side_of_pong_is_the_same_however_it_is_said() -> None:
    left = evaluate(EnvConfig(id="baldwin:VectorPong-v0", players=["left"]))
    assert left == pytest.approx(evaluate(EnvConfig(id="baldwin:VectorPong-v0", kwargs={"player": "left"})))
    assert len(set(left)) > 2


def test_both_sides_of_pong_are_the_same_in_numpy_and_frame_by_frame() -> None:
    """With a decision in every frame both ways of playing are the same game."""
    fast = evaluate(EnvConfig(id="baldwin:VectorPong-v0", players="all"))
    slow = evaluate(EnvConfig(id="baldwin:VectorPong-v0", players=["right", "left"]))
    assert fast == pytest.approx(slow)


def test_a_film_has_the_policy_on_all_sides(tmp_path: Path) -> None:
    pong = ["env.id=baldwin:VectorPong-v0", "env.max_episode_steps=20", "env.players=all"]
    train_run(load_config(None, [], [*COMMON, *PPO, *pong, "run.episodes=1", "stop.generations=1"]), tmp_path / "run")
    done = in_process("render", tmp_path / "run", "--video", tmp_path / "film.gif")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "film.gif").stat().st_size > 1000


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ([*PPO, "env.id=CartPole-v1", "env.players=all"], EnvironmentFailure, "env.players: environment 'CartPole-v1' has one player"),
        ([*PPO, "env.id=CartPole-v1", "env.players=[left]"], EnvironmentFailure, "env.players: environment 'CartPole-v1' has one player"),
        ([*PPO, *CALLERS, "env.players=[caller_3]"], EnvironmentFailure, "no player 'caller_3'; there are: .* Did you mean 'caller_"),
        ([*PPO, *CALLERS, "env.players=[caller_0, listener]"], EnvironmentFailure, "'caller_0' and 'listener' see or do different things"),
        ([*PPO, *CALLERS, "env.players=all"], EnvironmentFailure, "see or do different things.*population.name=groups"),
        ([*PPO, *CALLERS, "env.self_play=true"], ConfigError, "players and self_play both say who plays"),
        ([*PPO, *CALLERS, "env.kwargs={player: listener}"], ConfigError, "leave player out of kwargs"),
        ([*PPO, *CALLERS, "env.players=[caller_0, caller_0]"], ConfigError, "expected each player once"),
        ([*PPO, *CALLERS, "algorithm.block=3"], ConfigError, "env.players: algorithm.block=3 must be a multiple of the 2"),
        ([*PPO, "env.id=baldwin:VectorPong-v0", "env.players=[up]"], EnvironmentFailure, "player .any, left, right.*'up'"),
        (
            [*PPO, "env.id=baldwin:VectorPong-v0", "env.players=all", "opponents={}"],
            ConfigError,
            "with env.players the policy meets itself",
        ),
        (["algorithm.name=reinforce", *CALLERS], ConfigError, "env.players needs segments: reinforce collects whole episodes"),
    ],
)
def test_players_that_cannot_be_are_refused(options: list[str], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        build(load_config(None, [], [*COMMON, *options]))
