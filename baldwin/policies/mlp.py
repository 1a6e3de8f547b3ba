"""Multilayer perceptrons, evaluated for many individuals in one batched product a layer."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from baldwin.ops import seeds
from baldwin.ops.noise import Noise, Shape

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {"tanh": torch.tanh_, "relu": torch.relu_, "selu": torch.selu_}


class MLP:
    """Layers of `sizes`; flat order per layer: weight (row-major, out x in), then bias, as nn.Linear has it."""

    def __init__(self, sizes: tuple[int, ...], activation: str, init: str, output_scale: float) -> None:
        self.sizes = sizes
        self.shapes: tuple[Shape, ...] = tuple(shape for i, o in pairwise(sizes) for shape in ((o, i), (o,)))
        self._activate = ACTIVATIONS[activation]
        self._init, self._output_scale = init, output_scale

    def init(self, seed: int) -> NDArray[np.float32]:
        rng = seeds.generator(seed, seeds.Stream.INIT)
        layers = list(pairwise(self.sizes))
        parts: list[NDArray[np.float64]] = []
        for number, (fan_in, fan_out) in enumerate(layers):
            weight, bias = rng.standard_normal((fan_out, fan_in)), np.zeros(fan_out)
            if self._init == "normc":
                scale = self._output_scale if number == len(layers) - 1 else 1.0
                weight *= scale / np.sqrt(np.square(weight).sum(1, keepdims=True))
            else:
                bound = math.sqrt(6 / (fan_in + fan_out)) if self._init == "xavier" else 1 / math.sqrt(fan_in)
                weight = rng.uniform(-bound, bound, weight.shape)
                bias = rng.uniform(-bound, bound, fan_out) if self._init == "torch" else bias
            parts += [weight.ravel(), bias]
        return np.concatenate(parts).astype(np.float32)

    def bind(self, rows: Tensor) -> Callable[[Tensor], Tensor]:
        tensors = [part.unflatten(1, shape) for part, shape in zip(rows.split([math.prod(s) for s in self.shapes], 1), self.shapes, strict=True)]
        layers = [(w.transpose(1, 2), b.unsqueeze(1)) for w, b in zip(tensors[::2], tensors[1::2], strict=True)]

        def forward(x: Tensor) -> Tensor:
            h = x.unsqueeze(1)  # [N, 1, in]
            for weight, bias in layers[:-1]:
                h = self._activate(torch.baddbmm(bias, h, weight))
            weight, bias = layers[-1]
            return torch.baddbmm(bias, h, weight).squeeze(1)

        return forward

    def bind_low_rank(self, center: Tensor, noise: Noise, rows: Tensor) -> Callable[[Tensor], Tensor]:
        base: list[Tensor] = []
        thin: list[tuple[Tensor, Tensor] | Tensor] = []
        for shape, params, normals in noise.slices():
            base.append(center[params].view(shape))
            part = rows[:, normals]
            if noise.low_rank(shape):
                cut = shape[0] * noise.rank
                a, b = part[:, :cut].unflatten(1, (shape[0], -1)), part[:, cut:].unflatten(1, (shape[1], -1))
                thin.append((a.transpose(1, 2), b))  # [N, r, out], [N, in, r]
            else:
                thin.append(part)
        layers = list(zip(base[::2], base[1::2], thin[::2], thin[1::2], strict=True))

        def forward(x: Tensor) -> Tensor:
            h = x
            for number, (weight, bias, factors, bias_noise) in enumerate(layers):
                a, b = factors  # the base product is shared by all; each individual adds two thin ones
                own = torch.bmm(torch.bmm(h.unsqueeze(1), b), a).squeeze(1)
                h = torch.addmm(bias, h, weight.t()).add_(own).add_(bias_noise)
                h = self._activate(h) if number < len(layers) - 1 else h
            return h

        return forward
