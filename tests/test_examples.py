"""The examples run, and stay short."""

from pathlib import Path

from examples import act, black_box, evolve, improve
from tests.runs.tools import small, train_run

FOLDER = Path(evolve.__file__).parent


def test_examples_are_short() -> None:
    for path in FOLDER.glob("*.py"):
        assert len(path.read_text().splitlines()) < 60


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
