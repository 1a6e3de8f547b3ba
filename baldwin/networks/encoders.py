"""Encoders: from one sensor to features. The kind is chosen by the sensor's shape unless the config sets it."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import conv2d, max_pool2d

from baldwin.errors import ConfigError
from baldwin.networks.batched_mlp import ACTIVATIONS
from baldwin.networks.init import InitScheme, init_layer
from baldwin.networks.mlp import MLP
from baldwin.networks.numpy_mlp import SELU_ALPHA, SELU_SCALE
from baldwin.networks.tensors import Tensors
from baldwin.ops.noise import Shape
from baldwin.registry import Registry

if TYPE_CHECKING:
    from baldwin.networks.config import EncoderConfig

NORM_EPSILON = 1e-3
LOG2_E = math.log2(math.e)
LOG2_SELU_ALPHA = SELU_ALPHA * LOG2_E
MIN_ROW_TO_COPY = 16  # numbers of a patch's row
Encode = Callable[[Tensor], Tensor]
"""[N, B, *sensor] -> [N, B, features]."""


class Encoder(Protocol):
    """A part of a network that reads one sensor."""

    n_outputs: int
    shapes: tuple[Shape, ...]
    reference: Tensor | None  # fixed observations [R, *sensor] for virtual batch normalisation, set before `bind`

    def init(self, rng: np.random.Generator) -> list[NDArray[np.float64]]:
        """Fresh parameters, tensor by tensor."""

    def bind(self, tensors: Tensors) -> Encode:
        """The forward pass of N encoders."""


class FlatEncoder:
    """The numbers as they are."""

    def __init__(self, shape: Shape) -> None:
        self.n_outputs = int(np.prod(shape))
        self.shapes: tuple[Shape, ...] = ()
        self.reference: Tensor | None = None

    def init(self, rng: np.random.Generator) -> list[NDArray[np.float64]]:
        """No tensors: it has no parameters."""
        return []

    def bind(self, tensors: Tensors) -> Encode:
        """A function that flattens sensors [N, B, ...] to [N, B, size]."""
        return lambda x: x.flatten(2)


class NoEncoder(FlatEncoder):
    """Nothing of a sensor: it is not seen, but stored, and can be predicted."""

    def __init__(self, shape: Shape) -> None:
        super().__init__((0,))

    def bind(self, tensors: Tensors) -> Encode:
        """Zero numbers of every observation, [N, B, 0]."""
        return lambda x: x.flatten(2)[..., :0]


class MLPEncoder:
    """A perceptron over the flattened sensor, activated to its end."""

    def __init__(self, shape: Shape, hidden: list[int], activation: str, init: InitScheme) -> None:
        self._mlp = MLP((int(np.prod(shape)), *hidden), activation, init, activate_last=True)
        self.n_outputs, self.shapes, self.init = self._mlp.n_outputs, self._mlp.shapes, self._mlp.init
        self.reference: Tensor | None = None

    def bind(self, tensors: Tensors) -> Encode:
        """The forward pass of N perceptrons."""
        forward = self._mlp.bind(tensors)
        return lambda x: forward(x.flatten(2))


class Conv(NamedTuple):
    """One convolution layer; kernel, stride and padding are the same for both sides."""

    channels: int
    kernel: int
    stride: int
    padding: int = 0

    def size(self, side: int) -> int:
        """The side of what comes out."""
        return (side + 2 * self.padding - self.kernel) // self.stride + 1


class Residual(NamedTuple):
    """A block of IMPALA's network (arXiv 1802.01561): a convolution, a pool that halves, two residual pairs of convolutions."""

    channels: int
    stride: int = 1  # of its convolutions, which are 3 x 3
    padding: int = 1

    def size(self, side: int) -> int:
        """The side of what comes out."""
        return (side + 1) // 2


Block = Conv | Residual
CONV_STACKS: dict[str, tuple[tuple[Block, ...], list[int]]] = {
    "small": ((Conv(16, 3, 1, 1), Conv(32, 3, 2, 1)), [128]),
    "nature": ((Conv(32, 8, 4), Conv(64, 4, 2), Conv(64, 3, 1)), [512]),
    "impala": ((Residual(16), Residual(32), Residual(32)), [256]),
    "strided": (4 * (Conv(32, 3, 2, 1),), []),
}
"""Name -> convolutions, and the hidden layers behind them.

nature: Mnih et al. 2015. strided: four of 32 with stride 2, of OpenAI's universe starter agent and pytorch-es.
"""
MIN_NATURE_SIDE = 36  # pixels


