"""CEM, asynchronous CEM, (1+1)-ES and AES over vectors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from baldwin.errors import EnvironmentFailure, TicketError
from baldwin.ops.gaussians import decayed, elite_moments, updated_mean_var
from baldwin.strategies import ACEM, AES, CEM, ACEMConfig, AESConfig, CEMConfig, CEMUpdateConfig, OnePlusOne, OnePlusOneConfig, SteadyState
from baldwin.types import Outcome, Trial

START = np.array([0.1, -0.2, 0.3], np.float32)


def steady(kind: Any, config: Any) -> SteadyState:
    return SteadyState(kind(START, config, seed=1), config)


def vectors(trials: list[Trial]) -> np.ndarray:
    return np.stack([np.asarray(t.params, np.float64) for t in trials])


def told(strategy: Any, trials: list[Trial], fitness: list[float]) -> Any:
    return strategy.tell([Outcome(t.id, f) for t, f in zip(trials, fitness, strict=True)])


def test_cem_mirrors_neighbours_and_takes_the_step_of_the_elite() -> None:
    strategy = CEM(START, CEMConfig(population=8, variance=0.04, noise_tau=0.9, divide_variance_by_k=True), seed=1)
    trials = strategy.ask(8)
    rows = vectors(trials)
    np.testing.assert_allclose(rows[::2] + rows[1::2], np.tile(2 * START, (4, 1)), atol=1e-6)
    fitness = [3.0, 1, 9, 4, 5, 2, 8, 7]
    metrics = told(strategy, trials, fitness)
    mean, variance = elite_moments(rows[[2, 6, 7, 4]], START.astype(np.float64), decayed(1e-3, 0.9, 1e-5), True)
    np.testing.assert_allclose(strategy.mean, mean)
    np.testing.assert_allclose(strategy.variance, variance)
    assert metrics["return_max"] == 9
    assert strategy.ask(0) == []


def test_a_failed_individual_is_no_parent() -> None:
    strategy = CEM(START, CEMConfig(population=4), seed=1)
    trials = strategy.ask(4)
    rows = vectors(trials)
    told(strategy, trials, [np.nan, 1.0, np.nan, np.nan])
    np.testing.assert_allclose(strategy.mean, rows[1])
    with pytest.raises(EnvironmentFailure, match="every individual of generation 1 failed"):
        told(strategy, strategy.ask(4), [np.nan] * 4)


def test_a_block_of_aes_is_one_update_with_equal_weights() -> None:
    config = AESConfig(block=2, mean_trials=2, scale=2000.0, variance_rule="fixed", common_random_numbers="none")
    strategy = steady(AES, config)
    trials = strategy.ask(2)
    rows = vectors(trials)
    np.testing.assert_array_equal(rows[2:], np.tile(START.astype(np.float64), (2, 1)))
    metrics = told(strategy, trials, [5000.0, 3000.0, 3900.0, 4100.0])
    alone = [updated_mean_var(START.astype(np.float64), np.full(3, 1e-3), x, p, 10, 1e-5) for x, p in zip(rows, (0.6, 1 / 3), strict=False)]
    np.testing.assert_allclose(strategy.gaussian.mean, (alone[0][0] + alone[1][0]) / 2)
    np.testing.assert_allclose(strategy.gaussian.variance, (alone[0][1] + alone[1][1]) / 2)
    assert metrics["baseline"] == 4000
    assert metrics["step_size"] == pytest.approx((0.6 + 1 / 3) / 2)


@pytest.mark.parametrize("kind", ["aes", "acem", "one-plus-one"])
def test_the_order_within_a_block_does_not_matter(kind: str) -> None:
    """Applied one after the other at p ~ 0.5, the last of four would weigh 0.5 and the first 0.06."""
    make, config = {
        "aes": (AES, AESConfig(scale=10.0)),
        "acem": (ACEM, ACEMConfig(window=4)),
        "one-plus-one": (OnePlusOne, OnePlusOneConfig(window=4)),
    }[kind]
    rng = np.random.default_rng(0)
    rows, fitness = START + 0.1 * rng.normal(size=(4, 3)), np.array([3.0, 1.0, 4.0, 1.5])
    updated = []
    for order in ([0, 1, 2, 3], [3, 1, 2, 0]):
        gaussian: Any = make(START, config, seed=1)  # type: ignore[operator]
        gaussian.update(rows[order], fitness[order], 2.0)
        updated.append((gaussian.mean, gaussian.variance))
    np.testing.assert_allclose(updated[0][0], updated[1][0])
    np.testing.assert_allclose(updated[0][1], updated[1][1])
    assert not np.allclose(updated[0][0], START)


def test_a_block_of_one_is_the_papers_update() -> None:
    gaussian = AES(START, AESConfig(scale=2000.0), seed=1)
    x = gaussian.draw(0).astype(np.float64)
    (p,) = gaussian.update(x[None], np.array([5000.0]), 4000.0)
    mean, variance = updated_mean_var(START.astype(np.float64), np.full(3, 1e-3), x, 0.6, None, 1e-5)
    assert p == pytest.approx(0.6)
    np.testing.assert_allclose(gaussian.mean, mean)
    np.testing.assert_allclose(gaussian.variance, variance)


def test_the_mean_is_not_played_again_from_the_same_start() -> None:
    with pytest.raises(ValueError, match="mean_trials > 1 would play the mean again from the same states"):
        AESConfig(mean_trials=2)


def test_the_scale_of_aes_follows_the_spread_of_gains() -> None:
    """A tenfold return changes nothing, and no value has to be set."""
    found = []
    for factor in (1.0, 10.0):
        strategy = steady(AES, AESConfig(block=2))
        for n in range(20):
            trials = strategy.ask(2)
            told(strategy, trials, [factor * (np.sin(3 * n + k) + n) for k in range(3)])
        found.append(strategy.gaussian.mean)
    np.testing.assert_allclose(found[0], found[1])


@pytest.mark.parametrize(
    ("settings", "message"),
    [({"mean_rule": "baseline-absolute"}, "needs a scale"), ({"scale": -1.0}, "needs a scale > 0 or auto; got -1")],
)
def test_a_scale_that_cannot_be_is_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        AESConfig(**settings)


def run_plus(frozen: bool) -> list[float]:
    """Ten failures, then nothing but successes."""
    strategy = steady(OnePlusOne, OnePlusOneConfig(block=2, frozen_window=frozen))
    spreads = []
    for n in range(30):
        gain = -1.0 if n < 5 else 1.0
        told(strategy, strategy.ask(2), [gain, gain, 0.0])
        spreads.append(float(strategy.gaussian.variance[0]))
    return spreads


def test_one_plus_one_adapts_to_the_last_successes_only() -> None:
    spreads = run_plus(frozen=False)
    assert spreads[4] == pytest.approx(1e-3 * 0.99**2)  # one factor per individual
    assert spreads[-1] > spreads[4]
    assert run_plus(frozen=True)[-1] < spreads[4]  # the first ten decided for ever


def test_one_plus_one_takes_the_better_one_as_it_is() -> None:
    strategy = steady(OnePlusOne, OnePlusOneConfig(block=2))
    trials = strategy.ask(2)
    told(strategy, trials, [2.0, 0.5, 1.0])
    np.testing.assert_array_equal(strategy.center, np.asarray(trials[0].params))


def test_acem_plays_no_baseline_and_waits_for_a_window() -> None:
    strategy = steady(ACEM, ACEMConfig(block=4, window=6))
    told(strategy, strategy.ask(4), [1.0, 2, 3, 4])
    np.testing.assert_array_equal(strategy.gaussian.mean, START.astype(np.float64))
    told(strategy, strategy.ask(4), [1.0, 2, 3, 4])
    assert not np.array_equal(strategy.gaussian.mean, START)


def test_blocks_may_fail_but_not_for_ever() -> None:
    strategy = steady(AES, AESConfig(block=2))
    for _ in range(9):
        assert told(strategy, strategy.ask(2), [np.nan, np.nan, 1.0]) is None
    with pytest.raises(EnvironmentFailure, match="blocks of individuals failed 10 times in a row, 10 of the last 10 times"):
        told(strategy, strategy.ask(2), [1.0, 1.0, np.nan])
    with pytest.raises(TicketError):
        strategy.tell([Outcome(0, 1.0)])


def mixing(population: int = 20, seed: int = 1) -> CEM:
    return CEM(
        np.zeros(2, np.float32), CEMUpdateConfig(population=population, variance=0.04, noise_start=0.02, importance_mixing=True), seed=seed
    )


def test_those_who_are_kept_keep_their_own_fitness() -> None:
    strategy, seen, kept = mixing(), {}, 0
    for _ in range(10):
        trials = strategy.ask(100)
        assert len(trials) == strategy.population - strategy.n_reused
        fitness = [-float(np.abs(np.asarray(t.params) - 0.3).sum()) for t in trials]
        seen |= {np.asarray(t.params).tobytes(): f for t, f in zip(trials, fitness, strict=True)}
        told(strategy, trials, fitness)
        for index in range(strategy.population - strategy.n_reused, strategy.population):
            assert strategy._fitness[index] == seen[strategy._individual(index).tobytes()]
        kept += strategy.n_reused
    assert kept > 10
    assert np.abs(strategy.mean - 0.3).max() < 0.1


def test_a_changed_individual_is_kept_as_it_came_back() -> None:
    strategy = mixing(4)
    trials = strategy.ask(4)
    changed = {"params": np.full(2, 0.01, np.float32)}
    strategy.tell([Outcome(t.id, 1.0, arrays=changed) for t in trials])
    np.testing.assert_allclose(strategy.mean, 0.01, rtol=1e-6)
    for index in range(4 - strategy.n_reused, 4):
        np.testing.assert_array_equal(strategy._individual(index), changed["params"])


def test_a_mixed_generation_has_the_new_distribution() -> None:
    """Old ones that stay and new ones together: mean and variance of what the mixture is supposed to be, over many seeds."""
    rows = []
    for seed in range(400):
        strategy = mixing(10, seed)
        trials = strategy.ask(10)
        strategy._update = lambda rows, order, s=strategy: setattr(s, "_old_distribution", (s.mean, s.variance)) or _move(s)  # type: ignore[method-assign, misc]
        told(strategy, trials, list(range(10)))
        rows += [strategy._individual(index) for index in range(10)]
    np.testing.assert_allclose(np.mean(rows, 0), 0.1, atol=0.02)
    np.testing.assert_allclose(np.var(rows, 0), 0.03, rtol=0.1)


def _move(strategy: CEM) -> dict[str, float]:
    strategy.mean, strategy.variance = np.full(2, 0.1), np.full(2, 0.03)
    return {}
