"""Encoders and memory as something that is trained by itself: by every loss that reads the features."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from baldwin.networks.sensor_network import Features
from baldwin.networks.stacked import Obs, StackedNetwork
from baldwin.networks.tensors import RowTensors


class Representation(StackedNetwork):
    """One network of features, its Adam, and a copy that follows it slowly. Features without parameters are the observation itself."""

    def __init__(self, features: Features, params: NDArray[np.float32], lr: float, device: torch.device) -> None:
        self._features = features
        super().__init__(features, params[None], lr, device)

    @property
    def is_trained(self) -> bool:
        """Whether there are parameters."""
        return bool(self.params.numel())

    def unroll(self, obs: Obs, state: Tensor, valid: Tensor | None = None, *, target: bool = False) -> tuple[Tensor, Tensor]:
        """Features [B, T, F] of sequences [B, T, ...] from the memory [B, S], and the memory [B, T + 1, S] before each step and after the last.

        Where `valid` [B, T] is false there is no step, and the memory stays as it is. `target`: by the slow copy.
        """
        params = self.target if target else self.params if torch.is_grad_enabled() else self.params.detach()
        encode, recall = self._features.assemble(RowTensors(params, self._features.shapes))
        batch, steps = next(iter(obs.values())).shape[:2]
        x = encode({key: value.flatten(0, 1)[None] for key, value in obs.items()}).view(batch, steps, -1)
        if recall is None:
            return x, state.unsqueeze(1).expand(batch, steps + 1, -1)
        found, states = [], [state]
        for t in range(steps):
            out, after = recall(x[None, :, t], state[None])
            state = after[0] if valid is None else torch.where(valid[:, t, None], after[0], state)
            found.append(out[0])
            states.append(state)
        return torch.stack(found, 1), torch.stack(states, 1)

    def encode(self, obs: Obs, target: bool = False) -> Tensor:
        """Features [B, F] of observations [B, ...], without memory; by the slow copy, if `target`."""
        return self.unroll(
            {key: x[:, None] for key, x in obs.items()}, self._no_state.expand(len(next(iter(obs.values()))), 0), target=target
        )[0][:, 0]
