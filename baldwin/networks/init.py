"""How fresh parameters are drawn."""

from __future__ import annotations

import math
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from baldwin.ops.noise import Shape

InitScheme = Literal["normc", "xavier", "torch"]


def init_layer(rng: np.random.Generator, shape: Shape, scheme: InitScheme, scale: float = 1.0) -> list[NDArray[np.float64]]:
    """Weights [out, in, ...] of a linear or convolutional layer, flat, and its bias [out].

    normc: every output's weights have the norm `scale`, bias zero. xavier: uniform, bias zero. torch: what nn.Linear and
    nn.Conv2d do, uniform within 1 / sqrt(fan in).
    """
    fan_in, field = math.prod(shape[1:]), math.prod(shape[2:])
    weight, bias = rng.standard_normal(shape), np.zeros(shape[0])
    if scheme == "normc":
        weight *= scale / np.sqrt(np.square(weight).sum(tuple(range(1, len(shape))), keepdims=True))
    else:
        bound = math.sqrt(6 / (fan_in + shape[0] * field)) if scheme == "xavier" else 1 / math.sqrt(fan_in)
        weight = rng.uniform(-bound, bound, shape)
        bias = rng.uniform(-bound, bound, shape[0]) if scheme == "torch" else bias
    return [weight.ravel(), bias]
