"""SAC with choices and numbers at once."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

from baldwin.config import load_config
from baldwin.errors import ConfigError
from baldwin.learners.mixed_sac import MixedSAC, choice_entropy, expected
from baldwin.learners.replay_learner import TensorBatch
from baldwin.learners.sac import SACConfig
from baldwin.networks import ActionDistribution, ActionMap
from baldwin.observations import ACTION_MASK, VECTOR, describe_observations
from baldwin.rollout.exploration import log_probs, random_actions
from tests.learners.tools import policy
from tests.runs.tools import train_run

SPACE = spaces.Dict({"aim": spaces.Box(-2, 2, (2,), np.float32), "board": spaces.Discrete(3), "hand": spaces.MultiDiscrete([2, 4])})
OBS = spaces.Box(-1, 1, (3,), np.float32)


def learner(space: Any = SPACE, **settings: Any) -> MixedSAC:
    config = SACConfig(**({"batch_size": 8, "threads": 1, "critic": {"hidden": [8]}} | settings))
    spec = describe_observations(OBS, "a test", action_space=space)
    made = config.make_learner(policy(head="gaussian", hidden=[8]), obs=spec, n_actions=0, discrete=True, seed=1)
    assert isinstance(made, MixedSAC)
    return made


def rows(act: ActionMap, count: int = 8) -> np.ndarray:
    return random_actions(act, count, None, np.random.default_rng(0))


def test_layout() -> None:
    own = learner()
    assert own.branches == (3, 2, 4)
    action = torch.tensor([[0.5, -0.5, 2.0, 1.0, 3.0]])
    numbers = own.action_numbers(action)
    assert numbers[0, :9].tolist() == [0, 0, 1, 0, 1, 0, 0, 0, 1]
    torch.testing.assert_close(numbers[0, 9:], torch.tanh(torch.tensor([0.5, -0.5])))
    torch.testing.assert_close(own.stored_action(numbers), action)


def test_the_value_of_an_action_is_the_mean_over_its_branches() -> None:
    own = learner()
    obs, action = {VECTOR: torch.randn(4, 3)}, torch.from_numpy(rows(own._actions, 4))
    q = own.critic(obs, torch.tanh(action[:, :2]))
    board, left, right = action[:, 2].long(), action[:, 3].long(), action[:, 4].long()
    at = torch.arange(4)
    by_hand = (q[:, at, board] + q[:, at, 3 + left] + q[:, at, 5 + right]) / 3
    torch.testing.assert_close(own.critic_values(obs, action), by_hand)


def test_expectations_by_hand() -> None:
    """Branches of 2 and 1 choices: (0.25 x 4 + 0.75 x 8 + 1 x 5) / 2 = 6; the entropy is that of (0.25, 0.75)."""
    log_probs_ = [torch.tensor([[0.25, 0.75]]).log(), torch.zeros(1, 1)]
    assert expected(torch.tensor([[4.0, 8.0, 5.0]]), log_probs_).item() == pytest.approx(6.0)
    assert choice_entropy(log_probs_, torch.zeros(1)).item() == pytest.approx(-(0.25 * math.log(0.25) + 0.75 * math.log(0.75)))


def test_the_soft_value_is_the_mean_over_sampled_actions() -> None:
    """V(s) against its definition, E [Q(s, a) - alpha_d log pi(choices) - alpha_c log pi(numbers)], by many whole samples."""
    own = learner(n_critics=1, target_subset=1)
    obs, alpha = {VECTOR: torch.randn(1, 3).expand(20_000, 3)}, torch.tensor([0.3, 0.7])
    with torch.no_grad():
        out = own.actor({VECTOR: obs[VECTOR][:1]})[0].expand(20_000, -1)
        own._generator.manual_seed(0)
        value, _ = own.soft_values(obs, out, alpha, lambda: None)
        distribution = ActionDistribution(own._actions, out)
        action = torch.from_numpy(distribution.sample(np.random.default_rng(1)))
        columns = torch.split(action, [part.columns for part in distribution.parts], -1)
        numbers, *choices = (part.log_prob(own_) for part, own_ in zip(distribution.parts, columns, strict=True))
        sampled = own.critic_values(obs, action, target=True).amin(0) - alpha[0] * sum(choices) - alpha[1] * numbers
    assert float(value.mean()) == pytest.approx(float(sampled.mean()), abs=0.02)


def test_temperatures_follow_their_own_targets() -> None:
    own = learner(alpha_lr=0.1)
    before = own.log_alpha.detach().clone()
    own._step_alpha(torch.tensor([0.0, 5.0]), own._alpha(), {VECTOR: torch.zeros(1, 3)})
    assert own.log_alpha[0] > before[0]  # too little entropy of choices
    assert own.log_alpha[1] < before[1]  # more than enough of numbers
    state = own.critic_state()
    other = learner()
    other.load_critic_state(state)
    torch.testing.assert_close(other.log_alpha, own.log_alpha)


def test_an_update_trains_everything() -> None:
    own = learner()
    act = own._actions
    batch = TensorBatch(
        {VECTOR: torch.randn(8, 3)}, torch.from_numpy(rows(act)), torch.randn(8), {VECTOR: torch.randn(8, 3)}, torch.full((8,), 0.9)
    )
    before = own.actor.vectors(), own.critic.vectors()
    report = own.update(batch)
    assert {"alpha", "alpha_discrete", "actor_loss", "critic_loss"} <= set(report)
    assert not np.array_equal(own.actor.vectors(), before[0])
    assert not np.array_equal(own.critic.vectors(), before[1])


def test_random_actions_are_uniform_legal_and_know_their_probability() -> None:
    act = ActionMap(SPACE, "tanh", "gaussian")
    rng = np.random.default_rng(0)
    mask = torch.from_numpy(rng.random((5000, 9)) < 0.5)
    mask[:, 0] = mask[:, 3] = mask[:, 5] = True
    found = random_actions(act, 5000, mask, rng)
    board, left, right = (torch.from_numpy(found[:, n]).long()[:, None] for n in (2, 3, 4))
    for own, chosen in ((mask[:, :3], board), (mask[:, 3:5], left), (mask[:, 5:], right)):
        assert own.gather(1, chosen).all()
    assert np.abs(np.histogram(np.tanh(found[:, 0]), 10, (-1, 1))[0] - 500).max() < 100
    density = log_probs(act, "random", 0.0, torch.empty(5000, 0), mask, found)
    legal = mask[:, :3].sum(1) * mask[:, 3:5].sum(1) * mask[:, 5:].sum(1)
    torch.testing.assert_close(density, -legal.float().log() - 2 * math.log(2.0))


def test_masks_move_the_target_entropy() -> None:
    own = learner(spaces.MultiDiscrete([2, 4]), target_entropy_scale=0.5)
    free = own._target_entropy_of({VECTOR: torch.zeros(1, 3)})
    mask = torch.tensor([[True, False, True, True, False, False]])
    bound = own._target_entropy_of({VECTOR: torch.zeros(1, 3), ACTION_MASK: mask})
    assert free.tolist() == pytest.approx([0.5 * math.log(8), 0.0])
    assert bound.tolist() == pytest.approx([0.5 * math.log(2), 0.0])


def test_flags_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"sac needs choices or bounded boxes.*ppo"):
        learner(spaces.Dict({"flags": spaces.MultiBinary(3)}))


@pytest.mark.parametrize("masked", [False, True])
def test_a_choice_and_a_number_that_pay_together_are_learned(masked: bool, tmp_path: Any) -> None:
    """Chance is 0.14, the best choice with a number at random 0.4."""
    overrides = [
        "algorithm.name=sac",
        "env.id=tests.toys.delayed:Dart",
        f"env.kwargs={{masked: {str(masked).lower()}}}",
        "executor.name=inline",
        "policy.hidden=[32, 32]",
        "stop={score: 0.85, env_steps: 3000}",
        "run.evaluate_every=1",
    ]
    settings = (
        "start_steps=300 steps_per_epoch=300 batch_size=64 critic.hidden=[32,32] actor_lr=3e-3 critic_lr=3e-3 alpha_lr=1e-2 threads=1"
    )
    run = train_run(load_config(None, [], overrides + [f"algorithm.{s}" for s in settings.split()]), tmp_path / "run")
    assert run.score is not None
    assert run.score >= 0.85
