"""Parameter tensors of many networks at once, as the parts of a network take them: in the order of the flat vector."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import torch
from torch import Tensor

from baldwin.networks.batched_mlp import split_params
from baldwin.ops.noise import Noise, Shape

Linear = Callable[[Tensor], Tensor]
"""[N, B, in] -> [N, B, out]."""
LinearOfTwo = Callable[[Tensor, Tensor], Tensor]
"""[N, B, in], [N, B, in'] -> [N, B, out]."""


class Tensors(Protocol):
    """Gives out the tensors of N networks, one after the other."""

    fixed: bool  # they will not change: copies may be made of them

    def tensor(self) -> Tensor:
        """The next tensor [N, *shape]."""

    def linear(self) -> Linear:
        """The next two, a matrix and a bias, as a linear layer."""

    def linear_sum(self) -> LinearOfTwo:
        """The next four, as two linear layers whose outputs are added: one layer of both inputs, side by side."""


class RowTensors:
    """Tensors of parameter rows [N, D]: views, which see later changes of the rows, unless these are `fixed`."""

    def __init__(self, params: Tensor, shapes: tuple[Shape, ...], fixed: bool = False) -> None:
        self._tensors, self.fixed = iter(split_params(params, shapes)), fixed

    def tensor(self) -> Tensor:
        """The next tensor [N, *shape]."""
        return next(self._tensors)

    def linear(self) -> Linear:
        """x W^T + b for each network."""
        weight, bias = self.tensor().transpose(1, 2), self.tensor().unsqueeze(1)
        if self.fixed:
            weight = weight.contiguous()  # a product with one row each is a third faster
        return lambda x: torch.baddbmm(bias, x, weight)

    def linear_sum(self) -> LinearOfTwo:
        """x W^T + b + y V^T + c for each network."""
        if not self.fixed:
            first, second = self.linear(), self.linear()
            return lambda x, y: first(x) + second(y)
        first_weight, first_bias, second_weight, second_bias = (self.tensor() for _ in range(4))
        weight = torch.cat((first_weight.transpose(1, 2), second_weight.transpose(1, 2)), 1)
        bias = (first_bias + second_bias).unsqueeze(1)
        return lambda x, y: torch.baddbmm(bias, torch.cat((x, y), -1), weight)


class LowRankTensors:
    """Tensors of N networks around one center [D]. Matrices differ by A B^T, which is never multiplied out; the rest is whole.

    `normals` [N, size]: the factors and the noise, scaled.
    """

    fixed = True

    def __init__(self, center: Tensor, noise: Noise, normals: Tensor) -> None:
        self._rank, self._count = noise.rank, len(normals)
        self._slices = iter([(shape, center[params].view(shape), normals[:, draws]) for shape, params, draws in noise.slices()])

    def tensor(self) -> Tensor:
        """The next tensor [N, *shape]; a matrix is multiplied out."""
        shape, center, own = next(self._slices)
        if len(shape) == 2:
            a, b = self._factors(shape, own)
            return center + torch.bmm(a.transpose(1, 2), b.transpose(1, 2))
        return center + own.view(self._count, *shape)

    def linear(self) -> Linear:
        """x W^T + b + (x B) A^T: the first product is shared by all networks."""
        shape, weight, thin = next(self._slices)
        a, b = self._factors(shape, thin)  # [N, r, out], [N, in, r]
        _, bias, own_bias = next(self._slices)
        transposed, own_bias = weight.t(), own_bias.unsqueeze(1)

        def layer(x: Tensor) -> Tensor:
            shared = torch.addmm(bias, x.flatten(0, 1), transposed).view(*x.shape[:2], -1)
            return shared.add_(torch.bmm(torch.bmm(x, b), a)).add_(own_bias)

        return layer

    def linear_sum(self) -> LinearOfTwo:
        """The thin products of both inputs are one product of twice the rank."""
        (shape, weight, thin), (_, bias, own_bias), (shape2, weight2, thin2), (_, bias2, own_bias2) = (next(self._slices) for _ in range(4))
        (a, b), (a2, b2) = self._factors(shape, thin), self._factors(shape2, thin2)
        transposed = torch.cat((weight, weight2), 1).t()
        whole_bias = (bias + bias2 + own_bias + own_bias2).unsqueeze(1)
        a = torch.cat((a, a2), 1)

        def layer(x: Tensor, y: Tensor) -> Tensor:
            shared = torch.mm(torch.cat((x, y), -1).flatten(0, 1), transposed).view(*x.shape[:2], -1)
            thin = torch.cat((torch.bmm(x, b), torch.bmm(y, b2)), -1)
            return shared.add_(torch.baddbmm(whole_bias, thin, a))

        return layer

    def _factors(self, shape: Shape, thin: Tensor) -> tuple[Tensor, Tensor]:
        fan_out, fan_in = shape
        a = thin[:, : fan_out * self._rank].view(self._count, fan_out, self._rank).transpose(1, 2)
        b = thin[:, fan_out * self._rank :].view(self._count, fan_in, self._rank)
        return a, b
