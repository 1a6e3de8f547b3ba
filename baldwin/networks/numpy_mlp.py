"""Perceptrons in NumPy: for small batches, where one operation of torch takes longer than the arithmetic in it."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from baldwin.ops.noise import Shape

Array = NDArray[np.float32]
SELU_ALPHA, SELU_SCALE = 1.6732632423543772, 1.0507009873554805
LEAK = np.float32(0.01)
MAX_NUMPY_SIZE = 2**15  # rows times units: of larger minibatches the products take most of the time, and torch's are faster


def _selu(x: Array) -> Array:
    negative = np.expm1(np.minimum(x, 0)) * np.float32(SELU_ALPHA)
    return np.asarray((np.maximum(x, 0) + negative) * np.float32(SELU_SCALE))


ACTIVATIONS: dict[str, Callable[[Array], Array]] = {
    "tanh": lambda x: np.tanh(x, out=x),
    "relu": lambda x: np.maximum(x, 0, out=x),
    "leaky-relu": lambda x: np.maximum(x, LEAK * x, out=x),
    "selu": _selu,
}
SLOPES: dict[str, Callable[[Array], Any]] = {
    "tanh": lambda h: 1 - h * h,
    "relu": lambda h: h > 0,
    "leaky-relu": lambda h: np.where(h > 0, np.float32(1), LEAK),
    "selu": lambda h: np.where(h > 0, np.float32(SELU_SCALE), h + np.float32(SELU_SCALE * SELU_ALPHA)),
}
"""The derivative of an activation, from its result."""


class NumpyMLP:
    """N perceptrons with the parameters [N, D]. Views of the layers are taken once and see later changes of the parameters."""

    def __init__(self, params: Array, shapes: tuple[Shape, ...], activation: str) -> None:
        self._shapes, self._activate, self._slope = shapes, ACTIVATIONS[activation], SLOPES[activation]
        tensors = split_rows(params, shapes)
        self._weights = tensors[::2]
        self.width = max(shape[0] for shape in shapes)  # units of the widest layer
        self._layers = [(w.transpose(0, 2, 1), b[:, None]) for w, b in zip(tensors[::2], tensors[1::2], strict=True)]

    def forward(self, x: Array) -> tuple[Array, list[Array]]:
        """Outputs [N, B, out] for inputs [B, in] or [N, B, in], and the input of every layer, which `backward` needs."""
        inputs = [x]
        for weight, bias in self._layers[:-1]:
            x = np.matmul(x, weight)
            x += bias
            x = self._activate(x)
            inputs.append(x)
        weight, bias = self._layers[-1]
        out = np.matmul(x, weight)
        out += bias
        return out, inputs

    def backward(self, inputs: list[Array], grad: Array, into: Array | None, to_input: bool = False) -> Array | None:
        """Write the gradient of the parameters [N, D], given that of the outputs [N, B, out]; the inputs' [N, B, in], where asked for."""
        parts = [] if into is None else split_rows(into, self._shapes)
        ones = np.ones((1, grad.shape[1]), np.float32)
        for layer in range(len(self._weights) - 1, -1, -1):
            if layer < len(self._weights) - 1:
                grad *= self._slope(inputs[layer + 1])
            if parts:
                np.matmul(grad.transpose(0, 2, 1), inputs[layer], out=parts[2 * layer])
                np.matmul(ones, grad, out=parts[2 * layer + 1][:, None])  # the sum over the batch, in a quarter of the time of `sum`
            if layer or to_input:
                grad = np.matmul(grad, self._weights[layer])
        return grad if to_input else None


def split_rows(params: Array, shapes: tuple[Shape, ...]) -> list[Array]:
    """Parameter tensors [N, *shape] as views of flat rows [N, D]."""
    found, at = [], 0
    for shape in shapes:
        size = math.prod(shape)
        found.append(params[:, at : at + size].reshape(len(params), *shape))
        at += size
    return found