class ConvEncoder:
    """Convolutions, then a perceptron over what is left of the picture."""

    def __init__(
        self,
        shape: Shape,
        blocks: tuple[Block, ...],
        hidden: list[int],
        activation: str,
        init: InitScheme,
        virtual_batch_norm: bool,
        center: bool = False,
    ) -> None:
        self._blocks, self._activation, self._init = blocks, activation, init
        self._norm, self._center = virtual_batch_norm, center
        self.reference: Tensor | None = None
        channels, height, width = shape
        shapes: list[Shape] = []
        for block in blocks:
            shapes += self._block_shapes(block, channels)
            channels, height, width = block.channels, block.size(height), block.size(width)
        if min(height, width) < 1:
            raise ConfigError(f"a picture of {shape[1]} x {shape[2]} is too small for these convolutions. Use conv: small")
        self._mlp = MLP((channels * height * width, *hidden), activation, init, activate_last=True)
        self.n_outputs, self.shapes = self._mlp.n_outputs, (*shapes, *self._mlp.shapes)

    def _block_shapes(self, block: Block, channels: int) -> list[Shape]:
        out = block.channels
        if isinstance(block, Residual):
            return [(out, channels, 3, 3), (out,), *(4 * [(out, out, 3, 3), (out,)])]
        return [(out, channels, block.kernel, block.kernel), (out,), *(2 * [(out,)] if self._norm else [])]

    def init(self, rng: np.random.Generator) -> list[NDArray[np.float64]]:
        """Convolutions, each with gain 1 and shift 0 if it is normalised; then the perceptron."""
        parts: list[NDArray[np.float64]] = []
        for shape in self.shapes[: len(self.shapes) - len(self._mlp.shapes)]:
            if len(shape) == 4:
                parts += init_layer(rng, shape, self._init)
                parts += [np.ones(shape[0]), np.zeros(shape[0])] if self._norm else []
        return parts + self._mlp.init(rng)

    def bind(self, tensors: Tensors) -> Encode:
        """The forward pass of N encoders; for virtual batch normalisation, their statistics of the reference batch are taken now."""
        convolve = self._bind_residual(tensors) if isinstance(self._blocks[0], Residual) else self._bind_convs(tensors)
        forward = self._mlp.bind(tensors)
        if self._center:
            background = self._reference_batch().mean(0)
            return lambda x: forward(convolve(x - background).flatten(2))
        return lambda x: forward(convolve(x).flatten(2))

    def _reference_batch(self) -> Tensor:
        if self.reference is None:
            raise ConfigError("virtual batch normalisation has no reference batch: only strategies collect one. Use norm: none")
        return self.reference

    def _bind_convs(self, tensors: Tensors) -> Encode:
        layers = [[tensors.tensor() for _ in range(4 if self._norm else 2)] for _ in self._blocks]
        convs = self._fold_statistics(layers) if self._norm else [(weight, bias) for weight, bias in layers]
        activate = ACTIVATIONS[self._activation]
        one_picture = PixelConvs(self._blocks, convs, self._activation) if tensors.fixed else None

        def convolve(x: Tensor) -> Tensor:
            if one_picture and x.shape[1] == 1:
                return one_picture(x.squeeze(1)).unsqueeze(1)
            for block, (weight, bias) in zip(self._blocks, convs, strict=True):
                x = activate(stacked_conv(x, weight, bias, block.stride, block.padding))
            return x

        return convolve

    @torch.no_grad()
    def _fold_statistics(self, layers: list[list[Tensor]]) -> list[tuple[Tensor, Tensor]]:
        """Weights [N, O, C, k, k] and biases [N, O] that normalise too: gain (w * x + b - mean) / std + shift is again a convolution.

        `layers`: weight, bias, gain and shift of each. Mean and std of each channel are those of the reference batch, which goes
        through one network after the other.
        """
        reference = self._reference_batch()
        if self._center:
            reference = reference - reference.mean(0)
        folded = [(torch.empty_like(weight), torch.empty_like(bias)) for weight, bias, _, _ in layers]
        for n in range(len(layers[0][0])):
            x = reference
            for block, (weight, bias, gain, shift), (own_weight, own_bias) in zip(self._blocks, layers, folded, strict=True):
                out = conv2d(x, weight[n], bias[n], block.stride, block.padding)
                var, mean = torch.var_mean(out, (0, 2, 3), correction=0)
                factor = gain[n] / (var + NORM_EPSILON).sqrt()
                own_weight[n] = weight[n] * factor[:, None, None, None]
                own_bias[n] = (bias[n] - mean) * factor + shift[n]
                per_channel = (1, -1, 1, 1)
                out = out.sub_(mean.view(per_channel)).mul_(factor.view(per_channel)).add_(shift[n].view(per_channel))
                x = ACTIVATIONS[self._activation](out)
        return folded

    def _bind_residual(self, tensors: Tensors) -> Encode:
        blocks = [[(tensors.tensor(), tensors.tensor()) for _ in range(5)] for _ in self._blocks]
        activate = ACTIVATIONS[self._activation]

        def convolve(x: Tensor) -> Tensor:
            for convs in blocks:
                x = stacked_conv(x, *convs[0], 1, 1)
                pooled = max_pool2d(x.flatten(0, 1), 3, 2, 1)
                x = pooled.view(*x.shape[:2], *pooled.shape[1:])
                for first, second in (convs[1:3], convs[3:5]):
                    inner = activate(stacked_conv(activate(x.clone()), *first, 1, 1))  # activations work in place
                    x = x + stacked_conv(inner, *second, 1, 1)
                x = activate(x)
            return x

        return convolve


