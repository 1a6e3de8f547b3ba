"""Recombination and mutation against numbers worked by hand and those of pymoo 0.6.2."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from baldwin.errors import ConfigError
from baldwin.networks import mlp as network
from baldwin.networks.memory import LSTM
from baldwin.ops.variation import (
    gaussian_mutation,
    layer_crossover,
    layers,
    polynomial_mutation,
    polynomial_mutation_at,
    sbx,
    sbx_at,
    uniform_crossover,
    unit_crossover,
)

LOW, HIGH = np.zeros(4), np.array([1.0, 1, 2, 10])
A, B, U = np.array([0.2, 0.9, 1, 3]), np.array([0.6, 0.1, 1.5, 9.5]), np.array([0.1, 0.5, 0.8, 0.95])
MLP = ((3, 2), (3,), (1, 3), (1,))  # two inputs, three hidden units, one output: 13 parameters


def test_sbx_by_hand() -> None:
    """Room below 1 + 2 * 0.2 / 0.4 = 2: mass 2 - 1/8, beta = (0.1 * 1.875)^(1/3) = 0.5724, child 0.4 - 0.2 beta; above 3: mass 2 - 1/27."""
    first, second = sbx_at(np.array([0.2]), np.array([0.6]), 0.0, 1.0, np.array([0.1]), eta=2)
    assert first[0] == pytest.approx(0.4 - 0.2 * 0.1875 ** (1 / 3))
    assert second[0] == pytest.approx(0.4 + 0.2 * (0.1 * (2 - 1 / 27)) ** (1 / 3))


def test_sbx_without_bounds_by_hand() -> None:
    """beta = (2 u)^(1/(eta+1)) for u <= 1/2, else (1 / (2 - 2 u))^(1/(eta+1))."""
    u = np.array([0.25, 0.5, 0.875])
    first, second = sbx_at(np.zeros(3), np.full(3, 2.0), -np.inf, np.inf, u, eta=1)
    beta = np.array([np.sqrt(0.5), 1, 2])
    assert_allclose(first, 1 - beta)
    assert_allclose(second, 1 + beta)


def test_sbx_as_in_pymoo() -> None:
    """pymoo 0.6.2: cross_sbx with these uniform numbers, prob_var 1, prob_bin 0, eta 2, children sorted."""
    first, second = sbx_at(A, B, LOW, HIGH, U, eta=2)
    assert_allclose(first, [0.28552857574466683, 0.13754760831332058, 0.9124883441949632, 0.9727666656178195], rtol=1e-12)
    assert_allclose(second, [0.5162342267510086, 0.8624523916866794, 1.5813156370179557, 9.878760184951924], rtol=1e-12)


def test_sbx_keeps_equal_variables_and_those_that_are_not_chosen() -> None:
    rng = np.random.default_rng(0)
    first, second = sbx(A, A, LOW, HIGH, rng)
    assert_array_equal((first, second), (A, A))
    first, second = sbx(A, B, LOW, HIGH, rng, probability=0.0)
    assert_array_equal((first, second), (A, B))


def test_sbx_keeps_the_middle_without_bounds_and_its_spread_falls_with_eta() -> None:
    parents = np.zeros((20_000, 1)), np.ones((20_000, 1))
    spreads = []
    for eta in (2.0, 20.0):
        first, second = sbx(*parents, -np.inf, np.inf, np.random.default_rng(0), eta, probability=1.0)
        assert_allclose((first + second) / 2, 0.5)
        assert (first < second).mean() == pytest.approx(0.5, abs=0.02)  # either child is the smaller one
        spreads.append(np.abs(np.abs(first - second) - 1).mean())
    assert spreads[1] < spreads[0] / 3


def test_polynomial_mutation_by_hand() -> None:
    """x = 0.2 in [0, 1], u = 0.1, eta = 1: down by 1 - sqrt(0.2 + 0.8 * 0.64)."""
    x = np.array([0.2, 0.2, 0.2])
    moved = polynomial_mutation_at(x, 0.0, 1.0, np.array([0.1, 0.5, 0.9]), eta=1)
    assert_allclose(moved, [0.2 + np.sqrt(0.712) - 1, 0.2, 0.2 + 1 - np.sqrt(0.2 + 0.8 * 0.04)])


def test_polynomial_mutation_as_in_pymoo() -> None:
    """pymoo 0.6.2: mut_pm with these uniform numbers, every variable mutated, eta 5."""
    moved = polynomial_mutation_at(A, LOW, HIGH, U, eta=5)
    assert_allclose(moved, [0.06181426693013986, 0.9, 1.2766100796126716, 6.179649665607174], rtol=1e-12)


def test_one_variable_of_many_is_mutated_on_average() -> None:
    x = np.full((2000, 10), 0.5)
    changed = polynomial_mutation(x, 0.0, 1.0, np.random.default_rng(0)) != x
    assert changed.sum(1).mean() == pytest.approx(1, abs=0.1)
    assert (polynomial_mutation(x, 0.0, 1.0, np.random.default_rng(0), probability=0.0) == x).all()


def test_a_variable_with_one_possible_value_stays() -> None:
    x = np.array([0.5, 3.0])
    low, high = np.array([0.0, 3.0]), np.array([1.0, 3.0])
    assert polynomial_mutation(x, low, high, np.random.default_rng(0), probability=1.0)[1] == 3
    assert sbx(x, np.array([0.7, 3.0]), low, high, np.random.default_rng(0), probability=1.0)[0][1] == 3


@given(st.integers(0, 2**32), st.floats(0, 30), st.sampled_from([0.0, 1e-12, 0.3, 1.0]), st.sampled_from([0.0, 0.3, 1 - 1e-12, 1.0]))
def test_children_and_mutants_stay_within_bounds(seed: int, eta: float, a: float, b: float) -> None:
    rng = np.random.default_rng(seed)
    low, high = np.array([-3.0, 0.0]), np.array([5.0, 1e-6])
    parents = low + (high - low) * a, low + (high - low) * b
    for child in sbx(*parents, low, high, rng, eta, probability=1.0):
        mutant = polynomial_mutation(child, low, high, rng, eta, probability=1.0)
        assert ((mutant >= low) & (mutant <= high)).all()


def test_gaussian_mutation() -> None:
    x = np.zeros((10_000, 2))
    moved = gaussian_mutation(x, np.array([0.5, 2.0]), np.random.default_rng(0))
    assert_allclose(moved.std(0), [0.5, 2.0], rtol=0.03)
    assert (gaussian_mutation(x, 1.0, np.random.default_rng(0), probability=0.25) != 0).mean() == pytest.approx(0.25, abs=0.02)


def test_layers_are_weights_and_the_vectors_behind_them() -> None:
    assert layers(MLP) == [[(3, 2), (3,)], [(1, 3), (1,)]]
    assert layers(((8, 1, 3, 3), (8,), (4, 72), (4,), (2,))) == [[(8, 1, 3, 3), (8,)], [(4, 72), (4,)], [(2,)]]  # a conv, a linear, log std


def test_layers_of_real_networks() -> None:
    assert network.MLP((2, 3, 1), "tanh", "torch").shapes == MLP
    inputs, state = layers(LSTM(5, 4).shapes)
    assert inputs == [(16, 5), (16,)]
    assert state == [(16, 4), (16,)]


def test_layers_are_inherited_as_a_whole() -> None:
    a, b = np.zeros(13), np.ones(13)
    children = {tuple(layer_crossover(a, b, MLP, np.random.default_rng(seed))) for seed in range(50)}
    assert children == {(x,) * 9 + (y,) * 4 for x in (0.0, 1.0) for y in (0.0, 1.0)}


def test_units_are_inherited_with_their_bias() -> None:
    a, b = np.zeros(13), np.ones(13)
    children = [unit_crossover(a, b, MLP, np.random.default_rng(seed)) for seed in range(200)]
    for child in children:
        weights, bias = child[:6].reshape(3, 2), child[6:9]
        assert (weights == bias[:, None]).all()
        assert (child[9:12] == child[12]).all()
    assert len({tuple(child) for child in children}) == 2**4  # three hidden units and an output, each of either parent


def test_shares_and_uniform_crossover() -> None:
    a, b = np.zeros(10_000), np.ones(10_000)
    assert uniform_crossover(a, b, np.random.default_rng(0), share=0.9).mean() == pytest.approx(0.1, abs=0.01)
    assert (layer_crossover(np.zeros(13), np.ones(13), MLP, np.random.default_rng(0), share=1.0) == 0).all()
    assert (unit_crossover(np.zeros(13), np.ones(13), MLP, np.random.default_rng(0), share=0.0) == 1).all()


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda rng: sbx([0.5, 2.0], [0.5, 0.5], 0.0, 1.0, rng), r"got 2 at \[1\], whose bounds are \[0.0, 1.0\]"),
        (lambda rng: sbx([0.5, 0.2], [0.5], 0.0, 1.0, rng), "parents of one shape"),
        (lambda rng: polynomial_mutation([np.nan], 0.0, 1.0, rng), "got nan"),
        (lambda rng: polynomial_mutation([0.5], 0.0, np.inf, rng), "finite bounds.*gaussian_mutation"),
        (lambda rng: unit_crossover(np.zeros(12), np.zeros(12), MLP, rng), r"vectors of size 13; got the shapes \[12\]"),
        (lambda rng: uniform_crossover(np.zeros(12), np.zeros(11), rng), "of one size"),
    ],
)
def test_refusals(call: Callable[[np.random.Generator], object], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        call(np.random.default_rng(0))
