"""Memory: what a policy carries from one step of an episode to the next, as one row of numbers that begins at zero."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from baldwin.errors import ConfigError
from baldwin.networks.init import init_layer
from baldwin.networks.tensors import Tensors
from baldwin.ops.noise import Shape
from baldwin.registry import Registry

if TYPE_CHECKING:
    from baldwin.networks.config import MemoryConfig

Recall = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]
"""(features [N, B, in], state [N, B, S]) -> (features [N, B, out], next state)."""


class Memory(Protocol):
    """A part of a network with a state."""

    n_outputs: int
    state_size: int
    shapes: tuple[Shape, ...]

    def init(self, rng: np.random.Generator) -> list[NDArray[np.float64]]:
        """Fresh parameters, tensor by tensor."""

    def bind(self, tensors: Tensors) -> Recall:
        """One step of N memories."""


class LSTM:
    """torch.nn.LSTMCell: gates i, f, g, o; the state is h, then c."""

    def __init__(self, n_inputs: int, size: int, keep_bias: float = 0.0) -> None:
        self.n_outputs, self.state_size, self._bound, self._keep_bias = size, 2 * size, 1 / math.sqrt(size), keep_bias
        self.shapes: tuple[Shape, ...] = ((4 * size, n_inputs), (4 * size,), (4 * size, size), (4 * size,))

    def init(self, rng: np.random.Generator) -> list[NDArray[np.float64]]:
        """Uniform within 1 / sqrt(size), as torch does; `keep_bias` on the gate that keeps the memory, the second one."""
        found = [rng.uniform(-self._bound, self._bound, math.prod(shape)) for shape in self.shapes]
        found[1][self.n_outputs : 2 * self.n_outputs] += self._keep_bias
        return found

    def bind(self, tensors: Tensors) -> Recall:
        """c' = f c + i g; h' = o tanh(c')."""
        gates = tensors.linear_sum()

        def step(x: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
            h, c = state.chunk(2, -1)
            i, f, g, o = gates(x, h).chunk(4, -1)
            c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
            h = torch.sigmoid(o) * torch.tanh(c)
            return h, torch.cat((h, c), -1)

        return step


class GRU:
    """torch.nn.GRUCell: gates r, z, n."""

    def __init__(self, n_inputs: int, size: int, keep_bias: float = 0.0) -> None:
        self.n_outputs, self.state_size, self._bound, self._keep_bias = size, size, 1 / math.sqrt(size), keep_bias
        self.shapes: tuple[Shape, ...] = ((3 * size, n_inputs), (3 * size,), (3 * size, size), (3 * size,))

    def init(self, rng: np.random.Generator) -> list[NDArray[np.float64]]:
        """Uniform within 1 / sqrt(size), as torch does; `keep_bias` on the gate that keeps the memory, the second one."""
        found = [rng.uniform(-self._bound, self._bound, math.prod(shape)) for shape in self.shapes]
        found[1][self.n_outputs : 2 * self.n_outputs] += self._keep_bias
        return found

    def bind(self, tensors: Tensors) -> Recall:
        """h' = (1 - z) n + z h."""
        from_input, from_hidden = tensors.linear(), tensors.linear()

        def step(x: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
            own, past = from_input(x).chunk(3, -1), from_hidden(state).chunk(3, -1)
            r, z = torch.sigmoid(own[0] + past[0]), torch.sigmoid(own[1] + past[1])
            n = torch.tanh(own[2] + r * past[2])
            h = n + z * (state - n)
            return h, h

        return step


class Attention:
    """The newest step looks at the last `window` steps: y = x + attention(x, window + age embedding), by several heads.

    x is a linear map of the features. The state holds the x of the last `window` - 1 steps, the newest last, and how many there are.
    """

    def __init__(self, n_inputs: int, size: int, window: int, heads: int) -> None:
        if size % heads:
            raise ConfigError(f"policy.memory: size={size} cannot be shared by heads={heads}: expected a multiple")
        self.n_outputs, self.state_size = size, (window - 1) * size + 1
        self._window, self._heads = window, heads
        self.shapes: tuple[Shape, ...] = (
            *((size, n_inputs), (size,)),  # x
            (window * size,),  # age embedding, the newest last; a vector, so that low-rank noise leaves it whole
            *((3 * size, size), (3 * size,)),  # query, key, value, as in torch.nn.MultiheadAttention
            *((size, size), (size,)),  # output
        )

    def init(self, rng: np.random.Generator) -> list[NDArray[np.float64]]:
        """Linear layers as in torch, a small age embedding."""
        x, _, ages, qkv, _, out, _ = self.shapes
        embedding = 0.02 * rng.standard_normal(ages)
        return [*init_layer(rng, x, "torch"), embedding, *init_layer(rng, qkv, "xavier"), *init_layer(rng, out, "xavier")]

    def bind(self, tensors: Tensors) -> Recall:
        """softmax(q k^T / sqrt(d)) v over the steps that there are."""
        size, window, heads = self.n_outputs, self._window, self._heads
        embed, ages, project, out = tensors.linear(), tensors.tensor(), tensors.linear(), tensors.linear()
        per_head = size // heads
        age = torch.arange(window - 1, -1, -1)

        def step(x: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
            n, batch = x.shape[:2]
            x = embed(x)
            steps = torch.cat((state[..., :-1], x), -1)  # [N, B, W E]
            count = state[..., -1:]  # steps before this one
            seen = (steps + ages.unsqueeze(1)).view(n, batch * window, size)
            qkv = project(seen).view(n, batch, window, 3, heads, per_head)
            query, key, value = qkv[:, :, -1, 0], qkv[:, :, :, 1], qkv[:, :, :, 2]
            scores = torch.einsum("nbhd,nbwhd->nbhw", query, key) / math.sqrt(per_head)
            there = age.to(count.device) <= count  # [N, B, W]
            weights = torch.softmax(scores.masked_fill(~there.unsqueeze(2), -math.inf), -1)
            looked = torch.einsum("nbhw,nbwhd->nbhd", weights, value).reshape(n, batch, size)
            return x + out(looked), torch.cat((steps[..., size:], (count + 1).clamp(max=window)), -1)

        return step


MemoryBuilder = Callable[["MemoryConfig", int], Memory]
"""(config, number of inputs) -> memory."""
MEMORIES: Registry[MemoryBuilder] = Registry("memory")


def _attention(config: MemoryConfig, n_inputs: int) -> Attention:
    return Attention(n_inputs, config.size, config.window, config.heads)


MEMORIES.add("lstm", lambda config, n_inputs: LSTM(n_inputs, config.size, config.keep_bias))
MEMORIES.add("gru", lambda config, n_inputs: GRU(n_inputs, config.size, config.keep_bias))
MEMORIES.add("attention", _attention)
