"""On-policy learners and DQN: steps/s of whole runs against Stable-Baselines3, RLlib and the bare simulator, where the time goes, scaling."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast
from unittest.mock import patch

import numpy as np

import baldwin.rollout.worker as rollout_worker
from baldwin.config import RunConfig, load_config
from baldwin.envs import make_resumable_env
from baldwin.executors import ExecutorConfig, ProcessExecutor, VirtualExecutor
from baldwin.networks import ActionMap
from baldwin.ops.threads import cores
from baldwin.rollout.exploration import random_actions
from baldwin.rollout.opponent_policies import one_for_all
from baldwin.runs.build import build, evaluation_jobs
from baldwin.runs.loop import Told, loop
from baldwin.runs.run import Run, start, train
from benchmarks.learners import SB3
from benchmarks.tools import HERE, in_processes, peer_python, spread, table

RLLIB = ["ray[rllib]==2.60.0", "torch==2.13.0", "pettingzoo==1.27.0", "mpe2==1.1.1", "threadpoolctl"]  # the last one is for our own worlds
EQUAL = [
    "algorithm.n_envs=8",
    "algorithm.block=4",
    "policy.hidden=[64,64]",
    "policy.normalize_obs=false",
    "run.evaluate_every=1000000",
    "run.checkpoint_every=20",
    "run.episodes=1",
]
LINES = "algorithm.steps_per_epoch=2000"
PLAIN = "algorithm.normalize_reward=false"
ZOO_DQN = {"train_freq": 256, "gradient_steps": 128, "batch_size": 64, "policy_kwargs": {"net_arch": [256, 256]}}
CASES: dict[str, tuple[list[str], list[str]]] = {
    "PPO HalfCheetah-v5, batch 256": (
        [
            "--algo=ppo",
            "env.id=HalfCheetah-v5",
            *EQUAL,
            LINES,
            PLAIN,
            "algorithm.rollout_length=256",
            "algorithm.batch_size=256",
            "algorithm.epochs=10",
        ],
        ["ppo", "HalfCheetah-v5", "--n-steps", "256", "--batch", "256", "--epochs", "10"],
    ),
    "PPO HalfCheetah-v5, batch 64": (
        [
            "--algo=ppo",
            "env.id=HalfCheetah-v5",
            *EQUAL,
            LINES,
            PLAIN,
            "algorithm.rollout_length=256",
            "algorithm.batch_size=64",
            "algorithm.epochs=10",
        ],
        ["ppo", "HalfCheetah-v5", "--n-steps", "256", "--batch", "64", "--epochs", "10"],
    ),
    "PPO CartPole-v1, 32 steps, batch 256, 20 epochs": (
        [
            "--algo=ppo",
            "env.id=CartPole-v1",
            *EQUAL,
            LINES,
            PLAIN,
            "algorithm.rollout_length=32",
            "algorithm.batch_size=256",
            "algorithm.epochs=20",
        ],
        ["ppo", "CartPole-v1", "--n-steps", "32", "--batch", "256", "--epochs", "20"],
    ),
    "A2C CartPole-v1, 5 steps": (
        ["--algo=a2c", "env.id=CartPole-v1", *EQUAL, LINES, PLAIN, "algorithm.rollout_length=5"],
        ["a2c", "CartPole-v1", "--n-steps", "5"],
    ),
    "A2C HalfCheetah-v5, 5 steps": (
        ["--algo=a2c", "env.id=HalfCheetah-v5", *EQUAL, LINES, PLAIN, "algorithm.rollout_length=5"],
        ["a2c", "HalfCheetah-v5", "--n-steps", "5"],
    ),
    "DQN CartPole-v1, one update every 4 steps": (
        [
            "--algo=dqn",
            "env.id=CartPole-v1",
            "policy.hidden=[64,64]",
            "algorithm.double=false",
            "algorithm.checkpoint_slack=200000",
            *EQUAL[3:],
            LINES,
        ],
        ["dqn", "CartPole-v1", "--n-envs", "1", "--n-steps", "4"],
    ),
    "DQN CartPole-v1 as in the Zoo, 128 updates after 256 steps": (
        [
            "--algo=dqn",
            "env.id=CartPole-v1",
            "policy.hidden=[256,256]",
            "algorithm.double=false",
            "algorithm.batch_size=64",
            "algorithm.rollout_length=256",
            "algorithm.updates_per_step=0.5",
            "algorithm.checkpoint_slack=200000",
            *EQUAL[3:],
            LINES,
        ],
        ["dqn", "CartPole-v1", "--n-envs", "1", "--settings", json.dumps(ZOO_DQN)],
    ),
}


PONG = [  # the preset pong-small-ppo, without its schedules
    "--algo=ppo",
    "env.id=ALE/Pong-v5",
    "env.atari={size: 42, crop: [34, 194], clip_reward: true, end_on_life_loss: true}",
    "policy.images={conv: strided}",
    "policy.hidden=[256]",
    "policy.activation=relu",
    "algorithm.n_envs=8",
    "algorithm.block=4",
    "algorithm.rollout_length=128",
    "algorithm.batch_size=256",
    "algorithm.epochs=4",
    "algorithm.lr=5e-4",
    "algorithm.clip_range=0.1",
    "algorithm.entropy_coef=0.01",
    "algorithm.shared_critic=true",
    "algorithm.steps_per_epoch=1024",
    PLAIN,
    *EQUAL[-3:],
]
FRAMES = 4  # of the game in a step
PONG_STEPS = 4 * 1024  # of a run
ROUND = 80_000
SCALED = [  # 1,000 jobs of 4 x 20 steps, so that as many workers have work; a gradient step takes 4,000 steps
    "env.id=CartPole-v1",
    "env.backend=gymnasium",
    "policy.hidden=[64,64]",
    "policy.normalize_obs=false",
    f"algorithm.n_envs={ROUND // 20}",
    "algorithm.block=4",
    "algorithm.rollout_length=20",
    "algorithm.steps_per_epoch=4000",
    "run.evaluate_every=1000000",
]
SCALED_ALGORITHMS = {
    "PPO, 4 epochs": ["algorithm.name=ppo", PLAIN, "algorithm.actor_lag=1", "algorithm.batch_size=4000", "algorithm.epochs=4"],
    "IMPALA": ["algorithm.name=impala", PLAIN, "algorithm.segments_per_update=50"],
}


def run_config(options: Sequence[str], executor: str, seconds: float = 0.0, workers: int | None = None) -> RunConfig:
    """The config of one of the cases, which runs for so many seconds and 4 to start; Pong for some rounds, which may take longer."""
    algorithm = options[0].removeprefix("--algo=")
    own = ["algorithm.block=8"] if executor == "inline" and algorithm != "dqn" else []  # one process steps all of them in one call
    own += [f"executor.name={executor}", "stop.score=null"]
    own += [f"stop.env_steps={PONG_STEPS}"] if options is PONG else ["stop.env_steps=null", f"stop.wall_seconds={seconds + 4}"]
    own += [f"executor.workers={workers}"] if workers else []
    env = next(o.removeprefix("env.id=") for o in options if o.startswith("env.id="))
    return load_config(None, [], [*options[1:], *own, f"algorithm.name={algorithm}", f"env.id={env}"])


def ours(options: Sequence[str], executor: str, seconds: float, workers: int | None = None) -> float:
    """Steps/s of a whole run with journal, metrics and checkpoints, from the second line of metrics on."""
    marks: list[tuple[float, int]] = []

    def watch(run: Run, line: dict[str, float]) -> None:
        if "return_mean" in line:
            marks.append((time.perf_counter(), int(line["env_steps"])))

    config = run_config(options, executor, seconds, workers)
    with tempfile.TemporaryDirectory() as folder:
        train(start(config, Path(folder) / "run"), [watch])
    return (marks[-1][1] - marks[1][1]) / (marks[-1][0] - marks[1][0])


def sb3(arguments: Sequence[str], vec: str, threads: int, seconds: float) -> float:
    command = [str(peer_python("sb3", SB3)), str(HERE / "sb3_on_policy_peer.py"), *arguments]
    done = subprocess.run(
        [*command, "--vec", vec, "--threads", str(threads), "--seconds", str(seconds)], capture_output=True, text=True, check=True
    )
    return float(json.loads(done.stdout.splitlines()[-1])["steps_per_second"])


def rllib(seconds: float) -> float:
    command = [str(peer_python("rllib", RLLIB)), str(HERE / "rllib_peer.py"), "CartPole-v1", "--seconds", str(seconds)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return float(json.loads(done.stdout.splitlines()[-1])["steps_per_second"])


def peers(repeats: int, seconds: float) -> None:
    """Ours with the process and the inline executor; SB3's best of both vector environments, on one thread and on all cores."""
    rows, cartpole = [], 0.0
    for label, (options, arguments) in CASES.items():
        mine: dict[str, list[float]] = {"process": [], "inline": []}
        theirs: list[float] = []
        for _ in range(repeats):
            for executor, found in mine.items():
                found.append(ours(options, executor, seconds))
            kinds = ["dummy"] if arguments[0] == "dqn" else ["dummy", "subproc"]
            theirs.append(max(sb3(arguments, vec, n, seconds) for vec in kinds for n in {1, cores()}))
        best = max(mine, key=lambda name: statistics.median(mine[name]))
        ratios = [a / b for a, b in zip(mine[best], theirs, strict=True)]
        rows.append([label, spread(mine["process"]), spread(mine["inline"]), spread(theirs), spread(ratios, 2)])
        if label.startswith("PPO CartPole"):
            cartpole = statistics.median(mine[best])
    table("Steps/s of whole runs, 64-64 networks", ["what", "baldwin, process", "baldwin, inline", "SB3, best", "ratio"], rows)
    other = [rllib(seconds) for _ in range(repeats)]
    table(
        "PPO CartPole-v1 against RLlib's new API stack, 8 environments, 32 steps, batch 256, 20 epochs",
        ["baldwin steps/s", "RLlib steps/s", "ratio"],
        [[f"{cartpole:,.0f}", spread(other), f"{cartpole / statistics.median(other):.1f}"]],
    )


