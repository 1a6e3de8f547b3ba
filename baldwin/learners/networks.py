"""Networks as rows of one matrix: several critics, or several actors, in one product a layer and one optimiser step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.optim.adam import adam

from baldwin.ops.targets import polyak_
from baldwin.policies import Policy
from baldwin.policies.mlp import MLP
from baldwin.policies.passes import Bound
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
        self.online = torch.from_numpy(np.array(rows, np.float32)).to(self._device)
        self.gradient = torch.zeros_like(self.online)  # of the last step
        self.fresh_optimizer()

    def fresh_optimizer(self) -> None:
        """Forget the moments."""
        self._adam = {"step": torch.zeros((), device=self._device)} | {n: torch.zeros_like(self.online) for n in ("mean", "square")}

    def descend(self, gradient: Tensor) -> None:
        """One Adam step against this gradient [N, D]."""
        self.gradient, memory = gradient, self._adam
        adam(
            [self.online.detach()],
            [gradient],
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
        return self.online.detach().cpu().numpy().copy()

    def state_dict(self) -> State:
        """Parameters and moments."""
        return {"online": self.vectors(), "adam": {name: value.cpu().numpy().copy() for name, value in self._adam.items()}}

    def load_state_dict(self, state: State) -> None:
        """Be the rows that wrote `state`."""
        self.set(state["online"])
        self._adam = {name: torch.from_numpy(np.array(value)).to(self._device) for name, value in state["adam"].items()}


class Networks(Rows):
    """N networks of one shape, and targets that follow them slowly. Their passes are bound once, not at each call."""

    network: Policy

    def set(self, rows: NDArray[np.float32]) -> None:
        """Begin again at these parameters, targets too."""
        super().set(rows)
        self.set_target(rows)

    def set_target(self, rows: NDArray[np.float32]) -> None:
        """Let the targets be these; they need not be as many."""
        self.target = torch.from_numpy(np.array(rows, np.float32)).to(self._device)
        self.slow = self.network.bind_batches(self.target)

    def follow(self, tau: float) -> None:
        """Move the targets."""
        polyak_(self.target, self.online.detach(), tau)

    def state_dict(self) -> State:
        """Parameters, moments and targets."""
        return super().state_dict() | {"target": self.target.cpu().numpy().copy()}

    def load_state_dict(self, state: State) -> None:
        """Be the networks that wrote `state`."""
        super().load_state_dict(state)
        self.set_target(state["target"])


class Actors(Networks):
    """Policies. Autograd goes from a loss back to their outputs; from there on, through a user's own network too."""

    def __init__(self, network: Policy, rows: NDArray[np.float32], lr: float, device: torch.device) -> None:
        self.network = network
        super().__init__(rows, lr, device)

    def set(self, rows: NDArray[np.float32]) -> None:
        """Begin again at these parameters."""
        super().set(rows)
        self._forward = self.network.bind_batches(self.online.requires_grad_())
        self._buffer = torch.empty_like(self.gradient)

    def __call__(self, obs: Tensor) -> Tensor:
        """Outputs [N, B, out] for [N, B, obs]; unless gradients are off, `pull` can go back from what is made of them."""
        if not torch.is_grad_enabled():
            return self._forward(obs)
        if isinstance(self._forward, Bound):
            with torch.no_grad():
                self._out, self._given = self._forward.keep(obs)
            return self._out.requires_grad_()
        return self._forward(obs)

    def pull(self, made: Sequence[Tensor], slopes: Sequence[Tensor]) -> None:
        """One step, given how the loss changes with what was made of the last outputs."""
        if not isinstance(self._forward, Bound):
            self.descend(torch.autograd.grad(made, self.online, slopes)[0])
            return
        (slope,) = torch.autograd.grad(made, self._out, slopes)
        with torch.no_grad():
            self._forward.back(self._given, slope, self._buffer)
        self.descend(self._buffer)


class Critics(Networks):
    """Perceptrons that judge. Their losses are simple, so their gradients are written down: there is no graph."""

    def __init__(self, network: MLP, rows: NDArray[np.float32], lr: float, device: torch.device) -> None:
        self.network = network
        self._buffer = torch.empty(0)
        super().__init__(rows, lr, device)

    def set(self, rows: NDArray[np.float32]) -> None:
        """Begin again at these parameters."""
        super().set(rows)
        self._buffer = torch.empty_like(self.online)
        binding = self.network.bind_batches
        self._bound = {n: cast("Bound", binding(self.online[:n])) for n in {1, len(rows)}}

    def __call__(self, inputs: Tensor) -> Tensor:
        """Values [N, B, out] of as many critics as there are inputs [N, B, in]."""
        return self._bound[len(inputs)](inputs)

    @torch.inference_mode()
    def fit(self, inputs: Tensor, y: Tensor, scale: float, chosen: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """One step down `scale` x the sum over critics of mean (Q - y)^2; of several outputs, of the chosen [B] only.

        Gives Q [N, B] and the loss as terms [B], whose mean it is.
        """
        bound = self._bound[len(inputs)]
        out, given = bound.keep(inputs)
        index = torch.zeros_like(y, dtype=torch.int64) if chosen is None else chosen
        q = out.squeeze(-1) if chosen is None else out.gather(2, index.expand(len(out), -1).unsqueeze(-1)).squeeze(-1)
        error = q - y
        slope = (error * (2 * scale / len(y))).unsqueeze(-1)
        if chosen is not None:
            slope = torch.zeros_like(out, dtype=slope.dtype).scatter_(2, index.expand(len(out), -1).unsqueeze(-1), slope)
        bound.back(given, slope.to(out.dtype), self._buffer)
        self.descend(self._buffer)
        return q, error.square_().sum(0).mul_(scale)

    @torch.no_grad()
    def slope(self, inputs: Tensor, weigh: Callable[[Tensor], Tensor]) -> tuple[Tensor, Tensor]:
        """Q [N, B], and how the sum of weigh(Q) x Q changes with the inputs, summed over the critics [B, in]."""
        bound = self._bound[len(inputs)]
        out, given = bound.keep(inputs)
        weights = weigh(out.squeeze(-1))
        found = bound.back(given, weights.unsqueeze(-1).to(out.dtype), inputs=True)
        return out.squeeze(-1), cast("Tensor", found).float().sum(0)
