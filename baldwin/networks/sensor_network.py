"""The network of parts: an encoder for each sensor, side by side; memory; a perceptron.

vector sensors ─ normalised ─ encoder (flat) ─┐
images (uint8) ─ scaled ───── encoder (conv) ─┼─ memory ─ perceptron ─ outputs
action, of a critic ──────────────────────────┘
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from baldwin.errors import ConfigError, nearest
from baldwin.networks.batched_mlp import BatchedMLP
from baldwin.networks.config import EncoderConfig, NetworkConfig, PolicyConfig
from baldwin.networks.encoders import ENCODERS, Encode, Encoder
from baldwin.networks.memory import MEMORIES, Memory, Recall
from baldwin.networks.mlp import MLP
from baldwin.networks.network import ACTION, NETWORKS, Forward, Inputs, Network
from baldwin.networks.numpy_mlp import NumpyMLP
from baldwin.networks.tensors import LowRankTensors, RowTensors, Tensors
from baldwin.observations import VECTOR, Observation, ObservationSpec
from baldwin.ops import seeds
from baldwin.ops.noise import Noise, Shape


class Part(Protocol):
    """What encoders, memory and perceptron have in common."""

    shapes: tuple[Shape, ...]

    def init(self, rng: np.random.Generator) -> list[NDArray[np.float64]]:
        """Fresh parameters, tensor by tensor."""


class Features:
    """Encoders side by side, then memory: what the perceptron of a network sees. Parameters lie in the order: encoders, memory."""

    def __init__(self, config: NetworkConfig, spec: ObservationSpec, n_actions: int = 0) -> None:
        self._spec, self._n_actions = spec, n_actions
        self._vector_encoders, self._image_encoders, self._flat = _make_encoders(config, spec)
        width = sum(at.stop - at.start for at in self._flat) + n_actions
        width += sum(e.n_outputs for e in (*self._vector_encoders.values(), *self._image_encoders.values()))
        self._memory: Memory | None = None
        if isinstance(config, PolicyConfig) and config.has_memory:
            self._memory = MEMORIES.find(config.memory.kind)(config.memory, width)
            width = self._memory.n_outputs
        self.n_outputs = width
        self.parts: list[Part] = [*self._vector_encoders.values(), *self._image_encoders.values()]
        self.parts += [self._memory] if self._memory else []
        self.shapes: tuple[Shape, ...] = tuple(shape for part in self.parts for shape in part.shapes)
        self.state_size = self._memory.state_size if self._memory else 0

    def init(self, seed: int, stream: seeds.Stream = seeds.Stream.INIT) -> NDArray[np.float32]:
        """Fresh parameters [D]: the first ones of a whole network with the same seed."""
        return init_parts(self.parts, seeds.generator(seed, stream))

    def bind(self, params: Tensor, fixed: bool = False) -> Forward:
        """The features of N networks with the parameters [N, D]."""

        def forward(inputs: Inputs, state: Tensor) -> tuple[Tensor, Tensor]:
            encode, recall = self.assemble(RowTensors(params, self.shapes, fixed))
            x = encode(inputs)
            return recall(x, state) if recall else (x, state)

        return forward

    def bind_low_rank(self, center: Tensor, noise: Noise, normals: Tensor) -> Forward:
        """Features are for learners, which perturb nothing.

        Raises:
            ConfigError: always.
        """
        raise ConfigError("low-rank perturbations are for whole policies")

    def set_reference(self, observations: Observation) -> None:
        """Fix the observations [R, ...] that virtual batch normalisation takes its statistics from."""
        for sensor in self._spec.images:
            if sensor.name in self._image_encoders:
                self._image_encoders[sensor.name].reference = torch.from_numpy(observations[sensor.key]) * sensor.scale

    def assemble(self, tensors: Tensors) -> tuple[Callable[[Inputs], Tensor], Recall | None]:
        """What encodes observations [N, B, ...] to features [N, B, F], and the memory behind it, if there is one."""
        vectors = [(self._spec.vectors[name], encoder.bind(tensors)) for name, encoder in self._vector_encoders.items()]
        by_name = {sensor.name: sensor for sensor in self._spec.images}
        images: list[tuple[str, float, Encode]] = [
            (by_name[name].key, by_name[name].scale, encoder.bind(tensors)) for name, encoder in self._image_encoders.items()
        ]

        def encode(inputs: Inputs) -> Tensor:
            features = [inputs[VECTOR][..., at] for at in self._flat]
            features += [encoder(inputs[VECTOR][..., at]) for at, encoder in vectors]
            features += [encoder(inputs[key] * scale) for key, scale, encoder in images]  # the one place that scales images
            features += [inputs[ACTION]] if self._n_actions else []
            return torch.cat(features, -1) if len(features) > 1 else features[0]

        return encode, self._memory.bind(tensors) if self._memory else None


class SensorNetwork:
    """Features, then a perceptron. Parameters lie in the order: encoders, memory, perceptron."""

    def __init__(self, config: NetworkConfig, spec: ObservationSpec, n_actions: int, n_outputs: int) -> None:
        self.features = Features(config, spec, n_actions)
        sizes = (self.features.n_outputs, *config.hidden, n_outputs)
        self._mlp = MLP(sizes, config.activation, config.init, config.output_scale)
        self.shapes: tuple[Shape, ...] = (*self.features.shapes, *self._mlp.shapes)
        self.state_size = self.features.state_size
        self.only_mlp = not self.features.parts
        self.activation = config.activation

    def init(self, seed: int, stream: seeds.Stream = seeds.Stream.INIT) -> NDArray[np.float32]:
        return init_parts([*self.features.parts, self._mlp], seeds.generator(seed, stream))

    def bind(self, params: Tensor, fixed: bool = False) -> Forward:
        if self.only_mlp:
            return BatchedMLP(params, self.shapes, self._mlp.activation)  # one node of the autograd graph
        constant = self._assemble(RowTensors(params.detach(), self.shapes, fixed))

        def forward(inputs: Inputs, state: Tensor) -> tuple[Tensor, Tensor]:
            if params.requires_grad and torch.is_grad_enabled():  # views that belong to this graph
                return self._assemble(RowTensors(params, self.shapes))(inputs, state)
            return constant(inputs, state)

        return forward

    def bind_low_rank(self, center: Tensor, noise: Noise, normals: Tensor) -> Forward:
        return self._assemble(LowRankTensors(center, noise, normals))

    def set_reference(self, observations: Observation) -> None:
        self.features.set_reference(observations)

    def _assemble(self, tensors: Tensors) -> Forward:
        encode, recall = self.features.assemble(tensors)
        perceptron = self._mlp.bind(tensors)

        def forward(inputs: Inputs, state: Tensor) -> tuple[Tensor, Tensor]:
            x = encode(inputs)
            if recall:
                x, state = recall(x, state)
            return perceptron(x), state

        return forward


def init_parts(parts: Sequence[Part], rng: np.random.Generator) -> NDArray[np.float32]:
    """Fresh parameters [D] of parts that follow each other."""
    return np.concatenate([np.zeros(0), *(tensor for part in parts for tensor in part.init(rng))]).astype(np.float32)


def as_numpy(network: Network, params: NDArray[np.float32]) -> NumpyMLP | None:
    """Networks with the parameters [N, D] as perceptrons in NumPy, if they are such: of vectors alone, without memory."""
    if not isinstance(network, SensorNetwork) or not network.only_mlp:
        return None
    return NumpyMLP(params, network.shapes, network.activation)


def _make_encoders(config: NetworkConfig, spec: ObservationSpec) -> tuple[dict[str, Encoder], dict[str, Encoder], list[slice]]:
    """Encoders of vectors and of images, by name; and where the vectors lie that pass as they are, neighbours joined."""
    known = {s.name for s in spec.sensors}
    for name in config.encoders:
        if name not in known:
            raise ConfigError(
                f"encoders: the environment has no sensor {name!r}; there are: {', '.join(sorted(known))}.{nearest(name, known)}"
            )
    vectors: dict[str, Encoder] = {}
    images: dict[str, Encoder] = {}
    flat: list[slice] = []
    for sensor in spec.sensors:
        chosen = config.encoders.get(sensor.name, config.images if sensor.is_image else EncoderConfig())
        kind = ("conv" if sensor.is_image else "flat") if chosen.kind == "auto" else chosen.kind
        shape = (sensor.shape[0] * spec.frames, *sensor.shape[1:]) if sensor.is_image else sensor.shape
        if kind == "flat" and not sensor.is_image:
            at = spec.vectors[sensor.name]
            joined = bool(flat) and flat[-1].stop == at.start
            flat[-1:] = [slice(flat[-1].start, at.stop)] if joined else [*flat[-1:], at]
            continue
        if math.prod(shape):
            made = ENCODERS.find(kind)(chosen, shape, config.activation, config.init)
            (images if sensor.is_image else vectors)[sensor.name] = made
    return vectors, images, flat


NETWORKS.add("mlp", SensorNetwork)
