"""The passes of stacked perceptrons, forward and back.

A whole network is one node of autograd's graph. The gradients of all its parameters are written where they belong in one
flat row: no node for each layer, no copies of transposed gradients, no concatenation.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, cast

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
SLOPES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "tanh": torch.ops.aten.tanh_backward,
    "relu": lambda grad, h: cast("Tensor", torch.ops.aten.threshold_backward(grad, h, 0)),
    "selu": lambda grad, h: cast("Tensor", torch.ops.aten.elu_backward(grad, SELU_ALPHA, SELU_SCALE, 1, True, h)),
    "leaky-relu": lambda grad, h: cast("Tensor", torch.ops.aten.leaky_relu_backward(grad, h, 0.01, True)),
}
"""The gradient before an activation, from the gradient after it and the activation's own result."""


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
        self.activate, self.slope = ACTIVATIONS[activation], SLOPES[activation]
        self.layers = layers_of(rows.detach(), shapes)
        self.passes = self._returned = 0
        self._buffer: tuple[Tensor, list[Tensor]] | None = None

    def __call__(self, x: Tensor) -> Tensor:
        """Outputs [N, B, out] for [N, B, in]."""
        if not torch.is_grad_enabled() or not (self._rows.requires_grad or x.requires_grad):
            return self._through(x, self.layers)
        if torch.is_autocast_enabled(x.device.type):  # autograd knows which products were taken in half precision
            return self._through(x, layers_of(self._rows, self._shapes))
        return cast("Tensor", Pass.apply(self._rows, x, self))  # type: ignore[no-untyped-call]

    def _through(self, h: Tensor, layers: list[tuple[Tensor, Tensor]]) -> Tensor:
        for weight, bias in layers[:-1]:
            h = self.activate(torch.baddbmm(bias, h, weight))
        weight, bias = layers[-1]
        return torch.baddbmm(bias, h, weight)

    def gradient(self, number: int) -> tuple[Tensor, list[Tensor]]:
        """Where pass `number` puts its gradient, and the views of its parts. The same memory again, unless passes are mixed."""
        alone, self._returned = number == self._returned + 1, number
        if alone and self._buffer:
            return self._buffer
        flat = torch.empty_like(self._rows, requires_grad=False)
        found = flat, split(flat, self._shapes)
        if alone:
            self._buffer = found
        return found


class Pass(torch.autograd.Function):
    """Forward keeps what each layer gave; backward goes through it once."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, x: Tensor, bound: Bound) -> Tensor:
        """Outputs [N, B, out]."""
        seen, last = [x], len(bound.layers) - 1
        for place, (weight, bias) in enumerate(bound.layers):
            h = torch.baddbmm(bias, seen[place], weight)
            seen.append(bound.activate(h) if place < last else h)
        bound.passes += 1
        ctx.bound, ctx.number = bound, bound.passes
        ctx.save_for_backward(rows, *seen[:-1])  # the rows only so that a change of them in between is noticed
        return seen[-1]

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        """To parameters and inputs, as far as they are asked for."""
        grad, bound, (_, *seen) = grads[0], ctx.bound, ctx.saved_tensors
        for_rows, for_x, _ = ctx.needs_input_grad
        flat, parts = bound.gradient(ctx.number) if for_rows else (None, [])
        last = len(bound.layers) - 1
        for place in range(last, -1, -1):
            if place < last:
                grad = bound.slope(grad, seen[place + 1])
            if for_rows:
                torch.bmm(grad.transpose(1, 2), seen[place], out=parts[2 * place])
                torch.sum(grad, 1, out=parts[2 * place + 1])
            if place or for_x:
                grad = torch.bmm(grad, bound.layers[place][0].transpose(1, 2))
        return flat, grad if for_x else None, None
