"""Multilayer perceptrons, evaluated for many individuals in one batched product a layer."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from baldwin.networks.batched_mlp import ACTIVATIONS, BatchedMLP
from baldwin.networks.network import NETWORKS, Forward
from baldwin.ops import seeds
from baldwin.ops.noise import Noise, Shape


class MLP:
    """Layers of `sizes`; flat order per layer: weight (row-major, out x in), then bias, as nn.Linear has it."""

    def __init__(self, sizes: tuple[int, ...], activation: str, init: str, output_scale: float) -> None:
        self.sizes = sizes
        self.shapes: tuple[Shape, ...] = tuple(shape for i, o in pairwise(sizes) for shape in ((o, i), (o,)))
        self._activation = activation
        self._init, self._output_scale = init, output_scale

    def init(self, seed: int, stream: seeds.Stream = seeds.Stream.INIT) -> NDArray[np.float32]:
        rng = seeds.generator(seed, stream)
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

    def bind(self, params: Tensor) -> Forward:
        forward = self.bind_batches(params)
        return lambda x: forward(x.unsqueeze(1)).squeeze(1)

    def bind_batches(self, params: Tensor) -> Forward:
        return BatchedMLP(params, self.shapes, self._activation)

    def bind_low_rank(self, center: Tensor, noise: Noise, normals: Tensor) -> Forward:
        count, r, activate = len(normals), noise.rank, ACTIVATIONS[self._activation]
        tensors = [(center[params].view(shape), normals[:, draws], shape) for shape, params, draws in noise.slices()]
        layers = []
        for (weight, thin, (fan_out, fan_in)), (bias, own_bias, _) in zip(tensors[::2], tensors[1::2], strict=True):
            a = thin[:, : fan_out * r].view(count, fan_out, r).transpose(1, 2)  # [N, r, out]
            b = thin[:, fan_out * r :].view(count, fan_in, r)
            layers.append((weight.t(), bias, a, b, own_bias))

        def forward(x: Tensor) -> Tensor:
            h = x
            for number, (weight, bias, a, b, own_bias) in enumerate(layers):
                own = torch.bmm(torch.bmm(h.unsqueeze(1), b), a).squeeze(1)  # the base product below is shared by all
                h = torch.addmm(bias, h, weight).add_(own).add_(own_bias)
                h = activate(h) if number < len(layers) - 1 else h
            return h

        return forward


NETWORKS.add("mlp", lambda config, n_in, n_out: MLP((n_in, *config.hidden, n_out), config.activation, config.init, config.output_scale))
