"""From collecting through the replay buffer to targets: probabilities are those of what was done, when it was done."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces

from baldwin.config import RunConfig, load_config
from baldwin.learners import OffPolicyAlgorithm
from baldwin.learners.window_learner import WindowLearner
from baldwin.networks import make_network
from baldwin.observations import VECTOR
from baldwin.ops.targets import split_gaussian, tanh_gaussian_log_prob
from baldwin.rollout import CollectJob
from baldwin.runs.build import build
from tests.runs.tools import train_run


class Bandit(gym.Env[np.ndarray, Any]):
    """Two arms, of which the first pays 1, and the second nothing."""

    observation_space = spaces.Box(0, 1, (1,), np.float32)
    action_space = spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        return np.ones(1, np.float32), {}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        return np.ones(1, np.float32), float(action == 0), True, False, {}


BANDIT = [
    *(f"env.id={__name__}:Bandit", "algorithm.name=sac", "policy.hidden=[]", "algorithm.critic.hidden=[]", "algorithm.threads=1"),
    *("algorithm.start_steps=64", "algorithm.rollout_length=64", "algorithm.batch_size=32", "algorithm.buffer_size=100"),
    *("algorithm.n_step=3", "algorithm.tau=1", "algorithm.alpha=1e-6", "algorithm.actor_lr=1e-9", "algorithm.critic_lr=0.05"),
]


@pytest.mark.parametrize("target", ["retrace", "vtrace"])
def test_the_bad_arm_is_worth_nothing_to_a_learner(target: str) -> None:
    """Collected by chance, valued for a policy that takes the good arm nine times of ten. With a weight on the first step, it would be 0.783."""
    parts = build(load_config(None, [], [*BANDIT, f"algorithm.target={target}"]))
    algorithm, worker = parts.algorithm, parts.worker_spec()
    assert isinstance(algorithm, OffPolicyAlgorithm)
    learner = algorithm.learner
    assert isinstance(learner, WindowLearner)
    (job,) = algorithm.ask(1)
    algorithm.tell(job.run(worker))
    stored = algorithm.replay.read(0, 64)
    assert 16 < stored["action"].sum() < 48
    assert stored["log_prob"] == pytest.approx(math.log(0.5))
    learner.set_actor(np.array([0.0, 0.0, math.log(9), 0.0], np.float32))
    learner.train(algorithm.replay, 150)
    q = learner.q_values({VECTOR: np.ones((2, 1), np.float32)}, np.arange(2))
    assert q.tolist() == pytest.approx([1.0, 0.0], abs=0.01)


SMALL = [
    *("policy.hidden=[8]", "algorithm.threads=1", "algorithm.target=retrace", "algorithm.start_steps=20", "algorithm.rollout_length=20"),
    *("algorithm.batch_size=8", "algorithm.buffer_size=100"),
]
KINDS = {
    "numbers": ["algorithm.name=sac", "env.id=Pendulum-v1", "algorithm.critic.hidden=[8]"],
    "choices": ["algorithm.name=sac", "env.id=CartPole-v1", "algorithm.critic.hidden=[8]"],
    "epsilon": ["algorithm.name=dqn", "env.id=CartPole-v1", "algorithm.epsilon_steps=100"],
    "noisy": ["algorithm.name=dqn", "env.id=CartPole-v1", "algorithm.noisy=true"],
}


def small(kind: str) -> RunConfig:
    return load_config(None, [], [*SMALL, *KINDS[kind]])


def by_hand(kind: str, job: CollectJob, rows: dict[str, np.ndarray], config: RunConfig) -> torch.Tensor:
    """Log-probabilities of the actions under the policy that the job had."""
    parts = build(config)
    action = torch.from_numpy(rows["action"])
    n_actions = 1 if kind == "numbers" else 2
    if job.explore == "random":
        return torch.full((len(action),), -math.log(2.0))  # the interval from -1 to 1, or two choices
    network = make_network(config.policy, parts.env_spec.obs, 2 if kind == "numbers" else n_actions)
    assert job.params is not None
    out = network.bind(torch.from_numpy(job.params)[None])({VECTOR: torch.from_numpy(rows["obs/vector"])[None]}, None)[0][0]
    if kind == "numbers":
        return tanh_gaussian_log_prob(*split_gaussian(out), action)
    best = out.argmax(-1) == action
    if kind == "epsilon":
        assert isinstance(job.noise, float)
        return (job.noise / 2 + (1 - job.noise) * best).log()
    return torch.where(best, 0.0, -torch.inf) if kind == "noisy" else out.log_softmax(-1).gather(-1, action[:, None])[:, 0]


@pytest.mark.parametrize("kind", KINDS)
def test_probabilities_are_those_of_the_policy_that_acted_and_stay(kind: str) -> None:
    """Of several policies, one after the other, each trained on what was stored before."""
    config = small(kind)
    parts = build(config)
    algorithm, worker = parts.algorithm, parts.worker_spec()
    assert isinstance(algorithm, OffPolicyAlgorithm)
    expected = []
    for number in range(4):
        (job,) = algorithm.ask(1)
        assert isinstance(job, CollectJob)
        algorithm.tell(job.run(worker))
        expected.append(by_hand(kind, job, algorithm.replay.read(20 * number, 20 * (number + 1)), config))
    assert algorithm.learner.updates > 0
    np.testing.assert_allclose(algorithm.replay.read(0, 80)["log_prob"], torch.cat(expected).numpy(), rtol=1e-3, atol=1e-3)


HUGE = [
    *("env.id=tests.toys.delayed:Recall", "algorithm.name=dqn", "policy.hidden=[8]", "algorithm.threads=1", "executor.name=inline"),
    *("algorithm.start_steps=40", "algorithm.rollout_length=20", "algorithm.steps_per_epoch=40", "algorithm.updates_per_step=1"),
    *("algorithm.lr=0.1", "algorithm.target_update_interval=5", "algorithm.rnd={kind: reward, strength: 1e6, hidden: [8]}"),
    *("run.evaluate_every=1", "run.episodes=8", "stop.env_steps=160"),
]


def test_a_huge_bonus_is_no_reward_for_who_evaluates(tmp_path: Path) -> None:
    """Returns of this world are 1 and -1; values are those of the bonus."""
    seen: list[dict[str, float]] = []
    run = train_run(load_config(None, [], HUGE), tmp_path / "run", watchers=[lambda run, line: seen.append(line)])
    assert run.last["q_mean"] > 100
    returns = [value for line in seen for name, value in line.items() if name.startswith(("score", "return")) and "length" not in name]
    assert max(map(abs, returns)) <= 1
    assert run.score is not None
    stored = run.algorithm.replay.read(0, 160)["reward"]  # type: ignore[attr-defined]
    assert set(stored.tolist()) == {-1.0, 0.0, 1.0}
