from __future__ import annotations

import multiprocessing as mp
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from baldwin.errors import ReplayError
from baldwin.learners import replay_columns
from baldwin.observations import vector_spec
from baldwin.replay import ELAPSED, Column, ReplayBuffer, ReplayView

COLUMNS = replay_columns(vector_spec(2), np.empty((0, 1), np.float32))


def rows(first: int, count: int, ends: dict[int, str] | None = None) -> dict[str, Any]:
    """Steps numbered from `first`: the number is the reward and is in the observations."""
    n = np.arange(first, first + count, dtype=np.float32)
    flags = {kind: np.array([(ends or {}).get(i) == kind for i in range(first, first + count)]) for kind in ("terminated", "truncated")}
    return {
        "obs/vector": np.stack([n, -n], 1),
        "action": n[:, None] / 100,
        "reward": n,
        "next_obs/vector": np.stack([n + 1, -n - 1], 1),
        **flags,
    }


def make(capacity: int = 10, slack: int = 0, folder: Path | None = None) -> ReplayBuffer:
    return ReplayBuffer(COLUMNS, capacity, seed=3, folder=folder, slack=slack)


def test_a_ring_forgets_the_oldest() -> None:
    replay = make(10)
    replay.add(rows(0, 7))
    replay.add(rows(7, 6))
    assert len(replay) == 10
    drawn = replay.sample(1, 5000).reward
    assert set(drawn.ravel().tolist()) == set(range(3, 13))


def test_draws_are_uniform_and_reproducible() -> None:
    one, two = make(10), make(10)
    for replay in (one, two):
        replay.add(rows(0, 10))
    first, again = one.sample(3, 1000), two.sample(3, 1000)
    np.testing.assert_equal(first, again)
    assert not np.array_equal(first.reward, one.sample(3, 1000).reward)
    counts = np.bincount(first.reward.ravel().astype(int), minlength=10)
    assert counts.min() > 220  # expected 300, std 16
    assert first.obs["vector"].shape == (3, 1000, 2)


def test_windows_sum_discounted_rewards_and_carry_their_real_length() -> None:
    replay = make(20)
    replay.add(rows(1, 6))
    batch = replay.view().rows(np.array([0, 4, 5]), n_step=3, gamma=0.5)
    assert batch.reward.tolist() == [1 + 1 + 0.75, 5 + 3, 6]  # the last two meet the newest row
    assert batch.steps.tolist() == [3, 2, 1]
    assert batch.next_obs["vector"][:, 0].tolist() == [4, 7, 7]
    assert batch.obs["vector"][:, 0].tolist() == [1, 5, 6]


@pytest.mark.parametrize("kind", ["terminated", "truncated"])
def test_windows_stop_at_the_end_of_an_episode(kind: str) -> None:
    replay = make(20)
    replay.add(rows(1, 6, {3: kind}))
    batch = replay.view().rows(np.array([0, 1, 2, 3]), n_step=3, gamma=0.5)
    assert batch.reward.tolist() == [1 + 1 + 0.75, 2 + 1.5, 3, 4 + 2.5 + 1.5]
    assert batch.steps.tolist() == [3, 2, 1, 3]
    assert getattr(batch, kind).tolist() == [True, True, True, False]
    assert batch.next_obs["vector"][:3, 0].tolist() == [4, 4, 4]


def test_windows_follow_an_episode_through_segments_of_other_environments() -> None:
    replay = make(20)
    mine = replay.add(rows(1, 2))
    other = replay.add(rows(101, 2))
    replay.add(rows(3, 2), after=mine)
    replay.add(rows(103, 2), after=other)
    batch = replay.view().rows(np.array([1, 3]), n_step=2, gamma=1.0)
    assert batch.reward.tolist() == [2 + 3, 102 + 103]


def test_windows_cross_the_seam_of_the_ring() -> None:
    replay = make(5)
    last = -1
    for start in range(0, 12, 3):
        last = replay.add(rows(start, 3), after=last)
    batch = replay.view().rows(np.array([8, 9]), n_step=3, gamma=1.0)
    assert batch.reward.tolist() == [8 + 9 + 10, 9 + 10 + 11]


@pytest.mark.parametrize("on_disk", [True, False])
def test_state_is_a_round_trip(on_disk: bool, tmp_path: Path) -> None:
    folder = tmp_path / "replay" if on_disk else None
    replay = make(10, 10, folder)
    last = replay.add(rows(0, 8))
    replay.sample(1, 4)
    state = replay.state_dict()
    expected = replay.sample(2, 6, n_step=3, gamma=0.9)
    replay.add(rows(8, 9), after=last)  # a future that is lost: it links to what was saved
    back = make(10, 10, folder)
    back.load_state_dict(state)
    np.testing.assert_equal(expected, back.sample(2, 6, n_step=3, gamma=0.9))
    assert ("rows" in state) is not on_disk


def test_going_back_too_far_is_refused(tmp_path: Path) -> None:
    replay = make(10, 5, tmp_path)
    replay.add(rows(0, 12))
    state = replay.state_dict()
    replay.add(rows(12, 5))
    make(10, 5, tmp_path).load_state_dict(state)
    replay.add(rows(17, 1))
    with pytest.raises(ReplayError, match="overwritten rows that a checkpoint at row 12 needs"):
        make(10, 5, tmp_path).load_state_dict(state)


