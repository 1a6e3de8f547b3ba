"""Networks as rows of one matrix: several critics, or several actors, in one product a layer and one optimiser step."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from baldwin.ops.targets import polyak_
from baldwin.policies import Policy
from baldwin.types import State

MOMENTS = ("step", "exp_avg", "exp_avg_sq")


class Rows:
    """Parameters [N, D] and their Adam."""

    def __init__(self, rows: NDArray[np.float32], lr: float, device: torch.device) -> None:
        self._lr, self._device = lr, device
        self.set(rows)

    def set(self, rows: NDArray[np.float32]) -> None:
        """Begin again at these parameters."""
        self.online = torch.from_numpy(np.array(rows, np.float32)).to(self._device).requires_grad_()
        self.fresh_optimizer()

    def fresh_optimizer(self) -> None:
        """Forget the moments."""
        self._adam = torch.optim.Adam([self.online], self._lr, fused=True)

    def descend(self, loss: Tensor) -> Tensor:
        """One Adam step down this loss; gives the gradient [N, D]."""
        (gradient,) = torch.autograd.grad(loss, self.online)
        self.online.grad = gradient
        self._adam.step()
        return gradient

    def vectors(self) -> NDArray[np.float32]:
        """The parameters [N, D], copied out."""
        return self.online.detach().cpu().numpy().copy()

    def state_dict(self) -> State:
        """Parameters and moments."""
        state: State = {"online": self.vectors()}
        moments = self._adam.state.get(self.online)
        if moments:
            state["adam"] = {name: moments[name].cpu().numpy().copy() for name in MOMENTS}
        return state

    def load_state_dict(self, state: State) -> None:
        """Be the rows that wrote `state`."""
        self.set(state["online"])
        if "adam" in state:
            self._adam.state[self.online] = {name: torch.from_numpy(np.array(state["adam"][name])).to(self._device) for name in MOMENTS}


class Networks(Rows):
    """N networks of one shape, and targets that follow them slowly."""

    def __init__(self, network: Policy, rows: NDArray[np.float32], lr: float, device: torch.device) -> None:
        self._network = network
        super().__init__(rows, lr, device)

    def set(self, rows: NDArray[np.float32]) -> None:
        """Begin again at these parameters, targets too."""
        super().set(rows)
        self.target = self.online.detach().clone()

    def apply(self, rows: Tensor, inputs: Tensor) -> Tensor:
        """Outputs [N, B, out] of the networks with these parameters for [N, B, in]."""
        return self._network.bind_batches(rows)(inputs)

    def __call__(self, inputs: Tensor) -> Tensor:
        """Outputs with a graph to the parameters."""
        return self.apply(self.online, inputs)

    def frozen(self, inputs: Tensor) -> Tensor:
        """Outputs of as many networks as there are inputs; gradients reach the inputs only."""
        return self.apply(self.online.detach()[: len(inputs)], inputs)

    def slow(self, inputs: Tensor) -> Tensor:
        """The targets' outputs."""
        return self.apply(self.target, inputs)

    def follow(self, tau: float) -> None:
        """Move the targets."""
        polyak_(self.target, self.online.detach(), tau)

    def state_dict(self) -> State:
        """Parameters, moments and targets."""
        return super().state_dict() | {"target": self.target.cpu().numpy().copy()}

    def load_state_dict(self, state: State) -> None:
        """Be the networks that wrote `state`."""
        super().load_state_dict(state)
        self.target = torch.from_numpy(np.array(state["target"])).to(self._device)
