"""Networks whose linear layers have learned noise: parameters are means, then standard deviations."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from baldwin.errors import ConfigError
from baldwin.networks.network import Forward, Inputs, Network
from baldwin.observations import Observation
from baldwin.ops.noise import Noise, Shape
from baldwin.ops.noisy import factorized_noise, initial_sigma
from baldwin.ops.seeds import Stream


class NoisyNetwork:
    """A network with parameters mean + sigma noise; without noise until some is drawn."""

    def __init__(self, network: Network) -> None:
        self._network = network
        self.shapes: tuple[Shape, ...] = (*network.shapes, *network.shapes)
        self.state_size = network.state_size
        self._noise: Tensor | None = None

    def init(self, seed: int, stream: Stream = Stream.INIT) -> NDArray[np.float32]:
        """Fresh means, and sigma = 0.5 / sqrt(fan in) for linear layers."""
        return np.concatenate([self._network.init(seed, stream), initial_sigma(self._network.shapes)])

    def draw_noise(self, rng: np.random.Generator) -> None:
        """New noise for the passes that follow."""
        self._noise = torch.from_numpy(factorized_noise(rng, self._network.shapes))

    def noisy_vector(self, params: NDArray[np.float32], rng: np.random.Generator) -> NDArray[np.float32]:
        """Parameters [D] of the network itself, for means and standard deviations [2 D] and new noise."""
        mean, sigma = np.split(params, 2)
        return np.asarray(mean + sigma * factorized_noise(rng, self._network.shapes), np.float32)

    def clear_noise(self) -> None:
        """No noise in the passes that follow."""
        self._noise = None

    def bind(self, params: Tensor, fixed: bool = False) -> Forward:
        """The forward pass with the noise of then."""

        def forward(inputs: Inputs, state: Tensor) -> tuple[Tensor, Tensor]:
            mean, sigma = params.chunk(2, -1)
            noisy = mean if self._noise is None else torch.addcmul(mean, sigma, self._noise.to(mean.device))
            return self._network.bind(noisy.contiguous())(inputs, state)

        return forward

    def bind_low_rank(self, center: Tensor, noise: Noise, normals: Tensor) -> Forward:
        """Noisy networks are for learners.

        Raises:
            ConfigError: always.
        """
        raise ConfigError("noisy layers are for dqn, td3 and sac, which have no low-rank perturbations")

    def set_reference(self, observations: Observation) -> None:
        """Hand the reference batch on."""
        self._network.set_reference(observations)
