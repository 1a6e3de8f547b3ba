"""sep-CMA-ES, beside pycma."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

from baldwin.ops.cma import CMAState, cma_step, rates
from baldwin.strategies import SepCMA, SepCMAConfig
from baldwin.types import Outcome

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import cma
    from cma import purecma


def parabola(x: Any) -> float:
    return float(np.sum(np.square(np.asarray(x) - 3.0)))


@pytest.mark.parametrize(("dim", "population"), [(1, 6), (10, 10), (100, 32)])
def test_rates_are_pycmas_but_for_the_speed_of_a_diagonal(dim: int, population: int) -> None:
    ours, theirs = rates(dim, population), purecma.CMAESParameters(dim, population)
    np.testing.assert_allclose(ours.weights, theirs.weights[: population // 2])
    assert (ours.mu_eff, ours.sigma_path, ours.damping, ours.path) == pytest.approx((theirs.mueff, theirs.cs, theirs.damps, theirs.cc))
    assert ours.rank_one == pytest.approx(theirs.c1 * (dim + 2) / 3)
    assert ours.rank_mu == pytest.approx(min(1 - ours.rank_one, theirs.cmu * (dim + 2) / 3))


def test_in_one_dimension_it_is_cma_es_to_the_last_digits() -> None:
    """There a diagonal is the whole matrix."""
    theirs = purecma.CMAES([0.5], 0.4, popsize=8)
    theirs.params = purecma.CMAESParameters(1, 8)  # without negative weights
    theirs.params.lazy_gap_evals = 0
    ours, rate = CMAState(np.array([0.5]), 0.4, np.ones(1), np.zeros(1), np.zeros(1)), rates(1, 8)
    for generation in range(1, 31):
        rows = theirs.ask()
        returns = [parabola(x) for x in rows]
        theirs.tell(rows, returns)
        ours = cma_step(ours, np.array(rows)[np.argsort(returns)][:4], rate, generation)
        np.testing.assert_allclose(ours.mean, theirs.xmean, rtol=1e-9)
        np.testing.assert_allclose(ours.sigma**2 * ours.scale, theirs.sigma**2 * np.array(theirs.C[0]), rtol=1e-9)


def test_the_diagonal_is_updated_as_pycmas_diagonal_sampler_does() -> None:
    rng = np.random.default_rng(0)
    rate, shape = rates(6, 8), CMAState(np.zeros(6), 0.5, rng.uniform(0.5, 2, 6), 0.1 * rng.normal(size=6), rng.normal(size=6))
    parents = rng.normal(size=(4, 6))
    after = cma_step(shape, parents, rate, 1000)
    sampler = cma.sampler.GaussDiagonalSampler(np.sqrt(shape.scale))
    sampler.update([after.path, *(parents / shape.sigma)], [rate.rank_one, *(rate.rank_mu * rate.weights)])
    np.testing.assert_allclose(after.scale, sampler.C)


def evaluations(strategy: SepCMA, target: float) -> int:
    used, stretch = 0, np.logspace(0, 3, len(strategy.mean))
    while used < 20_000:
        trials = strategy.ask(100)
        returns = [-float((stretch * (np.asarray(t.params, np.float64) - 1) ** 2).sum()) for t in trials]
        strategy.tell([Outcome(t.id, r) for t, r in zip(trials, returns, strict=True)])
        used += len(trials)
        if max(returns) > -target:
            return used
    return used


def test_it_needs_about_as_many_evaluations_as_pycma() -> None:
    """On a separable ellipsoid with condition 1000: the median of three, within a factor of 1.5."""
    dim, stretch, target = 12, np.logspace(0, 3, 12), 1e-6
    ours = [evaluations(SepCMA(np.zeros(dim, np.float32), SepCMAConfig(population=12, sigma=0.3), seed=s), target) for s in (1, 2, 3)]
    theirs = []
    for seed in (1, 2, 3):
        options = {"CMA_diagonal": True, "popsize": 12, "seed": seed, "verbose": -9, "ftarget": target}
        es = cma.CMAEvolutionStrategy(dim * [0.0], 0.3, options)
        es.optimize(lambda x: float((stretch * (np.asarray(x) - 1) ** 2).sum()), iterations=1000)
        theirs.append(es.result.evaluations)
    assert np.median(theirs) / 1.5 < np.median(ours) < np.median(theirs) * 1.5
