"""Open episodes, followed segment by segment or environment by environment."""

from __future__ import annotations

import numpy as np

from baldwin.learners.episode_tracker import EpisodeTracker
from baldwin.observations import vector_spec


def test_segments_side_by_side_are_followed_as_each_by_itself() -> None:
    rng = np.random.default_rng(0)
    empty = np.empty((0, 1), np.float32)
    together, apart = (EpisodeTracker(3, empty, vector_spec(2)) for _ in range(2))
    for steps in (5, 1, 7, 5):
        ended = rng.random((3, steps)) < 0.2
        timeout = ended & (rng.random((3, steps)) < 0.5)
        segment = {
            "action": rng.standard_normal((3, steps, 1)).astype(np.float32),
            "reward": rng.standard_normal((3, steps)).astype(np.float32),
            "terminated": ended & ~timeout,
            "truncated": timeout,
        }
        together.add_segments(range(3), segment)
        for env in range(3):
            apart.add_steps(env, {name: array[env] for name, array in segment.items()})
        for one, other in zip(together.positions(range(3)), apart.positions(range(3)), strict=True):
            assert (one.env, one.episode) == (other.env, other.episode)
            np.testing.assert_array_equal(one.actions, other.actions)
        assert together.pop_stats() == apart.pop_stats()
    assert together.pop_stats()["return_std"] > 0
