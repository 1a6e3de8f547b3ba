"""Hyper-parameters that learn from elites, and the cross-entropy step on weights."""

from __future__ import annotations

from collections.abc import Callable

import gymnasium
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from numpy.typing import ArrayLike
from scipy import stats

from baldwin.errors import ConfigError
from baldwin.ops.bandit import dirichlet_sample, dirichlet_update, truncated_normal_sample, truncated_normal_update
from baldwin.ops.weight_cem import elite_distribution, elite_indices, least_selected


def test_counts_by_hand() -> None:
    assert_array_equal(dirichlet_update(np.ones(3), [2, 0, 2]), [2, 1, 3])
    assert_array_equal(dirichlet_update([5, 1, 3], [1], discount=0.5), [3, 2, 2])
    assert_array_equal(dirichlet_update([5, 1], []), [5, 1])


def test_categories_are_drawn_in_proportion_to_counts() -> None:
    """Over all draws of the probabilities a category has the expected share count / sum."""
    rng = np.random.default_rng(0)
    drawn = np.bincount([dirichlet_sample([1, 2, 7], rng) for _ in range(5000)]) / 5000
    assert_allclose(drawn, [0.1, 0.2, 0.7], atol=0.03)


def test_the_bandit_finds_the_best_category() -> None:
    rng, counts = np.random.default_rng(0), np.ones(4)
    for _ in range(60):
        chosen = np.array([dirichlet_sample(counts, rng) for _ in range(10)])
        fitness = -np.abs(chosen - 2) + 0.5 * rng.standard_normal(10)
        counts = dirichlet_update(counts, chosen[elite_indices(fitness, 0.3)])
    assert counts.argmax() == 2
    assert counts[2] / counts.sum() > 0.8


@pytest.mark.parametrize(("mean", "std"), [(0.5, 0.3), (0.0, 0.5), (1.0, 100.0), (0.2, 0.01)])
def test_truncated_normal_as_in_scipy(mean: float, std: float) -> None:
    rng = np.random.default_rng(0)
    drawn = [truncated_normal_sample(mean, std, 0, 1, rng) for _ in range(2000)]
    theirs = stats.truncnorm(-mean / std, (1 - mean) / std, mean, std)
    assert stats.kstest(drawn, theirs.cdf).pvalue > 0.01
    assert min(drawn) >= 0
    assert max(drawn) <= 1


def test_truncated_normal_at_its_ends() -> None:
    rng = np.random.default_rng(0)
    assert truncated_normal_sample(0.3, 0.0, 0, 1, rng) == 0.3
    assert np.isfinite(truncated_normal_sample(0.3, 1.0, -np.inf, np.inf, rng))
    assert truncated_normal_sample(2.0, 1.0, 2.0, 2.0, rng) == 2


def test_update_of_the_normal_by_hand() -> None:
    assert truncated_normal_update(0, 1, [1, 3]) == (2, 1)
    assert truncated_normal_update(0, 2, [1, 3], rate=0.5) == (1, 1.5)
    assert truncated_normal_update(0, 1, [4], std_floor=0.1) == (4, 0.1)


def test_elites() -> None:
    assert_array_equal(elite_indices([1, 5, 3, 5, np.nan, 4], 0.5), [1, 3, 5])
    assert_array_equal(elite_indices([1, 2, 3, 4, 5, 6], 0.3), [5])  # floor(1.8) = 1
    assert len(elite_indices(np.arange(7.0), 0.3)) == 2
    assert len(elite_indices(np.arange(100.0), 0.29)) == 29
    assert_array_equal(elite_indices([np.nan, 1, -np.inf], 1.0), [1])  # the failed are never elites


def test_distribution_of_elites_by_hand() -> None:
    mean, std = elite_distribution([[0, 1, 0], [1, 1, 9]], std_floor=0.1)
    assert_array_equal(mean, [0.5, 1, 4.5])
    assert_array_equal(std, [0.5, 0.1, 1])  # population deviation 1/2; 0 raised to the floor; 4.5 cut at the cap


def next_weights(
    weights: ArrayLike, fitness: ArrayLike, rng: np.random.Generator, share: float = 0.3, std_floor: float = 0.0, elitism: int = 1
) -> np.ndarray:
    """A step of the cross-entropy method: the best keep their weights [N, D], all others draw theirs from the distribution of the elites."""
    x = np.asarray(weights, np.float64)
    elites = elite_indices(fitness, share)
    mean, std = elite_distribution(x[elites], std_floor)
    new = mean + std * rng.standard_normal(x.shape)
    new[elites[:elitism]] = x[elites[:elitism]]
    return new


