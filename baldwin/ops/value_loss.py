"""Losses of values: pure functions of arrays."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float32]


def huber_loss(error: Array, weights: Array | None = None) -> tuple[float, Array]:
    """Mean of w h(e), h(e) = e^2 / 2 within [-1, 1] and |e| - 1/2 outside (Huber 1964), and its gradient [B] in the errors.

    `weights` w [B]; none: all are 1.
    """
    slope = np.clip(error, -1, 1)
    losses = slope * (error - slope / 2)
    if weights is not None:
        losses, slope = weights * losses, weights * slope
    return float(losses.sum()) / len(error), slope / np.float32(len(error))
