"""env.previous_action: what was really done, as a sensor, from the replay buffer to the exported policy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from baldwin import load_policy
from baldwin.config import load_config
from baldwin.envs import EnvConfig, check_env
from baldwin.errors import UserError
from tests.runs.tools import train_run
from tests.toys.delayed import Alternate

DQN = [
    *("algorithm.name=dqn", "env.id=tests.toys.delayed:Alternate", "executor.name=inline", "policy.hidden=[16]", "algorithm.threads=1"),
    *(
        "algorithm.start_steps=100",
        "algorithm.steps_per_epoch=200",
        "algorithm.epsilon_steps=400",
        "algorithm.lr=1e-2",
        "algorithm.gamma=0.5",
    ),
    *("algorithm.target_update_interval=20", "run.evaluate_every=1", "stop={score: 9, env_steps: 4000}"),
]


def play(policy: Any, box: bool = False) -> float:
    """The return of an episode that the exported policy plays in the plain environment."""
    env, total, over = Alternate(box), 0.0, False
    obs, _ = env.reset(seed=0)
    policy.reset()
    while not over:
        obs, reward, over, _, _ = env.step(policy.act(obs))
        total += reward
    return total


def test_dqn_and_its_exported_policy(tmp_path: Path) -> None:
    run = train_run(load_config(None, [], [*DQN, "env.previous_action=true"]), tmp_path / "run")
    assert run.score == 9
    policy = load_policy(tmp_path / "run", trust=True)
    assert [play(policy), play(policy)] == [9, 9]  # an episode begins without an action


def test_without_it_nothing_is_learned(tmp_path: Path) -> None:
    run = train_run(load_config(None, [], [*DQN, "stop.env_steps=1000"]), tmp_path / "run")
    assert run.score == -9


def test_es_with_a_box(tmp_path: Path) -> None:
    settings = [
        *("algorithm.name=es", "env.id=tests.toys.delayed:Alternate", "env.kwargs={box: true}", "env.previous_action=true"),
        *(
            "executor.name=inline",
            "policy.hidden=[]",
            "algorithm.population=32",
            "run.evaluate_every=1",
            "stop={score: 9, generations: 60}",
        ),
    ]
    assert train_run(load_config(None, [], settings), tmp_path / "run").score == 9
    assert play(load_policy(tmp_path / "run", trust=True), box=True) == 9


def test_stored_with_every_step(tmp_path: Path) -> None:
    """Also where windows begin, the action before is the one that was executed: noise included."""
    settings = [
        *("algorithm.name=td3", "env.id=Pendulum-v1", "env.previous_action=true", "env.max_episode_steps=7", "executor.name=inline"),
        *("algorithm.start_steps=20", "algorithm.rollout_length=10", "algorithm.batch_size=8", "stop.env_steps=60"),
        *("policy.hidden=[8]", "policy.memory={kind: gru, size: 4}", "algorithm.critic.hidden=[8]", "algorithm.steps_per_epoch=20"),
        *("algorithm.burn_in=2", "algorithm.sequence=3"),
    ]
    replay: Any = train_run(load_config(None, [], settings), tmp_path / "run").algorithm.replay  # type: ignore[attr-defined]
    stored = replay.read(0, 60)
    seen, action = stored["obs/vector"][:, 3:], 2 * stored["action"]
    starts = np.arange(60) % 7 == 0
    assert not seen[starts].any()
    np.testing.assert_allclose(seen[~starts], action[np.flatnonzero(~starts) - 1], atol=1e-6)


def test_spaces() -> None:
    spec = check_env(EnvConfig(id="CartPole-v1", previous_action=True))
    assert spec.backend == "gymnasium"
    assert {name: (at.start, at.stop) for name, at in spec.obs.vectors.items()} == {"obs": (0, 4), "previous_action": (4, 6)}


class Named(gym.Env[Any, Any]):
    observation_space = gym.spaces.Dict({"previous_action": gym.spaces.Box(0, 1, (1,), np.float32)})
    action_space = gym.spaces.Discrete(2)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"id": "baldwin:VectorPong-v0"}, "one player"),
        ({"id": "pettingzoo:mpe2.simple_spread_v3"}, "one player"),
        ({"id": f"{__name__}:Named"}, "has a sensor 'previous_action' already"),
    ],
)
def test_refusals(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        check_env(EnvConfig(**settings, previous_action=True))


@pytest.mark.parametrize("other", [{"self_play": True}, {"players": "all"}, {"backend": "envpool"}])
def test_refused_by_the_config(other: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="previous_action"):
        EnvConfig(id="CartPole-v1", previous_action=True, **other)
