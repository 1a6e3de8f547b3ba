"""NSGA-II on weights: fronts of what an environment tells, exact and resumable."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from baldwin.config import load_config
from baldwin.errors import EnvironmentFailure
from baldwin.ops import pareto
from baldwin.strategies import NSGA2, NSGA2Config
from baldwin.types import Outcome
from tests.runs.test_exactness import lines
from tests.runs.tools import train_run

OPTIONS = [
    "algorithm.name=nsga2",
    "env.id=baldwin:VectorPong-v0",
    "env.max_episode_steps=200",
    "policy.hidden=[8]",
    "algorithm.population=16",
    "algorithm.block=8",
    "algorithm.objectives={lazy: {score: 1, lazy: 1}, busy: {score: 1, busy: 1}}",
    "run.episodes=2",
    "run.evaluate_every=10",
    "stop.generations=4",
    "executor.name=inline",
]


def told(strategy: NSGA2, objectives: np.ndarray) -> None:
    """Answer a whole generation."""
    trials = strategy.ask(strategy.population)
    for trial, (first, second) in zip(trials, objectives, strict=True):
        arrays = {"result/first": np.array([first]), "result/second": np.array([second])}
        strategy.tell([Outcome(trial.id, float(first + second), arrays=arrays)])


def test_parents_are_the_front_of_all_that_were_seen() -> None:
    config = NSGA2Config(population=4, objectives={"a": {"first": 1}, "b": {"second": 2}})
    strategy = NSGA2(np.zeros(6, np.float32), config, seed=1, shapes=((2, 2), (2,)))
    assert strategy.ask(1)[0].params.tolist() == [0.0] * 6  # type: ignore[union-attr]
    strategy = NSGA2(np.zeros(6, np.float32), config, seed=1, shapes=((2, 2), (2,)))
    told(strategy, np.array([[0, 3], [1, 2], [2, 1], [0, 0]]))
    assert sorted(map(tuple, strategy.fitness.tolist())) == [(0, 0), (0, 6), (1, 4), (2, 2)]
    told(strategy, np.array([[3, 3], [0, 1], [4, 0], [1, 0]]))
    assert sorted(map(tuple, strategy.fitness.tolist()))[-2:] == [(3, 6), (4, 0)]  # nobody dominates these
    best = strategy.parents[int(strategy.returns.argmax())]
    np.testing.assert_array_equal(strategy.center, best)


def test_a_front_of_behaviours_grows_and_is_the_same_for_any_number_of_workers(tmp_path: Path) -> None:
    run = train_run(load_config(None, [], OPTIONS), tmp_path / "run")
    volumes = [line["hypervolume"] for line in lines(tmp_path / "run") if "hypervolume" in line]
    assert all(later >= earlier for earlier, later in pairwise(volumes))
    assert volumes[-1] > volumes[0]
    strategy: NSGA2 = run.algorithm.strategy  # type: ignore[attr-defined]
    assert (pareto.non_dominated_sort(strategy.fitness) == 0).sum() >= 2
    other = train_run(load_config(None, [], [*OPTIONS, "executor.name=process", "executor.workers=3"]), tmp_path / "other")
    assert other.params_sha256() == run.params_sha256()


def test_objectives_that_nobody_tells_are_named(tmp_path: Path) -> None:
    with pytest.raises(
        EnvironmentFailure, match=r"algorithm.objectives.a has speed, which the environment does not tell; it tells: return, score"
    ):
        train_run(load_config(None, [], [*OPTIONS, "algorithm.objectives={a: {speed: 1}}"]), tmp_path / "run")
