import numpy as np
import pytest
import torch

from baldwin.ops.moments import Moments
from baldwin.ops.schedules import scheduled
from baldwin.ops.statistics import bootstrap_interval, correlation, cosine, iqm, latency_percentiles
from baldwin.ops.threads import one_thread


@pytest.mark.parametrize(
    ("kind", "at", "value"),
    [
        ("constant", 50, 1.0),
        ("linear", 0, 1.0),
        ("linear", 50, 0.55),
        ("linear", 200, 0.1),
        ("cosine", 0, 1.0),
        ("cosine", 50, 0.55),
        ("cosine", 25, 0.1 + 0.9 * (1 + np.sqrt(0.5)) / 2),
        ("exponential", 50, np.sqrt(0.1)),
        ("exponential", 100, 0.1),
    ],
)
def test_schedules_from_one_to_a_tenth_in_a_hundred(kind: str, at: int, value: float) -> None:
    assert scheduled(kind, 1.0, 0.1, 100, at) == pytest.approx(value)


def test_moments_of_parts_are_the_moments_of_the_whole() -> None:
    rows = np.random.default_rng(0).normal(5, 3, (1000, 4))
    merged = Moments.empty(4)
    for part in np.array_split(rows, 7):
        merged = merged.merge(Moments.of(part))
    assert merged.count == 1000
    assert merged.mean == pytest.approx(rows.mean(0))
    assert merged.std(0.0) == pytest.approx(rows.std(0))


def test_merge_by_hand() -> None:
    # {0, 2}: mean 1, m2 2; {6}: mean 6, m2 0; together mean 8/3, m2 = 40 - 64/3
    both = Moments.of(np.array([[0.0], [2.0]])).merge(Moments.of(np.array([[6.0]])))
    assert both.mean[0] == pytest.approx(8 / 3)
    assert both.m2[0] == pytest.approx(40 - 64 / 3)


def test_moments_keep_their_digits_far_from_zero() -> None:
    rows = 1e8 + np.array([[0.0], [1.0], [2.0]])
    assert Moments.of(rows).merge(Moments.of(rows)).std(0.0)[0] == pytest.approx(np.sqrt(2 / 3))


def test_std_has_a_floor_and_is_one_before_anything_was_seen() -> None:
    assert Moments.of(np.ones((5, 2))).std(0.1).tolist() == [0.1, 0.1]
    assert Moments.empty(2).std(0.1).tolist() == [1, 1]


def test_packing_is_a_round_trip() -> None:
    moments = Moments.of(np.random.default_rng(0).normal(size=(9, 3)))
    again = Moments.unpack(moments.pack())
    assert again.count == moments.count
    assert (again.mean == moments.mean).all()
    assert (again.m2 == moments.m2).all()


def test_iqm_drops_a_quarter_at_each_end() -> None:
    assert iqm([1, 2, 3, 1000]) == 2.5
    assert iqm([100, 0, 3, 5, 4, 4, -50, 7]) == pytest.approx((3 + 4 + 4 + 5) / 4)


def test_iqm_weighs_edges_where_a_quarter_is_not_whole() -> None:
    # n = 3: the middle half covers [0.75, 2.25] of the sorted line: a quarter of the first, the second, a quarter of the third
    assert iqm([0, 1, 5]) == pytest.approx((0.25 * 0 + 1 + 0.25 * 5) / 1.5)
    assert iqm([7]) == 7


def test_iqm_of_many_samples_at_once() -> None:
    assert iqm([[1, 2, 3, 1000], [4, 4, 4, 4]]).tolist() == [2.5, 4]


def test_bootstrap_interval_holds_the_centre_and_is_repeatable() -> None:
    scores = np.random.default_rng(0).normal(10, 1, 200)
    low, high = bootstrap_interval(scores)
    assert low < 10 < high
    assert high - low == pytest.approx(4 * 1 / np.sqrt(200) * 1.05, rel=0.25)
    assert (low, high) == bootstrap_interval(scores)


def test_cosine() -> None:
    assert cosine(np.array([1.0, 0.0]), np.array([1.0, 1.0])) == pytest.approx(np.sqrt(0.5))
    assert cosine(np.zeros(2), np.ones(2)) == 0


def test_one_thread_gives_the_number_back() -> None:
    before = torch.get_num_threads()
    with one_thread():
        assert torch.get_num_threads() == 1
    assert torch.get_num_threads() == before


def test_correlation_by_hand() -> None:
    assert correlation(np.array([1.0, 2.0, 3.0]), np.array([5.0, 5.5, 6.0])) == pytest.approx(1)
    assert correlation(np.array([1.0, 2.0, 3.0]), np.array([1.0, 0.0, 1.0])) == 0


def test_latency_percentiles_by_hand() -> None:
    # 1 to 100 ms: value number 1 + 0.5 * 99 is 50.5, 1 + 0.95 * 99 is 95.05, 1 + 0.99 * 99 is 99.01
    found = latency_percentiles(n / 1000 for n in range(100, 0, -1))
    assert found == pytest.approx({"latency_ms_p50": 50.5, "latency_ms_p95": 95.05, "latency_ms_p99": 99.01})
    assert latency_percentiles([]) == {}