class PixelConvs:
    """Convolutions of N networks with fixed weights, of one picture each, one layer after the other.

    Between layers, instead of selu(x) = scale (max(x, 0) + alpha exp(min(x, 0)) - alpha), which takes as long as the products, the buffers
    hold u = max(z, 0) + alpha' 2^min(z, 0) with z = x log2(e) and alpha' = alpha log2(e): an affine map of it, so that the weights and
    the bias of the next layer undo it. Its zeros, at the border, are alpha'.
    """

    def __init__(self, blocks: tuple[Block, ...], convs: list[tuple[Tensor, Tensor]], activation: str) -> None:
        self._selu, self._activate = activation == "selu", ACTIVATIONS[activation]
        self._layers: list[PixelConv] = []
        for number, (block, (weight, bias)) in enumerate(zip(blocks, convs, strict=True)):
            border = 0.0
            if self._selu and number:  # selu(x) = scale (u - alpha') / log2(e)
                weight = weight * (SELU_SCALE / LOG2_E)
                bias = bias - LOG2_SELU_ALPHA * weight.sum((2, 3, 4))
                border = LOG2_SELU_ALPHA
            if self._selu and number < len(blocks) - 1:
                weight, bias = weight * LOG2_E, bias * LOG2_E
            self._layers.append(PixelConv(block, weight, bias, border))

    def __call__(self, x: Tensor) -> Tensor:
        """[N, C, H, W] -> [N, O, H', W']."""
        pixels = x.permute(0, 2, 3, 1)
        self._layers[0].place(pixels.shape).copy_(pixels)
        for layer, following in pairwise(self._layers):
            z = layer()
            place = following.place(z.shape)
            if self._selu:
                below = z.clamp(max=0).exp2_()
                torch.add(z.clamp_(min=0), below, alpha=LOG2_SELU_ALPHA, out=place)
            else:
                place.copy_(self._activate(z))
        out = self._layers[-1]()
        return (fast_selu_(out) if self._selu else self._activate(out)).permute(0, 3, 1, 2)


