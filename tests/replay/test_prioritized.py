"""The sum tree against a naive one, and draws by priority: frequencies, weights, overwritten rows, windows, going back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

from baldwin.errors import ReplayError
from baldwin.replay import PrioritizedConfig, PrioritizedSampler, ReplayBuffer, sum_tree
from baldwin.replay.sum_tree import SumTree
from tests.replay.test_buffer import make, rows


def sampler(replay: ReplayBuffer, **settings: Any) -> PrioritizedSampler:
    return PrioritizedSampler(replay, PrioritizedConfig(**settings), seed=3)


def priorities(sampler: PrioritizedSampler) -> list[float]:
    return list(sampler.state_dict()["priorities"])


@pytest.fixture(params=[1, 4, 4096], ids="at most {} nodes on top".format)
def _levels(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Small trees of several levels, as large ones have."""
    monkeypatch.setattr(sum_tree, "MAX_TOP", request.param)


@pytest.mark.usefixtures("_levels")
@pytest.mark.parametrize("size", [1, 2, 3, 7, 64, 1000])
def test_the_tree_finds_what_a_cumulative_sum_finds(size: int) -> None:
    """Whole numbers, so that both sums are exact; many are zero, places repeat, and the last value of a place counts."""
    rng = np.random.default_rng(size)
    tree, naive = SumTree(size), np.zeros(size)
    for _ in range(20):
        at = rng.integers(0, size, 1 + size // 3)
        values = rng.integers(0, 5, len(at)).astype(float)
        tree.set(at, values)
        for place, value in zip(at, values, strict=True):
            naive[place] = value
        np.testing.assert_array_equal(tree[:size], naive)
        assert tree.total == naive.sum()
        if naive.any():
            mass = np.concatenate([np.arange(naive.sum()), rng.uniform(0, naive.sum(), 50)])
            np.testing.assert_array_equal(tree.find(mass), np.searchsorted(naive.cumsum(), mass, side="right"))


@pytest.mark.usefixtures("_levels")
def test_a_zero_is_never_found_however_sums_are_rounded() -> None:
    rng = np.random.default_rng(1)
    tree = SumTree(1000)
    tree.set(np.arange(0, 700, 3), 10 ** rng.uniform(-9, 9, 234))
    edge = np.nextafter(tree.total, 0)
    found = tree.find(np.concatenate([rng.uniform(0, tree.total, 20_000), np.linspace(edge * (1 - 1e-12), edge, 500), [tree.total]]))
    assert (tree[found] > 0).all()


@pytest.mark.usefixtures("_levels")
@pytest.mark.parametrize("seed", range(10))
def test_a_zero_is_never_found_at_the_edges_of_values(seed: int) -> None:
    """Where differences of large sums are rounded to less than nothing, as well."""
    rng = np.random.default_rng(seed)
    values = 10 ** rng.uniform(-12, 12, 1000) * (rng.random(1000) < 0.5)
    tree, sums = SumTree(1000), values.cumsum()
    tree.set(np.arange(1000), values)
    edges = np.concatenate([sums, np.nextafter(sums, 0), np.nextafter(sums, np.inf), sums - values]).clip(0, tree.total)
    assert (values[tree.find(edges)] > 0).all()


@pytest.mark.usefixtures("_levels")
def test_sums_do_not_drift() -> None:
    """After many changes the tree equals one that was made at once: it is a function of its values."""
    rng = np.random.default_rng(2)
    tree, fresh = SumTree(300), SumTree(300)
    for _ in range(500):
        tree.set(rng.integers(0, 300, 8), rng.random(8) * 10 ** rng.uniform(-6, 6))
    fresh.set(np.arange(300), tree[:300])
    assert tree.total == fresh.total
    np.testing.assert_array_equal(tree.find(np.linspace(0, 0.99, 77) * tree.total), fresh.find(np.linspace(0, 0.99, 77) * tree.total))


@pytest.mark.parametrize("alpha", [0.0, 0.6, 1.0])
def test_frequencies_follow_the_priorities(alpha: float) -> None:
    """Batches of one, which stratification leaves alone, so that the chi-square test applies; alpha = 0 is uniform."""
    replay = make(10, slack=5)
    replay.add(rows(0, 13))
    drawn = sampler(replay, alpha=alpha)
    error = np.linspace(0.1, 4, 10)
    drawn.update_priorities(np.arange(3, 13), error)
    share = (error + 1e-6) ** alpha
    counts = np.bincount(drawn.sample(20_000, 1).reward.ravel().astype(int), minlength=13)
    assert counts[:3].sum() == 0
    assert stats.chisquare(counts[3:], 20_000 * share / share.sum()).pvalue > 0.01
    if alpha == 0:
        assert (drawn.sample(1, 50).weights == 1).all()


def test_a_batch_is_stratified() -> None:
    """Of four rows with 1/2, 1/4, 1/8, 1/8 of the mass, a batch of eight has exactly 4, 2, 1, 1."""
    replay = make(4)
    replay.add(rows(0, 4))
    drawn = sampler(replay, alpha=1.0, epsilon=1e-12)
    drawn.update_priorities(np.arange(4), np.array([4.0, 2.0, 1.0, 1.0]) - 1e-12)
    batch = drawn.sample(30, 8)
    np.testing.assert_array_equal(np.sort(batch.reward), np.tile([0, 0, 0, 0, 1, 1, 2, 3], (30, 1)))


def test_weights_and_their_exponent_by_hand() -> None:
    """P = 1/2, 1/4, 1/8, 1/8 of four rows: N P = 2, 1, 1/2, 1/2. beta goes from 0 to 1 in four updates."""
    replay = make(4)
    replay.add(rows(0, 4))
    drawn = sampler(replay, alpha=1.0, beta_start=0.0, beta_end=1.0, beta_updates=4)
    drawn.update_priorities(np.arange(4), np.array([4.0, 2.0, 1.0, 1.0]))
    for beta in (0.0, 0.25, 0.5, 0.75, 1.0, 1.0):
        assert drawn.beta == beta
        batch = drawn.sample(1, 8)
        assert batch.weights is not None
        np.testing.assert_allclose(batch.weights[0], (np.array([4, 4, 4, 4, 2, 2, 1, 1]) ** -beta), rtol=1e-5)


def test_new_rows_have_the_largest_priority_there_is() -> None:
    replay = make(6)
    replay.add(rows(0, 2))
    drawn = sampler(replay, alpha=1.0, epsilon=0.5)
    assert priorities(drawn) == [1.0, 1.0]
    drawn.update_priorities(np.array([0]), np.array([6.5]))
    replay.add(rows(2, 2))
    assert priorities(drawn) == [7.0, 1.0, 7.0, 7.0]
    drawn.update_priorities(np.arange(4), np.array([0.5, 0.5, 1.5, 2.5]))
    replay.add(rows(4, 1))
    assert priorities(drawn) == [1.0, 1.0, 2.0, 3.0, 3.0]


def test_rows_that_were_overwritten_get_no_priority() -> None:
    """Rows 0 and 1 are gone by the time their errors are known: rows 4 and 5 are in their places."""
    replay = make(4)
    replay.add(rows(0, 4))
    drawn = sampler(replay, alpha=1.0, epsilon=0.5)
    priorities(drawn)
    replay.add(rows(4, 2))
    drawn.update_priorities(np.arange(4), np.array([8.5, 9.5, 1.5, 2.5]))
    assert priorities(drawn) == [1.0, 1.0, 2.0, 3.0]


def test_errors_that_are_not_finite_are_left_out() -> None:
    replay = make(4)
    replay.add(rows(0, 3))
    drawn = sampler(replay, alpha=1.0, epsilon=0.5)
    drawn.update_priorities(np.arange(3), np.array([np.nan, np.inf, 1.5], np.float32))
    assert priorities(drawn) == [1.0, 1.0, 2.0]


def test_rows_come_with_their_indices_and_windows() -> None:
    """Around the seam of the ring, which is longer than what can be sampled."""
    replay, last = make(5, slack=3), -1
    drawn = sampler(replay)
    for start in range(0, 24, 3):
        last = replay.add(rows(start, 3), after=last)
        batch = drawn.sample(2, 40, n_step=2, gamma=0.5)
        assert batch.indices is not None
        oldest, newest = max(0, start - 2), start + 2
        assert set(batch.indices.ravel()) == set(range(oldest, newest + 1))
        expected = np.where(batch.indices < newest, batch.indices + 0.5 * (batch.indices + 1), newest)
        np.testing.assert_array_equal(batch.reward, expected)
        np.testing.assert_array_equal(batch.steps, np.where(batch.indices < newest, 2, 1))


def test_more_rows_at_once_than_can_be_sampled() -> None:
    replay = make(4, slack=10)
    drawn = sampler(replay)
    replay.add(rows(0, 11))
    assert set(drawn.sample(1, 40).reward.ravel()) == {7, 8, 9, 10}


@pytest.mark.parametrize("on_disk", [True, False])
def test_going_back_restores_priorities_and_draws(on_disk: bool, tmp_path: Path) -> None:
    folder = tmp_path if on_disk else None
    replay = make(10, 10, folder)
    drawn = sampler(replay, beta_updates=7)
    replay.add(rows(0, 12))
    for n in range(3):
        batch = drawn.sample(1, 6)
        drawn.update_priorities(batch.indices[0], batch.reward[0] + n)  # type: ignore[index]
    last = replay.add(rows(12, 2))  # has no priority yet when it is saved
    state = {"replay": replay.state_dict(), "priorities": drawn.state_dict()}
    expected = drawn.sample(2, 6, n_step=3, gamma=0.9)
    drawn.update_priorities(np.arange(5, 14), np.arange(9.0))
    replay.add(rows(14, 8), after=last)  # a future that is lost
    drawn.sample(1, 6)
    back = make(10, 10, folder)
    back.load_state_dict(state["replay"])
    again = sampler(back, beta_updates=7)
    again.load_state_dict(state["priorities"])
    np.testing.assert_equal(again.sample(2, 6, n_step=3, gamma=0.9), expected)


def test_an_empty_replay_is_refused() -> None:
    with pytest.raises(ReplayError, match="the replay is empty"):
        sampler(make()).sample(1, 2)