def test_with_one_elite_and_no_floor_everybody_is_its_copy() -> None:
    weights = np.random.default_rng(0).normal(size=(6, 5))
    new = next_weights(weights, [0, 1, 9, 3, 2, 1], np.random.default_rng(1), elitism=0)
    assert_array_equal(new, np.tile(weights[2], (6, 1)))


def test_the_best_keep_their_weights_and_place() -> None:
    weights = np.random.default_rng(0).normal(size=(10, 4))
    new = next_weights(weights, np.arange(10.0), np.random.default_rng(1), elitism=2, std_floor=0.1)
    assert_array_equal(new[[8, 9]], weights[[8, 9]])
    assert (new[:8] != weights[:8]).all()


def test_new_weights_have_the_elites_moments() -> None:
    weights = np.zeros((4000, 2))
    weights[:2] = [[1, 5], [3, 5]]
    fitness = np.where(np.arange(4000) < 2, 1.0, 0.0)
    new = next_weights(weights, fitness, np.random.default_rng(0), share=2 / 4000, std_floor=0.25, elitism=0)
    assert_allclose(new.mean(0), [2, 5], atol=0.05)
    assert_allclose(new.std(0), [1, 0.25], rtol=0.05)


def sphere(generations: int, std_floor: float, elitism: int) -> tuple[np.ndarray, list[float]]:
    """The last population on -|x|^2 and the best fitness of each generation; all start from copies of one point, with noise."""
    rng = np.random.default_rng(0)
    weights, best = 1 + 0.3 * rng.standard_normal((20, 5)), []
    for _ in range(generations):
        fitness = -np.square(weights).sum(1)
        best.append(float(fitness.max()))
        weights = next_weights(weights, fitness, rng, std_floor=std_floor, elitism=elitism)
    return weights, best


def test_weight_cem_improves_on_a_sphere_and_elitism_never_loses_the_best() -> None:
    _, best = sphere(60, std_floor=0.05, elitism=1)
    assert (np.diff(best) >= 0).all()
    assert best[0] < -1.5
    assert best[-1] > -0.02


def cartpole_return(weights: np.ndarray, seed: int) -> float:
    """Of a linear policy, over at most 200 steps."""
    env = gymnasium.make("CartPole-v1", max_episode_steps=200)
    obs, _ = env.reset(seed=seed)
    total, done = 0.0, False
    while not done:
        obs, reward, terminated, truncated, _ = env.step(int(weights @ obs > 0))
        total, done = total + float(reward), terminated or truncated
    return total


@pytest.mark.parametrize("seed", range(3))
def test_weight_cem_improves_linear_policies_in_cartpole(seed: int) -> None:
    """Common seeds within a generation, new ones in the next; without any gradient."""
    rng, means = np.random.default_rng(seed), []
    weights = 0.1 * rng.standard_normal((12, 4))
    for generation in range(8):
        fitness = [cartpole_return(member, seed=generation) for member in weights]
        means.append(np.mean(fitness))
        weights = next_weights(weights, fitness, rng, std_floor=0.02)
    assert np.mean(means[4:]) > max(100, 2 * means[0])


def test_only_the_floor_keeps_the_variance() -> None:
    assert sphere(150, std_floor=0.0, elitism=0)[0].std(0).max() < 1e-3
    assert sphere(150, std_floor=0.05, elitism=0)[0].std(0).min() > 0.02


def test_the_least_selected_is_removed_when_it_is_far_behind() -> None:
    assert least_selected([6, 5, 0, 5], 4) == 2  # mean 4
    assert least_selected([6, 5, 1, 5], 4) is None
    assert least_selected([3, 3], 0) == 0


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda rng: dirichlet_sample([1, 0], rng), "above zero"),
        (lambda rng: dirichlet_update([1, 1], [2]), "between 0 and 1"),
        (lambda rng: truncated_normal_sample(2, 1, 0, 1, rng), "low <= mean <= high"),
        (lambda rng: truncated_normal_update(0, 1, []), "at least one elite"),
        (lambda rng: elite_indices([1, 2], 0), "above 0 and at most 1"),
        (lambda rng: elite_indices([np.nan, -np.inf], 0.5), "no elite"),
        (lambda rng: elite_distribution([[1, np.nan]]), "finite weights"),
        (lambda rng: elite_distribution([[1, 2]], std_floor=2), "std_floor <= std_cap"),
    ],
)
def test_refusals(call: Callable[[np.random.Generator], object], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        call(np.random.default_rng(0))
