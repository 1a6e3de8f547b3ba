"""What a network is to the rest of the package: a family of functions, one for each flat parameter vector."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from baldwin.errors import ConfigError
from baldwin.observations import Observation, ObservationSpec
from baldwin.ops.noise import Noise, Shape
from baldwin.ops.seeds import Stream
from baldwin.ops.threads import total_memory
from baldwin.registry import Registry

if TYPE_CHECKING:
    from baldwin.networks.config import NetworkConfig

Inputs = Mapping[str, Tensor]
"""An observation as tensors [N, B, ...], vectors normalised, images as they came; and `action`, for a critic of continuous actions."""
Forward = Callable[[Inputs, Tensor], tuple[Tensor, Tensor]]
"""(inputs, memory state [N, B, S]) -> (outputs [N, B, out], next state)."""
ACTION = "action"
COPIES = 4  # parameters, gradient, and two moments of an optimiser; or a center and a few individuals


class Network(Protocol):
    """A family of networks, one for each flat parameter vector [D]."""

    shapes: tuple[Shape, ...]  # of the parameter tensors, in the order of the flat vector
    state_size: int  # numbers that it carries from step to step; 0: it has no memory

    def init(self, seed: int, stream: Stream = Stream.INIT) -> NDArray[np.float32]:
        """Freshly initialised parameters [D], a function of the seed and the stream."""

    def bind(self, params: Tensor, fixed: bool = False) -> Forward:
        """The forward pass of N networks with the parameters [N, D], differentiable in them and in the inputs.

        It sees later changes of the parameters, unless they are `fixed`: then it may keep copies.
        """

    def bind_low_rank(self, center: Tensor, noise: Noise, normals: Tensor) -> Forward:
        """The forward pass of N networks around one center [D]; `normals` [N, size] are scaled low-rank factors."""

    def set_reference(self, observations: Observation) -> None:
        """Fix the observations [R, ...] that virtual batch normalisation takes its statistics from."""


NetworkBuilder = Callable[["NetworkConfig", ObservationSpec, int, int], Network]
"""(config, sensors, number of further inputs, number of outputs) -> network."""

NETWORKS: Registry[NetworkBuilder] = Registry("network")


def make_network(config: NetworkConfig, spec: ObservationSpec, n_outputs: int, n_actions: int = 0) -> Network:
    """The network that the config describes. `n_actions`: a critic's inputs besides the observation.

    Raises:
        ConfigError: it cannot be made, or does not fit into memory.
    """
    network = NETWORKS.find(config.kind)(config, spec, n_actions, n_outputs)
    size = sum(math.prod(shape) for shape in network.shapes)
    if 4 * size * COPIES > total_memory():
        raise ConfigError(
            f"a network of {size:,} parameters does not fit into this machine's memory ({total_memory() / 2**30:.0f} GiB) "
            f"{COPIES} times, which is the least that training needs. Make its layers (hidden) smaller"
        )
    return network


def initial_state(network: Network, *batch: int) -> Tensor:
    """The memory at the start of an episode, [*batch, S]."""
    return torch.zeros(*batch, network.state_size)
