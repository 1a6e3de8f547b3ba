"""Small runs for the tests."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from baldwin.config import RunConfig, load_config
from baldwin.runs.run import Run, drive, start

SMALL = [
    "policy.hidden=[8]",
    "algorithm.population=16",
    "algorithm.block=4",
    "algorithm.episodes=2",
    "algorithm.action_noise=0.05",
    "executor.name=inline",
    "run.evaluate_every=2",
    "run.episodes=3",
    "run.checkpoint_every=2",
    "stop.generations=5",
]


def small(env: str = "Hopper-v5", *overrides: str, backend: str = "auto") -> RunConfig:
    return load_config(None, [], [f"env.id={env}", f"env.backend={backend}", "env.max_episode_steps=60", *SMALL, *overrides])


def train(config: RunConfig, out: Path, **kwargs: Any) -> Run:
    run = start(config, out)
    drive(run, **kwargs)
    return run


def baldwin(*args: object, **kwargs: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "baldwin", *map(str, args)], capture_output=True, text=True, timeout=120, **kwargs)


def shown(path: Path) -> dict[str, Any]:
    return json.loads(baldwin("show", path, "--json").stdout)
