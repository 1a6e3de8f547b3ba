"""Networks as rows of one matrix: several critics, or several actors, in one product a layer and one optimiser step."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.optim.adam import adam

from baldwin.ops.targets import polyak_
from baldwin.policies import Policy
from baldwin.types import State

Forward = Callable[[Tensor], Tensor]
BETAS, EPSILON = (0.9, 0.999), 1e-8


class Rows:
    """Parameters [N, D] and their Adam."""

    def __init__(self, rows: NDArray[np.float32], lr: float, device: torch.device) -> None:
        self._lr, self._device = lr, device
        self.set(rows)

    def set(self, rows: NDArray[np.float32]) -> None:
        """Begin again at these parameters."""
        self.online = torch.from_numpy(np.array(rows, np.float32)).to(self._device).requires_grad_()
        self._frozen = self.online.detach()
        self.gradient = torch.zeros_like(self._frozen)  # of the last step
        self.fresh_optimizer()

    def fresh_optimizer(self) -> None:
        """Forget the moments."""
        self._adam = {"step": torch.zeros((), device=self._device)} | {n: torch.zeros_like(self._frozen) for n in ("mean", "square")}

    def descend(self, loss: Tensor) -> None:
        """One Adam step down this loss."""
        (self.gradient,) = torch.autograd.grad(loss, self.online)
        memory = self._adam
        adam(
            [self._frozen],
            [self.gradient],
            [memory["mean"]],
            [memory["square"]],
            [],
            [memory["step"]],
            fused=True,
            amsgrad=False,
            beta1=BETAS[0],
            beta2=BETAS[1],
            lr=self._lr,
            weight_decay=0.0,
            eps=EPSILON,
            maximize=False,
        )

    def vectors(self) -> NDArray[np.float32]:
        """The parameters [N, D], copied out."""
        return self._frozen.cpu().numpy().copy()

    def state_dict(self) -> State:
        """Parameters and moments."""
        return {"online": self.vectors(), "adam": {name: value.cpu().numpy().copy() for name, value in self._adam.items()}}

    def load_state_dict(self, state: State) -> None:
        """Be the rows that wrote `state`."""
        self.set(state["online"])
        self._adam = {name: torch.from_numpy(np.array(value)).to(self._device) for name, value in state["adam"].items()}


class Networks(Rows):
    """N networks of one shape, and targets that follow them slowly. Their passes are bound once, not at each call."""

    def __init__(self, network: Policy, rows: NDArray[np.float32], lr: float, device: torch.device) -> None:
        self._network = network
        super().__init__(rows, lr, device)

    def set(self, rows: NDArray[np.float32]) -> None:
        """Begin again at these parameters, targets too."""
        super().set(rows)
        self._forward = self._network.bind_batches(self.online)
        self._without_graph = {n: self._network.bind_batches(self._frozen[:n]) for n in {1, len(rows)}}
        self.set_target(rows)

    def set_target(self, rows: NDArray[np.float32]) -> None:
        """Let the targets be these; they need not be as many."""
        self.target = torch.from_numpy(np.array(rows, np.float32)).to(self._device)
        self.slow = self._network.bind_batches(self.target)

    def __call__(self, inputs: Tensor) -> Tensor:
        """Outputs [N, B, out] for [N, B, in], with a graph to the parameters."""
        return self._forward(inputs)

    def frozen(self, inputs: Tensor) -> Tensor:
        """Outputs of as many networks as there are inputs; gradients reach the inputs only."""
        return self._without_graph[len(inputs)](inputs)

    def follow(self, tau: float) -> None:
        """Move the targets."""
        polyak_(self.target, self._frozen, tau)

    def state_dict(self) -> State:
        """Parameters, moments and targets."""
        return super().state_dict() | {"target": self.target.cpu().numpy().copy()}

    def load_state_dict(self, state: State) -> None:
        """Be the networks that wrote `state`."""
        super().load_state_dict(state)
        self.set_target(state["target"])
