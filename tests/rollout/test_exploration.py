"""How much each environment explores."""

import numpy as np
import pytest
import torch
from gymnasium import spaces

from baldwin.config import load_config
from baldwin.errors import ConfigError
from baldwin.networks import ActionMap
from baldwin.rollout.exploration import log_probs, policy_actions
from baldwin.runs.build import build

BOX = ActionMap(spaces.Box(-1, 1, (1,)), "tanh", "gaussian")


def test_noise_of_each_environment() -> None:
    out = torch.zeros(2, 1)
    rng = np.random.default_rng(0)
    drawn = np.stack([policy_actions(BOX, "noise", (0.01, 0.2), out, None, rng) for _ in range(2000)])
    assert drawn.std(0)[:, 0] == pytest.approx([0.01, 0.2], rel=0.1)


def test_noise_on_samples() -> None:
    out = torch.tensor([[0.5, -20.0]])  # hardly any spread of its own
    drawn = np.stack([policy_actions(BOX, "sample", amount, out, None, np.random.default_rng(n)) for n in range(500) for amount in (0.1,)])
    assert drawn.std() == pytest.approx(0.1, rel=0.15)
    assert policy_actions(BOX, "sample", 0.0, out, None, np.random.default_rng(0)) == pytest.approx(np.tanh([[0.5]]), abs=1e-6)


def test_random_actions_of_each_environment_and_their_probability() -> None:
    act = ActionMap(spaces.Discrete(4), "tanh")
    out = torch.tensor([[1.0, 0.0, 0.0, 0.0]]).expand(2, 4)
    rng = np.random.default_rng(0)
    drawn = np.stack([policy_actions(act, "epsilon", (0.0, 1.0), out, None, rng) for _ in range(2000)])
    assert (drawn[:, 0] == 0).all()
    assert (drawn[:, 1] == 0).mean() == pytest.approx(0.25, abs=0.04)
    both = log_probs(act, "epsilon", (0.2, 1.0), out, None, np.array([0, 1])).exp()
    assert both.tolist() == pytest.approx([0.2 / 4 + 0.8, 0.25])


def test_jobs_spread_the_noise_in_geometric_steps() -> None:
    own = ["env.id=Pendulum-v1", "algorithm.name=td3", "algorithm.n_envs=3", "algorithm.start_steps=0", "algorithm.exploration_spread=4"]
    (job,) = build(load_config(None, [], own)).algorithm.ask(1)
    assert job.noise == pytest.approx((0.1, 0.2, 0.4))  # type: ignore[attr-defined]


def test_noise_and_corrected_targets_do_not_go_together() -> None:
    with pytest.raises(ConfigError, match="action_noise"):
        load_config(None, [], ["env.id=Pendulum-v1", "algorithm.name=sac", "algorithm.action_noise=0.1", "algorithm.target=retrace"])


def test_random_actions_are_never_more_than_all() -> None:
    own = ["env.id=CartPole-v1", "algorithm.name=dqn", "algorithm.n_envs=2", "algorithm.start_steps=0", "algorithm.exploration_spread=4"]
    (job,) = build(load_config(None, [], own)).algorithm.ask(1)
    assert job.noise == (1.0, 1.0)  # type: ignore[attr-defined]


def test_a_greedy_choice_is_certain() -> None:
    """As of a DQN that explores by noise in its layers, whose outputs are values and no logits."""
    act, out = ActionMap(spaces.Discrete(3), "tanh"), torch.tensor([[1.0, 5.0, 2.0]])
    mask = torch.tensor([[True, False, True]])
    assert log_probs(act, "greedy", 0.0, out, None, np.array([1])).tolist() == [0.0]
    assert log_probs(act, "greedy", 0.0, out, mask, np.array([2])).tolist() == [0.0]
    assert log_probs(act, "greedy", 0.0, out, None, np.array([0])).tolist() == [-np.inf]
