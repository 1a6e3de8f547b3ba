"""SAC whose choices are those of double DQN."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

from baldwin.config import load_config
from baldwin.errors import ConfigError
from baldwin.learners.greedy_sac import GreedySAC
from baldwin.learners.replay_learner import TensorBatch
from baldwin.learners.sac import SACConfig
from baldwin.networks import ActionDistribution, ActionMap
from baldwin.observations import ACTION_MASK, VECTOR, describe_observations
from baldwin.rollout.exploration import policy_actions, random_actions
from tests.learners.tools import policy
from tests.runs.tools import train_run

SPACE = spaces.Dict({"aim": spaces.Box(-2, 2, (2,), np.float32), "board": spaces.Discrete(3), "hand": spaces.MultiDiscrete([2, 4])})
OBS = spaces.Box(-1, 1, (3,), np.float32)
RUN = [
    *("algorithm.name=sac", "algorithm.discrete_dqn_like=true", "executor.name=inline", "policy.hidden=[32, 32]", "run.evaluate_every=1"),
    *("algorithm.start_steps=300", "algorithm.steps_per_epoch=300", "algorithm.batch_size=64", "algorithm.critic.hidden=[32,32]"),
    *("algorithm.actor_lr=3e-3", "algorithm.critic_lr=3e-3", "algorithm.alpha_lr=1e-2", "algorithm.threads=1"),
]


def learner(space: Any = SPACE, **settings: Any) -> GreedySAC:
    config = SACConfig(**({"batch_size": 8, "threads": 1, "critic": {"hidden": [8]}, "discrete_dqn_like": True} | settings))
    spec = describe_observations(OBS, "a test", action_space=space)
    made = config.make_learner(policy(head="gaussian", hidden=[8]), obs=spec, n_actions=0, discrete=True, seed=1)
    assert isinstance(made, GreedySAC)
    return made


def batch(own: GreedySAC, size: int = 8) -> TensorBatch:
    action = torch.from_numpy(random_actions(own._actions, size, None, np.random.default_rng(0)))
    obs, next_obs = ({VECTOR: torch.randn(size, 3, generator=torch.Generator().manual_seed(n))} for n in (1, 2))
    return TensorBatch(obs, action, torch.arange(size, dtype=torch.float32), next_obs, torch.full((size,), 0.9))


def test_the_network_that_acts_chooses_and_the_slow_critics_value() -> None:
    """y = r + discount min_j Q'_j(s', argmax Q_0(s', .)): no entropy, and not the critics' own best choice."""
    own = learner(spaces.Discrete(3))
    given = batch(own)
    y, _ = own.targets(given, own._alpha())
    best = own.actor(given.next_obs)[0].argmax(-1)
    q = own.critic.target_forward(given.next_obs).gather(-1, best.expand(2, -1)[..., None]).squeeze(-1)
    torch.testing.assert_close(y, given.reward + 0.9 * q.amin(0))
    assert not torch.equal(best, own.critic.target_forward(given.next_obs).amin(0).argmax(-1))


def test_the_choice_loss_by_hand() -> None:
    """Half the squared distance of the mean over the branches from y."""
    own = learner()
    given = batch(own)._replace(target=torch.arange(8.0))
    out = own.actor(given.obs)[0]
    at, board, left, right = torch.arange(8), *(given.action[:, n].long() for n in (2, 3, 4))
    q = (out[at, 4 + board] + out[at, 7 + left] + out[at, 9 + right]) / 3  # ahead of them: two means and two spreads
    torch.testing.assert_close(own.choice_loss(given), 0.5 * (q - torch.arange(8.0)).square().mean())


def test_illegal_choices_are_never_the_greedy_ones() -> None:
    own = learner(spaces.Discrete(3))
    obs = {VECTOR: torch.randn(50, 3), ACTION_MASK: torch.tensor([[True, False, True]]).expand(50, 3)}
    (greedy,), _, _ = own._sample(own.actor(obs)[0], obs)
    assert (greedy.exp()[:, 1] == 0).all()
    assert (greedy.exp().sum(1) == 1).all()


@pytest.mark.parametrize("space", [SPACE, spaces.Discrete(3), spaces.MultiDiscrete([2, 3])])
def test_an_update_trains_everything_but_a_temperature_of_choices(space: Any) -> None:
    own = learner(space, alpha_lr=0.1)
    before = own.actor.vectors(), own.critic.vectors(), own.log_alpha.detach().clone()
    report = own.update(batch(own))
    assert "choice_loss" in report
    assert "alpha_discrete" not in report
    assert not np.array_equal(own.actor.vectors(), before[0])
    assert not np.array_equal(own.critic.vectors(), before[1])
    assert own.log_alpha[0] == before[2][0]
    assert (own.log_alpha[1] != before[2][1]) == (space is SPACE)


def test_choices_are_epsilon_greedy_and_numbers_are_sampled() -> None:
    act = ActionMap(SPACE, "tanh", "gaussian")
    out = torch.randn(1, act.outputs).expand(4000, -1)
    found = policy_actions(act, "epsilon", 0.3, out, None, np.random.default_rng(0))
    greedy = ActionDistribution(act, out).mode().numpy()
    equal = (found == greedy).mean(0)
    assert (equal[:2] == 0).all()
    for column, size in ((2, 3), (3, 2), (4, 4)):
        assert equal[column] == pytest.approx(0.7 + 0.3 / size, abs=0.03)


def test_a_choice_and_a_number_that_pay_together_are_learned(tmp_path: Path) -> None:
    """Chance is 0.14, the best choice with a number at random 0.4."""
    own = ["env.id=tests.toys.delayed:Dart", "stop={score: 0.85, env_steps: 3000}"]
    run = train_run(load_config(None, [], [*RUN, *own]), tmp_path / "run")
    assert run.score is not None
    assert run.score >= 0.85


def test_plain_choices_are_learned_on_windows_too(tmp_path: Path) -> None:
    own = [
        *("env.id=tests.toys.delayed:Alternate", "env.previous_action=true", "stop={score: 9, env_steps: 3000}"),
        *("algorithm.gamma=0.5", "algorithm.sequence=2", "algorithm.n_step=2", "algorithm.prioritized=true"),
    ]
    assert train_run(load_config(None, [], [*RUN, *own]), tmp_path / "run").score == 9


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (["algorithm.discrete_dqn_like=true", "algorithm.target=retrace"], "choices have none with discrete_dqn_like"),
        (["algorithm.discrete_dqn_like=true", "algorithm.noisy=true"], "algorithm.noisy: with discrete_dqn_like"),
        (["algorithm.discrete_dqn_epsilon=0.1"], "has no effect without algorithm.discrete_dqn_like"),
    ],
)
def test_what_does_not_go_together_is_refused(settings: list[str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load_config(None, [], ["env.id=CartPole-v1", "algorithm.name=sac", *settings])


def test_numbers_alone_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"is for discrete choices, and Box.*has none"):
        learner(spaces.Box(-1, 1, (2,), np.float32))
