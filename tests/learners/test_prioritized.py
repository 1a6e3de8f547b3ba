"""Learners that sample by priorities: weighted losses, fresh priorities at every update, and what it is good for."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

from baldwin.config import load_config
from baldwin.errors import ConfigError, Diverged
from baldwin.learners import DQN, DQNConfig, Learner, replay_columns
from baldwin.learners.replay_learner import BatchSampler, mean_error, mean_loss
from baldwin.networks import PolicyConfig, make_network
from baldwin.observations import ACTION_MASK, describe_observations, vector_spec
from baldwin.replay import Column, PrioritizedConfig, PrioritizedSampler, ReplayBuffer
from baldwin.rollout import Lookahead, transitions
from baldwin.rollout.acting_errors import acting_errors
from baldwin.rollout.opponent_policies import one_for_all
from tests.learners.tools import ACTIONS, LEARNERS, OBS, discrete, memory, td3
from tests.learners.windows import assert_same_state
from tests.runs.tools import train_run
from tests.toys.delayed import BlindCliffwalk

STATES, GAMMA = 8, 0.9


def by_priority(replay: ReplayBuffer, seed: int = 5, **settings: Any) -> PrioritizedSampler:
    return PrioritizedSampler(replay, PrioritizedConfig(**settings), seed=seed)


def test_losses_are_weighted_by_hand() -> None:
    """Errors 1, -2, 0.5 and weights 1, 1/2, 1/4; Huber: |e| - 1/2 from 1 on, else e^2 / 2."""
    q, y = torch.tensor([[1.0, -2.0, 0.5]]), torch.zeros(3)
    weights = torch.tensor([1.0, 0.5, 0.25])
    assert mean_loss("mse", q, y.expand_as(q), weights).item() == pytest.approx((1 + 0.5 * 4 + 0.25 * 0.25) / 3)
    assert mean_loss("huber", q[0], y, weights).item() == pytest.approx((0.5 + 0.5 * 1.5 + 0.25 * 0.125) / 3)
    assert mean_loss("mse", q, y.expand_as(q), None).item() == pytest.approx((1 + 4 + 0.25) / 3)


def test_td_errors_are_the_mean_over_the_critics() -> None:
    q, y = torch.tensor([[1.0, 2.0], [-3.0, 2.5]]), torch.tensor([0.0, 3.0])
    assert mean_error(q, y).tolist() == [2.0, 0.75]


def dqn(seed: int = 1, **settings: Any) -> DQN:
    policy = PolicyConfig(hidden=[8], normalize_obs=False)
    return DQN(policy, DQNConfig(**({"batch_size": 16, "threads": 1} | settings)), obs=vector_spec(OBS), n_actions=ACTIONS, seed=seed)


def test_an_update_sets_the_priorities_of_its_rows() -> None:
    learner, replay = dqn(), memory(discrete())
    (batch,) = learner._sample_batches(by_priority(replay), 1, 1)
    _, q, y = learner.loss(batch)
    sampler = by_priority(replay, alpha=0.5, epsilon=0.01)  # draws the same rows: as long as nobody knows an error, they are all alike
    assert learner.train(sampler, 1)["td_error"] == pytest.approx((q - y).abs().mean().item())
    expected = np.ones(200)
    expected[batch.indices] = ((q - y).abs().detach().numpy() + 0.01) ** 0.5
    np.testing.assert_allclose(sampler.state_dict()["priorities"], expected, rtol=1e-6)


def test_every_update_sees_the_priorities_of_the_one_before() -> None:
    """Five updates in one call are five calls of one update."""
    together, apart = dqn(lr=0.01), dqn(lr=0.01)
    ours, theirs = (by_priority(memory(discrete())) for _ in range(2))
    together.train(ours, 5)
    for _ in range(5):
        apart.train(theirs, 1)
    np.testing.assert_array_equal(together.actor_vectors(), apart.actor_vectors())
    np.testing.assert_array_equal(ours.state_dict()["priorities"], theirs.state_dict()["priorities"])


@pytest.mark.parametrize("make", LEARNERS.values(), ids=LEARNERS)
def test_actor_and_critic_learn_by_priority(make: Callable[..., Learner]) -> None:
    learner = make()
    sampler = by_priority(memory(learner))
    report = learner.train(sampler, 30)
    priorities = sampler.state_dict()["priorities"]
    assert report["td_error"] > 0
    assert (priorities > 0).all()
    assert 16 < (priorities != 1.0).sum() <= 200


@pytest.mark.parametrize("make", LEARNERS.values(), ids=LEARNERS)
def test_weights_are_for_the_critics_alone(make: Callable[..., Learner]) -> None:
    """Where all are zero, the critics stay as they are, and the actor still moves."""
    learner = make(policy_delay=1)
    (batch,) = learner._sample_batches(memory(learner), 1, 1)
    critic, actor = learner.critic.vectors(), learner.actor_vectors()
    learner.update(batch._replace(weights=torch.zeros(16)))
    np.testing.assert_array_equal(learner.critic.vectors(), critic)
    assert not np.array_equal(learner.actor_vectors(), actor)


def test_errors_that_are_not_numbers_are_the_learners_to_report() -> None:
    learner = td3(critic_lr=1e30)
    with pytest.raises(Diverged, match="the learner has diverged"):
        learner.train(by_priority(memory(learner)), 20)


def all_walks(seed: int) -> ReplayBuffer:
    """Every sequence of actions once: one transition in about 500 pays."""
    env = BlindCliffwalk(STATES)
    steps = []
    for actions in product(range(2), repeat=STATES):
        obs, _ = env.reset()
        for action in actions:
            following, reward, terminated, _, _ = env.step(action)
            steps.append((obs, action, reward, following, terminated))
            obs = following
            if terminated:
                break
    replay = ReplayBuffer(replay_columns(vector_spec(STATES), np.empty(0, np.int64)), len(steps), seed=seed)
    obs, action, reward, next_obs, terminated = (np.array(column) for column in zip(*steps, strict=True))
    rows = {"obs/vector": obs, "action": action, "reward": reward.astype(np.float32), "next_obs/vector": next_obs}
    replay.add(rows | {"terminated": terminated, "truncated": np.zeros(len(steps), np.bool_)})
    return replay


def updates_until_valued(sampler: BatchSampler) -> int:
    """Updates of a DQN, its Q-values a table, until the first state's value is right to a tenth."""
    config = DQNConfig(batch_size=8, gamma=GAMMA, lr=0.02, target_update_interval=10, threads=1)
    learner = DQN(PolicyConfig(hidden=[], normalize_obs=False), config, obs=vector_spec(STATES), n_actions=2, seed=1)
    learner.q_network.reset(np.zeros_like(learner.q_network.vectors()))
    start, goal = {"vector": np.eye(STATES, dtype=np.float32)[:1]}, GAMMA ** (STATES - 1)
    while learner.updates < 3000 and abs(learner.q_values(start, np.array([0])).item() - goal) > 0.1 * goal:
        learner.train(sampler, 10)
    return learner.updates


