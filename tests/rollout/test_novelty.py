"""Choosing among several draws of the policy."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from gymnasium import spaces

from baldwin.config import load_config
from baldwin.learners.rnd import RND, RNDConfig
from baldwin.networks import ActionMap
from baldwin.rollout.novelty import Novelty
from tests.runs.tools import train_run

CPU = torch.device("cpu")


def novelty(n_actions: int, n_samples: int = 4) -> tuple[RND, Novelty]:
    rnd = RND(RNDConfig(kind="action", hidden=[8]), 3, n_actions, (), 1, CPU)
    return rnd, rnd.novelty(n_samples)


def test_workers_score_as_the_learner_does() -> None:
    rnd, own = novelty(2)
    features, action = torch.randn(5, 3), torch.rand(5, 2)
    np.testing.assert_allclose(own.score(features)(action.numpy()), rnd.score(features, action), rtol=1e-4)


def test_choices_are_as_frequent_as_their_probability_says() -> None:
    _, own = novelty(3)
    act = ActionMap(spaces.Discrete(3), "tanh")
    out = torch.tensor([[0.5, 0.0, -1.0]]).expand(20_000, 3)
    score = own.score(torch.ones(20_000, 3))
    actions, log_prob = own.choose(act, "sample", 0.0, out, None, np.random.default_rng(0), score)
    for choice in np.unique(actions):
        share = float((actions == choice).mean())
        assert abs(share - float(log_prob[actions == choice][0].exp())) < 0.015


def test_numbers_are_more_novel_than_those_of_the_policy() -> None:
    _, own = novelty(1, n_samples=8)
    act = ActionMap(spaces.Box(-1, 1, (1,)), "tanh", "gaussian")
    out = torch.zeros(4000, 2)
    score = own.score(torch.ones(4000, 3))
    rng = np.random.default_rng(0)
    actions, log_prob = own.choose(act, "sample", 0.0, out, None, rng, score)
    assert score(actions).mean() > score(np.tanh(rng.standard_normal((4000, 1))).astype(np.float32)).mean()
    assert torch.isfinite(log_prob).all()


def test_masked_choices_have_no_probability() -> None:
    _, own = novelty(4)
    act = ActionMap(spaces.Discrete(4), "tanh")
    mask = torch.tensor([[True, True, False, False]]).expand(20_000, 4)
    actions, log_prob = own.choose(
        act, "epsilon", 1.0, torch.zeros(20_000, 4), mask, np.random.default_rng(0), own.score(torch.ones(20_000, 3))
    )
    for choice in np.unique(actions):
        assert abs(float((actions == choice).mean()) - float(log_prob[actions == choice][0].exp())) < 0.015


def test_training_with_it_is_exact_and_differs(tmp_path: Path) -> None:
    base = [
        *("env.id=Pendulum-v1", "algorithm.name=sac", "algorithm.start_steps=40", "algorithm.rollout_length=20", "algorithm.batch_size=8"),
        *("algorithm.steps_per_epoch=40", "algorithm.target=retrace", "policy.hidden=[8]", "algorithm.critic.hidden=[8]"),
        *("stop.env_steps=120", "run.evaluate_every=100", "executor.name=inline", "algorithm.threads=1"),
    ]
    chosen = ["algorithm.rnd={kind: action, hidden: [8], n_samples: 3}"]
    hashes = [
        train_run(load_config(None, [], base + more), tmp_path / str(n)).params_sha256()
        for n, more in enumerate([chosen, [*chosen, "executor.name=process", "executor.workers=2"], ["algorithm.rnd=none"]])
    ]
    assert hashes[0] == hashes[1] != hashes[2]
