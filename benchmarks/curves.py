"""Draw score lines (docs/results/*.jsonl, or the metrics.jsonl of runs) over learning steps: one line a file."""

from __future__ import annotations

import argparse
import json
from pathlib import Path


def read(path: Path, until: float) -> tuple[list[float], list[float]]:
    """Learning steps and scores."""
    lines = [json.loads(text) for text in path.read_text().splitlines()]
    found = [
        (float(line.get("learning_steps", line["env_steps"])), float(line["score"])) for line in lines if line.get("score") is not None
    ]
    kept = [pair for pair in found if pair[0] <= until]
    return [x for x, _ in kept], [y for _, y in kept]


def main() -> None:
    from matplotlib.figure import Figure

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--until", type=float, default=float("inf"), help="learning steps")
    parser.add_argument("--title", default="")
    parser.add_argument("--plot", type=Path, required=True)
    args = parser.parse_args()
    figure = Figure(figsize=(7, 4.2), layout="constrained")
    axes = figure.subplots()
    for path in args.files:
        axes.plot(*read(path, args.until), label=path.stem)
    axes.set_xlabel("learning steps")
    axes.set_ylabel("greedy score, held-out seeds")
    axes.set_title(args.title)
    axes.grid(alpha=0.3)
    axes.legend()
    figure.savefig(args.plot, dpi=120)


if __name__ == "__main__":
    main()
