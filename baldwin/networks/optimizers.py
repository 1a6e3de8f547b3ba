"""Optimisers of one tensor, without the bookkeeping of torch's own, which takes longer than a small layer."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from baldwin.types import State

ADAM: dict[str, Any] = {"amsgrad": False, "beta1": 0.9, "beta2": 0.999, "weight_decay": 0.0, "maximize": False}
RMSPROP_ALPHA = 0.99
CLIP_EPSILON = 1e-6  # as in torch.nn.utils.clip_grad_norm_


class Optimizer(ABC):
    """Moves one tensor of parameters. `lr` may be changed between steps.

    `leaves`: tensors that require gradients and lie in the memory of the parameters one after the other; default: the parameters.
    """

    def __init__(self, params: Tensor, lr: float, state: dict[str, Tensor], leaves: Sequence[Tensor] | None = None) -> None:
        self._params, self.lr, self._state = params, lr, state
        self._leaves = [params] if leaves is None else leaves

    def gradient(self, loss: Tensor) -> Tensor:
        """The gradient of a loss, in the shape of the parameters."""
        for leaf in self._leaves:
            leaf.grad = None
        loss.backward()  # type: ignore[no-untyped-call]
        if len(self._leaves) == 1:
            return cast("Tensor", self._leaves[0].grad).view_as(self._params)
        grads = [torch.zeros_like(leaf) if leaf.grad is None else leaf.grad for leaf in self._leaves]
        return torch.cat([grad.flatten() for grad in grads]).view_as(self._params)

    def minimize(self, loss: Tensor, max_grad_norm: float | None = None) -> Tensor | None:
        """Take one step down the gradient of the loss; arguments and result as of `descend`."""
        return self.descend(self.gradient(loss), max_grad_norm)

    def descend(self, gradient: Tensor, max_grad_norm: float | None = None) -> Tensor | None:
        """Take one step down the gradient. With `max_grad_norm`, a gradient of larger norm is scaled down to it; returns the norm before that."""
        if max_grad_norm is None:
            self.step(gradient)
            return None
        norm: Tensor = torch.linalg.vector_norm(gradient)
        scale = max_grad_norm / (float(norm) + CLIP_EPSILON)
        self.step(gradient.mul_(scale) if scale < 1 else gradient)
        return norm

    @abstractmethod
    def step(self, gradient: Tensor) -> None:
        """One step down this gradient."""

    def state_dict(self) -> State:
        """Step count and moments."""
        return {name: value.cpu().numpy().copy() for name, value in self._state.items()}

    def load_state_dict(self, state: State) -> None:
        """Continue from a `state_dict`."""
        self._state = {name: torch.from_numpy(np.array(state[name])).to(self._params.device) for name in self._state}


class Adam(Optimizer):
    """The arithmetic of torch.optim.Adam(fused=True), on state that this class owns."""

    def __init__(self, params: Tensor, lr: float, eps: float = 1e-8, leaves: Sequence[Tensor] | None = None) -> None:
        zeros = torch.zeros_like(params, requires_grad=False)
        state = {"step": torch.zeros((), device=params.device), "exp_avg": zeros, "exp_avg_sq": zeros.clone()}
        super().__init__(params, lr, state, leaves)
        self._eps = eps

    @torch.no_grad()
    def step(self, gradient: Tensor) -> None:
        """m, v: running means of g and g^2; params -= lr m / (sqrt(v) + eps), both corrected for their start at zero."""
        step, exp_avg, exp_avg_sq = self._state.values()
        step += 1
        torch._fused_adam_([self._params], [gradient], [exp_avg], [exp_avg_sq], [], [step], lr=self.lr, eps=self._eps, **ADAM)


class RMSProp(Optimizer):
    """The arithmetic of torch.optim.RMSprop, on state that this class owns."""

    def __init__(self, params: Tensor, lr: float, eps: float = 1e-5, leaves: Sequence[Tensor] | None = None) -> None:
        super().__init__(params, lr, {"square_avg": torch.zeros_like(params, requires_grad=False)}, leaves)
        self._eps = eps

    @torch.no_grad()
    def step(self, gradient: Tensor) -> None:
        """v: running mean of g^2; params -= lr g / (sqrt(v) + eps)."""
        square_avg = self._state["square_avg"].mul_(RMSPROP_ALPHA).addcmul_(gradient, gradient, value=1 - RMSPROP_ALPHA)
        self._params.addcdiv_(gradient, square_avg.sqrt().add_(self._eps), value=-self.lr)
