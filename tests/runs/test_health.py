from typing import Any

import pytest

from baldwin.config import load_config
from baldwin.runs.health import WINDOW, Health
from tests.runs.tools import small

FINE: dict[str, float] = {
    "return_std": 1.0,
    "return_mean": 0.0,
    "center_percentile": 0.5,
    "tie_fraction": 0.0,
    "update_ratio": 0.01,
    "split_half_cosine": 0.1,
    "truncated_fraction": 0.0,
    "straggler_fraction": 0.05,
    "failed_pairs": 0.0,
}


def advice(generations: int = WINDOW, overrides: tuple[str, ...] = (), **signals: float) -> list[str]:
    health: Any = Health(small("Hopper-v5", *overrides))
    return [text for g in range(generations) for text in health.check_metrics(FINE | signals | {"generation": float(g)})]


def test_a_healthy_run_hears_nothing() -> None:
    assert advice(200) == []


def test_each_signal_names_its_knob() -> None:
    knobs = {
        "algorithm.sigma": {"center_percentile": 1.0},
        "algorithm.episodes": {"tie_fraction": 0.9},
        "lower algorithm.lr": {"update_ratio": 0.5},
        "raise algorithm.lr": {"update_ratio": 1e-7},
        "algorithm.population": {"split_half_cosine": -0.1},
        "algorithm.block": {"straggler_fraction": 0.6},
    }
    for knob, signal in knobs.items():
        (text,) = advice(**signal)
        assert knob in text


def test_the_cap_is_blamed_only_where_there_is_one() -> None:
    assert advice(truncated_fraction=1.0) == []
    assert "algorithm.cap.start" in advice(overrides=("algorithm.cap.rule=grow",), truncated_fraction=1.0)[0]


def test_a_passing_signal_is_not_worth_a_word() -> None:
    assert advice(WINDOW - 1, tie_fraction=1.0) == []


def test_the_same_advice_is_not_repeated_every_generation() -> None:
    assert len(advice(90, tie_fraction=1.0)) == 1
    assert len(advice(130, tie_fraction=1.0)) == 2


def test_failed_pairs_are_told_at_once() -> None:
    assert "2 pairs failed" in advice(1, failed_pairs=2.0)[0]


def test_workers_without_work_are_told_before_the_run() -> None:
    config = small("Hopper-v5", "executor.name=process", "executor.workers=8")
    assert "only 4 of 8 workers" in Health(config).check_config(config)[0]
    assert Health(config).check_config(small("Hopper-v5", "executor.name=process", "executor.workers=2")) == []


@pytest.mark.parametrize(
    ("options", "advised"),
    [
        (["algorithm.actor_lag=1", "executor.workers=1"], True),
        (["algorithm.actor_lag=1", "executor.workers=2"], False),
        (["algorithm.actor_lag=1", "executor.workers=2", "algorithm.block=2"], True),
        (["algorithm.actor_lag=0", "executor.workers=1"], False),
        (["algorithm.name=impala", "executor.workers=1"], True),
    ],
)
def test_in_a_live_world_somebody_plays_while_another_worker_learns(options: list[str], advised: bool) -> None:
    env = ["env.id=live:ws://127.0.0.1:1", "algorithm.name=ppo", "algorithm.n_envs=4", "algorithm.block=4"]
    config = load_config(None, [], [*env, *options])
    assert any("stand still during each update" in text for text in Health(config).check_config(config)) == advised
