import itertools

import numpy as np
import pytest

from baldwin.ops.noise import Noise, draw, split_half_gradient
from baldwin.ops.seeds import Stream, key, seeds

KEY = (123, 456)
SHAPES = ((4, 3), (4,), (2, 4), (2,))
GOLDEN = [1.38127863407135, 0.5194669365882874, -0.9563651084899902]


def test_draws_are_those_of_philox_at_that_counter() -> None:
    bits = np.random.Philox(key=np.array(KEY, np.uint64), counter=np.array([0, 0, 7, 2], np.uint64))
    expected = np.random.Generator(bits).standard_normal(5, dtype=np.float32)
    assert (draw(KEY, generation=2, pair=7, size=5) == expected).all()


def test_these_draws_must_never_change() -> None:
    # a journal written today must replay tomorrow
    assert draw(KEY, 3, 1, 3).tolist() == pytest.approx(GOLDEN, abs=0)


def test_streams_of_all_generations_and_pairs_differ() -> None:
    rows = {tuple(draw(KEY, g, p, 4).tolist()) for g, p in itertools.product(range(5), range(5))}
    assert len(rows) == 25


def test_a_draw_does_not_depend_on_its_length() -> None:
    assert (draw(KEY, 0, 0, 10)[:4] == draw(KEY, 0, 0, 4)).all()


def test_full_rank_noise_is_standard_normal() -> None:
    sample = Noise(KEY, ((100_000,),)).draw(0, 0)
    assert abs(sample.mean()) < 0.02
    assert sample.std() == pytest.approx(1, abs=0.02)


def test_low_rank_noise_is_the_product_of_its_factors() -> None:
    noise = Noise(KEY, ((2, 3),), rank=2)
    flat = np.arange(10, dtype=np.float32)[None]  # A = [[0,1],[2,3]], B = [[4,5],[6,7],[8,9]]
    expected = np.array([[0, 1], [2, 3]]) @ np.array([[4, 5], [6, 7], [8, 9]]).T / np.sqrt(2)
    assert noise.size == 10
    assert noise.expand(flat)[0].reshape(2, 3) == pytest.approx(expected)


def test_low_rank_entries_have_unit_variance() -> None:
    noise = Noise(KEY, ((50, 40),), rank=3)
    rows = noise.expand(np.stack([noise.draw(0, p) for p in range(200)]))
    assert rows.std() == pytest.approx(1, abs=0.02)


def test_low_rank_needs_fewer_numbers() -> None:
    assert Noise(KEY, ((512, 512), (512,)), rank=1).size == 512 + 512 + 512


@pytest.mark.parametrize("rank", [0, 2])
def test_split_half_gradients_are_the_plain_sums(rank: int) -> None:
    noise = Noise(KEY, SHAPES, rank)
    weights = np.array([0.5, -1.0, 0.0, 2.0, 0.25])
    rows = noise.expand(np.stack([noise.draw(9, p) for p in range(5)])).astype(np.float64)
    halves = split_half_gradient(noise, 9, weights, block=2)
    assert halves[0] == pytest.approx(weights[[0, 2, 4]] @ rows[[0, 2, 4]], rel=1e-5, abs=1e-6)
    assert halves[1] == pytest.approx(weights[[1, 3]] @ rows[[1, 3]], rel=1e-5, abs=1e-6)


def test_full_rank_sum_does_not_depend_on_the_block() -> None:
    noise = Noise(KEY, SHAPES)
    weights = np.random.default_rng(0).normal(size=40)
    assert (split_half_gradient(noise, 1, weights, 3) == split_half_gradient(noise, 1, weights, 16)).all()


def test_seeds_and_keys_depend_on_the_whole_path() -> None:
    assert key(1, Stream.NOISE) != key(2, Stream.NOISE) != key(1, Stream.INIT)
    assert seeds(3, 1, Stream.TRAIN, 0).tolist() != seeds(3, 1, Stream.TRAIN, 1).tolist()
    assert (seeds(1000, 1, 0) < 2**31).all()
