"""Policies with eyes and memory learn what cannot be learned without, and stay exact."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from baldwin import load_policy
from baldwin.config import load_config
from baldwin.errors import ConfigError
from baldwin.runs.build import build
from baldwin.runs.run import start, train
from tests.runs.tools import in_process, shown, train_and_kill_twice, train_run

TOYS = "tests.toys.sensors:"
ES = ["algorithm.name=es", "algorithm.weight_decay=0", "policy.output_scale=1.0", "executor.name=inline", "run.episodes=64"]
RECALL = [
    *(f"env.id={TOYS}Recall", "env.kwargs={delay: 4}", *ES, "policy.normalize_obs=false", "policy.hidden=[]"),
    *("algorithm.population=100", "algorithm.block=100", "algorithm.episodes=8", "algorithm.sigma=0.3", "algorithm.lr=0.1"),
    *("stop.generations=100", "stop.score=0.99"),
]
IMAGES = [
    *ES,
    *("algorithm.common_random_numbers=population", "algorithm.sigma=0.1", "algorithm.episodes=4"),
    *("stop.generations=100", "run.evaluate_every=5"),
]
SAC = [
    *("algorithm.name=sac", "algorithm.start_steps=300", "algorithm.batch_size=32", "algorithm.rollout_length=20", "algorithm.n_envs=4"),
    *("algorithm.steps_per_epoch=400", "algorithm.buffer_size=5000", "algorithm.checkpoint_slack=40000", "algorithm.threads=1"),
    *("algorithm.actor_lr=1e-3", "algorithm.critic_lr=1e-3", "algorithm.alpha=0.03", "algorithm.updates_per_step=0.5"),
    *("algorithm.critic={hidden: [32]}", "policy.hidden=[32]", "policy.images={conv: small, hidden: [32]}"),
    *("executor.name=inline", "run.evaluate_every=2", "run.episodes=64", "stop.env_steps=10000"),
]


def score(folder: Path, *options: str) -> float:
    """The last score of a run."""
    train(start(load_config(None, [], list(options)), folder))
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return float([line["score"] for line in lines if "score" in line][-1])


@pytest.mark.parametrize("memory", ["{kind: lstm, size: 8}", "{kind: gru, size: 8}", "{kind: attention, size: 8, window: 6, heads: 2}"])
def test_memory_solves_delayed_recall(memory: str, tmp_path: Path) -> None:
    assert score(tmp_path / "run", *RECALL, f"policy.memory={memory}") > 0.99


def test_without_memory_delayed_recall_is_a_coin(tmp_path: Path) -> None:
    assert abs(score(tmp_path / "run", *RECALL, "stop.generations=40")) < 0.4


def test_evolution_learns_to_catch_from_pictures(tmp_path: Path) -> None:
    images = "policy.images={conv: strided, norm: virtual-batch}"
    options = [
        *IMAGES,
        f"env.id={TOYS}Catch",
        images,
        "policy.hidden=[8]",
        "algorithm.population=100",
        "algorithm.block=100",
        "algorithm.lr=0.05",
    ]
    assert score(tmp_path / "run", *options, "stop.score=0.6") >= 0.6  # chance is -0.4


def test_sac_learns_to_catch_from_pictures(tmp_path: Path) -> None:
    assert score(tmp_path / "run", *SAC, f"env.id={TOYS}Catch", "algorithm.gamma=0.95", "stop.score=0.8") >= 0.8


BOTH = [*IMAGES, f"env.id={TOYS}LookAndListen", "policy.images={conv: small, hidden: [8], norm: virtual-batch}", "policy.hidden=[]"]
BOTH += ["algorithm.population=64", "algorithm.block=64", "algorithm.lr=0.03"]


def test_evolution_joins_a_picture_and_a_number(tmp_path: Path) -> None:
    assert score(tmp_path / "run", *BOTH, "stop.score=4") >= 4


@pytest.mark.parametrize("lost", ["camera", "sound"])
def test_neither_alone_is_enough(lost: str, tmp_path: Path) -> None:
    assert score(tmp_path / "run", *BOTH, "stop.generations=20", f"env.ignore_sensors=[{lost}]") < 1


def test_sac_joins_a_picture_and_a_number(tmp_path: Path) -> None:
    assert score(tmp_path / "run", *SAC, f"env.id={TOYS}LookAndListen", "algorithm.gamma=0.5", "stop.score=7") >= 7


@pytest.mark.parametrize("where", ["info", "obs"])
@pytest.mark.parametrize("algorithm", ["es", "sac", "cem-rl"])
def test_illegal_actions_are_never_played(algorithm: str, where: str, tmp_path: Path) -> None:
    """The environment raises at the first illegal action, under random, sampled and greedy play."""
    small = {
        "es": ["algorithm.population=16", "algorithm.block=8", "stop.generations=3"],
        "sac": ["algorithm.start_steps=100", "algorithm.steps_per_epoch=200", "algorithm.threads=1", "stop.env_steps=600"],
        "cem-rl": [
            "algorithm.learner=sac",
            "algorithm.start_steps=50",
            "algorithm.strategy.population=6",
            "algorithm.buffer_size=2000",
            "stop.generations=6",
        ],
    }[algorithm]
    options = [f"env.id={TOYS}OnlyLegal", f"env.kwargs={{where: {where}}}", f"algorithm.name={algorithm}", *small, "policy.hidden=[8]"]
    config = load_config(None, [], [*options, "executor.name=inline", "run.evaluate_every=1", "run.checkpoint_every=1", "run.keep=2"])
    run = train_run(config, tmp_path / "run")
    lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    for key in ("failed_pairs", "failed_segments", "failed", "score_failed"):
        assert all(line.get(key, 0) == 0 for line in lines), key
    assert run.algorithm.env_steps > 0


CASES: dict[str, list[str]] = {
    "lstm": [
        f"env.id={TOYS}Recall",
        "policy.memory={kind: lstm, size: 8}",
        "algorithm.name=es",
        "algorithm.population=16",
        "algorithm.block=4",
    ],
    "attention-low-rank": [
        f"env.id={TOYS}LookAndListen",
        "policy.memory={kind: attention, size: 8, window: 4, heads: 2}",
        *("algorithm.name=es", "algorithm.population=16", "algorithm.block=4", "algorithm.rank=1"),
    ],
    "virtual-batch": [
        f"env.id={TOYS}Catch",
        "policy.images={conv: small, hidden: [8], norm: virtual-batch}",
        *("algorithm.name=cem", "algorithm.population=8", "algorithm.block=4"),
    ],
    "sac-images": [
        f"env.id={TOYS}LookAndListen",
        "env.frame_stack=2",
        *(
            "algorithm.name=sac",
            "algorithm.start_steps=100",
            "algorithm.batch_size=16",
            "algorithm.rollout_length=10",
            "algorithm.n_envs=2",
        ),
        *("algorithm.steps_per_epoch=100", "algorithm.buffer_size=150", "algorithm.checkpoint_slack=2000", "algorithm.threads=1"),
        *("algorithm.updates_per_step=0.2", "algorithm.actor_lag=1"),
    ],
    "p-cem-rl-images": [
        f"env.id={TOYS}Catch",
        *("algorithm.name=p-cem-rl", "algorithm.learner={name: sac, batch_size: 16, critic: {hidden: [8]}}", "algorithm.start_steps=50"),
        *("algorithm.strategy.population=6", "algorithm.buffer_size=2000", "algorithm.checkpoint_slack=2000"),
    ],
    "pong-convnet-lstm": [
        *("env.id=ALE/Pong-v5", "env.atari={size: 42, stack: 1}", "env.max_episode_steps=12", "policy.network=convnet-lstm"),
        *("algorithm.name=es", "algorithm.population=4", "algorithm.block=2"),
    ],
    "pong-envpool": [
        *("env.id=ALE/Pong-v5", "env.backend=envpool", "env.atari={size: 42, sticky: 0.25}", "env.max_episode_steps=12"),
        *("policy.images={conv: strided}", "algorithm.name=es", "algorithm.population=4", "algorithm.block=2"),
        *("run.evaluate_every=2", "run.episodes=1", "executor.workers=2", "stop.generations=2"),  # to make a game takes seconds
    ],
}


def options_of(case: str) -> list[str]:
    common = ["policy.hidden=[8]", "run.evaluate_every=2", "run.episodes=2", "run.checkpoint_every=1", "run.keep=2", "stop.generations=3"]
    return [*common, *CASES[case]]


def params_hash(folder: Path) -> Any:
    return shown(folder)["params_sha256"]


@pytest.mark.parametrize("case", list(CASES))
def test_same_hash_for_any_worker_count_and_after_kill_nine(case: str, tmp_path: Path) -> None:
    unbroken = train_run(load_config(None, [], [*options_of(case), "executor.name=inline"]), tmp_path / "inline")
    train_run(load_config(None, [], ["executor.workers=3", *options_of(case), "executor.name=process"]), tmp_path / "process")
    assert params_hash(tmp_path / "inline") == params_hash(tmp_path / "process")
    train_and_kill_twice([*options_of(case), "executor.name=inline"], tmp_path / "killed", unbroken)
    assert params_hash(tmp_path / "killed") == params_hash(tmp_path / "inline")
    replayed = in_process("replay", tmp_path / "inline", "--generation", str(unbroken.algorithm.version))
    assert params_hash(tmp_path / "inline") in replayed.stdout


def test_a_policy_with_memory_is_loaded_evaluated_and_filmed(tmp_path: Path) -> None:
    options = [*options_of("lstm"), "executor.name=inline"]
    train_run(load_config(None, [], options), tmp_path / "run")
    policy = load_policy(tmp_path / "run")
    cue, nothing = np.array([1.0, 0.0], np.float32), np.zeros(2, np.float32)
    policy.act(cue)
    remembered = policy._state.clone()
    policy.act(nothing)
    assert not np.array_equal(policy._state, remembered)
    policy.reset()
    assert not policy._state.any()
    policy.act(cue)
    assert np.array_equal(policy._state, remembered)
    assert in_process("evaluate", tmp_path / "run", "--episodes", "3").returncode == 0


def test_virtual_batch_norm_travels_with_the_policy(tmp_path: Path) -> None:
    run = train_run(load_config(None, [], [*options_of("virtual-batch"), "executor.name=inline"]), tmp_path / "run")
    assert run.algorithm.policy_state()["reference/obs"].shape == (128, 1, 10, 10)
    assert load_policy(tmp_path / "run").act(np.zeros((10, 10, 1), np.uint8)) in (0, 1, 2)


def test_pong_is_filmed(tmp_path: Path) -> None:
    options = [*options_of("pong-convnet-lstm"), "executor.name=inline", "stop.generations=1"]
    train_run(load_config(None, [], options), tmp_path / "run")
    done = in_process("render", tmp_path / "run", "--video", tmp_path / "pong.gif")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "pong.gif").stat().st_size > 1000


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["algorithm.name=aes-rl", "algorithm.learner=sac", "policy.memory=gru"], "train policies without memory so far"),
        (["algorithm.name=sac", "policy.images={norm: virtual-batch}"], "virtual batch normalisation is for strategies"),
        (["algorithm.name=es", "policy.encoders={camra: small}"], "no sensor 'camra'"),
        (["algorithm.name=td3"], "td3 needs actions in a bounded Box; got Discrete"),
    ],
)
def test_what_an_algorithm_cannot_do_yet_is_refused_in_a_sentence(options: list[str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        build(load_config(None, [], [f"env.id={TOYS}Catch", *options]))
