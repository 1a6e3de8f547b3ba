"""Ray beside the process executor, and what goes over the wire."""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
from pathlib import Path

from baldwin.config import load_config
from baldwin.runs.run import start, train
from benchmarks.speed import whole_system
from benchmarks.tools import spread, table

SMALL = ["env.id=CartPole-v1", "env.max_episode_steps=20", "executor.name=ray", "executor.workers=2", "stop.generations=4"]


def traffic(hidden: int, population: int) -> tuple[int, float]:
    """(parameters, bytes a generation), all jobs, results and shared values counted."""
    options = [*SMALL, f"policy.hidden=[{hidden},{hidden}]", f"algorithm.population={population}"]
    with tempfile.TemporaryDirectory() as folder:
        run = start(load_config(None, [], options), Path(folder) / "run")
        train(run)
        lines = [json.loads(line) for line in run.directory.metrics.read_text().splitlines()]
        return len(run.algorithm.policy_state()["params"]), statistics.median(line["bytes_sent"] for line in lines if "bytes_sent" in line)


def main(repeats: int) -> None:
    found: dict[str, list[float]] = {"process": [], "ray": []}
    for _ in range(repeats):
        for name, speeds in found.items():
            speeds.append(whole_system("HalfCheetah-v5", f"executor.name={name}", "executor.workers=2"))
        print(found, file=sys.stderr, flush=True)
    ratios = [r / p for r, p in zip(found["ray"], found["process"], strict=True)]
    rows = [[name, spread(speeds), spread(ratios, 2) if name == "ray" else "1"] for name, speeds in found.items()]
    table("HalfCheetah-v5, two workers, after start-up", ["executor", "env steps/s: median [min .. max]", "share of process"], rows)
    rows = []
    for hidden, population in [(16, 64), (64, 64), (256, 64), (64, 256), (64, 1024)]:
        dim, sent = traffic(hidden, population)
        rows.append([f"{dim:,}", f"{population:,}", f"{sent:,.0f}", f"{4 * dim:,}", f"{(sent - 4 * dim) / population:,.0f}"])
    head = ["parameters", "population", "bytes a generation", "of them the centre", "the rest, for each individual"]
    table("Traffic of one generation", head, rows)


if __name__ == "__main__":
    main(3)
