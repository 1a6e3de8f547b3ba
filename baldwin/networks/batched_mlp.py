"""N perceptrons at once as one node of the autograd graph, whose backward pass writes all gradients into one kept row [D] per network.

Products of large matrices are oneDNN's, where torch has it: on processors that are not Intel's, its other library takes twice as long.
Small ones of learners are NumPy's.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import leaky_relu_

from baldwin.networks.network import ACTION
from baldwin.networks.numpy_mlp import MAX_NUMPY_SIZE, SELU_ALPHA, SELU_SCALE, NumpyMLP
from baldwin.observations import VECTOR
from baldwin.ops.noise import Shape

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "tanh": torch.tanh_,
    "relu": torch.relu_,
    "selu": torch.selu_,
    "leaky-relu": leaky_relu_,
}
aten: Any = torch.ops.aten
ACTIVATION_BACKWARD: dict[str, Callable[[Tensor, Tensor], object]] = {
    "tanh": lambda grad, h: aten.tanh_backward.grad_input(grad, h, grad_input=grad),
    "relu": lambda grad, h: aten.threshold_backward.grad_input(grad, h, 0, grad_input=grad),
    "selu": lambda grad, h: aten.elu_backward.grad_input(grad, SELU_ALPHA, SELU_SCALE, 1, True, h, grad_input=grad),
    "leaky-relu": lambda grad, h: aten.leaky_relu_backward.grad_input(grad, h, 0.01, True, grad_input=grad),
}
"""(gradient after the activation, the activation's result) -> gradient before it, written in place."""
MIN_LARGE = 2**22  # multiplications in the largest product of a network; below, all networks in one call are faster
MIN_ONEDNN = 2**20  # in a single product; below, a call of oneDNN takes longer than the arithmetic
HAS_ONEDNN: bool = torch.backends.mkldnn.is_available() and hasattr(torch.ops.mkldnn, "_linear_pointwise")  # type: ignore[no-untyped-call]
MIN_COLS_FOR_OUT_BMM = 64  # below, a product is slower when it is written into a larger matrix than when it is copied there


def split_params(params: Tensor, shapes: tuple[Shape, ...]) -> list[Tensor]:
    """Parameter tensors [N, *shape] as views of flat rows [N, D]."""
    parts = torch.split(params, [math.prod(s) for s in shapes], 1)
    return [part.view(len(params), *s) for part, s in zip(parts, shapes, strict=True)]


def product(a: Tensor, b: Tensor, bias: Tensor | None = None, *, relu: bool = False) -> Tensor:
    """a [I, J] b [J, K] + bias [K], and of that the positive part where asked for."""
    if HAS_ONEDNN and a.shape[0] * a.shape[1] * b.shape[1] >= MIN_ONEDNN:
        return torch.ops.mkldnn._linear_pointwise(a, b.t(), bias, "relu" if relu else "none", [], "")  # type: ignore[no-any-return]
    out = torch.mm(a, b) if bias is None else torch.addmm(bias, a, b)
    return out.relu_() if relu else out


class LargeMLP:
    """One perceptron, whose products are worth a call each. Its tensors are views of parameters that others change."""

    def __init__(self, tensors: list[Tensor], activation: str) -> None:
        """`tensors`: weight [O, I] and bias [O] of each layer."""
        self._weights, self._biases = tensors[::2], tensors[1::2]
        self._transposed = [weight.t() for weight in self._weights]
        self._relu = activation == "relu"  # which costs nothing inside a product
        self._activate, self._activation_backward = ACTIVATIONS[activation], ACTIVATION_BACKWARD[activation]

    def forward(self, x: Tensor) -> tuple[Tensor, list[Tensor]]:
        """Outputs [B, out] for [B, in], and the input of every layer."""
        inputs = [x]
        for weight, bias in zip(self._transposed[:-1], self._biases[:-1], strict=True):
            out = product(inputs[-1], weight, bias, relu=self._relu)
            inputs.append(out if self._relu else self._activate(out))
        return product(inputs[-1], self._transposed[-1], self._biases[-1]), inputs

    def backward(self, inputs: list[Tensor], grad: Tensor, to_input: bool, parts: list[Tensor]) -> Tensor:
        """Gradient of the inputs [B, in], where asked for; that of the parameters is written to `parts`, if there are any."""
        for layer in range(len(self._weights) - 1, -1, -1):
            if layer < len(self._weights) - 1:
                self._activation_backward(grad, inputs[layer + 1])
            if parts:
                _product_into(parts[2 * layer], grad, inputs[layer])
                torch.sum(grad, 0, out=parts[2 * layer + 1])
            if layer or to_input:
                grad = product(grad, self._weights[layer])
        return grad


class BatchedMLP:
    """N perceptrons with the parameters [N, D]. Views of the layers are taken once and see later changes of the parameters.

    Small ones are computed together, large ones one by one, and where a learner asks for it, the smallest in NumPy.
    """

    def __init__(self, params: Tensor, shapes: tuple[Shape, ...], activation: str) -> None:
        self._params, self._shapes, self._activation = params, shapes, activation
        self._largest = max(math.prod(shape) for shape in shapes)
        self._activate, self._activation_backward = ACTIVATIONS[activation], ACTIVATION_BACKWARD[activation]
        tensors = split_params(params.detach(), shapes)
        self._weights = tensors[::2]
        self._layers = [(b.unsqueeze(1), w.transpose(1, 2)) for w, b in zip(tensors[::2], tensors[1::2], strict=True)]
        self._each: list[LargeMLP] = []  # made when they are needed
        self._in_numpy: NumpyMLP | None = None
        self._grad_buffer: tuple[Tensor, list[Tensor]] | None = None
        self._own_users = 0  # tensors that share its memory while nobody else does

    def use_numpy(self) -> None:
        """Compute small batches on the CPU in NumPy from now on: its operations start faster than torch's."""
        if self._params.device.type == "cpu":
            self._in_numpy = NumpyMLP(self._params.detach().numpy(), self._shapes, self._activation)

    def __call__(self, inputs: Mapping[str, Tensor], state: Tensor) -> tuple[Tensor, Tensor]:
        """Outputs [N, B, out] for vectors [N, B, in], and actions, as they are; gradients flow to the parameters and the inputs."""
        x = inputs[VECTOR]
        return self.outputs(torch.cat((x, inputs[ACTION]), -1) if ACTION in inputs else x), state

    def outputs(self, x: Tensor) -> Tensor:
        """Outputs [N, B, out] for one tensor of inputs [N, B, in]."""
        if torch.is_grad_enabled() and (self._params.requires_grad or x.requires_grad):
            return _Apply.apply(x, self._params, self)  # type: ignore[no-any-return, no-untyped-call]
        return self.forward(x)[0]

    def forward(self, x: Tensor) -> tuple[Tensor, list[Any]]:
        """Outputs [N, B, out], and the input of every layer, which `backward` needs; of large networks, layer by layer of each."""
        if self._in_numpy and x.shape[1] * self._in_numpy.width <= MAX_NUMPY_SIZE and _is_plain(x):
            out, arrays = self._in_numpy.forward(x.detach().numpy())
            return torch.from_numpy(out), arrays
        if self._one_by_one(x):
            done = [own.forward(own_x) for own, own_x in zip(self._networks(), x.unbind(), strict=True)]
            return torch.stack([out for out, _ in done]), [each for _, inputs in done for each in inputs]
        inputs = [x]
        for bias, weight in self._layers[:-1]:
            inputs.append(self._activate(torch.baddbmm(bias, inputs[-1], weight)))
        bias, weight = self._layers[-1]
        return torch.baddbmm(bias, inputs[-1], weight), inputs

    def backward(self, inputs: list[Any], grad: Tensor, to_input: bool, to_params: bool) -> tuple[Tensor | None, Tensor | None]:
        """Gradients of the inputs [N, B, in] and of the parameters [N, D], where asked for, from that of the outputs."""
        if self._in_numpy and isinstance(inputs[0], np.ndarray):
            grads = np.empty(tuple(self._params.shape), np.float32) if to_params else None
            to_x = self._in_numpy.backward(inputs, grad.numpy(), grads, to_input)
            return None if to_x is None else torch.from_numpy(to_x), None if grads is None else torch.from_numpy(grads)
        grad_params, parts = self._buffer() if to_params else (None, [])
        if inputs[0].dim() == 2:  # one by one
            size, found = len(self._weights), []
            for n, (own, own_grad) in enumerate(zip(self._networks(), grad.unbind(), strict=True)):
                own_inputs, own_parts = inputs[n * size : (n + 1) * size], [part[n] for part in parts]
                found.append(own.backward(own_inputs, own_grad, to_input, own_parts))
            return (torch.stack(found) if to_input else None), grad_params
        for layer in range(len(self._weights) - 1, -1, -1):
            if layer < len(self._weights) - 1:
                self._activation_backward(grad, inputs[layer + 1])
            if parts:
                _bmm_into(parts[2 * layer], grad.transpose(1, 2), inputs[layer])
                torch.sum(grad, 1, out=parts[2 * layer + 1])
            if layer or to_input:
                grad = torch.bmm(grad, self._weights[layer])
        return (grad if to_input else None), grad_params

    def _one_by_one(self, x: Tensor) -> bool:
        large = HAS_ONEDNN and x.shape[1] * self._largest >= MIN_LARGE
        return large and x.device.type == "cpu" and _is_plain(x)

    def _networks(self) -> list[LargeMLP]:
        if not self._each:
            tensors = split_params(self._params.detach(), self._shapes)
            self._each = [LargeMLP([own[n] for own in tensors], self._activation) for n in range(len(self._params))]
        return self._each

    def _buffer(self) -> tuple[Tensor, list[Tensor]]:
        """Where to write the gradient: the kept buffer, unless someone still holds an earlier gradient, which lies in it."""
        if self._grad_buffer is None or _users(self._grad_buffer[0]) > self._own_users:
            buffer = torch.empty_like(self._params, requires_grad=False)
            self._grad_buffer = (buffer, split_params(buffer, self._shapes))
            self._own_users = _users(buffer)
        buffer, parts = self._grad_buffer
        return buffer.view_as(buffer), parts  # autograd takes a view as it is; it would copy a tensor that others hold


class _Apply(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, params: Tensor, mlp: BatchedMLP) -> Tensor:
        out, ctx.inputs = mlp.forward(x)
        ctx.mlp = mlp
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
        if torch.is_grad_enabled():
            raise RuntimeError("a batched MLP is differentiable once: create_graph=True is not supported")
        to_input, to_params, _ = ctx.needs_input_grad
        return *ctx.mlp.backward(ctx.inputs, grad, to_input, to_params), None


def _is_plain(x: Tensor) -> bool:
    """Whether it is computed in float32."""
    return x.dtype == torch.float32 and not torch.is_autocast_enabled("cpu")


def _users(tensor: Tensor) -> int:
    """How many tensors and arrays share its memory."""
    return int(torch._C._storage_Use_Count(tensor.untyped_storage()._cdata))


def _bmm_into(out: Tensor, left: Tensor, right: Tensor) -> None:
    if out.shape[2] >= MIN_COLS_FOR_OUT_BMM and left.dtype == out.dtype and not torch.is_autocast_enabled(left.device.type):
        torch.bmm(left, right, out=out)
    elif out.shape[2] < out.shape[1]:  # a product with few columns takes twice as long as its transpose with few rows
        out.copy_(torch.bmm(right.transpose(1, 2), left.transpose(1, 2)).transpose(1, 2))
    else:
        out.copy_(torch.bmm(left, right))


def _product_into(out: Tensor, grad: Tensor, x: Tensor) -> None:
    """The gradient [O, I] of a weight matrix, given those of its outputs [B, O] and its inputs [B, I]."""
    if out.shape[1] < out.shape[0]:  # the same as above
        out.copy_(product(x.t(), grad).t())
    else:
        out.copy_(product(grad.t(), x))
