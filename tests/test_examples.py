"""The examples run, and stay short."""

import re
import shlex
from pathlib import Path

import pytest

from baldwin.config import load_config
from examples import act, black_box, evolve, improve
from tests.runs.tools import in_process, small, train_run

FOLDER = Path(evolve.__file__).parent


def test_examples_are_short() -> None:
    for path in FOLDER.glob("*.py"):
        assert len(path.read_text().splitlines()) < 80


def test_the_loop_in_ten_lines_learns() -> None:
    assert evolve.main(12) > 150


def test_a_trained_policy_acts(tmp_path: Path) -> None:
    config = small(
        "CartPole-v1", "algorithm.population=40", "algorithm.block=40", "algorithm.sigma=0.05", "algorithm.lr=0.1", "stop.generations=10"
    )
    train_run(config.model_copy(update={"env": config.env.model_copy(update={"max_episode_steps": None})}), tmp_path / "run")
    assert min(act.main(str(tmp_path / "run"))) > 100


def test_a_strategy_alone_finds_the_bottom() -> None:
    assert black_box.main() < 0.1


def test_a_learner_alone_improves_five_policies() -> None:
    before, after = improve.main(3000, 600)
    assert after > before + 0.2


def test_a_game_of_ones_own_is_learned(tmp_path: Path) -> None:
    """Against random moves, in turns, as the first player or the second."""
    options = [
        "env.id=examples.nim:Nim",
        "algorithm.name=ppo",
        "algorithm.n_envs=16",
        "algorithm.block=16",
        "algorithm.rollout_length=32",
        "algorithm.lr=1e-3",
        "algorithm.steps_per_epoch=4096",
        "executor.name=inline",
        "run.evaluate_every=2",
        "run.episodes=64",
        "stop.env_steps=80_000",
        "stop.score=0.85",
    ]
    run = train_run(load_config(None, [], options), tmp_path / "run")
    assert (run.score or 0) >= 0.85


SHORTER = {
    "60_000": "512",
    "120_000": "1024",
    "20_000": "256",
    "20_480": "256",
    "4096": "256",
    "=64 ": "=2 ",
    "generations=4": "generations=1",
}


def test_the_commands_from_a_game_to_a_league_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of docs/multiplayer.md, with fewer steps."""
    text = (Path(__file__).parents[1] / "docs" / "multiplayer.md").read_text()
    block = text.split("### From there to a league")[1].split("```")[1].replace("\\\n", " ")
    for long, short in SHORTER.items():
        assert long in block
        block = block.replace(long, short)
    shared = re.search("OPTIONS='(.*)'", block)
    assert shared
    commands = [
        shlex.split(line.replace("$OPTIONS", shared[1]), comments=True) for line in block.splitlines() if line.startswith("baldwin ")
    ]
    assert [command[1] for command in commands] == ["train", "train", "train", "league", "evolve", "league", "evaluate"]
    monkeypatch.chdir(tmp_path)
    for command in commands:
        done = in_process(*command[1:])
        assert done.returncode == 0, (command, done.stderr)
    assert (tmp_path / "nim.png").exists()
