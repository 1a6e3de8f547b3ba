"""The replay buffer: draws out of 1 M transitions of HalfCheetah, uniform ones and by priority, the latter against cpprb."""

from __future__ import annotations

import json
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from baldwin.learners.buffers import window_columns
from baldwin.replay import PrioritizedConfig, PrioritizedSampler, ReplayBuffer
from benchmarks.learners import filled
from benchmarks.tools import HERE, peer_python, spread, table

ROWS, BATCH, BATCHES, REPEATS = 1_000_000, 256, 50, 7
WINDOWS, MEMORY_SIZE = 32, 128
CPPRB = ["cpprb==11.0.0"]


def by_priority(replay: ReplayBuffer) -> Callable[[], None]:
    """Batches and setting their priorities, as a learner does it at every update."""
    sampler = PrioritizedSampler(replay, PrioritizedConfig(), seed=0)
    rng = np.random.default_rng(0)
    sampler.update_priorities(np.arange(len(replay)), rng.exponential(size=len(replay)))

    def work() -> None:
        for _ in range(BATCHES):
            batch = sampler.sample(1, BATCH)
            assert batch.indices is not None
            sampler.update_priorities(batch.indices[0], rng.exponential(size=BATCH))

    return work


def of_windows(folder: Path) -> dict[str, Callable[[], object]]:
    """Windows of 8 burn-in and 16 trained steps around every row, as recurrent learners draw them; episodes have 1,000 steps."""
    replay = filled(ROWS, folder, window_columns(MEMORY_SIZE, log_prob=True))
    sampler = PrioritizedSampler(replay, PrioritizedConfig(), seed=0)
    return {
        f"{WINDOWS} windows of 8 + 16 steps a call": lambda: [replay.sample_windows(1, WINDOWS, 8, 16) for _ in range(BATCHES)],
        f"{WINDOWS} windows of 8 + 16 steps a call by priority": lambda: [
            sampler.sample_windows(1, WINDOWS, 8, 16) for _ in range(BATCHES)
        ],
    }


def uniform(replay: ReplayBuffer) -> None:
    for _ in range(BATCHES):
        replay.sample(1, BATCH)


def cpprb() -> list[float]:
    """CPU milliseconds of a batch by priority."""
    command = [str(peer_python("cpprb", CPPRB)), str(HERE / "cpprb_peer.py")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return list(json.loads(done.stdout.splitlines()[-1])["milliseconds"])


def main() -> None:
    """CPU time, in turn."""
    with tempfile.TemporaryDirectory() as folder:
        replay = filled(ROWS, Path(folder))
        works: dict[str, Callable[[], object]] = {
            f"{BATCHES} batches of {BATCH} a call, 1-step": lambda: replay.sample(BATCHES, BATCH),
            f"{BATCHES} batches of {BATCH} a call, 5-step": lambda: replay.sample(BATCHES, BATCH, 5, 0.99),
            "one batch a call": lambda: uniform(replay),
            "one batch a call by priority, which is updated": by_priority(replay),
        } | of_windows(Path(folder) / "windows")
        found: dict[str, list[float]] = {name: [] for name in works}
        theirs = cpprb()
        for repeat in range(REPEATS + 1):
            for name, work in works.items():
                begun = time.process_time()
                work()
                if repeat:
                    found[name].append((time.process_time() - begun) / BATCHES * 1e3)
        found["cpprb: one batch a call by priority, which is updated"] = theirs + cpprb()
    base = statistics.median(found["one batch a call"])
    rows = [[name, spread([1e3 / t for t in took]), f"{base / statistics.median(took):.2f}"] for name, took in found.items()]
    table("Draws from a full replay of 1 M transitions", ["what", "batches per CPU second", "times uniform, one a call"], rows)


if __name__ == "__main__":
    main()
