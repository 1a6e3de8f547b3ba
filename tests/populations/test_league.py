"""A league of members with roles, in a game with a cycle."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from baldwin.config import RunConfig, load_config
from baldwin.errors import ConfigError
from baldwin.ops.league import nash
from baldwin.populations.league import league_matrix
from baldwin.runs.history import greedy_policy
from baldwin.runs.opponents import league_table
from baldwin.runs.run import Run
from tests.runs.tools import in_process, shown, train_and_kill_twice, train_run

PPO = [
    "env.id=tests.toys.cycles:RockPaperScissors",
    "algorithm.name=ppo",
    "policy.hidden=[]",
    "policy.normalize_obs=false",
    "algorithm.critic.hidden=[]",
    "algorithm.normalize_reward=false",
    "algorithm.n_envs=16",
    "algorithm.block=16",
    "algorithm.rollout_length=8",
    "algorithm.batch_size=128",
    "algorithm.epochs=4",
    "algorithm.lr=0.05",
    "algorithm.entropy_coef=0.1",
    "algorithm.steps_per_epoch=128",
    "run.evaluate_every=100",
    "run.episodes=4",
    "executor.name=inline",
]
ROUNDS, STEPS = 5, 512
LEAGUE = [*PPO, "population.name=league", f"population.steps={STEPS}", "population.episodes=12", "run.checkpoint_every=1"]
SMALL = ["population.steps=128", "population.episodes=4", "population.patience=2"]  # who joins, and who begins again
SIGHT = np.ones(1, np.float32)


def league(generations: int, *overrides: str) -> RunConfig:
    return load_config(None, [], [*LEAGUE, f"stop.generations={generations}", *overrides])


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return train_run(league(ROUNDS), tmp_path_factory.mktemp("league") / "run")


def choices(run: Run) -> list[np.ndarray[Any, Any]]:
    """What each player of the league chooses: the script anything, the others always the same."""
    algorithm: Any = run.algorithm
    found = []
    for player in algorithm.players:
        if not player.state_sha256:
            found.append(np.full(3, 1 / 3))
            continue
        policy = greedy_policy(run.config, algorithm.files.load(player.state_sha256)["policy"])
        found.append(np.eye(3)[int(policy.act(SIGHT))])
    return found


def exploitability(mixture: np.ndarray[Any, Any]) -> float:
    """What the best reply wins on average."""
    payoff = np.array([[0, -1, 1], [1, 0, -1], [-1, 1, 0]])
    return float((payoff @ mixture).max())


def test_a_league_with_three_roles_ends_near_the_equilibrium(played: Run) -> None:
    """Without the script, which is at the equilibrium by itself; and not by luck: every choice has a player in it."""
    algorithm: Any = played.algorithm
    _, rates, _ = league_matrix(algorithm.players[1:])
    weights, own = nash(rates), np.array(choices(played))[1:]
    assert set(own[weights > 0].argmax(1)) == {0, 1, 2}
    assert exploitability(weights @ own) < 0.15
    table = league_table(played.directory.path)
    assert {name.split()[0] for name in table["players"]} == {"script", "main", "main-exploiter", "league-exploiter"}


def test_plain_self_play_goes_round_for_ever(tmp_path: Path) -> None:
    """With the settings of the league, and as many steps as all of its members together."""
    played: list[np.ndarray[Any, Any]] = []

    def watch(run: Run, line: dict[str, float]) -> None:
        if "return_mean" in line:
            logits = run.algorithm.policy_state()["params"].reshape(2, 3).sum(0)  # weights, of a single 1, and biases
            played.append(np.exp(logits) / np.exp(logits).sum())

    steps = 3 * ROUNDS * STEPS
    train_run(load_config(None, [], [*PPO, "env.self_play=true", f"stop.env_steps={steps}"]), tmp_path / "run", watchers=[watch])
    assert len(played) == steps // 128
    late = played[len(played) // 2 :]
    assert np.mean([exploitability(mixture) for mixture in late]) > 0.8
    assert {int(mixture.argmax()) for mixture in played} == {0, 1, 2}


def test_the_league_is_shown(played: Run) -> None:
    found = json.loads(in_process("league", played.directory.path, "--json").stdout)
    assert found == league_table(played.directory.path)
    count = len(found["players"])
    assert (np.shape(found["win_rate"]), np.shape(found["elo"])) == ((count, count), (count,))
    assert "Nash" in in_process("league", played.directory.path).stdout


def test_exploiters_begin_again_and_main_agents_never_do(played: Run) -> None:
    algorithm: Any = played.algorithm
    main, exploiter, _ = algorithm.members
    assert main.rounds == ROUNDS
    assert exploiter.rounds < ROUNDS
    assert sum(player.role == "main" for player in algorithm.players) == ROUNDS


def test_the_league_is_exact(tmp_path: Path) -> None:
    quiet = train_run(league(3, *SMALL), tmp_path / "quiet")
    other = train_run(league(3, *SMALL, "executor.name=process", "executor.workers=3"), tmp_path / "three")
    assert other.params_sha256() == quiet.params_sha256()
    assert league_table(tmp_path / "three") == league_table(tmp_path / "quiet")
    assert len(league_table(tmp_path / "quiet")["players"]) > 4  # not only main agents
    train_and_kill_twice([*LEAGUE, *SMALL, "stop.generations=3"], tmp_path / "killed", quiet, verb="evolve")
    assert shown(tmp_path / "killed")["params_sha256"] == quiet.params_sha256()
    assert league_table(tmp_path / "killed") == league_table(tmp_path / "quiet")


def test_the_league_needs_several_players() -> None:
    with pytest.raises(ConfigError, match="has one player"):
        train_run(league(1, "env.id=CartPole-v1"), Path("never"))


def test_weights_of_the_pool_are_given_one_by_one() -> None:
    with pytest.raises(ConfigError, match="one weight of at least 0 for each of the 1 of pool"):
        load_config(None, [], [*PPO, "opponents={choice: given}"])
    with pytest.raises(ConfigError, match="other choices need none"):
        load_config(None, [], [*PPO, "opponents={choice: uniform, weights: [1]}"])
    assert load_config(None, [], [*PPO, "opponents={choice: given, weights: [1]}"]).opponents
