"""Multilayer perceptrons as a part of a network."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from baldwin.networks.batched_mlp import ACTIVATIONS
from baldwin.networks.init import InitScheme, init_layer
from baldwin.networks.tensors import Tensors
from baldwin.ops.noise import Shape


class MLP:
    """Layers of `sizes`; flat order per layer: weight (row-major, out x in), then bias, as nn.Linear has it."""

    def __init__(
        self, sizes: tuple[int, ...], activation: str, init: InitScheme, output_scale: float = 1.0, activate_last: bool = False
    ) -> None:
        self.sizes, self.activation = sizes, activation
        self.n_outputs = sizes[-1]
        self.shapes: tuple[Shape, ...] = tuple(shape for i, o in pairwise(sizes) for shape in ((o, i), (o,)))
        self._init, self._output_scale, self._activate_last = init, output_scale, activate_last

    def init(self, rng: np.random.Generator) -> list[NDArray[np.float64]]:
        """Fresh parameters, tensor by tensor."""
        parts: list[NDArray[np.float64]] = []
        layers = list(pairwise(self.sizes))
        for number, (fan_in, fan_out) in enumerate(layers):
            scale = self._output_scale if number == len(layers) - 1 and not self._activate_last else None
            parts += init_layer(rng, (fan_out, fan_in), self._init, scale)
        return parts

    def bind(self, tensors: Tensors) -> Callable[[Tensor], Tensor]:
        """The forward pass [N, B, in] -> [N, B, out] of N perceptrons."""
        layers = [tensors.linear() for _ in self.sizes[1:]]
        activate, last = ACTIVATIONS[self.activation], len(layers) - 1

        def forward(x: Tensor) -> Tensor:
            for number, layer in enumerate(layers):
                x = layer(x)
                x = activate(x) if number < last or self._activate_last else x
            return x

        return forward