def test_a_rare_reward_is_learned_from_in_fewer_updates() -> None:
    """Summed over five seeds of the draws; a uniform batch has the rewarded transition in it about once in sixty updates."""
    uniform = sum(updates_until_valued(all_walks(seed)) for seed in range(5))
    prioritized = sum(updates_until_valued(by_priority(all_walks(seed), seed, epsilon=0.01, beta_updates=1000)) for seed in range(5))
    assert prioritized < 0.75 * uniform  # 1,090 against 1,930 when this was written


@pytest.mark.parametrize("make", [*LEARNERS.values(), dqn])
def test_errors_of_new_transitions(make: Callable[..., Any]) -> None:
    """The same number at each call, without a change of the learner: |Q - y| by the losses' own values and targets."""
    learner = make()
    replay = memory(learner if isinstance(learner, Learner) else discrete())
    rows = np.arange(20)[None]
    before = learner.state_dict()
    found = learner.td_errors(replay.view().rows(rows, 2, learner.config.gamma))
    np.testing.assert_array_equal(found, learner.td_errors(replay.view().rows(rows, 2, learner.config.gamma)))
    assert_same_state(learner.state_dict(), before)
    if isinstance(learner, DQN):
        (batch,) = learner._tensor_batches(replay.view().rows(rows, 2, learner.config.gamma))
        _, q, y = learner.loss(batch)
        np.testing.assert_allclose(found, (q - y).abs().detach().numpy(), rtol=1e-6)


