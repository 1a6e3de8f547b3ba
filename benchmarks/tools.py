"""Measuring: repeated, interleaved, reported as medians with their spread."""

from __future__ import annotations

import multiprocessing as mp
import statistics
from collections.abc import Callable, Sequence


def spread(values: Sequence[float], digits: int = 0) -> str:
    """median [min .. max]"""
    return f"{statistics.median(values):,.{digits}f} [{min(values):,.{digits}f} .. {max(values):,.{digits}f}]"


def in_processes(work: Callable[..., float], count: int, *args: object) -> float:
    """The sum of what `work` returns in `count` fresh processes at the same time."""
    with mp.get_context("spawn").Pool(count) as pool:
        return sum(pool.starmap(work, [args] * count))


def table(title: str, head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    print(f"\n### {title}\n")
    print("| " + " | ".join(head) + " |")
    print("|" + "---|" * len(head))
    for row in rows:
        print("| " + " | ".join(row) + " |")
    print(flush=True)
