"""python -m benchmarks.before REVISION: one update of each learner, before and after, in turn in one run."""

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
CHILD = f"""
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


class Tree:
    """A process that measures the code of one folder."""

    def __init__(self, folder: Path) -> None:
        environment = os.environ | {"PYTHONPATH": str(folder)}
        self._process = subprocess.Popen(
            [sys.executable, "-c", CHILD], cwd=folder, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def milliseconds(self, kind: str, threads: int) -> float:
        """What one update takes, over a hundred of them."""
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.write(f"{kind} {threads}\n")
        self._process.stdin.flush()
        return float(self._process.stdout.readline())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("revision")
    parser.add_argument("--repeats", type=int, default=12)
    args = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        archive = subprocess.run(["git", "archive", args.revision], cwd=HERE.parent, check=True, capture_output=True).stdout
        subprocess.run(["tar", "x", "-C", folder], input=archive, check=True)
        trees = {"before": Tree(Path(folder)), "after": Tree(HERE.parent)}
        for kind in ("td3", "sac"):
            for threads in sorted({1, cores()}):
                took: dict[str, list[float]] = {name: [] for name in trees}
                for _ in range(args.repeats + 1):
                    for name, tree in trees.items():
                        took[name].append(tree.milliseconds(kind, threads))
                before, after = took["before"][1:], took["after"][1:]  # the first one warms up
                ratio = statistics.median(a / b for a, b in zip(after, before, strict=True))
                rows.append([kind.upper(), str(threads), spread(before, 2), spread(after, 2), f"{ratio:.3f}"])
    table(
        f"One update, 256-256, batch 256: {args.revision} and now", ["learner", "threads", "ms before", "ms after", "after / before"], rows
    )


if __name__ == "__main__":
    main()
