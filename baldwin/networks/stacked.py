"""What a gradient learner trains: networks of one architecture as rows of one matrix, with one optimiser and slow targets."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from baldwin.networks.network import Forward, Network
from baldwin.types import State

ADAM: dict[str, Any] = {"amsgrad": False, "beta1": 0.9, "beta2": 0.999, "eps": 1e-8, "weight_decay": 0.0, "maximize": False}


class Adam:
    """torch.optim.Adam(fused=True) for one tensor, without its bookkeeping, which takes longer than a small layer."""

    def __init__(self, params: Tensor, lr: float) -> None:
        self._params, self._lr = params, lr
        zeros = torch.zeros_like(params, requires_grad=False)
        self._state = {"step": torch.zeros((), device=params.device), "exp_avg": zeros, "exp_avg_sq": zeros.clone()}

    def minimize(self, loss: Tensor) -> None:
        """One step down the gradient of the loss."""
        self._params.grad = None
        loss.backward()  # type: ignore[no-untyped-call]
        step, exp_avg, exp_avg_sq = self._state.values()
        step += 1
        with torch.no_grad():
            gradient = cast("Tensor", self._params.grad)
            torch._fused_adam_([self._params], [gradient], [exp_avg], [exp_avg_sq], [], [step], lr=self._lr, **ADAM)

    def state_dict(self) -> State:
        """Step count and moments."""
        return {name: value.cpu().numpy().copy() for name, value in self._state.items()}

    def load_state_dict(self, state: State) -> None:
        """Continue from a `state_dict`."""
        self._state = {name: torch.from_numpy(np.array(state[name])).to(self._params.device) for name in self._state}


class StackedNetwork:
    """N networks with parameters [N, D] and their Adam, and target networks (not necessarily as many) that follow them slowly."""

    def __init__(self, network: Network, params: NDArray[np.float32], lr: float, device: torch.device) -> None:
        self._network, self._lr, self._device = network, lr, device
        self.reset(params)

    def reset(self, params: NDArray[np.float32]) -> None:
        """Start again from these parameters, targets included, with a fresh optimiser."""
        self.params = self._tensor(params).requires_grad_()
        self.each = self._network.bind_batches(self.params)  # [N, B, in] -> [N, B, out]: inputs of its own for every network
        self._frozen = {n: self._network.bind_batches(self.params.detach()[:n]) for n in {1, len(params)}}
        self.reset_optimizer()
        self.set_target(params)

    def reset_optimizer(self) -> None:
        """Set Adam's moments and step count to zero."""
        self._adam = Adam(self.params, self._lr)

    def set_target(self, params: NDArray[np.float32]) -> None:
        """Replace the target parameters [M, D]."""
        self.target = self._tensor(params)
        self._target_each = self._network.bind_batches(self.target)

    def __call__(self, *inputs: Tensor) -> Tensor:
        """Outputs [N, ..., out] of all networks for the same inputs, concatenated from parts [..., in_i]."""
        return _for_all(self.each, len(self.params), inputs)

    def frozen(self, *inputs: Tensor, first: int | None = None) -> Tensor:
        """The same with constant parameters: gradients flow to the inputs only. `first` (1 or N): only so many networks."""
        count = len(self.params) if first is None else first
        return _for_all(self._frozen[count], count, inputs)

    def target_forward(self, *inputs: Tensor) -> Tensor:
        """The same by the target networks."""
        return _for_all(self._target_each, len(self.target), inputs)

    def split(self, x: Tensor, target: bool = False) -> Tensor:
        """Outputs [B, out] for one batch [B, in], of which each network, or each target network, gets an equal share."""
        forward, count = (self._target_each, len(self.target)) if target else (self.each, len(self.params))
        share = -(-len(x) // count)
        padded = x if count * share == len(x) else x[torch.arange(count * share, device=x.device) % len(x)]
        return forward(padded.view(count, share, -1)).flatten(0, 1)[: len(x)]

    def minimize(self, loss: Tensor) -> None:
        """One Adam step down the gradient of the loss."""
        self._adam.minimize(loss)

    def soft_update(self, tau: float) -> None:
        """target <- (1 - tau) target + tau params."""
        self.target.lerp_(self.params.detach(), tau)

    def vectors(self) -> NDArray[np.float32]:
        """A copy of the parameters [N, D]."""
        return self.params.detach().cpu().numpy().copy()

    def state_dict(self) -> State:
        """Parameters, targets, and Adam's step count and moments."""
        return {"params": self.vectors(), "target": self.target.cpu().numpy().copy(), "adam": self._adam.state_dict()}

    def load_state_dict(self, state: State) -> None:
        """Continue from a `state_dict`."""
        self.reset(state["params"])
        self.set_target(state["target"])
        self._adam.load_state_dict(state["adam"])

    def _tensor(self, values: NDArray[np.float32]) -> Tensor:
        return torch.from_numpy(np.array(values, np.float32)).to(self._device)


def _for_all(forward: Forward, count: int, inputs: tuple[Tensor, ...]) -> Tensor:
    x = torch.cat(inputs, -1) if len(inputs) > 1 else inputs[0]
    out = forward((x if x.ndim == 2 else x.reshape(-1, x.shape[-1])).expand(count, -1, -1))
    return out if x.ndim == 2 else out.view(count, *x.shape[:-1], out.shape[-1])
