"""Environments that misbehave at random: the run ends as it should, or says why not."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from baldwin.algorithm import ALGORITHMS
from tests.torture.runs import check_ending
from tests.toys.worlds import Chase

FAULTS = ("raise", "nan", "nan-reward", "huge", "shape", "none", "old-step", "sleep", "exit", "kill", "interrupt", "truncate")


class Misbehaving(Chase):
    """Does one of these now and then."""

    def __init__(self, faults: list[str], rate: float) -> None:
        super().__init__()
        self._faults, self._rate = faults, rate

    def step(self, action: np.ndarray) -> Any:
        obs, reward, terminated, truncated, info = super().step(action)
        if self.np_random.random() >= self._rate:
            return obs, reward, terminated, truncated, info
        fault = self._faults[int(self.np_random.integers(len(self._faults)))]
        if fault == "raise":
            raise RuntimeError("\x1b[31mit came loose")
        if fault == "interrupt":
            raise KeyboardInterrupt
        if fault == "exit":
            sys.exit(3)
        if fault == "kill":
            os._exit(9)
        if fault == "sleep":
            time.sleep(0.2)
        replaced: dict[str, Any] = {
            "nan": (obs * np.nan, reward, False, False, {}),
            "nan-reward": (obs, np.nan, False, False, {}),
            "huge": (obs * 1e30, 1e30, False, False, {}),
            "shape": (obs[:-1], reward, False, False, {}),
            "none": None,
            "old-step": (obs, reward, False, {}),
            "truncate": (obs, reward, False, True, {}),
        }
        return replaced.get(fault, (obs, reward, terminated, truncated, info))


def misbehaving_world(rng: np.random.Generator, scratch: Path, references: Path) -> str:
    """Any algorithm in such an environment, for some seconds."""
    algorithm = str(rng.choice(sorted(ALGORITHMS)))
    faults = [str(f) for f in rng.choice(FAULTS, int(rng.integers(1, 4)), replace=False)]
    rate = float(10 ** rng.uniform(-3.5, -1))
    settings = [
        f"env.kwargs={{faults: [{', '.join(faults)}], rate: {rate:.5f}}}",
        "stop.wall_seconds=8",
        "stop.generations=30",
        "executor.workers=2",
    ]
    settings += ["policy.hidden=[8]", "executor.timeout=20", "run.episodes=4", f"run.seed={int(rng.integers(1000))}"]
    fields = ALGORITHMS[algorithm].config.model_fields
    short = {"steps_per_epoch": 200, "start_steps": 200, "critic_steps_per_job": 20, "batch_size": 16, "buffer_size": 5000}
    settings += [f"algorithm.{key}={value}" for key, value in short.items() if key in fields]
    settings += (
        ["algorithm.learner.critic.hidden=[8]"] if "learner" in fields else ["algorithm.critic.hidden=[8]"] if "critic" in fields else []
    )
    command = [
        "train",
        "--algo",
        algorithm,
        "--env",
        "tests.torture.worlds:Misbehaving",
        "-m",
        *settings,
        "--out",
        scratch / "run",
        "--quiet",
    ]
    done = subprocess.run([sys.executable, "-m", "baldwin", *map(str, command)], capture_output=True, text=True, timeout=400)
    check_ending(done)
    return f"{algorithm} {'gave up' if done.returncode else 'done'}: {', '.join(faults)} at {rate:.4f}"
