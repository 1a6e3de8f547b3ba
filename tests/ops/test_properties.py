"""Laws of the maths that hold for any numbers."""

from __future__ import annotations

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.testing import assert_allclose

from baldwin.ops import gaussians, noise, seeds, shaping
from baldwin.ops.moments import Moments
from baldwin.ops.optimizers import OptimizerConfig, OptimizerState, clipup, norm
from baldwin.ops.schedules import scheduled
from baldwin.ops.statistics import bootstrap_interval, iqm
from baldwin.ops.targets import bootstrap_discount, expected_soft_value, soft_value, tanh_gaussian

numbers = st.floats(-1e6, 1e6, width=32)
fitness = arrays(np.float64, st.integers(2, 40), elements=numbers)
any_seed = st.integers(0, 2**63 - 1)


@given(fitness)
def test_ranks_sum_to_zero_and_keep_the_order(values: np.ndarray) -> None:
    ranks = shaping.centered_ranks(values)
    assert_allclose(ranks.sum(), 0, atol=1e-9)
    assert np.abs(ranks).max() <= 0.5
    order = np.argsort(values, kind="stable")
    assert (np.diff(ranks[order]) >= -1e-12).all()
    assert_allclose(ranks[values == values[0]], ranks[0])  # ties share a rank


@given(fitness, st.integers(1, 100), st.integers(-1000, 1000))
def test_ranks_do_not_depend_on_scale(values: np.ndarray, scale: int, shift: int) -> None:
    whole = np.round(values)  # so that rounding cannot make or break ties
    assert_allclose(shaping.centered_ranks(whole), shaping.centered_ranks(scale * whole + shift))


@given(fitness)
def test_shapings_are_finite(values: np.ndarray) -> None:
    for shape in (shaping.centered_ranks, shaping.z_score, shaping.raw, shaping.log_ranks):
        assert np.isfinite(shape(values)).all()


@given(arrays(np.float64, st.tuples(st.integers(1, 30), st.just(3)), elements=st.floats(-1e3, 1e3)), st.integers(0, 30))
def test_moments_of_parts_are_those_of_the_whole(rows: np.ndarray, cut: int) -> None:
    cut = min(cut, len(rows))
    parts = Moments.of(rows[:cut]).merge(Moments.of(rows[cut:])) if 0 < cut < len(rows) else Moments.of(rows)
    assert_allclose(parts.mean, rows.mean(0), atol=1e-9)
    assert_allclose(parts.std(1e-6), np.maximum(rows.std(0), 1e-6), atol=1e-6)
    again = Moments.unpack(parts.pack())
    assert_allclose(again.mean, parts.mean)


@given(any_seed, st.lists(st.integers(0, 2**31), max_size=4), st.integers(1, 20))
def test_seeds_are_functions_of_their_path(seed: int, path: list[int], n: int) -> None:
    assert (seeds.seeds(n, seed, *path) == seeds.seeds(n, seed, *path)).all()
    assert (seeds.seeds(n, seed, *path) >= 0).all()
    assert not (seeds.seeds(n, seed, *path) == seeds.seeds(n, seed, *path, 1)).all()


@given(any_seed, st.integers(0, 1000), st.integers(0, 1000), st.integers(1, 200))
def test_noise_is_a_function_of_its_numbers(seed: int, generation: int, pair: int, size: int) -> None:
    key = seeds.key(seed, 0)
    drawn = noise.draw(key, generation, pair, size)
    assert drawn.shape == (size,)
    assert np.isfinite(drawn).all()
    assert (drawn == noise.draw(key, generation, pair, size)).all()
    assert (drawn != noise.draw(key, generation, pair + 1, size)).any()


@given(arrays(np.float64, 5, elements=numbers), st.floats(1e-4, 1.0))
def test_clipup_never_steps_further_than_its_bound(gradient: np.ndarray, lr: float) -> None:
    state: OptimizerState = {}
    for _ in range(3):
        step, state = clipup(gradient, state, lr, OptimizerConfig())
        assert norm(step) <= 2 * lr * (1 + 1e-9)


@given(st.integers(1, 50))
def test_log_weights_are_a_falling_distribution(parents: int) -> None:
    weights = gaussians.log_weights(parents)
    assert_allclose(weights.sum(), 1)
    assert (np.diff(weights) < 0).all() or parents == 1


@given(
    arrays(np.float64, 4, elements=st.floats(-10, 10)),
    arrays(np.float64, 4, elements=st.floats(1e-5, 10)),
    arrays(np.float64, 4, elements=st.floats(-10, 10)),
    st.floats(0, 1),
)
def test_a_gaussian_moves_towards_the_individual_and_keeps_its_floor(
    mean: np.ndarray, variance: np.ndarray, x: np.ndarray, p: float
) -> None:
    new_mean, new_variance = gaussians.updated_mean_var(mean, variance, x, p, None, 1e-5)
    assert (np.abs(new_mean - x) <= np.abs(mean - x) + 1e-9).all()
    assert (new_variance >= 1e-5 - 1e-12).all()


@given(
    st.sampled_from(["constant", "linear", "cosine", "exponential"]),
    st.floats(1e-6, 1),
    st.floats(1e-6, 1),
    st.integers(1, 100),
    st.integers(0, 200),
)
def test_schedules_stay_between_their_ends(kind: str, start: float, end: float, over: int, at: int) -> None:
    value = scheduled(kind, start, end, over, at)
    assert min(start, end) * (1 - 1e-9) <= value <= max(start, end) * (1 + 1e-9)


@given(fitness)
def test_iqm_and_its_interval_lie_within_the_scores(values: np.ndarray) -> None:
    low, high = bootstrap_interval(values, resamples=50)
    slack = 1e-9 * (1 + np.abs(values).max())
    assert values.min() - slack <= float(iqm(values)) <= values.max() + slack
    assert values.min() - slack <= low <= high <= values.max() + slack


@settings(deadline=None)
@given(arrays(np.float32, (3, 2), elements=st.floats(-3, 3, width=32)), arrays(np.float32, (3, 2), elements=st.floats(-3, 1, width=32)))
def test_tanh_gaussians_stay_inside_and_have_finite_densities(mean: np.ndarray, log_std: np.ndarray) -> None:
    action, log_prob = tanh_gaussian(torch.from_numpy(mean), torch.from_numpy(log_std), torch.zeros(3, 2))
    assert (action.abs() <= 1).all()
    assert torch.isfinite(log_prob).all()
    assert log_prob.shape == (3,)


@given(st.floats(0, 1), st.integers(1, 20), st.booleans())
def test_only_termination_stops_the_bootstrap(gamma: float, steps: int, terminated: bool) -> None:
    discount = bootstrap_discount(gamma, torch.tensor([steps]), torch.tensor([terminated]))
    assert_allclose(float(discount), 0 if terminated else gamma**steps, rtol=1e-5, atol=1e-7)


@given(arrays(np.float32, 4, elements=st.floats(-10, 10, width=32)), st.floats(0, 2, width=32))
def test_the_expected_soft_value_of_a_sure_policy_is_its_soft_value(q: np.ndarray, alpha: float) -> None:
    probs = torch.tensor([[1.0, 0, 0, 0]])
    log_probs = torch.tensor([[0.0, -50, -50, -50]])
    expected = expected_soft_value(probs, log_probs, torch.from_numpy(q)[None], torch.tensor(alpha))
    assert_allclose(float(expected), float(soft_value(torch.tensor(float(q[0])), torch.tensor(0.0), torch.tensor(alpha))), rtol=1e-5)
