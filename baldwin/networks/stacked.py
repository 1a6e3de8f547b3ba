"""What a gradient learner trains: networks of one architecture as rows of one matrix, with one optimiser and slow targets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from baldwin.networks.batched_mlp import BatchedMLP
from baldwin.networks.network import ACTION, Forward, Network
from baldwin.networks.optimizers import Adam
from baldwin.ops.noise import Shape
from baldwin.types import State

Obs = Mapping[str, Tensor]
"""An observation as tensors, vectors normalised."""


def only(obs: Obs) -> Obs:
    """A batch [B, ...] as that of a single network, [1, B, ...]."""
    return {key: x[None] for key, x in obs.items()}


def detached(obs: Obs) -> Obs:
    """The observation cut off from the graph: no gradient flows through it."""
    return {key: x.detach() for key, x in obs.items()}


class StackedNetwork:
    """N networks with parameters [N, D] and their Adam, and target networks (not necessarily as many) that follow them slowly.

    They have no memory. Critics of continuous actions get an action besides the observation.
    """

    def __init__(self, network: Network, params: NDArray[np.float32], lr: float, device: torch.device) -> None:
        self._network, self._lr, self._device = network, lr, device
        self._no_state = torch.empty(0, device=device)
        self.followers: Sequence[StackedNetwork] = ()  # whose targets move when those of this one do
        self.reset(params)

    def reset(self, params: NDArray[np.float32]) -> None:
        """Start again from these parameters, targets included, with a fresh optimiser."""
        self.params = self._tensor(params).requires_grad_()
        self._count = len(params)
        self._online = self._bind(self.params)
        self._frozen = {n: self._bind(self.params.detach()[:n]) for n in {1, len(params)}}
        self.reset_optimizer()
        self.set_target(params)

    def reset_optimizer(self) -> None:
        """Set Adam's moments and step count to zero."""
        self._adam = Adam(self.params, self._lr)

    def set_target(self, params: NDArray[np.float32]) -> None:
        """Replace the target parameters [M, D]."""
        self.target = self._tensor(params)
        self._target_count = len(params)
        self._slow = self._bind(self.target)

    @property
    def shapes(self) -> tuple[Shape, ...]:
        """Shapes of the parameter tensors of one network."""
        return self._network.shapes

    def each(self, obs: Obs) -> Tensor:
        """Outputs [N, B, out] for observations [N, B, ...]: every network has its own."""
        return self._online(obs, self._no_state)[0]

    def __call__(self, obs: Obs, action: Tensor | None = None) -> Tensor:
        """Outputs [N, B, out] of all networks for the same observations [B, ...], and actions [B, A]."""
        return self._for_all(self._online, self._count, obs, action)

    def target_forward(self, obs: Obs, action: Tensor | None = None) -> Tensor:
        """Outputs [M, B, out] of all target networks for the same observations and actions."""
        return self._for_all(self._slow, self._target_count, obs, action)

    def frozen(self, obs: Obs, action: Tensor | None = None, first: int | None = None) -> Tensor:
        """Outputs [N, P, B, out] for [P, B, ...], with constant parameters. `first` (1 or N): only so many networks."""
        count = self._count if first is None else first
        batch = next(iter(obs.values())).shape[:2]
        merged = {key: x.flatten(0, 1) for key, x in obs.items()}
        out = self._for_all(self._frozen[count], count, merged, None if action is None else action.flatten(0, 1))
        return out.view(count, *batch, -1)

    def split(self, obs: Obs, target: bool = False) -> Tensor:
        """Outputs [B, out] for one batch [B, ...], of which each network, or each target network, gets an equal share."""
        forward, count = (self._slow, self._target_count) if target else (self._online, self._count)
        size = next(iter(obs.values())).shape[0]
        share = -(-size // count)
        if count * share != size:
            rows = torch.arange(count * share, device=self._device) % size
            obs = {key: x[rows] for key, x in obs.items()}
        shares = {key: x.view(count, share, *x.shape[1:]) for key, x in obs.items()}
        return forward(shares, self._no_state)[0].flatten(0, 1)[:size]

    def minimize(self, loss: Tensor, max_grad_norm: float | None = None) -> None:
        """Take one Adam step down the gradient of the loss. A gradient whose norm is above `max_grad_norm` is scaled down to it."""
        self._adam.minimize(loss, max_grad_norm)

    def descend(self, gradient: Tensor | None = None, max_grad_norm: float | None = None) -> None:
        """Take one Adam step down a gradient [N, D], scaled as in `minimize`; by default down `params.grad`, or none if that is None."""
        if gradient is not None:
            self.params.grad = gradient
        if self.params.grad is not None:
            self._adam.descend(self.params.grad, max_grad_norm)

    def soft_update(self, tau: float) -> None:
        """target <- (1 - tau) target + tau params, of this network and its followers."""
        for network in (self, *self.followers):
            network.target.lerp_(network.params.detach(), tau)

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

    def _bind(self, params: Tensor) -> Forward:
        forward = self._network.bind(params)
        if isinstance(forward, BatchedMLP):
            forward.use_numpy()
        return forward

    def _for_all(self, forward: Forward, count: int, obs: Obs, action: Tensor | None) -> Tensor:
        inputs = obs if action is None else {**obs, ACTION: action}
        return forward({key: x.expand(count, *x.shape) for key, x in inputs.items()}, self._no_state)[0]
