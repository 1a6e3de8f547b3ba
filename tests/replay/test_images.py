"""Images are stored once: stacks and next observations are found through the links, whatever lies between."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from baldwin.errors import ReplayError
from baldwin.learners import replay_columns
from baldwin.observations import describe_observations
from baldwin.replay import PREVIOUS_INDEX, Column, ReplayBuffer

SPEC = describe_observations(
    spaces.Dict({"eye": spaces.Box(0, 255, (1, 5, 5), np.uint8), "ear": spaces.Box(-9, 9, (1,), np.float32)}), "a test", frames=3
)
COLUMNS = replay_columns(SPEC, np.empty(0, np.int64))


def picture(*values: float) -> np.ndarray:
    return np.stack([np.full((1, 5, 5), v, np.uint8) for v in values])


def rows(first: int, count: int, ends: tuple[int, ...] = (), truncated: tuple[int, ...] = ()) -> dict[str, Any]:
    """Steps numbered from `first`; step n shows n and then n + 1, or 100 + n where its episode ends."""
    n = np.arange(first, first + count)
    over, late = np.isin(n, ends), np.isin(n, truncated)
    after = np.where(over | late, 100 + n, n + 1)
    return {
        "obs/eye": picture(*n),
        "next_obs/eye": picture(*after),
        "obs/vector": n[:, None].astype(np.float32),
        "next_obs/vector": after[:, None].astype(np.float32),
        "action": n % 3,
        "reward": n.astype(np.float32),
        "terminated": over,
        "truncated": late,
    }


def seen(batch: Any) -> tuple[list[list[int]], list[list[int]]]:
    return batch.obs["eye"][:, :, 0, 0].tolist(), batch.next_obs["eye"][:, :, 0, 0].tolist()


def make(capacity: int = 20, slack: int = 0, folder: Path | None = None) -> ReplayBuffer:
    return ReplayBuffer(COLUMNS, capacity, seed=3, folder=folder, slack=slack)


def test_stacks_begin_with_the_first_frame_and_end_with_the_last() -> None:
    replay = make()
    replay.add(rows(1, 6, ends=(4,)))
    obs, following = seen(replay.view().rows(np.arange(6)))
    assert obs == [[1, 1, 1], [1, 1, 2], [1, 2, 3], [2, 3, 4], [5, 5, 5], [5, 5, 6]]
    assert following == [[1, 1, 2], [1, 2, 3], [2, 3, 4], [3, 4, 104], [5, 5, 6], [5, 6, 7]]


def test_segments_of_two_environments_do_not_mix() -> None:
    replay = make()
    mine, other = replay.add(rows(1, 2)), replay.add(rows(51, 2))
    replay.add(rows(3, 2, truncated=(4,)), after=mine)
    replay.add(rows(53, 2), after=other)
    obs, following = seen(replay.view().rows(np.array([1, 4, 5, 6]), n_step=1))
    assert obs == [[1, 1, 2], [1, 2, 3], [2, 3, 4], [51, 52, 53]]
    assert following == [[1, 2, 3], [2, 3, 4], [3, 4, 104], [52, 53, 54]]
    batch = replay.view().rows(np.array([0, 1]), n_step=3, gamma=0.5)
    assert seen(batch)[1] == [[2, 3, 4], [3, 4, 104]]
    assert batch.next_obs["vector"].ravel().tolist() == [4, 104]


def test_windows_of_images_are_those_of_a_plain_loop() -> None:
    """Two environments write segments in turns until the ring has gone round; some steps end an episode, some segments do not."""
    rng, before, steps, frames, capacity = np.random.default_rng(1), 2, 3, 3, 40
    replay = ReplayBuffer(COLUMNS | {PREVIOUS_INDEX: Column("<i8")}, capacity, seed=3)
    last, at = [-1, -1], [0, 100]
    episodes: list[list[int]] = [[], []]  # indices of the open ones
    where: dict[int, tuple[list[int], int]] = {}  # index -> its episode and its place there
    picture_of: dict[int, tuple[int, int]] = {}  # index -> what is seen before and after its step
    for number in range(30):
        env, count = number % 2, int(rng.integers(1, 5))
        first = at[env]
        ends = tuple(int(n) for n in range(first, first + count) if rng.random() < 0.25)
        start = replay.total
        last[env] = replay.add(rows(first, count, ends=ends[::2], truncated=ends[1::2]), after=last[env])
        for n in range(count):
            episodes[env].append(start + n)
            where[start + n] = episodes[env], len(episodes[env]) - 1
            over = first + n in ends
            picture_of[start + n] = first + n, 100 + first + n if over else first + n + 1
            if over:
                episodes[env] = []
        last[env] = last[env] if episodes[env] else -1
        at[env] += count
    oldest = replay.total - capacity

    def stack(episode: list[int], place: int) -> list[int]:
        """The frames up to a place; that after the last step is what it led to. Where there is none, the first one that can be sampled."""
        seen = {n: picture_of[i][0] for n, i in enumerate(episode) if i >= oldest} | {len(episode): picture_of[episode[-1]][1]}
        return [seen[max(n, min(seen))] % 256 for n in range(place - frames + 1, place + 1)]

    window = replay.view().windows(np.arange(oldest, replay.total), before, steps)
    for row, index in enumerate(range(oldest, replay.total)):
        episode, place = where[index]
        for column, n in enumerate(range(place - before, place + steps + 1)):
            there = 0 <= n < len(episode) and episode[n] >= oldest
            if column < before + steps:
                assert window.valid[row, column] == there
            if there or n == len(episode):
                assert window.obs["eye"][row, column, :, 0, 0].tolist() == stack(episode, n), (row, column)
    assert replay.tails > 30


def test_what_was_overwritten_is_not_looked_at() -> None:
    replay, last = make(4, slack=2), -1
    for start in range(1, 31, 3):
        last = replay.add(rows(start, 3), after=last)
    obs, following = seen(replay.view().rows(np.arange(26, 30)))
    assert obs == [[27, 27, 27], [27, 27, 28], [27, 28, 29], [28, 29, 30]]
    assert following == [[27, 27, 28], [27, 28, 29], [28, 29, 30], [29, 30, 31]]


@pytest.mark.parametrize("shared", [True, False])
def test_others_see_the_same(shared: bool, tmp_path: Path) -> None:
    replay = ReplayBuffer(COLUMNS, 12, seed=3, folder=tmp_path, slack=3, shared=shared)
    last = -1
    for start in range(0, 60, 5):
        last = replay.add(rows(start, 5, ends=(start + 2,)), after=last)
    view = replay.view()
    there = pickle.loads(pickle.dumps(view))
    np.testing.assert_equal(there.sample((7, 1), 2, 50, 2, 0.9), view.sample((7, 1), 2, 50, 2, 0.9))


@pytest.mark.parametrize("files", [True, False])
def test_going_on_from_a_checkpoint_samples_the_same(files: bool, tmp_path: Path) -> None:
    folder = tmp_path if files else None
    replay = make(10, 20, folder)
    last = replay.add(rows(0, 8, ends=(3,)))
    state = replay.state_dict()
    expected = replay.sample(2, 40, n_step=2, gamma=0.9)
    replay.add(rows(8, 9), after=last)  # a future that is lost
    back = make(10, 20, folder)
    back.load_state_dict(state)
    np.testing.assert_equal(back.sample(2, 40, n_step=2, gamma=0.9), expected)
    back.add(rows(200, 3))
    assert seen(back.view().rows(np.array([7])))[1] == [[6, 7, 8]]
    assert back.read(2, 4)["next_obs/eye"][:, 0, 0, 0].tolist() == [3, 103]


@pytest.mark.parametrize("name", ["obs.eye", "tail.eye", "tail_index", "previous_index"])
def test_damage_is_noticed(name: str, tmp_path: Path) -> None:
    replay = make(10, 5, tmp_path)
    replay.add(rows(0, 8, ends=(3,)))
    state = replay.state_dict()
    file = tmp_path / f"{name}.bin"
    data = bytearray(file.read_bytes())
    data[0] ^= 1
    file.write_bytes(data)
    with pytest.raises(ReplayError, match="is damaged, or of another run"):
        make(10, 5, tmp_path).load_state_dict(state)


def test_a_frame_takes_its_bytes_once(tmp_path: Path) -> None:
    replay = make(1000, 0, tmp_path)
    last = -1
    for start in range(0, 200, 20):
        last = replay.add(rows(start, 20), after=last)
    used = {f.name: f.stat().st_size for f in tmp_path.iterdir()}
    assert used["obs.eye.bin"] == 1000 * 25
    assert not [name for name in used if name.startswith("next_obs.eye")]
    assert replay.tails == 10
