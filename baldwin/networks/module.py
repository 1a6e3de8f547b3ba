"""A user's own nn.Module as a network or as a part of one: one module, many parameter vectors, through torch.func.

| what | made as | called as |
|---|---|---|
| policy or critic of vectors | Class(n_inputs, n_outputs, **kwargs) | forward([B, n_inputs]) |
| policy or critic that sees images | Class({sensor: shape}, n_outputs, **kwargs) | forward({sensor: [B, *shape]}) |
| encoder | Class(shape, n_outputs, **kwargs) | forward([B, *shape]) |
| memory | Class(n_inputs, n_outputs, **kwargs) | forward([B, n_inputs], [B, state_size]) |

A policy or memory with an attribute `state_size` is also given its state and returns (output, next state).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.func import functional_call, vmap

from baldwin.errors import ConfigError, clean_text, describe_exception
from baldwin.imports import find_class, import_module
from baldwin.networks.batched_mlp import split_params
from baldwin.networks.config import EncoderConfig, MemoryConfig, NetworkConfig
from baldwin.networks.encoders import ENCODERS
from baldwin.networks.init import InitScheme
from baldwin.networks.memory import MEMORIES
from baldwin.networks.network import ACTION, NETWORKS, Forward, Inputs
from baldwin.networks.tensors import Tensors
from baldwin.observations import VECTOR, Observation, ObservationSpec, map_arrays
from baldwin.ops.noise import Noise, Shape
from baldwin.ops.seeds import Stream, mix
from baldwin.ops.threads import one_thread


def module_class(path: str) -> type[nn.Module]:
    """The nn.Module class named package.module:Class.

    Raises:
        ConfigError: there is none.
    """
    module_name, _, name = path.partition(":")
    where = f"module {path!r}"
    return find_class(import_module(module_name, where, ConfigError), name, nn.Module, where, ConfigError)


class StackedModule:
    """Many modules of one class in one call: `Class(*arguments, **kwargs)`, tried out on `inputs`, a batch of one."""

    def __init__(self, path: str, arguments: tuple[Any, ...], kwargs: dict[str, Any], n_outputs: int, *inputs: Any) -> None:
        self._make: Callable[[], nn.Module] = lambda: module_class(path)(*arguments, **kwargs)
        self._path, self.n_outputs = path, n_outputs
        self._how = f"It is made as Class({clean_text(', '.join(map(str, arguments)), 200)}, **kwargs)"
        self._module = self._guarded(lambda: self._seeded(0), self._how)
        self.state_size = int(getattr(self._module, "state_size", 0))
        if self.state_size:
            inputs = (*inputs, torch.zeros(1, self.state_size))
        self._try_out(inputs)
        named = dict(self._module.named_parameters())
        self._names = list(named)
        self.shapes: tuple[Shape, ...] = tuple(tuple(p.shape) for p in named.values())
        self._try_out_stacked(inputs)

    def init_row(self, seed: int) -> NDArray[np.float32]:
        """Fresh parameters [D], as the class draws them."""
        parts = [p.detach().reshape(-1) for p in self._seeded(seed).parameters()]
        return np.asarray(torch.cat(parts).numpy(), np.float32)

    def call(self, tensors: list[Tensor]) -> Callable[..., Any]:
        """forward() of N modules with the parameters [N, *shape]; arguments and results have N in front."""
        named = dict(zip(self._names, tensors, strict=True))
        many = vmap(lambda own, *inputs: functional_call(self._module, own, inputs))
        return lambda *inputs: many(named, *inputs)

    def _try_out(self, inputs: tuple[Any, ...]) -> None:
        shapes = ", ".join(str(map_arrays(lambda t: tuple(t.shape), i) if isinstance(i, dict) else tuple(i.shape)) for i in inputs)
        hint = f"{self._how} and was called with {clean_text(shapes, 300)} (docs/policies.md)"
        out = self._guarded(lambda: self._module(*inputs), hint)
        wanted = [(1, self.n_outputs)] + ([(1, self.state_size)] if self.state_size else [])
        results = list(out) if isinstance(out, tuple | list) else [out]
        got = [tuple(o.shape) if isinstance(o, Tensor) else type(o).__name__ for o in results]
        count = len(list(self._module.parameters()))
        if not count or got != wanted:
            what = "an output and a state" if self.state_size else "an output"
            raise ConfigError(
                f"module {self._path!r}: expected parameters and {what} of shape {', '.join(map(str, wanted))} for an input of {shapes}; "
                f"got {count} parameters and {', '.join(map(str, got))}"
            )

    def _guarded(self, work: Callable[[], Any], hint: str) -> Any:
        try:
            with torch.no_grad():
                return work()
        except ConfigError:
            raise
        except Exception as error:
            raise ConfigError(f"module {self._path!r} failed: {describe_exception(error)}. {hint}") from error

    def _try_out_stacked(self, inputs: tuple[Any, ...]) -> None:
        """Two networks at once, as everything that trains it calls it."""
        rows = torch.cat([p.detach().reshape(-1) for p in self._module.parameters()]).expand(2, -1)

        def double(value: Any) -> Any:
            return map_arrays(double, value) if isinstance(value, dict) else value.expand(2, *value.shape)

        try:
            with torch.no_grad():
                self.call(split_params(rows, self.shapes))(*map(double, inputs))
        except Exception as error:
            reason = clean_text(str(error), 200)
            raise ConfigError(
                f"module {self._path!r} cannot be stacked: many networks run in one call of torch.func.vmap, so forward() must be the same operations "
                f"for every input. Expected no Python `if`, loop, int() or .item() on a tensor's values (use torch.where) and no random "
                f"numbers or statistics of its own (dropout, batch norm); torch says: {reason}"
            ) from error

    def _seeded(self, seed: int) -> nn.Module:
        """Modules draw their weights from torch's global generator: lend it a seed and give it back untouched."""
        with torch.random.fork_rng(devices=[]), one_thread():
            torch.manual_seed(seed)
            return self._make().eval()


