from __future__ import annotations

import numpy as np
import pytest

from baldwin.ops.controllers import rl_probability


@pytest.mark.parametrize(
    ("share", "wanted", "expected"), [(0.5, 0.5, 0.5), (0.49, 0.5, 1.0), (0.51, 0.5, 0.0), (0.104, 0.1, 0.3), (0, 0, 0.5)]
)
def test_the_chance_falls_with_the_share(share: float, wanted: float, expected: float) -> None:
    assert rl_probability(share, wanted, 50.0) == pytest.approx(expected)


@pytest.mark.parametrize(("wanted", "settles"), [(0.5, 0.5), (0.1, 0.10784)])
def test_it_settles_where_the_arithmetic_says(wanted: float, settles: float) -> None:
    """(k r* + 1/2) / (k + 1)."""
    rng, counts = np.random.default_rng(1), [1, 1]
    for _ in range(20_000):
        counts[rng.random() >= rl_probability(counts[0] / sum(counts), wanted, 50.0)] += 1
    assert counts[0] / sum(counts) == pytest.approx(settles, abs=0.003)