class PixelConv:
    """Convolutions of N networks with fixed weights, of one picture each: patches are copied side by side, then one batched product.

    Channels last, so that a row of a patch is one piece of memory. At 16 networks half the time of a grouped convolution.
    """

    def __init__(self, block: Block, weight: Tensor, bias: Tensor, border: float) -> None:
        self._padding, self._stride, self._kernel, self._border = block.padding, block.stride, weight.shape[-1], border
        self._weight = weight.permute(0, 3, 4, 2, 1).flatten(1, 3).contiguous()  # [N, k k C, O]
        self._bias = bias.unsqueeze(1)
        self._buffers: PixelBuffers | None = None

    def place(self, shape: torch.Size) -> Tensor:
        """Where its input [N, H, W, C] is to be written."""
        if self._buffers is None:
            with torch.inference_mode(False):  # so that both modes may write to them
                self._buffers = self._make_buffers(*shape)
        return self._buffers.place

    def __call__(self) -> Tensor:
        """[N, H', W', O] of the input that was written."""
        assert self._buffers is not None, "place() comes first"
        b = self._buffers
        if b.pixels is None:
            b.patches_by_row.copy_(b.windows)
        else:
            torch.index_select(b.padded, 1, b.pixels, out=b.patches_flat)
        return torch.baddbmm(self._bias, b.patches, self._weight).view(b.out_shape)

    def _make_buffers(self, n: int, height: int, width: int, channels: int) -> PixelBuffers:
        k, border = self._kernel, self._padding
        padded = torch.full((n, height + 2 * border, width + 2 * border, channels), self._border)
        rows, cols = ((side + 2 * border - k) // self._stride + 1 for side in (height, width))
        patches = torch.empty(n, rows * cols, k * k * channels)

        def windows(pictures: Tensor) -> Tensor:
            s = pictures.stride()
            shape = len(pictures), rows, cols, k, k * channels
            return pictures.as_strided(shape, (s[0], self._stride * s[1], self._stride * s[2], s[1], 1))

        places = torch.arange(padded[0].numel()).view(1, *padded.shape[1:])
        return PixelBuffers(
            place=padded[:, border : border + height, border : border + width],
            padded=padded.flatten(1),
            windows=windows(padded),
            pixels=windows(places).flatten() if k * channels < MIN_ROW_TO_COPY else None,
            patches=patches,
            patches_flat=patches.flatten(1),
            patches_by_row=patches.view(n, rows, cols, k, k * channels),
            out_shape=(n, rows, cols, -1),
        )


class PixelBuffers(NamedTuple):
    """Memory of a `PixelConv`, and views of it."""

    place: Tensor  # [N, H, W, C]: the inner part of the padded pictures; the border stays as it is
    padded: Tensor  # [N, -1]
    windows: Tensor  # [N, H', W', k, k C], a view of the padded pictures that overlaps itself
    pixels: Tensor | None  # places of the windows' numbers: rows of few numbers are copied faster by them
    patches: Tensor  # [N, H' W', k k C]: the windows side by side
    patches_flat: Tensor
    patches_by_row: Tensor
    out_shape: tuple[int, ...]


def fast_selu_(x: Tensor) -> Tensor:
    """torch.selu_ to seven digits, in a quarter of its time."""
    below = x.clamp(max=0).exp_().sub_(1).mul_(SELU_ALPHA * SELU_SCALE)
    return x.clamp_(min=0).mul_(SELU_SCALE).add_(below)


def stacked_conv(x: Tensor, weight: Tensor, bias: Tensor, stride: int, padding: int) -> Tensor:
    """Convolutions of N networks: x [N, B, C, H, W], weight [N, O, C, k, k], bias [N, O] -> [N, B, O, H', W'].

    Of one picture for each network, one grouped convolution; of batches, one convolution after the other.
    """
    n, batch = x.shape[:2]
    if batch > 1 or n == 1:
        return torch.stack([conv2d(x[i], weight[i], bias[i], stride, padding) for i in range(n)])
    out = conv2d(x.view(1, -1, *x.shape[3:]), weight.flatten(0, 1), bias.flatten(), stride, padding, groups=n)
    return out.view(n, 1, -1, *out.shape[2:])


EncoderBuilder = Callable[["EncoderConfig", Shape, str, InitScheme], Encoder]
"""(config, shape of the sensor, activation of the network, how to draw parameters) -> encoder."""
ENCODERS: Registry[EncoderBuilder] = Registry("encoder")


def _conv(config: EncoderConfig, shape: Shape, activation: str, init: InitScheme) -> ConvEncoder:
    if len(shape) != 3:
        raise ConfigError(f"a convolution needs an image [channels, height, width]; got a sensor of shape {shape}. Use kind: mlp")
    name = ("nature" if min(shape[1:]) >= MIN_NATURE_SIDE else "small") if config.conv == "auto" else config.conv
    blocks, hidden = CONV_STACKS[name]
    if config.norm != "none" and any(isinstance(block, Residual) for block in blocks):
        raise ConfigError("norm: virtual-batch is for conv: small, nature or strided; got impala. Use norm: none")
    own = hidden if config.hidden is None else config.hidden
    return ConvEncoder(shape, blocks, own, config.activation or "relu", init, config.norm != "none", config.center)


def _mlp(config: EncoderConfig, shape: Shape, activation: str, init: InitScheme) -> MLPEncoder:
    return MLPEncoder(shape, [64] if config.hidden is None else config.hidden, config.activation or activation, init)


ENCODERS.add("conv", _conv)
ENCODERS.add("mlp", _mlp)
ENCODERS.add("none", lambda config, shape, activation, init: NoEncoder(shape))
ENCODERS.add("flat", lambda config, shape, activation, init: FlatEncoder(shape))
