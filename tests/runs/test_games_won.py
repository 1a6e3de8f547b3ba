"""Learning in games of two players, counted in games that greedy policies win. The long ones are marked slow: make slow."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from baldwin.config import load_config
from baldwin.envs.pettingzoo import make_world, without_checks
from baldwin.networks import GreedyPolicy
from baldwin.opponents import OPPONENTS, SCRIPT
from baldwin.populations.member import WINS, play_matches
from baldwin.runs.build import build
from baldwin.runs.history import load_policy
from baldwin.runs.run import Run
from baldwin.types import Arrays, Shared
from tests.runs.tools import train_run

OLDER = 1  # the number of an older self among the opponents


def share_won(run: Run, policy: Arrays, opponent: int = SCRIPT, older: Arrays | None = None, games: int = 100) -> float:
    """Of so many greedy games against the script, or an older self; the side is drawn."""
    sections = load_config(
        None, [], [f"env.id={run.config.env.id}", f"policy.hidden={list(run.config.policy.hidden)}", "algorithm.name=ppo"]
    )
    worker = build(sections).worker_spec()
    if older is not None:
        worker.receive(Shared(OPPONENTS, OLDER, older, OLDER))
    found, _ = play_matches(worker, policy, [{"number": opponent}], 1, games, None)
    worker.close()
    return float(found[WINS][0]) / games


def test_self_play_on_pong_beats_the_script_that_it_never_met_and_an_older_self(tmp_path: Path) -> None:
    """A tenth of the preset's steps, with a shorter horizon and larger steps; seeds 1 to 3 win 0.97, 0.98 and 0.94 of games against the script."""
    policies: list[Arrays] = []

    def keep(run: Run, line: dict[str, float]) -> None:
        if "return_mean" in line:
            policies.append({key: np.array(array) for key, array in run.algorithm.policy_state().items()})

    options = ["executor.name=inline", "run.evaluate_every=1000", "run.episodes=2", "stop.env_steps=1_040_000", "run.seed=2"]
    options += ["algorithm.gamma=0.97", "algorithm.lr={kind: linear, start: 6e-3, end: 0, env_steps: 1_100_000}"]
    run = train_run(load_config("vector-pong-self-play-ppo", [], options), tmp_path / "run", watchers=[keep])
    assert share_won(run, policies[-1]) >= 0.9
    assert share_won(run, policies[-1], OLDER, policies[len(policies) // 4]) > 0.5


@pytest.mark.slow
def test_the_preset_of_self_play_on_pong_beats_the_script_and_an_older_self(tmp_path: Path) -> None:
    older: list[Arrays] = []

    def keep(run: Run, line: dict[str, float]) -> None:
        if not older and line["env_steps"] >= 1_000_000:
            older.append({key: np.array(array) for key, array in run.algorithm.policy_state().items()})

    run = train_run(load_config("vector-pong-self-play-ppo", [], ["executor.name=inline"]), tmp_path / "run", watchers=[keep])
    policy = run.algorithm.policy_state()
    assert share_won(run, policy) >= 0.9
    assert share_won(run, policy, OLDER, older[0]) > 0.5


def ends_of_all_games(policy: GreedyPolicy, seat: int) -> Counter[int]:
    """How many of all lines of play against a greedy policy in that seat of tic-tac-toe it wins (1), draws (0) and loses (-1)."""
    game: Any = without_checks(make_world("classic.tictactoe_v3").env)  # type: ignore[attr-defined]
    own, found = game.possible_agents[seat], Counter[int]()

    def play(moves: list[int]) -> None:
        game.reset(seed=0)
        for move in moves:
            game.step(move)
        while not (game.terminations[game.agent_selection] or game.truncations[game.agent_selection]):
            seen = game.observe(game.agent_selection)
            legal = seen["action_mask"].astype(np.bool_)
            if game.agent_selection != own:
                for move in np.flatnonzero(legal):
                    play([*moves, int(move)])
                return
            moves = [*moves, int(policy.act(seen["observation"], {"action_mask": legal}))]
            game.step(moves[-1])
        found[int(game.rewards[own])] += 1

    play([])
    return found


@pytest.mark.slow
@pytest.mark.parametrize(("steps", "lost"), [(250_000, 0.02), (600_000, 0.0)])
def test_lines_of_tic_tac_toe_that_are_lost_in_either_seat(steps: int, lost: float, tmp_path: Path) -> None:
    """All replies of the opponent are tried: the preset, run to its end, loses none."""
    config = load_config("tic-tac-toe-ppo", [], ["executor.name=inline", "run.evaluate_every=1000", f"stop.env_steps={steps}"])
    train_run(config, tmp_path / "run")
    for seat in (0, 1):
        ends = ends_of_all_games(load_policy(tmp_path / "run"), seat)
        assert ends.total() > 50
        assert ends[-1] <= lost * ends.total()
