"""Environment steps per second of the whole system, as a share of the physics alone and against a peer, in one run."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from baldwin.config import load_config
from baldwin.runs.run import Run, start, train
from benchmarks.tools import HERE, in_processes, peer_python, spread, table

ENVS = {"HalfCheetah-v5": 1_400_000, "Hopper-v5": 400_000, "Ant-v5": 160_000}  # training steps of one measurement, 20 to 40 s
BACKENDS = {
    "mujoco": "baldwin, MuJoCo",
    "mujoco env.islands=false": "baldwin, MuJoCo, islands off",
    "envpool": "baldwin, EnvPool",
    "gymnasium": "baldwin, Gymnasium",
}
PEER_PACKAGES = ["evotorch==0.6.1", "torch==2.13.0", "gymnasium[mujoco]==1.4.0", "mujoco==3.14.0", "setuptools<81"]


def raw_physics(name: str, seconds: float) -> float:
    """mj_step alone under random actions, reset as often as the environment under random actions is; nothing else."""
    import gymnasium as gym
    import mujoco

    env = gym.make(name, disable_env_checker=True).unwrapped
    model, data, skip = env.model, env.data, env.frame_skip  # type: ignore[attr-defined]
    rng = np.random.default_rng(0)
    lengths = []
    for episode in range(20):
        env.reset(seed=episode)
        length, over = 0, False
        while not over and length < 1000:
            _, _, over, _, _ = env.step(env.action_space.sample())
            length += 1
        lengths.append(length)
    controls = rng.uniform(env.action_space.low, env.action_space.high, (1000, model.nu))  # type: ignore[attr-defined]
    env.reset(seed=0)
    start_qpos, start_qvel = data.qpos.copy(), data.qvel.copy()
    steps, begun = 0, time.perf_counter()
    while time.perf_counter() - begun < seconds:
        for length in lengths:
            mujoco.mj_resetData(model, data)
            data.qpos[:], data.qvel[:] = start_qpos, start_qvel
            for n in range(length):
                data.ctrl[:] = controls[n]
                mujoco.mj_step(model, data, skip)
            steps += length
    return steps / (time.perf_counter() - begun)


def whole_system(name: str, *more: str) -> float:
    """Training steps/s of a real run: normalisation, common random numbers, journal, checkpoints, TensorBoard and evaluation on.

    Counted from the end of the first generation; the time of the evaluations (every tenth) is in it, their steps are not.
    """
    options = [f"env.id={name}", "algorithm.population=128", "algorithm.block=64", "algorithm.lr=0.02", "run.evaluate_every=10"]
    marks: list[tuple[float, int]] = []

    def watch(run: Run, line: dict[str, float]) -> None:
        if "return_mean" in line:
            marks.append((time.perf_counter(), int(line["env_steps"])))

    with tempfile.TemporaryDirectory() as folder:
        train(start(load_config(None, [], [*options, f"stop.env_steps={ENVS[name]}", *more]), Path(folder) / "run"), [watch])
    (begun, first), (ended, last) = marks[0], marks[-1]
    return (last - first) / (ended - begun)


def peer(name: str, seconds: float) -> float | None:
    """EvoTorch's PGPE on the same environment, policy size and population, in a venv of its own."""
    python = peer_python("evotorch", PEER_PACKAGES)
    done = subprocess.run([str(python), str(HERE / "evotorch_peer.py"), name, str(seconds)], capture_output=True, text=True)
    if done.returncode:
        print(done.stderr[-2000:], file=sys.stderr)
        return None
    time.sleep(5)  # its Ray needs a while to go
    return float(json.loads(done.stdout.splitlines()[-1])["steps_per_second"])


def main(repeats: int, seconds: float, only: str | None = None) -> None:
    rows, workers = [], len(os.sched_getaffinity(0))
    for name in [only] if only else list(ENVS):
        found: dict[str, list[float]] = {"raw": [], **{b: [] for b in BACKENDS}, "peer": []}
        for _ in range(repeats):
            found["raw"].append(in_processes(raw_physics, workers, name, seconds / 2))
            for backend in BACKENDS:
                found[backend].append(whole_system(name, *f"env.backend={backend}".split()))
            other = peer(name, 2 * seconds) if name == "HalfCheetah-v5" else None
            if other:
                found["peer"].append(other)
            print(name, {k: [round(x) for x in v] for k, v in found.items()}, file=sys.stderr, flush=True)
        for key, label in {"raw": "raw mj_step, all cores", **BACKENDS, "peer": "EvoTorch PGPE"}.items():
            if found[key]:
                shares = [v / r for v, r in zip(found[key], found["raw"], strict=True)]
                ratio = f"{statistics.median(found[key]) / statistics.median(found['peer']):.2f}" if found["peer"] else ""
                rows.append([name, label, spread(found[key]), spread(shares, 2), ratio])
    head = ["environment", "what", "steps/s: median [min .. max]", "share of raw physics", "times EvoTorch"]
    table("Environment steps per second", head, rows)
