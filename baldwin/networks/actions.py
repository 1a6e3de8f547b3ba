"""From a network's outputs to actions that the environment takes."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import torch
from gymnasium import spaces
from numpy.typing import NDArray
from torch import Tensor

from baldwin.errors import ConfigError


class ActionMap:
    """Argmax for discrete actions, scaled to the Box for continuous ones; the network needs `outputs` of them.

    A network with a Gaussian head has as many outputs again, the logs of the standard deviations: greedy is the mean.
    A Dict or a Tuple of action spaces, also nested, is made of a map for each part, which gets its own slice of the outputs.
    """

    def __init__(self, space: gym.Space[Any], squash: str, head: str = "deterministic") -> None:
        self._space, self._squash = space, squash
        self._gaussian = head == "gaussian" and isinstance(space, spaces.Box)
        self.size: int  # numbers of an action, or of what it is chosen by
        self.bounded = True
        self.continuous = isinstance(space, spaces.Box)
        if isinstance(space, spaces.Box):
            self.size = int(np.prod(space.shape))
            bounded = bool(np.isfinite(space.low).all() and np.isfinite(space.high).all())
            self._squash = squash if bounded else "none"
            self.bounded = bounded
            low, high = (
                np.asarray(b, np.float32).ravel() if bounded else np.full(self.size, s, np.float32)
                for b, s in ((space.low, -1), (space.high, 1))
            )
            self._middle, self._half = torch.from_numpy((high + low) / 2), torch.from_numpy((high - low) / 2)
            self._unit = bool((high == 1).all() and (low == -1).all())
        elif isinstance(space, spaces.Discrete):
            self.size = int(space.n)
        elif isinstance(space, spaces.MultiDiscrete) and space.nvec.ndim == 1:
            self.size = int(space.nvec.sum())
        elif isinstance(space, spaces.MultiBinary):
            self.size = int(np.prod(space.shape))
        elif isinstance(space, spaces.Dict | spaces.Tuple) and len(space.spaces):
            named = space.spaces.items() if isinstance(space, spaces.Dict) else enumerate(space.spaces)
            self._parts: dict[Any, ActionMap] = {name: ActionMap(part, squash) for name, part in named}
            self.size = sum(part.size for part in self._parts.values())
        else:
            raise ConfigError(
                f"no policy for the action space {space}: expected Box, Discrete, MultiDiscrete, MultiBinary, or a Dict or Tuple of them. "
                "Wrap the environment."
            )

    @property
    def mixed(self) -> bool:
        """Actions are dicts or tuples; many of them are an array of objects."""
        return isinstance(self._space, spaces.Dict | spaces.Tuple)

    def empty_actions(self) -> NDArray[Any]:
        """No actions, [0, size] or [0], as learners store them: continuous in [-1, 1], or indices."""
        return np.empty((0, self.size), np.float32) if self.continuous else np.empty(0, np.int64)

    @property
    def half_range(self) -> float:
        """Half of the widest action's range."""
        return float(self._half.max())

    @property
    def outputs(self) -> int:
        """What the network must give."""
        return self.size * (2 if self._gaussian else 1)

    def __call__(self, out: Tensor, noise: Tensor | None = None) -> NDArray[Any]:
        """Actions [k, ...] for outputs [k, size]; noise [k, size] is in units of half the Box and stays inside it."""
        space = self._space
        if isinstance(space, spaces.Box):
            out = out[:, : self.size] if self._gaussian else out
            return self._as_box(self._boxed(out, noise))
        if isinstance(space, spaces.Discrete):
            return out.argmax(1).numpy() + int(space.start)
        if isinstance(space, spaces.MultiDiscrete):
            choices = [part.argmax(1) for part in torch.split(out, [int(n) for n in space.nvec], 1)]
            return torch.stack(choices, 1).numpy() + space.start
        if self.mixed:
            return self._join(out)
        return (out > 0).numpy().astype(np.int8).reshape(-1, *space.shape)  # type: ignore[misc]

    def _join(self, out: Tensor) -> NDArray[Any]:
        """The parts' actions for outputs [k, size], as dicts or tuples [k]."""
        slices = torch.split(out, [part.size for part in self._parts.values()], 1)
        columns = [part(own) for part, own in zip(self._parts.values(), slices, strict=True)]
        rows = np.empty(len(out), object)
        for n, values in enumerate(zip(*columns, strict=True)):
            rows[n] = dict(zip(self._parts, values, strict=True)) if isinstance(self._space, spaces.Dict) else values
        return rows

    def unscale_action(self, unit: NDArray[Any]) -> NDArray[Any]:
        """What the environment takes for actions as learners know them: within [-1, 1], or the index of a choice."""
        if isinstance(self._space, spaces.Discrete):
            return unit + int(self._space.start)
        known = torch.from_numpy(unit)
        return self._as_box(known.clone() if self._unit else self._middle + self._half * known)  # an environment may write into it

    def _as_box(self, actions: Tensor) -> NDArray[Any]:
        boxed: NDArray[Any] = actions.numpy().astype(self._space.dtype, copy=False).reshape(-1, *(self._space.shape or ()))
        if self._unit or self._squash == "none" or not isinstance(self._space, spaces.Box):
            return boxed
        return boxed.clip(self._space.low, self._space.high)  # scaling may round to just outside

    def _boxed(self, out: Tensor, noise: Tensor | None) -> Tensor:
        if self._squash == "tanh":
            out = torch.tanh(out)
        elif self._squash == "clip":
            out = out.clamp(-1, 1)
        else:
            return out if noise is None else out + noise * self._half
        if noise is not None:
            out = (out + noise).clamp(-1, 1)
        return out if self._unit else self._middle + self._half * out
