"""How fresh parameters are drawn."""

from __future__ import annotations

import math
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from baldwin.ops.noise import Shape

InitScheme = Literal["normc", "xavier", "torch", "orthogonal"]


def init_layer(rng: np.random.Generator, shape: Shape, scheme: InitScheme, scale: float | None = None) -> list[NDArray[np.float64]]:
    """Weights [out, in, ...] of a linear or convolutional layer, flat, and its bias [out].

    normc: every output's weights have the norm `scale`, bias zero. xavier: uniform, bias zero. torch: what nn.Linear and
    nn.Conv2d do, uniform within 1 / sqrt(fan in). orthogonal: rows of a random rotation times sqrt(2), or times `scale` where one is
    given (an output layer), bias zero (Saxe et al. 2013, arXiv 1312.6120).
    """
    fan_in, field = math.prod(shape[1:]), math.prod(shape[2:])
    weight, bias = rng.standard_normal(shape), np.zeros(shape[0])
    if scheme == "orthogonal":
        weight = _orthogonal(weight.reshape(shape[0], -1)) * (math.sqrt(2) if scale is None else scale)
    elif scheme == "normc":
        weight *= (1.0 if scale is None else scale) / np.sqrt(np.square(weight).sum(tuple(range(1, len(shape))), keepdims=True))
    else:
        bound = math.sqrt(6 / (fan_in + shape[0] * field)) if scheme == "xavier" else 1 / math.sqrt(fan_in)
        weight = rng.uniform(-bound, bound, shape)
        bias = rng.uniform(-bound, bound, shape[0]) if scheme == "torch" else bias
    return [weight.ravel(), bias]


def _orthogonal(normals: NDArray[np.float64]) -> NDArray[np.float64]:
    """Orthonormal rows, or columns where there are fewer of them, uniform over the rotations."""
    tall = normals if len(normals) >= normals.shape[1] else normals.T
    q, r = np.linalg.qr(tall)
    q = q * np.sign(np.diag(r))
    return q if len(normals) >= normals.shape[1] else q.T
