"""Ascent steps: from a gradient estimate and the optimiser's memory to the change of the parameters. All in float64."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from baldwin.ops.shaping import Vector

OptimizerState = dict[str, Any]


@dataclass(frozen=True, slots=True)
class OptimizerConfig:
    """What optimisers may be tuned by."""

    momentum: float = 0.9
    beta1: float = 0.9
    beta2: float = 0.999
    epsilon: float = 1e-8
    max_speed: float | None = None


def norm(x: Vector) -> float:
    """Euclidean length by NumPy's own summation: a BLAS dot product may depend on the number of threads."""
    return float(np.sqrt(np.square(x).sum()))


def sgd(grad: Vector, state: OptimizerState, lr: float, config: OptimizerConfig) -> tuple[Vector, OptimizerState]:
    """v <- momentum v + g; step = lr v (heavy ball; momentum 0 is plain ascent)."""
    v = config.momentum * state.get("v", 0.0) + grad
    return lr * v, {"v": v} if config.momentum else {}


def adam(grad: Vector, state: OptimizerState, lr: float, config: OptimizerConfig) -> tuple[Vector, OptimizerState]:
    """Kingma & Ba 2015, algorithm 1, ascending."""
    t = int(state.get("t", 0)) + 1
    m = config.beta1 * state.get("m", 0.0) + (1 - config.beta1) * grad
    v = config.beta2 * state.get("v", 0.0) + (1 - config.beta2) * np.square(grad)
    m_hat, v_hat = m / (1 - config.beta1**t), v / (1 - config.beta2**t)
    return lr * m_hat / (np.sqrt(v_hat) + config.epsilon), {"t": t, "m": m, "v": v}


def clipup(grad: Vector, state: OptimizerState, lr: float, config: OptimizerConfig) -> tuple[Vector, OptimizerState]:
    """v <- clip_norm(momentum v + lr g / |g|, max_speed); step = v (Toklu et al. 2020). Default max_speed: 2 lr."""
    speed_limit = 2 * lr if config.max_speed is None else config.max_speed
    length = norm(grad)
    v = config.momentum * state.get("v", np.zeros_like(grad)) + (lr * grad / length if length > 0 else 0.0)
    speed = norm(v)
    v = v * (speed_limit / speed) if speed > speed_limit else v
    return v, {"v": v}


OPTIMIZERS: dict[str, Callable[[Vector, OptimizerState, float, OptimizerConfig], tuple[Vector, OptimizerState]]] = {
    "adam": adam,
    "sgd": sgd,
    "clipup": clipup,
}
