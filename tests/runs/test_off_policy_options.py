"""Options of the off-policy learners learn what cannot be learned without them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from baldwin.config import load_config
from tests.runs.tools import train_run

RECALL = [
    *("algorithm.name=sac", "env.id=tests.toys.delayed:Recall", "env.kwargs={length: 20}", "executor.name=inline", "policy.hidden=[]"),
    *("algorithm.start_steps=400", "algorithm.steps_per_epoch=400", "algorithm.rollout_length=40", "algorithm.batch_size=32"),
    *("algorithm.updates_per_step=0.15", "algorithm.gamma=0.95", "algorithm.critic.hidden=[32]", "algorithm.threads=1"),
    *("algorithm.actor_lr=5e-3", "algorithm.critic_lr=5e-3", "algorithm.alpha_lr=5e-3", "algorithm.prioritized=true"),
    *("run.evaluate_every=1", "run.episodes=32", "stop={score: 0.95, env_steps: 8000}"),
]
MEMORY = [
    "policy.memory={kind: gru, size: 16, keep_bias: 3}",
    *("algorithm.sequence=1", "algorithm.burn_in=19", "algorithm.burn_in_gradient=true", "algorithm.encoder_lr=5e-3"),
]


def score(folder: Path, *settings: str) -> float:
    run = train_run(load_config(None, [], list(settings)), folder)
    assert run.score is not None
    return run.score


def test_recurrent_sac_remembers_for_twenty_steps(tmp_path: Path) -> None:
    assert score(tmp_path / "run", *RECALL, *MEMORY) >= 0.95


def test_without_memory_it_stays_at_chance(tmp_path: Path) -> None:
    assert score(tmp_path / "run", *RECALL, "stop.env_steps=3000") <= 0.5


@pytest.mark.slow
@pytest.mark.parametrize("seed", [2, 3, 4])
def test_recurrent_sac_remembers_with_other_seeds(seed: int, tmp_path: Path) -> None:
    assert score(tmp_path / "run", *RECALL, *MEMORY, f"run.seed={seed}", "stop.env_steps=20000") >= 0.95


SHORT = [
    *("env.id=tests.toys.delayed:Recall", "executor.name=inline", "policy.hidden=[]", "algorithm.threads=1", "algorithm.gamma=0.95"),
    *("algorithm.start_steps=200", "algorithm.steps_per_epoch=200", "algorithm.rollout_length=40", "algorithm.batch_size=32"),
    *("algorithm.updates_per_step=0.2", "run.evaluate_every=1", "run.episodes=32", "stop={score: 0.9, env_steps: 4000}"),
]
LEARNERS = {
    "dqn": ["algorithm.name=dqn", "algorithm.lr=5e-3", "algorithm.target_update_interval=20", "algorithm.epsilon_steps=1000"],
    "sac": ["algorithm.name=sac", "algorithm.critic.hidden=[32]", *(f"algorithm.{x}=5e-3" for x in ("actor_lr", "critic_lr", "alpha_lr"))],
    "td3": [
        *("algorithm.name=td3", "env.kwargs.box=true", "algorithm.tau=0.05", "algorithm.exploration_noise=0.3"),
        *("algorithm.actor_lr=5e-3", "algorithm.critic_lr=5e-3", "algorithm.critic.hidden=[32]"),
    ],
}
MEMORIES = {
    "gru": "policy.memory={kind: gru, size: 8, keep_bias: 3}",
    "lstm": "policy.memory={kind: lstm, size: 8, keep_bias: 3}",
    "attention": "policy.memory={kind: attention, size: 8, window: 10, heads: 2}",
}
OTHERS = [("dqn", "gru"), ("dqn", "attention"), ("td3", "lstm"), ("td3", "attention"), ("sac", "gru"), ("sac", "lstm")]
SIX = ["env.kwargs.length=6", "algorithm.sequence=1", "algorithm.burn_in=5", "algorithm.burn_in_gradient=true", "algorithm.encoder_lr=5e-3"]


@pytest.mark.parametrize(
    ("name", "memory"),
    [("dqn", "lstm"), ("td3", "gru"), ("sac", "attention"), *(pytest.param(*x, marks=pytest.mark.slow) for x in OTHERS)],
)
def test_every_learner_remembers_for_six_steps(name: str, memory: str, tmp_path: Path) -> None:
    assert score(tmp_path / "run", *SHORT, *LEARNERS[name], *SIX, MEMORIES[memory]) >= 0.9


@pytest.mark.parametrize("name", ["dqn", "td3"])
def test_without_memory_other_learners_stay_at_chance(name: str, tmp_path: Path) -> None:
    assert abs(score(tmp_path / "run", *SHORT, *LEARNERS[name], "env.kwargs.length=6", "stop.env_steps=1200")) <= 0.5


CHAIN = [
    *("algorithm.name=dqn", "env.id=tests.toys.delayed:Chain", "env.kwargs={rooms: 30}", "executor.name=inline", "policy.hidden=[64]"),
    *("algorithm.start_steps=200", "algorithm.steps_per_epoch=500", "algorithm.rollout_length=20", "algorithm.batch_size=64"),
    *("algorithm.updates_per_step=0.5", "algorithm.lr=3e-3", "algorithm.gamma=0.97", "algorithm.n_step=5", "algorithm.threads=1"),
    *("algorithm.target_update_interval=20", "algorithm.epsilon_steps=2000", "algorithm.epsilon_start=0.3", "algorithm.epsilon_end=0.1"),
    *("algorithm.prioritized=true", "run.evaluate_every=1", "stop={score: 0.95, env_steps: 8000}"),
]
BONUSES = {
    "rnd": "algorithm.rnd={kind: reward, input: state, hidden: [64], output_size: 32, lr: 3e-5}",
    "icm": "algorithm.curiosity={kind: icm, hidden: [64], feature_size: 8, lr: 1e-3}",
    "none": "algorithm.curiosity=none",
}


@pytest.mark.parametrize("bonus", BONUSES)
def test_the_last_of_thirty_rooms_is_found_by_a_bonus_alone(bonus: str, tmp_path: Path) -> None:
    assert (score(tmp_path / "run", *CHAIN, BONUSES[bonus]) > 0) == (bonus != "none")


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2, 9))
@pytest.mark.parametrize("bonus", BONUSES)
def test_the_last_of_thirty_rooms_with_other_seeds(bonus: str, seed: int, tmp_path: Path) -> None:
    assert (score(tmp_path / "run", *CHAIN, BONUSES[bonus], f"run.seed={seed}") > 0) == (bonus != "none")


EVOLVER = [
    *(
        "population={name: evolver, members: 2, steps: 120, episodes: 2, search: {algorithm.actor_lr: {log: [1e-4, 1e-2]}}}",
        "policy.hidden=[8]",
    ),
    *("algorithm.name=sac", "env.id=Pendulum-v1", "env.max_episode_steps=30", "algorithm.critic.hidden=[8]", "algorithm.start_steps=40"),
    *(
        "algorithm.n_envs=2",
        "algorithm.rollout_length=10",
        "algorithm.steps_per_epoch=40",
        "algorithm.batch_size=8",
        "algorithm.buffer_size=200",
    ),
    *("algorithm.prioritized=true", "algorithm.action_noise=0.1", "algorithm.exploration_spread=3"),
    *("run.evaluate_every=1", "run.episodes=2", "stop={env_steps: null, learning_steps: 480}"),
]


def test_two_learners_with_priorities_and_noise_of_their_own_under_the_evolver(tmp_path: Path) -> None:
    """Two rounds of each; on two processes the same bits."""
    inline, processes = (
        train_run(load_config(None, [], [*EVOLVER, *own]), tmp_path / own[0].split("=")[1])
        for own in (["executor.name=inline"], ["executor.name=process", "executor.workers=2"])
    )
    assert inline.params_sha256() == processes.params_sha256()
    assert inline.algorithm.learning_steps == 480
    members: Any = inline.algorithm
    assert [member.line_steps for member in members.members] == [240, 240]
    assert members.members[0].state_sha256 != members.members[1].state_sha256
    assert inline.config.algorithm.prioritized.beta_updates == 200  # type: ignore[attr-defined] # of a member's 240 steps all but the first 40
