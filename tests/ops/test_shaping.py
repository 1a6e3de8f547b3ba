import numpy as np
import pytest

from baldwin.ops.shaping import average_ranks, centered_ranks, log_ranks, percentile, raw, strict_rank, tie_fraction, z_score


def test_ranks_of_four_by_hand() -> None:
    assert centered_ranks(np.array([10.0, -5.0, 3.0, 7.0])).tolist() == [0.5, -0.5, pytest.approx(-1 / 6), pytest.approx(1 / 6)]


def test_tied_individuals_share_their_mean_rank() -> None:
    assert average_ranks(np.array([1.0, 2.0, 2.0, 5.0])).tolist() == [0, 1.5, 1.5, 3]


def test_all_tied_gives_exactly_no_direction() -> None:
    assert centered_ranks(np.ones(6)).tolist() == [0] * 6
    assert z_score(np.full(6, 0.1)).tolist() == [0] * 6


def test_ranks_sum_to_zero_and_ignore_the_order_of_individuals() -> None:
    rng = np.random.default_rng(0)
    returns = rng.integers(0, 9, 40).astype(float)
    order = rng.permutation(40)
    assert centered_ranks(returns).sum() == pytest.approx(0, abs=1e-12)
    assert (centered_ranks(returns)[order] == centered_ranks(returns[order])).all()


def test_a_failed_trial_ranks_last() -> None:
    assert centered_ranks(np.array([3.0, np.nan, 9.0])).tolist() == [0, -0.5, 0.5]


def test_z_score_by_hand() -> None:
    # mean 2, deviations -2 0 2, population variance 8/3
    assert z_score(np.array([0.0, 2.0, 4.0])).tolist() == pytest.approx([-np.sqrt(1.5), 0, np.sqrt(1.5)])


def test_raw_changes_nothing() -> None:
    assert raw(np.array([3.0, -1.0])).tolist() == [3, -1]


def test_log_ranks_of_forty_match_pytorch_es() -> None:
    # pytorch-es: for n=40 only the top 20 get weight, the best 0.164 (before the constant 1/n)
    u = log_ranks(np.arange(40.0))
    assert (u > 1 / 40 + 1e-12).sum() == 20
    assert u.max() - 1 / 40 == pytest.approx(0.164, abs=5e-4)
    assert u.sum() == pytest.approx(2.0)


def test_log_ranks_of_four_by_hand() -> None:
    # log2(3) = 1.58496 for the best, log2(3) - 1 = 0.58496 for the second, nothing for the rest
    total = 2 * np.log2(3) - 1
    expected = [0.25 + np.log2(3) / total, 0.25, 0.25 + (np.log2(3) - 1) / total, 0.25]
    assert log_ranks(np.array([9.0, 1.0, 5.0, 2.0])).tolist() == pytest.approx(expected)


def test_log_ranks_give_ties_their_best_place() -> None:
    u = log_ranks(np.array([5.0, 5.0, 1.0, 0.0]))
    assert u[0] == u[1] == pytest.approx(0.5 + 0.25)


def test_tie_fraction() -> None:
    assert tie_fraction(np.array([1.0, 1.0, 2.0, 3.0])) == 0.5


def test_rank_and_percentile_of_the_unperturbed() -> None:
    others = np.array([1.0, 2.0, 3.0, 3.0])
    assert strict_rank(3.0, others) == 1
    assert strict_rank(1.5, others) == 4
    assert percentile(3.0, others) == 0.75
    assert percentile(9.0, others) == 1.0
