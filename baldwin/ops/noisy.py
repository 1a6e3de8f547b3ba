"""Factorised Gaussian noise of noisy networks (Fortunato et al. 2017, arXiv 1706.10295)."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from baldwin.ops.noise import Shape

INITIAL_SIGMA = 0.5


def signed_root(x: NDArray[np.float64]) -> NDArray[np.float64]:
    """f(x) = sgn(x) sqrt(|x|)."""
    return np.asarray(np.sign(x) * np.sqrt(np.abs(x)))


def factorized_noise(rng: np.random.Generator, shapes: tuple[Shape, ...]) -> NDArray[np.float32]:
    """Noise [D] for tensors of these shapes: of a matrix [out, in] f(e_out) f(e_in)^T, of the bias behind it f(e_out), of others none."""
    parts: list[NDArray[np.float64]] = []
    out = np.zeros(0)
    for shape in shapes:
        if len(shape) == 2:
            out = signed_root(rng.standard_normal(shape[0]))
            parts.append(np.outer(out, signed_root(rng.standard_normal(shape[1]))).ravel())
        else:
            parts.append(out if shape == out.shape else np.zeros(math.prod(shape)))
            out = np.zeros(0)
    return np.concatenate(parts).astype(np.float32)


def initial_sigma(shapes: tuple[Shape, ...]) -> NDArray[np.float32]:
    """0.5 / sqrt(fan in) for each linear layer, 0 for the rest."""
    parts, fan_in, width = [], 0, 0
    for shape in shapes:
        if len(shape) == 2:
            width, fan_in = shape
        scale = INITIAL_SIGMA / math.sqrt(fan_in) if len(shape) == 2 or (fan_in and shape == (width,)) else 0.0
        parts.append(np.full(math.prod(shape), scale))
        fan_in = fan_in if len(shape) == 2 else 0
    return np.concatenate(parts).astype(np.float32)