@pytest.mark.parametrize("name", ["obs.vector.bin", "written.bin"])
@pytest.mark.parametrize("cut", [True, False])
def test_missing_and_short_files_are_noticed(name: str, cut: bool, tmp_path: Path) -> None:
    replay = make(10, 0, tmp_path)
    replay.add(rows(0, 5))
    state = replay.state_dict()
    (tmp_path / name).write_bytes(b"") if cut else (tmp_path / name).unlink()
    with pytest.raises(ReplayError, match=r"obs.vector.bin was missing or cut short|ends at row 0; the checkpoint knows 5"):
        make(10, 0, tmp_path).load_state_dict(state)


def test_another_length_is_refused() -> None:
    with pytest.raises(ReplayError, match="expected a replay of 12 rows; the checkpoint is of one with 10"):
        make(12).load_state_dict(make(10).state_dict())


def test_a_row_that_was_overwritten_is_not_linked_to() -> None:
    replay = make(10)
    mine = replay.add(rows(0, 3))
    replay.add(rows(3, 6))
    replay.add(rows(9, 5), after=mine)  # its predecessor, row 2, has gone by the time these are written
    assert replay.view().arrays["next_index"].tolist() == [11, 12, 13, -1, 5, 6, 7, 8, -1, 10]


def test_links_into_a_lost_future_are_forgotten(tmp_path: Path) -> None:
    replay = make(10, 10, tmp_path)
    last = replay.add(rows(0, 2))
    state = replay.state_dict()
    replay.add(rows(2, 2), after=last)
    back = make(10, 10, tmp_path)
    back.load_state_dict(state)
    back.add(rows(1000, 2))  # another future: that episode was given up
    assert back.view().rows(np.array([1]), n_step=3).reward.tolist() == [1]


def test_a_learner_draws_from_a_view_too() -> None:
    replay = make(10)
    replay.add(rows(0, 8))
    sampler, again = replay.view().sampler(5, 1), replay.view().sampler(5, 1)
    first, second = sampler.sample(2, 4).reward, sampler.sample(2, 4).reward
    assert not np.array_equal(first, second)
    assert np.array_equal(again.sample(2, 4).reward, first)


def draw_elsewhere(view: ReplayView, pipe: Any) -> None:
    pipe.send((view.sample((7, 1), 2, 5, 2, 0.9), view.arrays["obs/vector"].flags.writeable))


def test_another_process_reads_the_same_rows_without_a_copy(tmp_path: Path) -> None:
    replay = make(50, 0, tmp_path)
    replay.add(rows(0, 40))
    view = replay.view()
    assert len(pickle.dumps(view)) < 1000
    context = mp.get_context("spawn")
    here, there = context.Pipe()
    process = context.Process(target=draw_elsewhere, args=(view, there))
    process.start()
    found, writeable = here.recv()
    process.join()
    assert not writeable
    np.testing.assert_equal(found, view.sample((7, 1), 2, 5, 2, 0.9))


@pytest.mark.parametrize("in_a_folder", [False, True])
def test_where_files_cannot_be_seen_the_rows_travel_themselves(tmp_path: Path, in_a_folder: bool) -> None:
    replay = ReplayBuffer(COLUMNS, 50, seed=3, folder=tmp_path if in_a_folder else None, slack=13, shared=False)
    for start in range(0, 150, 10):  # more than once around
        replay.add(rows(start, 10))
    view = replay.view()
    there = pickle.loads(pickle.dumps(view))
    replay.add(rows(0, 40))
    assert there.folder is None
    assert len(there.arrays["reward"]) == 50
    again = ReplayBuffer(COLUMNS, 50, seed=3, slack=13)
    for start in range(0, 150, 10):
        again.add(rows(start, 10))
    np.testing.assert_equal(there.sample((7, 1), 2, 5, 3, 0.9), again.view().sample((7, 1), 2, 5, 3, 0.9))


def test_more_columns_can_be_added(tmp_path: Path) -> None:
    replay = ReplayBuffer({**COLUMNS, "log_prob": Column("<f4"), "hidden": Column("<f4", (2, 3))}, 10, seed=0, folder=tmp_path)
    replay.add(rows(0, 4) | {"log_prob": np.ones(4), "hidden": np.ones((4, 2, 3))})
    assert replay.view().arrays["hidden"][3].sum() == 6


def test_mistakes_are_named() -> None:
    with pytest.raises(ReplayError, match="empty"):
        make().sample(1, 2)
    with pytest.raises(ReplayError, match="expected at most 10 rows at once"):
        make(10).add(rows(0, 11))


def test_steps_that_last_several_frames_discount_by_all_of_them() -> None:
    """Rewards 1, 2, 4 after 3, 2 and 1 frames, gamma 1/2: 1 + 2/8 over 5 frames, 1 + 2/8 + 4/32 over 6; the last ends its episode."""
    columns = replay_columns(vector_spec(1), np.empty((0, 1), np.float32)) | {ELAPSED: Column("<i4")}
    replay = ReplayBuffer(columns, 8, seed=0)
    obs, never = np.zeros((3, 1), np.float32), np.zeros(3, np.bool_)
    rows = {"obs/vector": obs, "next_obs/vector": obs, "action": obs, "reward": np.array([1, 2, 4], np.float32)}
    replay.add(rows | {"terminated": np.array([False, False, True]), "truncated": never, ELAPSED: np.array([3, 2, 1], np.int32)})
    two, three = (replay.view().rows(np.arange(3), n, 0.5) for n in (2, 3))
    assert (two.reward.tolist(), two.steps.tolist()) == ([1.25, 3.0, 4.0], [5, 3, 1])
    assert (three.reward.tolist(), three.steps.tolist()) == ([1.375, 3.0, 4.0], [6, 3, 1])