class ModulePart:
    """A module as an encoder or as memory."""

    def __init__(self, module: StackedModule) -> None:
        self._module = module
        self.n_outputs, self.state_size, self.shapes = module.n_outputs, module.state_size, module.shapes
        self.reference: Tensor | None = None

    def init(self, rng: np.random.Generator) -> list[NDArray[np.float64]]:
        """Initial parameters, drawn by the class of the module."""
        return [self._module.init_row(int(rng.integers(2**31))).astype(np.float64)]

    def bind(self, tensors: Tensors) -> Any:
        """forward() of N modules."""
        return self._module.call([tensors.tensor() for _ in self.shapes])


class ModuleNetwork:
    """A module as the whole network."""

    def __init__(self, config: NetworkConfig, spec: ObservationSpec, n_actions: int, n_outputs: int) -> None:
        self._vectors = {name: (at.start, at.stop) for name, at in spec.vectors.items()}
        self._images = {s.name: (s.key, s.scale) for s in spec.images}
        self._n_actions = n_actions
        size = spec.vector_size + n_actions
        shapes: Any = size
        example: Any = torch.zeros(1, size)
        if spec.images:
            shapes = {name: (stop - start,) for name, (start, stop) in self._vectors.items()}
            shapes |= {s.name: (s.shape[0] * spec.frames, *s.shape[1:]) for s in spec.images} | (
                {ACTION: (n_actions,)} if n_actions else {}
            )
            example = {name: torch.zeros(1, *shape) for name, shape in shapes.items()}
        self._module = StackedModule(config.module or "", (shapes, n_outputs), config.kwargs, n_outputs, example)
        self.shapes, self.state_size = self._module.shapes, self._module.state_size

    def init(self, seed: int, stream: Stream = Stream.INIT) -> NDArray[np.float32]:
        return self._module.init_row(seed if stream == Stream.INIT else mix(seed, stream))

    def bind(self, params: Tensor, fixed: bool = False) -> Forward:
        call = self._module.call(split_params(params, self.shapes))

        def forward(inputs: Inputs, state: Tensor) -> tuple[Tensor, Tensor]:
            if self.state_size:
                out, state = call(self._as_module_sees(inputs), state)
                return out, state
            return call(self._as_module_sees(inputs)), state

        return forward

    def _as_module_sees(self, inputs: Inputs) -> Tensor | dict[str, Tensor]:
        if not self._images:
            vectors = [inputs[key] for key in (VECTOR, ACTION) if key in inputs]
            return torch.cat(vectors, -1) if len(vectors) > 1 else vectors[0]
        seen = {name: inputs[VECTOR][..., start:stop] for name, (start, stop) in self._vectors.items()}
        seen |= {name: inputs[key] * scale for name, (key, scale) in self._images.items()}
        return seen | ({ACTION: inputs[ACTION]} if self._n_actions else {})

    def bind_low_rank(self, center: Tensor, noise: Noise, normals: Tensor) -> Forward:
        raise ConfigError("algorithm.rank > 0 needs policy.kind=mlp: low-rank perturbations must know the layers. Set algorithm.rank=0.")

    def set_reference(self, observations: Observation) -> None:
        raise ConfigError("norm: virtual-batch is for convolutions of policy.kind=mlp; a module of your own has its own")


def _encoder(config: EncoderConfig, shape: Shape, activation: str, init: InitScheme) -> ModulePart:
    module = StackedModule(config.module or "", (shape, config.size), config.kwargs, config.size, torch.zeros(1, *shape))
    if module.state_size:
        raise ConfigError(f"module {config.module!r} has a state: an encoder has none. Use it as policy.memory.module")
    return ModulePart(module)


def _memory(config: MemoryConfig, n_inputs: int) -> ModulePart:
    module = StackedModule(config.module or "", (n_inputs, config.size), config.kwargs, config.size, torch.zeros(1, n_inputs))
    if not module.state_size:
        raise ConfigError(f"module {config.module!r} has no state_size: expected how many numbers it carries from step to step")
    return ModulePart(module)


NETWORKS.add("module", ModuleNetwork)
ENCODERS.add("module", _encoder)
MEMORIES.add("module", _memory)
