"""Windows of steps around sampled rows."""

from pathlib import Path

import numpy as np
import pytest

from baldwin.observations import VECTOR
from baldwin.replay import LOG_PROB, MEMORY, PREVIOUS_INDEX, Column, PrioritizedConfig, PrioritizedSampler, ReplayBuffer

COLUMNS = {
    "obs/" + VECTOR: Column("<f4", (1,)),
    "next_obs/" + VECTOR: Column("<f4", (1,)),
    "action": Column("<i8"),
    "reward": Column("<f4"),
    "terminated": Column("|b1"),
    "truncated": Column("|b1"),
    LOG_PROB: Column("<f4"),
    MEMORY: Column("<f4", (2,)),
    PREVIOUS_INDEX: Column("<i8"),
}


def episode(number: int, length: int, *, truncated: bool = False, open_end: bool = False) -> dict[str, np.ndarray]:
    """Steps of one episode; the observation is 100 x its number + the step."""
    steps = np.arange(length, dtype=np.float32)
    ends = np.zeros(length, bool)
    ends[-1] = not open_end
    return {
        "obs/" + VECTOR: (100 * number + steps)[:, None],
        "next_obs/" + VECTOR: (100 * number + steps + 1)[:, None],
        "action": np.arange(length),
        "reward": steps,
        "terminated": ends & (not truncated),
        "truncated": ends & truncated,
        LOG_PROB: -steps,
        MEMORY: np.stack([steps, 100 * number + steps], 1),
    }


def filled(capacity: int = 50) -> ReplayBuffer:
    """Episode 1 of 4 steps (rows 0 to 3), episode 2 of 3 steps in two pieces (rows 4, 7, 8), between them episode 3, which is open (5, 6)."""
    replay = ReplayBuffer(COLUMNS, capacity, seed=1)
    replay.add(episode(1, 4))
    second = episode(2, 3, truncated=True)
    first = replay.add({name: rows[:1] for name, rows in second.items()})
    replay.add(episode(3, 2, open_end=True))
    replay.add({name: rows[1:] for name, rows in second.items()}, after=first)
    return replay


def test_a_window_looks_back_and_ahead_within_its_episode() -> None:
    window = filled().view().windows(np.array([2]), before=1, steps=2)
    assert window.obs[VECTOR].tolist() == [[[101], [102], [103], [104]]]  # the last one is after the last step
    assert window.valid.tolist() == [[True, True, True]]
    assert window.reward.tolist() == [[1, 2, 3]]
    assert window.terminated.tolist() == [[False, False, True]]
    assert window.log_prob.tolist() == [[-1, -2, -3]]
    assert window.memory.tolist() == [[1, 101]]  # before its first step


def test_what_is_not_there_is_not_valid() -> None:
    window = filled().view().windows(np.array([0, 8]), before=3, steps=3)
    assert window.valid.tolist() == [[False, False, False, True, True, True], [False, True, True, True, False, False]]
    assert window.memory.tolist() == [[0, 100], [0, 200]]  # of the first step that is there
    assert window.obs[VECTOR][1, 1:, 0].tolist() == [200, 201, 202, 203, 203, 203]  # after a time limit: what was seen last
    assert not window.terminated[1].any()


def test_pieces_of_an_episode_are_one() -> None:
    window = filled().view().windows(np.array([7]), before=1, steps=2)
    assert window.obs[VECTOR][0, :, 0].tolist() == [200, 201, 202, 203]
    assert window.valid.all()


def test_an_open_episode_ends_at_its_newest_row() -> None:
    window = filled().view().windows(np.array([5]), before=0, steps=4)
    assert window.valid.tolist() == [[True, True, False, False]]
    assert window.obs[VECTOR][0, :, 0].tolist() == [300, 301, 302, 302, 302]


def test_windows_do_not_look_back_to_what_can_no_longer_be_sampled() -> None:
    replay = filled(capacity=6)  # rows 3 to 8 are left
    window = replay.view().windows(np.array([3]), before=2, steps=1)
    assert window.valid.tolist() == [[False, False, True]]
    assert window.memory.tolist() == [[3, 103]]


@pytest.mark.parametrize("prioritized", [False, True])
def test_every_step_can_be_the_anchor_and_draws_depend_on_the_seed_alone(prioritized: bool) -> None:
    def draw() -> list[int]:
        replay = filled()
        sampler = PrioritizedSampler(replay, PrioritizedConfig(), seed=1) if prioritized else replay
        windows = sampler.sample_windows(10, 20, 1, 2)
        assert windows.obs[VECTOR].shape == (10, 20, 4, 1)
        assert (windows.weights is not None) == prioritized
        return windows.indices.ravel().tolist()

    assert draw() == draw()
    assert set(draw()) == set(range(9))


def rows_of(length: int, start: int = 0) -> dict[str, np.ndarray]:
    return episode(1, length, open_end=True) | {MEMORY: np.full((length, 2), start, np.float32)}


def test_only_rows_that_can_be_sampled_are_replaced() -> None:
    """The ring holds 7 rows, of which the last 5 can be sampled; place 0 is that of row 7 by now."""
    replay = ReplayBuffer(COLUMNS | {MEMORY: Column("<f4", (2,), mutable=True)}, 5, seed=1, slack=2)
    replay.add(rows_of(6))
    replay.add(rows_of(2, 1))
    replay.replace(MEMORY, np.array([0, 2, 3, 7, 3]), np.array([[9, 9], [8, 8], [6, 6], [5, 5], [7, 7]], np.float32))
    assert replay.read(1, 8)[MEMORY][:, 0].tolist() == [0, 0, 7, 0, 0, 1, 5]


def test_a_checkpoint_brings_back_what_was_replaced_since(tmp_path: Path) -> None:
    columns = COLUMNS | {MEMORY: Column("<f4", (2,), mutable=True)}
    replay = ReplayBuffer(columns, 5, seed=1, folder=tmp_path, slack=5)
    replay.add(rows_of(6))
    replay.replace(MEMORY, np.array([3]), np.full((1, 2), 4, np.float32))
    state = replay.state_dict()
    replay.add(rows_of(2))
    replay.replace(MEMORY, np.array([3, 4]), np.full((2, 2), 6, np.float32))
    again = ReplayBuffer(columns, 5, seed=1, folder=tmp_path, slack=5)
    again.load_state_dict(state)
    assert again.read(1, 6)[MEMORY][:, 0].tolist() == [0, 0, 4, 0, 0]
    assert again.total == 6


def test_windows_know_their_rows_after_the_ring_went_round() -> None:
    replay = ReplayBuffer(COLUMNS, 5, seed=1, slack=2)
    replay.add(rows_of(6))
    replay.add(rows_of(4), after=5)
    window = replay.view().windows(np.array([7]), before=1, steps=3)
    assert window.valid.all()
    assert window.rows.tolist() == [[6, 7, 8, 9]]
