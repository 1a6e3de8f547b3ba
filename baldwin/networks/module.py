"""A user's own nn.Module as a network: one module, many parameter vectors, through torch.func."""

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
from baldwin.networks.config import NetworkConfig
from baldwin.networks.network import NETWORKS, Forward
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


class ModuleNetwork:
    """Class(n_inputs, n_outputs, **kwargs); forward maps [B, n_inputs] to [B, n_outputs]."""

    def __init__(self, path: str, n_inputs: int, n_outputs: int, kwargs: dict[str, Any]) -> None:
        self._make: Callable[[], nn.Module] = lambda: module_class(path)(n_inputs, n_outputs, **kwargs)
        self._module, out = self._try_out(path, n_inputs)
        named = dict(self._module.named_parameters())
        if not named or not isinstance(out, Tensor) or tuple(out.shape) != (1, n_outputs):
            got = f"{len(named)} parameters and an output of {tuple(out.shape) if isinstance(out, Tensor) else type(out).__name__}"
            raise ConfigError(
                f"module {path!r}: expected parameters and an output of shape (1, {n_outputs}) for an input of (1, {n_inputs}); got {got}"
            )
        self._names = list(named)
        self.shapes: tuple[Shape, ...] = tuple(tuple(p.shape) for p in named.values())
        self._try_out_stacked(path, n_inputs)

    def _try_out(self, path: str, n_inputs: int) -> tuple[nn.Module, Any]:
        try:
            module = self._seeded(0)
            with torch.no_grad():
                return module, module(torch.zeros(1, n_inputs))
        except ConfigError:
            raise
        except Exception as error:
            raise ConfigError(
                f"module {path!r} failed: {describe_exception(error)}. It is made as Class(n_inputs, n_outputs, **kwargs) and called with [B, n_inputs]"
            ) from error

    def _try_out_stacked(self, path: str, n_inputs: int) -> None:
        """Two networks at once, as everything that trains it calls it."""
        rows = torch.cat([p.detach().reshape(-1) for p in self._module.parameters()]).expand(2, -1)
        try:
            with torch.no_grad():
                self.bind_batches(rows)(torch.zeros(2, 1, n_inputs))
        except Exception as error:
            reason = clean_text(str(error), 200)
            raise ConfigError(
                f"module {path!r} cannot be stacked: many networks run in one call of torch.func.vmap, so forward() must be the same operations "
                f"for every input. Expected no Python `if`, loop, int() or .item() on a tensor's values (use torch.where) and no random "
                f"numbers or statistics of its own (dropout, batch norm); torch says: {reason}"
            ) from error

    def init(self, seed: int, stream: Stream = Stream.INIT) -> NDArray[np.float32]:
        parts = [p.detach().reshape(-1) for p in self._seeded(seed if stream == Stream.INIT else mix(seed, stream)).parameters()]
        return np.asarray(torch.cat(parts).numpy(), np.float32)

    def bind(self, params: Tensor) -> Forward:
        forward = self.bind_batches(params)
        return lambda x: forward(x.unsqueeze(1)).squeeze(1)

    def bind_batches(self, params: Tensor) -> Forward:
        named = dict(zip(self._names, split_params(params, self.shapes), strict=True))

        def one(own: dict[str, Tensor], x: Tensor) -> Tensor:
            out: Tensor = functional_call(self._module, own, (x,))
            return out

        many = vmap(one)
        return lambda x: many(named, x)

    def bind_low_rank(self, center: Tensor, noise: Noise, normals: Tensor) -> Forward:
        raise ConfigError("algorithm.rank > 0 needs policy.kind=mlp: low-rank perturbations must know the layers. Set algorithm.rank=0.")

    def _seeded(self, seed: int) -> nn.Module:
        """Modules draw their weights from torch's global generator: lend it a seed and give it back untouched."""
        with torch.random.fork_rng(devices=[]), one_thread():
            torch.manual_seed(seed)
            return self._make().eval()


def _build(config: NetworkConfig, n_inputs: int, n_outputs: int) -> ModuleNetwork:
    return ModuleNetwork(config.module or "", n_inputs, n_outputs, config.kwargs)


NETWORKS.add("module", _build)
