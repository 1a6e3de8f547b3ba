"""Prioritised experience replay (Schaul et al. 2016, arXiv 1511.05952): priorities and importance weights."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def priority(td_error: NDArray[np.floating[Any]], alpha: float, epsilon: float) -> NDArray[np.float64]:
    """(|TD error| + epsilon)^alpha, the share of draws that a transition gets: proportional prioritisation, Section 3.3."""
    return np.asarray((np.abs(td_error).astype(np.float64) + epsilon) ** alpha)


def importance_weights(priorities: NDArray[np.float64], beta: float) -> NDArray[np.float32]:
    """(N P(i))^-beta of a batch [..., B] over the largest weight of the batch (Section 3.4): N and the sum of all priorities cancel."""
    return np.asarray((priorities.min(-1, keepdims=True) / priorities) ** beta, np.float32)


def sequence_error(errors: NDArray[np.floating[Any]], valid: NDArray[np.bool_], eta: float) -> NDArray[np.float64]:
    """eta max |delta| + (1 - eta) mean |delta| over the steps [B, T] that are there (Kapturowski et al. 2019, R2D2)."""
    size = np.where(valid, np.abs(errors), 0.0)
    return np.asarray(eta * size.max(-1) + (1 - eta) * size.sum(-1) / np.maximum(valid.sum(-1), 1))
