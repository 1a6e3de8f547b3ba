"""Options of the off-policy learners on small tasks: the same run with and without, by score and by CPU time.

python -m benchmarks.features, from the root of the repository: some tasks are toys of the tests.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

from baldwin.config import load_config
from baldwin.runs.run import Run, start, train
from benchmarks.tools import spread

COMMON = ("executor.name=inline", "algorithm.threads=1", "run.checkpoint_every=1000", "algorithm.checkpoint_slack=10000000")
DQN = (
    *("algorithm.name=dqn", "policy.hidden=[64]", "algorithm.batch_size=64", "algorithm.start_steps=200", "algorithm.rollout_length=20"),
    *("algorithm.updates_per_step=0.5", "algorithm.lr=2e-3", "algorithm.target_update_interval=50", "algorithm.steps_per_epoch=500"),
)
TASKS: dict[str, tuple[str, ...]] = {
    "CartPole, dqn": (
        *(
            *DQN,
            "env.id=CartPole-v1",
            "policy.hidden=[64, 64]",
            "algorithm.lr=1e-3",
            "algorithm.gamma=0.98",
            "algorithm.epsilon_steps=2000",
        ),
        *("algorithm.epsilon_end=0.04", "run.episodes=8", "stop.env_steps=6000"),
    ),
    "Pendulum, sac": (
        *("algorithm.name=sac", "env.id=Pendulum-v1", "policy.hidden=[32, 32]", "algorithm.critic.hidden=[32, 32]", "run.episodes=8"),
        *("algorithm.start_steps=500", "algorithm.batch_size=64", "algorithm.updates_per_step=0.5", "algorithm.steps_per_epoch=500"),
        *("algorithm.actor_lr=3e-3", "algorithm.critic_lr=3e-3", "algorithm.alpha_lr=3e-3", "algorithm.tau=0.02", "stop.env_steps=5000"),
    ),
    "Cliffwalk of 14, dqn": (
        *(*DQN, "env.id=tests.toys.delayed:BlindCliffwalk", "env.kwargs={states: 14}", "algorithm.epsilon_end=0.2", "run.episodes=1"),
        *("algorithm.epsilon_steps=4000", "stop.env_steps=6000"),
    ),
    "Chain of 30, dqn": (
        *(*DQN, "env.id=tests.toys.delayed:Chain", "env.kwargs={rooms: 30}", "algorithm.gamma=0.97", "algorithm.n_step=5"),
        *(
            "algorithm.target_update_interval=20",
            "algorithm.epsilon_steps=2000",
            "algorithm.epsilon_start=0.3",
            "algorithm.epsilon_end=0.1",
        ),
        *("algorithm.lr=3e-3", "algorithm.prioritized=true", "run.episodes=1", "stop.env_steps=6000"),
    ),
    "Recall after 10, sac": (
        *("algorithm.name=sac", "env.id=tests.toys.delayed:Recall", "env.kwargs={length: 10}", "policy.hidden=[]", "run.episodes=32"),
        *("algorithm.start_steps=400", "algorithm.steps_per_epoch=400", "algorithm.rollout_length=40", "algorithm.batch_size=32"),
        *("algorithm.updates_per_step=0.2", "algorithm.gamma=0.95", "algorithm.critic.hidden=[32]", "algorithm.actor_lr=5e-3"),
        *("algorithm.critic_lr=5e-3", "algorithm.alpha_lr=5e-3", "stop.env_steps=3200"),
    ),
    "Catch by pictures, sac": (
        *("algorithm.name=sac", "env.id=tests.toys.sensors:Catch", "policy.hidden=[32]", "algorithm.critic.hidden=[32]", "run.episodes=64"),
        *("policy.images={conv: strided, hidden: [32]}", "algorithm.start_steps=300", "algorithm.batch_size=32", "algorithm.alpha=0.03"),
        *("algorithm.rollout_length=20", "algorithm.n_envs=4", "algorithm.steps_per_epoch=400", "algorithm.updates_per_step=0.25"),
        *("algorithm.actor_lr=1e-3", "algorithm.critic_lr=1e-3", "algorithm.gamma=0.95", "stop.env_steps=4800"),
    ),
    "Dart, sac": (
        *("algorithm.name=sac", "env.id=tests.toys.delayed:Dart", "policy.hidden=[32, 32]", "algorithm.critic.hidden=[32, 32]"),
        *("algorithm.start_steps=300", "algorithm.steps_per_epoch=300", "algorithm.batch_size=64", "algorithm.actor_lr=3e-3"),
        *("algorithm.critic_lr=3e-3", "algorithm.alpha_lr=1e-2", "run.episodes=64", "stop.env_steps=2400"),
    ),
}
ENCODER = ("policy.encoders={obs: {kind: mlp, hidden: [32]}}", "algorithm.sequence=2", "algorithm.encoder_lr=3e-3")
WINDOWS = ("algorithm.sequence=2", "algorithm.encoder_lr=1e-3")
FIVE = ("algorithm.n_step=5",)
MEMORY = ("algorithm.sequence=1", "algorithm.burn_in=9", "algorithm.burn_in_gradient=true", "algorithm.encoder_lr=5e-3")
GRU = (*MEMORY, "policy.memory={kind: gru, size: 16, keep_bias: 3}")


class Pair(NamedTuple):
    """One option: a run with `own` and one with `instead`, both on top of the settings of the task."""

    feature: str
    task: str
    own: tuple[str, ...]
    instead: tuple[str, ...] = ()


PAIRS = [
    Pair("n_step=3", "CartPole, dqn", ("algorithm.n_step=3",)),
    Pair("n_step=3", "Cliffwalk of 14, dqn", ("algorithm.n_step=3",)),
    Pair("n_step=5", "Pendulum, sac", FIVE),
    Pair("target=retrace", "Pendulum, sac", (*FIVE, "algorithm.target=retrace"), FIVE),
    Pair("target=vtrace", "Pendulum, sac", (*FIVE, "algorithm.target=vtrace"), FIVE),
    Pair("target=retrace", "CartPole, dqn", (*FIVE, "algorithm.target=retrace"), FIVE),
    Pair("prioritized", "Cliffwalk of 14, dqn", ("algorithm.prioritized=true",)),
    Pair("prioritized", "CartPole, dqn", ("algorithm.prioritized=true",)),
    Pair("prioritized", "Pendulum, sac", ("algorithm.prioritized=true",)),
    Pair("ensemble=5", "Pendulum, sac", ("algorithm.ensemble=5",)),
    Pair("clip_epsilon=0.2", "Pendulum, sac", ("algorithm.clip_epsilon=0.2",)),
    Pair("clip_epsilon=20", "Pendulum, sac", ("algorithm.clip_epsilon=20",)),
    Pair("noisy", "CartPole, dqn", ("algorithm.noisy=true",)),
    Pair("noisy", "Pendulum, sac", ("algorithm.noisy=true",)),
    Pair("action_noise=0.1", "Pendulum, sac", ("algorithm.action_noise=0.1",)),
    Pair(
        "exploration_spread=4, four environments",
        "CartPole, dqn",
        ("algorithm.n_envs=4", "algorithm.exploration_spread=4"),
        ("algorithm.n_envs=4",),
    ),
    Pair("rescale_values", "CartPole, dqn", ("algorithm.rescale_values=true",)),
    Pair("memory gru", "Recall after 10, sac", GRU),
    Pair("memory lstm", "Recall after 10, sac", (*MEMORY, "policy.memory={kind: lstm, size: 16, keep_bias: 3}")),
    Pair("memory attention", "Recall after 10, sac", (*MEMORY, "policy.memory={kind: attention, size: 16, window: 10, heads: 2}")),
    Pair("burn_in_gradient", "Recall after 10, sac", GRU, (*GRU, "algorithm.burn_in_gradient=false")),
    Pair("refresh", "Recall after 10, sac", (*GRU, "algorithm.refresh=true"), GRU),
    Pair("curiosity=icm", "Chain of 30, dqn", ("algorithm.curiosity={kind: icm, hidden: [64], feature_size: 8, lr: 1e-3}",)),
    Pair("curiosity=forward", "Chain of 30, dqn", ("algorithm.curiosity={kind: forward, hidden: [64], lr: 1e-3}",)),
    Pair("rnd=reward", "Chain of 30, dqn", ("algorithm.rnd={kind: reward, input: state, hidden: [64], output_size: 32, lr: 3e-5}",)),
    Pair("rnd=action", "Chain of 30, dqn", ("algorithm.rnd={kind: action, hidden: [64], output_size: 32, lr: 3e-5}",)),
    Pair("siamese=atc", "Catch by pictures, sac", (*WINDOWS, "algorithm.siamese={kind: atc, hidden: [32], size: 16, pixels: 1}"), WINDOWS),
    Pair(
        "siamese=byol", "Catch by pictures, sac", (*WINDOWS, "algorithm.siamese={kind: byol, hidden: [32], size: 16, pixels: 1}"), WINDOWS
    ),
    Pair("siamese.contrastive_q", "Catch by pictures, sac", (*WINDOWS, "algorithm.siamese={contrastive_q: true, pixels: 1}"), WINDOWS),
    Pair("prediction", "Pendulum, sac", (*ENCODER, "algorithm.prediction={hidden: [32]}"), ENCODER),
    Pair("siamese=byol", "Pendulum, sac", (*ENCODER, "algorithm.siamese={kind: byol, hidden: [32], size: 16}"), ENCODER),
    Pair("discrete_dqn_like", "Dart, sac", ("algorithm.discrete_dqn_like=true",)),
]


@cache
def measured(task: str, own: tuple[str, ...], seed: int) -> tuple[float, float]:
    """Mean score of the evaluations in the second half of the run, and the CPU seconds of the whole run."""
    scores: list[tuple[int, float]] = []

    def watch(run: Run, line: dict[str, float]) -> None:
        if "score" in line:
            scores.append((run.algorithm.env_steps, line["score"]))

    config = load_config(None, [], [*COMMON, *TASKS[task], *own, f"run.seed={seed}", "run.evaluate_every=1"])
    begun = time.process_time()
    with tempfile.TemporaryDirectory() as folder:
        train(start(config, Path(folder) / "run"), [watch])
    half = [score for steps, score in scores if steps > scores[-1][0] / 2]
    return sum(half) / len(half), time.process_time() - begun


def main(seeds: Sequence[int], wanted: str) -> None:
    print("| feature | task | score with | without | CPU s with | without |")
    print("|---|---|---|---|---|---|", flush=True)
    for pair in PAIRS:
        if wanted not in f"{pair.feature} {pair.task}":
            continue
        runs = [[measured(pair.task, own, seed) for seed in seeds] for own in (pair.own, pair.instead)]
        scores = [spread([score for score, _ in found], 2 if abs(found[0][0]) < 10 else 0) for found in runs]
        seconds = [spread([used for _, used in found], 1) for found in runs]
        print("| " + " | ".join((f"`{pair.feature}`", pair.task, *scores, *seconds)) + " |", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--only", default="", help="features and tasks that this is a part of")
    args = parser.parse_args()
    main(args.seeds, args.only)
