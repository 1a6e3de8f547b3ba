"""From a network's outputs to actions that the environment takes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from gymnasium import spaces
from numpy.typing import NDArray
from torch import Tensor

from baldwin.errors import ConfigError

ILLEGAL = -1e9
"""The logit of an illegal choice: its probability is exactly zero, and zero times its logarithm is zero, not NaN."""


def mask_logits(logits: Tensor, mask: Tensor) -> Tensor:
    """Logits [..., n] with ILLEGAL where the mask [..., n] is false. A row without a legal choice, as after an episode's end, stays as it is."""
    return torch.where(mask | ~mask.any(-1, keepdim=True), logits, ILLEGAL)


class ActionMap:
    """Argmax for discrete actions, scaled to the Box for continuous ones; the network needs `outputs` of them.

    A network with a Gaussian head has as many outputs again for continuous actions, the logs of the standard deviations: greedy is the mean.
    A Dict or a Tuple of action spaces, also nested, is made of a map for each part, which gets its own slice of the outputs.
    A mask has a flag for every discrete choice, part after part; greedy actions are the best of the legal ones.
    """

    def __init__(self, space: gym.Space[Any], squash: str, head: str = "deterministic") -> None:
        self.space, self._squash = space, squash
        self.gaussian = head == "gaussian" and isinstance(space, spaces.Box)
        self.size: int  # numbers of an action, or of what it is chosen by
        self.bounded = True
        self.continuous = isinstance(space, spaces.Box)
        self.parts: dict[Any, ActionMap] = {}
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
            self.parts = {name: ActionMap(part, squash, head) for name, part in named}
            self.size = sum(part.size for part in self.parts.values())
            self.bounded = all(part.bounded for part in self.parts.values())
        else:
            raise ConfigError(
                f"no policy for the action space {space}: expected Box, Discrete, MultiDiscrete, MultiBinary, or a Dict or Tuple of them. "
                "Wrap the environment."
            )

    @property
    def mixed(self) -> bool:
        """Actions are dicts or tuples; many of them are an array of objects."""
        return bool(self.parts)

    @property
    def outputs(self) -> int:
        """Number of outputs that the network must have."""
        if self.parts:
            return sum(part.outputs for part in self.parts.values())
        return self.size * (2 if self.gaussian else 1)

    @property
    def mask_size(self) -> int:
        """Flags of an action mask: one for each discrete choice."""
        return sum(part.mask_size for part in self.parts.values()) if self.parts else 0 if self.continuous else self.size

    @property
    def in_rows(self) -> bool:
        """Actions have several parts, which learners store as rows of numbers (networks/distributions.py)."""
        return self.mixed or isinstance(self.space, spaces.MultiDiscrete | spaces.MultiBinary)

    @property
    def columns(self) -> int:
        """Numbers of a stored row."""
        if self.parts:
            return sum(part.columns for part in self.parts.values())
        if isinstance(self.space, spaces.MultiDiscrete):
            return len(self.space.nvec)
        return 1 if isinstance(self.space, spaces.Discrete) else self.size

    def empty_actions(self) -> NDArray[Any]:
        """No actions, [0, size] or [0], as learners store them: continuous in [-1, 1], indices, or rows of several parts."""
        if self.in_rows:
            return np.empty((0, self.columns), np.float32)
        return np.empty((0, self.size), np.float32) if self.continuous else np.empty(0, np.int64)

    @property
    def half_range(self) -> float:
        """Half of the widest action's range."""
        return float(self._half.max())

    def has_legal(self, mask: Tensor) -> Tensor:
        """Whether a mask [k, choices] leaves a way to act, [k]: in every branch at least one; flags of MultiBinary can always be 0."""
        if isinstance(self.space, spaces.MultiBinary):
            return torch.ones(len(mask), dtype=torch.bool)
        if isinstance(self.space, spaces.MultiDiscrete):
            return torch.stack([own.any(-1) for own in torch.split(mask, [int(n) for n in self.space.nvec], -1)]).all(0)
        if not self.parts:
            return mask.any(-1)
        legal, at = torch.ones(len(mask), dtype=torch.bool), 0
        for part in self.parts.values():
            if part.mask_size:
                legal &= part.has_legal(mask[:, at : at + part.mask_size])
                at += part.mask_size
        return legal

    def __call__(self, out: Tensor, noise: Tensor | None = None, mask: Tensor | None = None) -> NDArray[Any]:
        """Actions [k, ...] for outputs [k, outputs]; noise [k, size] is in units of half the Box and stays inside it."""
        space = self.space
        if isinstance(space, spaces.Box):
            return self.to_box(out[:, : self.size] if self.gaussian else out, noise)
        if self.parts:
            return self._join(out, mask)
        if isinstance(space, spaces.MultiBinary):
            chosen = out > 0 if mask is None else (out > 0) & mask
            return chosen.numpy().astype(np.int8).reshape(-1, *space.shape)
        if isinstance(space, spaces.MultiDiscrete):
            choices = [part.argmax(1) for part in self.branches(out, mask)]
            return torch.stack(choices, 1).numpy() + space.start
        out = out if mask is None else mask_logits(out, mask)
        return np.asarray(out.argmax(1).numpy() + int(space.start))  # type: ignore[attr-defined]

    @property
    def squashed(self) -> bool:
        """Whether continuous actions are tanh of the network's numbers."""
        return self._squash == "tanh"

    def to_box(self, out: Tensor, noise: Tensor | None = None) -> NDArray[Any]:
        """Actions of a Box for numbers [k, size] as a network or a Gaussian gives them: squashed or clipped, and scaled."""
        boxed = self._boxed(out, noise)
        return self._as_box(boxed.clone() if boxed is out else boxed)  # an environment may write into it

    def branches(self, out: Tensor, mask: Tensor | None) -> list[Tensor]:
        """Logits [..., n] of each branch of MultiDiscrete, illegal ones masked."""
        sizes = [int(n) for n in self.space.nvec]  # type: ignore[attr-defined]
        logits = torch.split(out, sizes, -1)
        return list(logits) if mask is None else [mask_logits(own, m) for own, m in zip(logits, torch.split(mask, sizes, -1), strict=True)]

    def slices(self, out: Tensor, mask: Tensor | None) -> Iterator[tuple[Tensor, Tensor | None]]:
        """The outputs and the mask of each part of a Dict or Tuple."""
        at = masked = 0
        for part in self.parts.values():
            own = None if mask is None or not part.mask_size else mask[..., masked : masked + part.mask_size]
            yield out[..., at : at + part.outputs], own
            at, masked = at + part.outputs, masked + part.mask_size

    def _join(self, out: Tensor, mask: Tensor | None) -> NDArray[Any]:
        """The parts' actions as dicts or tuples [k]."""
        columns = [part(own, mask=m) for part, (own, m) in zip(self.parts.values(), self.slices(out, mask), strict=True)]
        return self.join_rows(columns)

    def join_rows(self, columns: list[NDArray[Any]]) -> NDArray[Any]:
        """Dicts or tuples [k] of the parts' actions [k, ...]."""
        rows = np.empty(len(columns[0]), object)
        for n, values in enumerate(zip(*columns, strict=True)):
            rows[n] = dict(zip(self.parts, values, strict=True)) if isinstance(self.space, spaces.Dict) else values
        return rows

    def unscale_action(self, unit: NDArray[Any]) -> NDArray[Any]:
        """What the environment takes for actions as learners know them: within [-1, 1], or the index of a choice."""
        if isinstance(self.space, spaces.Discrete):
            return unit + int(self.space.start)
        known = torch.from_numpy(unit)
        return self._as_box(known.clone() if self._unit else self._middle + self._half * known)  # an environment may write into it

    def _as_box(self, actions: Tensor) -> NDArray[Any]:
        boxed: NDArray[Any] = actions.numpy().astype(self.space.dtype, copy=False).reshape(-1, *(self.space.shape or ()))
        if self._unit or self._squash == "none" or not isinstance(self.space, spaces.Box):
            return boxed
        return boxed.clip(self.space.low, self.space.high)  # scaling may round to just outside

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