class Stopwatch:
    """CPU seconds of this process inside functions."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def around(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """The same function, whose time counts."""

        def timed(*args: Any, **kwargs: Any) -> Any:
            begun = time.process_time()
            try:
                return function(*args, **kwargs)
            finally:
                self.seconds += time.process_time() - begun

        return timed


def shares(seconds: float) -> None:
    """Where the CPU time of a whole run in one process goes."""
    rows = []
    for label, options in [*((label, own) for label, (own, _) in CASES.items()), ("PPO Pong, 42 x 42 pixels", PONG)]:
        each = parts_of_a_step(options, seconds)
        total = sum(each.values())
        rows.append([label, f"{total * 1e6:.0f}", *(f"{own * 1e6:.1f} ({own / total:.0%})" for own in each.values())])
    table("CPU microseconds of one step, inline", ["what", "all", "simulator", "network that acts", "learner", "overhead"], rows)


def parts_of_a_step(options: Sequence[str], seconds: float) -> dict[str, float]:
    """CPU seconds of a step: in the simulator, in the forward pass that acts, in the learner, and in all else."""
    parts = {name: Stopwatch() for name in ("simulator", "network", "learner")}
    marks: list[tuple[int, float, list[float]]] = []

    def make_envs(*args: Any, **kwargs: Any) -> Any:
        envs: Any = make_resumable_env(*args, **kwargs)
        envs.step, envs.reset = (parts["simulator"].around(each) for each in (envs.step, envs.reset))
        return envs

    def make_forward(*args: Any) -> Any:
        return parts["network"].around(one_for_all(*args))

    def watch(run: Run, line: dict[str, float]) -> None:
        if "return_mean" in line:
            marks.append((int(line["env_steps"]), time.process_time(), [each.seconds for each in parts.values()]))

    config = run_config(options, "inline", seconds)
    with tempfile.TemporaryDirectory() as folder:
        run = start(config, Path(folder) / "run")
        learner, update = cast("Any", run.algorithm).learner, "train" if config.algorithm.name == "dqn" else "update"
        setattr(learner, update, parts["learner"].around(getattr(learner, update)))
        with patch.multiple(rollout_worker, make_resumable_env=make_envs, one_for_all=make_forward):
            train(run, [watch])
    (first, begun, before), (last, ended, after) = marks[1], marks[-1]
    found = {name: (b - a) / (last - first) for name, a, b in zip(parts, before, after, strict=True)}
    return found | {"overhead": (ended - begun) / (last - first) - sum(found.values())}


def collecting(repeats: int, count: int = 16, steps: int = 200) -> None:
    """CPU time of an environment step: in segments of so many environments, in whole episodes of as many, in as many segments of one."""
    rows = []
    for env in ("Pendulum-v1", "HalfCheetah-v5"):
        options = [f"algorithm.n_envs={count}", f"algorithm.block={count}", f"algorithm.rollout_length={steps}", "policy.hidden=[64,64]"]
        found: dict[str, list[float]] = {"segments": [], "whole episodes": [], "one by one": []}
        parts = {
            width: build(load_config(algorithm="ppo", env=env, overrides=[*options, f"algorithm.block={width}"])) for width in (count, 1)
        }
        workers = {width: own.worker_spec() for width, own in parts.items()}
        for shared in parts[count].algorithm.publish():
            workers[count].receive(shared)
        segments = {width: own.algorithm.ask(count // width) for width, own in parts.items()}
        episodes = evaluation_jobs(0, replace(parts[count].env_spec, max_episode_steps=steps), parts[count].dim, count, seed=1)
        for repeat in range(repeats + 1):
            for name, worker, jobs in (
                ("segments", workers[count], segments[count]),
                ("whole episodes", workers[count], episodes),
                ("one by one", workers[1], segments[1]),
            ):
                begun = time.process_time()
                for job in jobs:
                    job.run(worker)
                if repeat:  # the first time makes the environments
                    found[name].append((time.process_time() - begun) / (count * steps) * 1e6)
        rows.append([env, *(spread(each, 1) for each in found.values())])
    head = ["environment", *(f"{name}, us a step" for name in found)]
    table(f"CPU time of an environment step with a policy of 64-64, {count} environments", head, rows)


def bare_simulator(options: Sequence[str], seconds: float) -> float:
    """Steps/s of four copies of the environment, preprocessed as in training, with random actions."""
    config = run_config(options, "inline")
    parts = build(config)
    envs, ids, rng = make_resumable_env(config.env, parts.env_spec, 4), np.arange(4, dtype=np.int32), np.random.default_rng(0)
    act = ActionMap(parts.env_spec.action_space, config.policy.squash, config.policy.head)
    envs.open(np.arange(4), 0)
    envs.reset(ids)
    begun, steps = time.perf_counter(), 0
    while time.perf_counter() - begun < seconds:
        result = envs.step(random_actions(act, 4, None, rng), ids)
        steps += 4
        over = ids[result.terminated | result.truncated]
        if len(over):
            envs.reset(over)
    rate = steps / (time.perf_counter() - begun)
    envs.close()
    return rate


def pong(repeats: int, seconds: float) -> None:
    """PPO from pixels against the simulator alone, in as many processes."""
    found: dict[str, list[float]] = {name: [] for name in ("bare, 1 process", "inline", "bare, all cores", "process")}
    for _ in range(repeats):
        for name, rates in found.items():
            if name.startswith("bare"):
                rates.append(FRAMES * in_processes(bare_simulator, 1 if "1" in name else cores(), PONG, seconds))
            else:
                rates.append(FRAMES * ours(PONG, name, seconds))
    rows = []
    for name, bare in (("inline", "bare, 1 process"), ("process", "bare, all cores")):
        ratios = [a / b for a, b in zip(found[name], found[bare], strict=True)]
        rows.append([name, spread(found[name]), spread(found[bare]), spread(ratios, 2)])
    table("Frames/s of PPO on Pong, 42 x 42 pixels", ["executor", "baldwin", "bare simulator", "ratio"], rows)


@dataclass(frozen=True)
class Costs:
    """Seconds, as measured on this machine."""

    step: float  # of collecting, in a worker's CPU time
    update: float  # of a gradient step, in a worker's CPU time
    job: float  # on its way to a worker process and back
    driver: float  # of the driver's CPU time for each job


def measure_costs(options: Sequence[str]) -> Costs:
    """Medians over the jobs of a few updates through one worker process."""
    parts = build(load_config(None, [], [*SCALED, *options]))
    executor = ProcessExecutor(parts.worker_spec, ExecutorConfig(workers=1))
    steps, updates, ways = [], [], []
    begun = time.process_time()
    try:
        for event in loop(parts.algorithm, executor):
            if isinstance(event, Told):
                (outcome,), cpu = event.result.outcomes, event.result.cpu_seconds
                if outcome.critic_steps:
                    updates.append(cpu / outcome.critic_steps)
                else:
                    steps.append(cpu / outcome.env_steps)
                    ways.append(event.result.finished - event.result.started - cpu)
            if parts.algorithm.env_steps >= 2 * ROUND:
                break
        driver = (time.process_time() - begun) / (len(steps) + len(updates))
    finally:
        executor.close()
    return Costs(statistics.median(steps), statistics.median(updates), statistics.median(ways), driver)


def simulate(options: Sequence[str], workers: int, costs: Costs) -> tuple[float, float]:
    """Steps per simulated second, and mean staleness, with updates as jobs of their own; from the end of a first round on."""
    parts = build(load_config(None, [], [*SCALED, *options]))
    config = ExecutorConfig(
        name="virtual", workers=workers, step_seconds=costs.step, critic_seconds=costs.update, actor_seconds=0, latency=costs.job
    )
    executor = VirtualExecutor(parts.worker_spec, config)
    stale, first = [], (0, 0.0)
    for event in loop(parts.algorithm, executor):
        done = parts.algorithm.env_steps
        if isinstance(event, Told) and event.metrics:
            stale.append(event.metrics["staleness"])
        if not first[0] and done >= ROUND:
            first = done, executor.now
        if done >= 3 * ROUND:
            break
    executor.close()
    return (done - first[0]) / (executor.now - first[1]), statistics.mean(stale)


def scaling(repeats: int, seconds: float) -> None:
    """One and two worker processes; then up to a thousand simulated ones, whose costs are measured first."""
    options = CASES["PPO HalfCheetah-v5, batch 256"][0]
    found: dict[int, list[float]] = {1: [], 2: []}
    for _ in range(repeats):
        for workers, rates in found.items():
            rates.append(ours(options, "process", seconds, workers))
    ratios = [b / a for a, b in zip(*found.values(), strict=True)]
    table(
        "Steps/s of PPO on HalfCheetah-v5",
        ["1 worker process", "2", "ratio"],
        [[*map(spread, found.values()), spread(ratios, 2)]],
    )
    counts, rows, notes = (1, 8, 64, 1000), [], []
    for name, own in SCALED_ALGORITHMS.items():
        costs = measure_costs(own)
        each = [simulate(own, workers, costs) for workers in counts]
        rows.append([name, *(f"{speed:,.0f}" for speed, _ in each)])
        rows.append(["staleness", *(f"{stale:.1f}" for _, stale in each)])
        notes.append(f"{name}: " + ", ".join(f"{k} {v * 1e6:,.0f} us" for k, v in vars(costs).items()))
    table("Steps per simulated second, CartPole-v1, 1,000 jobs of 4 x 20 steps", ["workers", *(f"{n:,}" for n in counts)], rows)
    print("\n".join(notes))


def main(repeats: int, seconds: float) -> None:
    shares(seconds)
    collecting(repeats)
    peers(repeats, seconds)
    pong(repeats, seconds)
    scaling(repeats, seconds)


if __name__ == "__main__":
    main(1, float(sys.argv[1]) if len(sys.argv) > 1 else 8.0)
