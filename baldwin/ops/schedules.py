"""Values that change over a run: a small grammar, never code."""

from __future__ import annotations

import math
from collections.abc import Callable

# (start, end, progress in [0, 1]) -> value
SCHEDULES: dict[str, Callable[[float, float, float], float]] = {
    "constant": lambda start, end, p: start,
    "linear": lambda start, end, p: start + (end - start) * p,
    "cosine": lambda start, end, p: end + (start - end) * (1 + math.cos(math.pi * p)) / 2,
    "exponential": lambda start, end, p: start * (end / start) ** p,
}


def scheduled(kind: str, start: float, end: float, over: int, at: int) -> float:
    """The value at step `at` of a schedule that reaches `end` after `over` steps and stays there."""
    return SCHEDULES[kind](start, end, min(1.0, at / over))
