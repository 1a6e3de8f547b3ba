"""Ascent steps: from a gradient estimate and the optimiser's memory to the change of the parameters. All in float64."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from baldwin.ops.shaping import Vector

Memory = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Knobs:
    """What optimisers may be tuned by."""

    momentum: float = 0.9
    beta1: float = 0.9
    beta2: float = 0.999
    epsilon: float = 1e-8
    max_speed: float | None = None


def norm(x: Vector) -> float:
    """Euclidean length by NumPy's own summation: a BLAS dot product may depend on the number of threads."""
    return float(np.sqrt(np.square(x).sum()))


def sgd(grad: Vector, memory: Memory, lr: float, knobs: Knobs) -> tuple[Vector, Memory]:
    """v <- momentum v + g; step = lr v (heavy ball; momentum 0 is plain ascent)."""
    v = knobs.momentum * memory.get("v", 0.0) + grad
    return lr * v, {"v": v} if knobs.momentum else {}


def adam(grad: Vector, memory: Memory, lr: float, knobs: Knobs) -> tuple[Vector, Memory]:
    """Kingma & Ba 2015, algorithm 1, ascending."""
    t = int(memory.get("t", 0)) + 1
    m = knobs.beta1 * memory.get("m", 0.0) + (1 - knobs.beta1) * grad
    v = knobs.beta2 * memory.get("v", 0.0) + (1 - knobs.beta2) * np.square(grad)
    m_hat, v_hat = m / (1 - knobs.beta1**t), v / (1 - knobs.beta2**t)
    return lr * m_hat / (np.sqrt(v_hat) + knobs.epsilon), {"t": t, "m": m, "v": v}


def clipup(grad: Vector, memory: Memory, lr: float, knobs: Knobs) -> tuple[Vector, Memory]:
    """v <- clip_norm(momentum v + lr g / |g|, max_speed); step = v (Toklu et al. 2020). Default max_speed: 2 lr."""
    speed_limit = 2 * lr if knobs.max_speed is None else knobs.max_speed
    length = norm(grad)
    v = knobs.momentum * memory.get("v", np.zeros_like(grad)) + (lr * grad / length if length > 0 else 0.0)
    speed = norm(v)
    v = v * (speed_limit / speed) if speed > speed_limit else v
    return v, {"v": v}


OPTIMIZERS: dict[str, Callable[[Vector, Memory, float, Knobs], tuple[Vector, Memory]]] = {
    "adam": adam,
    "sgd": sgd,
    "clipup": clipup,
}