@pytest.mark.parametrize("initial", ["max", "td-error"])
def test_new_transitions_enter_by_their_error_or_with_the_largest(initial: str, tmp_path: Path) -> None:
    settings = [
        *("algorithm.name=dqn", "env.id=CartPole-v1", "executor.name=inline", "policy.hidden=[8]", "algorithm.rollout_length=40"),
        *(f"algorithm.prioritized={{initial: {initial}, alpha: 1}}", "algorithm.start_steps=120", "stop.env_steps=120"),
        *("algorithm.steps_per_epoch=40", "algorithm.n_step=2", "run.evaluate_every=100"),
    ]
    algorithm: Any = train_run(load_config(None, [], settings), tmp_path / "run").algorithm
    priorities = algorithm._priorities.state_dict()["priorities"]
    assert len(priorities) == 120
    if initial == "max":
        assert (priorities == 1).all()
        return
    errors = algorithm.learner.td_errors(algorithm.replay.view().rows(np.arange(120)[None], 2, 0.99))
    whole = np.arange(120) % 40 < 39  # the last window of a segment was shorter when it arrived
    np.testing.assert_allclose(priorities[whole], errors[whole] + 1e-6, rtol=1e-5)


@pytest.mark.parametrize("n_step", [1, 3])
def test_actors_work_out_the_errors_that_the_learner_would(n_step: int) -> None:
    """Over two environments, ends of both kinds, steps of several frames and illegal actions; targets are those of the acting network."""
    rng = np.random.default_rng(n_step)
    spaces_ = spaces.Dict({"x": spaces.Box(-9, 9, (3,)), ACTION_MASK: spaces.MultiBinary(4)})
    spec = describe_observations(spaces_, "a test", action_space=spaces.Discrete(4))
    learner = DQN(PolicyConfig(hidden=[8], normalize_obs=False), DQNConfig(n_step=n_step, gamma=0.9), obs=spec, n_actions=4, seed=1)
    ended = rng.random((2, 12)) < 0.3
    terminated = ended & (rng.random((2, 12)) < 0.5)
    ends = int(ended.sum())

    def seen(*shape: int) -> dict[str, Any]:
        mask = rng.random((*shape, 4)) < 0.6
        mask[..., 0] = True
        return {"vector": rng.normal(size=(*shape, 3)).astype(np.float32), ACTION_MASK: mask}

    arrays = {
        "action": rng.integers(0, 4, (2, 12)),
        "reward": rng.normal(size=(2, 12)).astype(np.float32),
        "terminated": terminated,
        "truncated": ended & ~terminated,
        "elapsed": rng.integers(1, 4, (2, 12)).astype(np.int32),
        **{"obs/" + key: array for key, array in seen(2, 13).items()},
        **{"final_obs/" + key: array for key, array in seen(ends).items()},
    }
    forward = one_for_all(make_network(learner._policy_config, spec, 4), learner.actor_vectors()[0], learner._normalizer, 12)
    found = acting_errors(forward, arrays, Lookahead(n_step, 0.9))
    columns = replay_columns(spec, np.empty(0, np.int64)) | {"elapsed": Column("<i4")}
    replay = ReplayBuffer(columns, 100, seed=0)
    for rows in transitions(arrays):
        replay.add(rows)
    expected = learner.td_errors(replay.view().rows(np.arange(24)[None], n_step, 0.9))
    np.testing.assert_allclose(found.ravel(), expected, rtol=1e-4, atol=1e-5)


def test_windows_refuse_errors_at_arrival() -> None:
    with pytest.raises(ConfigError, match=r"initial=td-error is for single transitions"):
        load_config(
            None, [], ["algorithm.name=dqn", "env.id=CartPole-v1", "algorithm.sequence=4", "algorithm.prioritized={initial: td-error}"]
        )
