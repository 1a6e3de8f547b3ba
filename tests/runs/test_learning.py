"""Presets learn what they say. The long ones are marked slow: make slow."""

from __future__ import annotations

from pathlib import Path
from statistics import median

import pytest

from baldwin.config import load_config
from tests.runs.tools import train_run


def scores(preset: str, out: Path, seeds: int = 3) -> list[float]:
    found = []
    for seed in range(1, seeds + 1):
        run = train_run(load_config(preset, [], [f"run.seed={seed}"]), out / str(seed))
        assert run.score is not None
        found.append(run.score)
    return found


@pytest.mark.parametrize("preset", ["cartpole", "cartpole-pytorch-es"])
def test_cartpole_is_solved(preset: str, tmp_path: Path) -> None:
    assert scores(preset, tmp_path, seeds=1) == [500]


@pytest.mark.parametrize("name", ["cem", "aes"])
def test_other_strategies_solve_cartpole_too(name: str, tmp_path: Path) -> None:
    own = [f"algorithm.name={name}", "algorithm.variance=0.01", "executor.name=inline", "run.evaluate_every=10", "stop.score=490"]
    extra = {"cem": ["algorithm.noise_start=0.01", "algorithm.population=20"], "aes": ["algorithm.variance_floor=1e-3"]}[name]
    run = train_run(load_config("cartpole", [], own + extra), tmp_path / "run")
    assert run.score is not None
    assert run.score >= 490


def test_a_users_environment_and_network_are_learned(tmp_path: Path) -> None:
    own = ["env.id=tests.toys.worlds:Choices", "policy.module=tests.toys.worlds:TinyNet", "algorithm.population=64", "algorithm.block=32"]
    more = ["algorithm.sigma=0.1", "algorithm.lr=0.1", "executor.name=inline", "run.evaluate_every=20", "stop.generations=60"]
    run = train_run(load_config(None, [], own + more), tmp_path / "run")
    assert run.score is not None
    assert run.score > 17  # of 20; choosing at random gives about 8


@pytest.mark.slow
@pytest.mark.parametrize(
    ("preset", "at_least"),
    [
        ("acrobot", -90),
        ("inverted-pendulum", 1000),
        ("pendulum", -300),
        ("swimmer", 128),
        ("hopper", 1500),
        ("halfcheetah", 3500),
        ("halfcheetah-long", 6000),
    ],
)
def test_median_of_three_seeds(preset: str, at_least: float, tmp_path: Path) -> None:
    assert median(scores(preset, tmp_path)) >= at_least


@pytest.mark.slow
@pytest.mark.parametrize(("preset", "at_least"), [("halfcheetah-td3", 5000), ("halfcheetah-sac", 5000)])
def test_learners_run_fast_robots_within_300_000_steps(preset: str, at_least: float, tmp_path: Path) -> None:
    run = train_run(load_config(preset, [], ["stop.env_steps=300_000"]), tmp_path / "run")
    assert run.score is not None
    assert run.score >= at_least


@pytest.mark.slow
@pytest.mark.parametrize(("preset", "at_least"), [("halfcheetah-cem-rl", 6000), ("halfcheetah-aes-rl", 4500), ("hopper-aes-rl", 2000)])
def test_hybrids_after_300_000_learning_steps(preset: str, at_least: float, tmp_path: Path) -> None:
    run = train_run(load_config(preset, [], ["executor.name=inline", "stop.learning_steps=300_000"]), tmp_path / "run")
    assert run.score is not None
    assert run.score >= at_least
