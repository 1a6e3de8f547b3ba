"""What a network is to the rest of the package: a family of functions, one for each flat parameter vector."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from baldwin.errors import ConfigError
from baldwin.ops.noise import Noise, Shape
from baldwin.ops.seeds import Stream
from baldwin.ops.threads import total_memory
from baldwin.registry import Registry

if TYPE_CHECKING:
    from baldwin.networks.config import NetworkConfig

Forward = Callable[[Tensor], Tensor]
COPIES = 4  # parameters, gradient, and two moments of an optimiser; or a center and a few individuals


class Network(Protocol):
    """A family of networks, one for each flat parameter vector [D]."""

    shapes: tuple[Shape, ...]  # of the parameter tensors, in the order of the flat vector

    def init(self, seed: int, stream: Stream = Stream.INIT) -> NDArray[np.float32]:
        """Fresh parameters [D]."""

    def bind(self, params: Tensor) -> Forward:
        """The forward pass [N, in] -> [N, out] of N networks with the parameters [N, D]; it sees later changes of them."""

    def bind_batches(self, params: Tensor) -> Forward:
        """The same for a batch each, [N, B, in] -> [N, B, out], differentiable in parameters and inputs."""

    def bind_low_rank(self, center: Tensor, noise: Noise, normals: Tensor) -> Forward:
        """The forward pass of N networks around one center [D]; `normals` [N, size] are scaled low-rank factors."""


NetworkBuilder = Callable[["NetworkConfig", int, int], Network]
"""(config, number of inputs, number of outputs) -> network."""

NETWORKS: Registry[NetworkBuilder] = Registry("network")


def make_network(config: NetworkConfig, n_inputs: int, n_outputs: int) -> Network:
    """The network that the config describes.

    Raises:
        ConfigError: it cannot be made, or does not fit into memory.
    """
    network = NETWORKS.find(config.kind)(config, n_inputs, n_outputs)
    size = sum(math.prod(shape) for shape in network.shapes)
    if 4 * size * COPIES > total_memory():
        raise ConfigError(
            f"a network of {size:,} parameters does not fit into this machine's memory ({total_memory() / 2**30:.0f} GiB) "
            f"{COPIES} times, which is the least that training needs. Make its layers (hidden) smaller"
        )
    return network
