"""The passes of stacked perceptrons, forward and back.

The gradients of all parameters are written where they belong in one flat row: no node of a graph for each layer, no copies
of transposed gradients, no concatenation.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn.functional import leaky_relu_

from baldwin.ops.noise import Shape

SELU_ALPHA, SELU_SCALE = 1.6732632423543772, 1.0507009873554805
ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "tanh": torch.tanh_,
    "relu": torch.relu_,
    "selu": torch.selu_,
    "leaky-relu": leaky_relu_,
}
SLOPES: dict[str, Callable[[Tensor, Tensor], object]] = {
    "tanh": lambda grad, h: torch.ops.aten.tanh_backward(grad, h, grad_input=grad),
    "relu": lambda grad, h: torch.ops.aten.threshold_backward(grad, h, 0, grad_input=grad),
    "selu": lambda grad, h: torch.ops.aten.elu_backward(grad, SELU_ALPHA, SELU_SCALE, 1, True, h, grad_input=grad),
    "leaky-relu": lambda grad, h: torch.ops.aten.leaky_relu_backward(grad, h, 0.01, True, grad_input=grad),
}
"""Turn the gradient after an activation into the one before it, in place, given the activation's own result."""
NARROW = 64  # columns; below, a product is slower when it is written in between others than when it is copied there


def split(rows: Tensor, shapes: tuple[Shape, ...]) -> list[Tensor]:
    """Parameter tensors [N, *shape] as views of flat rows [N, D]."""
    parts = torch.split(rows, [math.prod(s) for s in shapes], 1)  # one node in the graph, however many layers
    return [part.view(len(rows), *s) for part, s in zip(parts, shapes, strict=True)]


def layers_of(rows: Tensor, shapes: tuple[Shape, ...]) -> list[tuple[Tensor, Tensor]]:
    """(weight [N, in, out], bias [N, 1, out]) of each layer, as views."""
    tensors = split(rows, shapes)
    return [(w.transpose(1, 2), b.unsqueeze(1)) for w, b in zip(tensors[::2], tensors[1::2], strict=True)]


class Bound:
    """Networks and their parameters [N, D], ready for many passes: views are taken once, and see later changes of the rows."""

    def __init__(self, rows: Tensor, shapes: tuple[Shape, ...], activation: str) -> None:
        self._rows, self._shapes = rows, shapes
        self._activate, self._slope = ACTIVATIONS[activation], SLOPES[activation]
        self._layers = layers_of(rows.detach(), shapes)
        self._weights = split(rows.detach(), shapes)[::2]
        self._into: tuple[Tensor | None, list[Tensor]] = (None, [])  # where gradients were written last, and the views of it

    def __call__(self, x: Tensor) -> Tensor:
        """Outputs [N, B, out] for [N, B, in]; autograd can follow it to the rows."""
        graph = self._rows.requires_grad and torch.is_grad_enabled()
        layers = layers_of(self._rows, self._shapes) if graph else self._layers
        for weight, bias in layers[:-1]:
            x = self._activate(torch.baddbmm(bias, x, weight))
        weight, bias = layers[-1]
        return torch.baddbmm(bias, x, weight)

    def keep(self, x: Tensor) -> tuple[Tensor, list[Tensor]]:
        """Outputs, and what each layer was given: all that `back` needs."""
        given = [x]
        for weight, bias in self._layers[:-1]:
            given.append(self._activate(torch.baddbmm(bias, given[-1], weight)))
        weight, bias = self._layers[-1]
        return torch.baddbmm(bias, given[-1], weight), given

    def back(self, given: list[Tensor], grad: Tensor, into: Tensor | None = None, inputs: bool = False) -> Tensor | None:
        """From the gradient of the outputs [N, B, out] to that of the parameters, written into [N, D], and of the inputs if asked for."""
        if into is not self._into[0]:
            self._into = (into, split(into, self._shapes) if into is not None else [])
        parts = self._into[1]
        for place in range(len(self._layers) - 1, -1, -1):
            if place < len(self._layers) - 1:
                self._slope(grad, given[place + 1])  # in place: it was made below, in the turn before
            if parts:
                self._write(parts[2 * place], grad.transpose(1, 2), given[place])
                torch.sum(grad, 1, out=parts[2 * place + 1])
            if place or inputs:
                grad = torch.bmm(grad, self._weights[place])
        return grad if inputs else None

    def _write(self, place: Tensor, left: Tensor, right: Tensor) -> None:
        if place.shape[2] < NARROW or left.dtype != place.dtype or torch.is_autocast_enabled(left.device.type):
            place.copy_(torch.bmm(left, right))
        else:
            torch.bmm(left, right, out=place)
