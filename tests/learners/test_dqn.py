"""DQN's targets, heads and noise, with numbers worked by hand and against plain modules."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch.nn.functional import smooth_l1_loss

from baldwin.errors import ConfigError
from baldwin.learners import DQN, DQNConfig
from baldwin.learners.replay_learner import TensorBatch
from baldwin.networks import PolicyConfig, make_network
from baldwin.observations import vector_spec

LINEAR = PolicyConfig(hidden=[], normalize_obs=False)


def make(policy: PolicyConfig = LINEAR, **settings: Any) -> DQN:
    return DQN(policy, DQNConfig(**settings), obs=vector_spec(1), n_actions=2, seed=1)


def batch(mask: list[bool] | None = None) -> TensorBatch:
    """s = 1, a = 1, r = 0.5, s' = 2."""
    following = {"vector": torch.tensor([[2.0]])} | ({"action_mask": torch.tensor([mask])} if mask else {})
    return TensorBatch({"vector": torch.tensor([[1.0]])}, torch.tensor([1]), torch.tensor([0.5]), following, torch.tensor([0.9]))


@pytest.mark.parametrize(
    ("double", "mask", "y"),
    [
        (True, None, 0.5 + 0.9 * 2.0),  # online: Q(2) = (2, -2), the first is best; the target's value of it is 2 * 1
        (False, None, 0.5 + 0.9 * 6.0),  # the target's own best: Q'(2) = (2, 6)
        (True, [False, True], 0.5 + 0.9 * 6.0),  # only the second is legal
        (False, [True, False], 0.5 + 0.9 * 2.0),
    ],
)
def test_targets_by_hand(double: bool, mask: list[bool] | None, y: float) -> None:
    learner = make(double=double)
    learner.q_network.reset(np.array([[1.0, -1.0, 0.0, 0.0]], np.float32))  # Q(s) = (s, -s)
    learner.q_network.set_target(np.array([[1.0, 3.0, 0.0, 0.0]], np.float32))  # Q'(s) = (s, 3 s)
    loss, q, target = learner.loss(batch(mask))
    assert q.item() == -1.0
    assert target.item() == pytest.approx(y)
    assert loss.item() == pytest.approx(smooth_l1_loss(torch.tensor([-1.0]), torch.tensor([y])).item())


def test_dueling_by_hand_and_what_workers_get() -> None:
    """A = (s, 3 s), V = 10 s: Q = 10 s + (s, 3 s) - 2 s."""
    learner = make(dueling=True)
    learner.q_network.reset(np.array([[1.0, 3.0, 10.0, 0.0, 0.0, 0.0]], np.float32))
    assert learner._q({"vector": torch.tensor([[2.0]])}).tolist() == [[18.0, 22.0]]
    assert learner.actor_vectors().tolist() == [[1.0, 3.0, 0.0, 0.0]]
    assert learner.q_values({"vector": np.array([[2.0]], np.float32)}).tolist() == [22.0]
    assert learner.q_values({"vector": np.array([[2.0]], np.float32)}, np.array([0])).tolist() == [18.0]


def test_noisy_layers() -> None:
    """Workers act with noise of their own for each segment, evaluation with none; sigma has a gradient, noise is new at every update."""
    learner = make(PolicyConfig(hidden=[4], normalize_obs=False), noisy=True)
    size = 4 + 4 + 8 + 2
    assert learner.q_network.params.shape == (1, 2 * size)
    first, again, other = (learner.acting_vector(n) for n in (3, 3, 4))
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)
    np.testing.assert_array_equal(learner.actor_vectors()[0], learner.q_network.vectors()[0, :size])
    losses = []
    for _ in range(2):
        losses.append(learner.loss(batch())[0].item())
        learner.updates += 1
    assert losses[0] != losses[1]
    learner.update(batch())
    assert learner.q_network.params.grad is not None
    assert learner.q_network.params.grad[0, size:].abs().sum() > 0


def test_the_target_follows_at_its_interval() -> None:
    learner = make(target_update_interval=3)
    before = learner.q_network.target.clone()
    for n in range(1, 4):
        learner.update(batch())
        assert torch.equal(learner.q_network.target, before) == (n < 3)
    assert torch.equal(learner.q_network.target, learner.q_network.params.detach())


def test_epsilon_falls_linearly() -> None:
    config = DQNConfig(epsilon_start=1.0, epsilon_end=0.1, epsilon_steps=1000)
    assert [config.exploration_at(n) for n in (0, 500, 1000, 9999)] == pytest.approx([1.0, 0.55, 0.1, 0.1])
    assert DQNConfig(noisy=True).exploration_at(0) == 0.0


def test_a_network_of_your_own_has_no_heads_to_duel() -> None:
    module = PolicyConfig(module="tests.toys.worlds:TinyNet", normalize_obs=False)
    with pytest.raises(ConfigError, match="dueling needs the heads"):
        make(module, dueling=True)
    assert make(module).actor_vectors().shape == (1, sum(int(np.prod(s)) for s in make_network(module, vector_spec(1), 2).shapes))
