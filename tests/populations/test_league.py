"""A league of members with roles, in a game with a cycle."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from baldwin.config import RunConfig, load_config
from baldwin.errors import ConfigError
from baldwin.runs.history import greedy_policy, load_policy
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
LEAGUE = [*PPO, "population.name=league", "population.steps=1000", "population.episodes=12", "run.checkpoint_every=1"]
SIGHT = np.ones(1, np.float32)


def league(generations: int, *overrides: str) -> RunConfig:
    return load_config(None, [], [*LEAGUE, f"stop.generations={generations}", *overrides])


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return train_run(league(8), tmp_path_factory.mktemp("league") / "run")


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
    table = league_table(played.directory.path)
    mixture = np.array(table["nash"]) @ np.array(choices(played))
    np.testing.assert_allclose(mixture, 1 / 3, atol=0.08)
    assert exploitability(mixture) < 0.15
    assert {name.split()[0] for name in table["players"]} == {"script", "main", "main-exploiter", "league-exploiter"}
    assert "Nash" in in_process("league", played.directory.path).stdout


def test_plain_self_play_does_not(tmp_path: Path) -> None:
    config = load_config(None, [], [*PPO, "env.self_play=true", "algorithm.entropy_coef=0", "stop.env_steps=8000"])
    train_run(config, tmp_path / "run")
    choice = int(load_policy(tmp_path / "run", trust=True).act(SIGHT))
    assert exploitability(np.eye(3)[choice]) == 1


def test_exploiters_begin_again_and_main_agents_never_do(played: Run) -> None:
    algorithm: Any = played.algorithm
    main, exploiter, _ = algorithm.members
    assert main.rounds == 8
    assert exploiter.rounds < 8
    assert sum(player.role == "main" for player in algorithm.players) == 8


def test_the_league_is_exact(tmp_path: Path) -> None:
    quiet = train_run(league(3), tmp_path / "quiet")
    other = train_run(league(3, "executor.name=process", "executor.workers=3"), tmp_path / "three")
    assert other.params_sha256() == quiet.params_sha256()
    assert league_table(tmp_path / "three") == league_table(tmp_path / "quiet")
    train_and_kill_twice([*LEAGUE, "stop.generations=3"], tmp_path / "killed", quiet, verb="evolve")
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
