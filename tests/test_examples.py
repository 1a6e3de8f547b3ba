"""The examples run, and stay short."""

from pathlib import Path

from baldwin.config import load_config
from examples import act, black_box, evolve, improve
from tests.runs.tools import small, train_run

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
