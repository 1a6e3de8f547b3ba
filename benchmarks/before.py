"""python -m benchmarks.before REVISION: one update of each learner, and a step of evolution, before and after, in turn in one run."""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from baldwin.ops.threads import cores
from benchmarks.tools import HERE, spread, table

UPDATES = 100
UPDATE = f"""
import sys, time
from benchmarks.learners import filled, learner
replay, made = filled(100_000), {{}}
for line in sys.stdin:
    kind, threads = line.split()
    key = kind, int(threads)
    if key not in made:
        made[key] = learner(kind, [256, 256], threads=int(threads))
    work = getattr(made[key], "train", None) or made[key].update
    begun = time.perf_counter()
    work(replay, {UPDATES})
    print((time.perf_counter() - begun) / {UPDATES} * 1e3, flush=True)
"""

GENERATION = """
import sys, time
from baldwin.config import load_config
from baldwin.runs.build import build
made = {}
for line in sys.stdin:
    env = line.strip()
    if env not in made:
        parts = build(load_config(None, [], ["algorithm.name=es", "env.id=" + env, "algorithm.population=64", "algorithm.block=64"]))
        made[env] = parts.algorithm, parts.worker_spec()
    algorithm, worker = made[env]
    for shared in algorithm.publish():
        worker.receive(shared)
    steps, begun = 0, time.process_time()
    version = algorithm.version
    while algorithm.version == version:
        (job,) = algorithm.ask(1)
        outcomes = job.run(worker)
        steps += sum(outcome.env_steps for outcome in outcomes)
        algorithm.tell(outcomes)
    print((time.process_time() - begun) / steps * 1e6, flush=True)
"""


class Tree:
    """A process that measures the code of one folder."""

    def __init__(self, folder: Path, program: str) -> None:
        environment = os.environ | {"PYTHONPATH": str(folder)}
        self._process = subprocess.Popen(
            [sys.executable, "-c", program], cwd=folder, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def time(self, request: str) -> float:
        """What it says to a line."""
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.write(request + "\n")
        self._process.stdin.flush()
        return float(self._process.stdout.readline())


def compare(folders: dict[str, Path], program: str, request: str, repeats: int) -> list[str]:
    """Times before and after, and the median of their ratio over the repeats; the first one warms up."""
    trees = {name: Tree(folder, program) for name, folder in folders.items()}
    took: dict[str, list[float]] = {name: [] for name in trees}
    for _ in range(repeats + 1):
        for name, tree in trees.items():
            took[name].append(tree.time(request))
    before, after = took["before"][1:], took["after"][1:]
    ratio = statistics.median(a / b for a, b in zip(after, before, strict=True))
    return [spread(before, 2), spread(after, 2), f"{ratio:.3f}"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("revision")
    parser.add_argument("--repeats", type=int, default=12)
    parser.add_argument("--only", choices=["learners", "evolution"])
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        archive = subprocess.run(["git", "archive", args.revision], cwd=HERE.parent, check=True, capture_output=True).stdout
        subprocess.run(["tar", "x", "-C", folder], input=archive, check=True)
        folders = {"before": Path(folder), "after": HERE.parent}
        if args.only != "evolution":
            cases = [(kind, threads) for kind in ("td3", "sac") for threads in sorted({1, cores()})]
            rows = [[kind.upper(), str(n), *compare(folders, UPDATE, f"{kind} {n}", args.repeats)] for kind, n in cases]
            title = f"One update, 256-256, batch 256: {args.revision} and now"
            table(title, ["learner", "threads", "ms before", "ms after", "after / before"], rows)
        if args.only != "learners":
            rows = [[env, *compare(folders, GENERATION, env, args.repeats)] for env in ("HalfCheetah-v5", "Hopper-v5", "Ant-v5")]
            title = f"CPU time of one environment step of es, 64-64, one process: {args.revision} and now"
            table(title, ["environment", "us before", "us after", "after / before"], rows)


if __name__ == "__main__":
    main()
