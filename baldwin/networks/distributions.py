"""Policies that choose at random: samples, log-probabilities and entropies of every kind of action, illegal choices left out.

A stored action is one row of numbers, part after part: the index of a choice, a flag, or a number in (-1, 1).
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import torch
from gymnasium import spaces
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import logsigmoid, softplus

from baldwin.errors import ConfigError
from baldwin.networks.actions import ILLEGAL, ActionMap, mask_logits
from baldwin.ops.targets import split_gaussian, tanh_gaussian


class Part(NamedTuple):
    """Independent choices of one kind: categories, flags, or a squashed Gaussian."""

    kind: str  # "categorical", "bernoulli" or "gaussian"
    out: Tensor  # [B, n] logits, illegal ones masked; or mean and log std [B, 2 A]
    columns: int  # of the stored action

    def mode(self) -> Tensor:
        """The most probable action [B, columns]; of a Gaussian, tanh(mean)."""
        if self.kind == "categorical":
            return self.out.argmax(-1, keepdim=True).float()
        if self.kind == "bernoulli":
            return (self.out > 0).float()
        return torch.tanh(split_gaussian(self.out)[0])

    def sample(self, rng: np.random.Generator) -> tuple[Tensor, Tensor]:
        """An action [B, columns] and its log-probability [B]."""
        if self.kind == "gaussian":
            mean, log_std = split_gaussian(self.out)
            return tanh_gaussian(mean, log_std, torch.from_numpy(rng.standard_normal(mean.shape, dtype=np.float32)))
        if self.kind == "categorical":
            gumbel = torch.from_numpy(rng.gumbel(size=tuple(self.out.shape)))
            action = (self.out.double() + gumbel).argmax(-1, keepdim=True).float()
        else:
            action = (torch.from_numpy(rng.random(tuple(self.out.shape))) < torch.sigmoid(self.out.double())).float()
        return action, self.log_prob(action)

    def log_prob(self, action: Tensor) -> Tensor:
        """Log-probability [B] of an action [B, columns]; of a Gaussian, the density of the squashed action."""
        if self.kind == "categorical":
            return torch.log_softmax(self.out, -1).gather(-1, action.long()).squeeze(-1)
        if self.kind == "bernoulli":
            return (action * logsigmoid(self.out) + (1 - action) * logsigmoid(-self.out)).sum(-1)
        mean, log_std = split_gaussian(self.out)
        u = torch.atanh(action.clamp(-1 + 1e-6, 1 - 1e-6))
        normal = -0.5 * ((u - mean) / log_std.exp()).square() - log_std - 0.5 * math.log(2 * math.pi)
        return (normal - 2.0 * (math.log(2.0) - u - softplus(-2.0 * u))).sum(-1)

    def entropy(self) -> Tensor:
        """Entropy [B]; of a Gaussian, before it is squashed, which has no closed form."""
        if self.kind == "categorical":
            log_probs = torch.log_softmax(self.out, -1)
            return -(log_probs.exp() * log_probs).sum(-1)
        if self.kind == "bernoulli":
            p = torch.sigmoid(self.out)
            return (softplus(self.out) - p * self.out).sum(-1)
        log_std = split_gaussian(self.out)[1]
        return (log_std + 0.5 * math.log(2 * math.pi * math.e)).sum(-1)


class ActionDistribution:
    """The joint distribution of all parts of an action; the parts are independent given the observation.

    Continuous parts need `policy.head=gaussian` and `policy.squash=tanh`.
    """

    def __init__(self, actions: ActionMap, out: Tensor, mask: Tensor | None = None) -> None:
        """`out` [B, outputs] of the network; `mask` [B, choices], false for what is illegal."""
        self._parts = _parts(actions, out, mask)

    def mode(self) -> Tensor:
        """Greedy actions [B, columns]."""
        return torch.cat([part.mode() for part in self._parts], -1)

    def sample(self, rng: np.random.Generator) -> tuple[Tensor, Tensor]:
        """Actions [B, columns] and the log-probability [B] of each as a whole."""
        actions, log_probs = zip(*(part.sample(rng) for part in self._parts), strict=True)
        return torch.cat(actions, -1), torch.stack(log_probs).sum(0)

    def log_prob(self, action: Tensor) -> Tensor:
        """Log-probability [B] of whole actions [B, columns]."""
        columns = torch.split(action, [part.columns for part in self._parts], -1)
        return torch.stack([part.log_prob(own) for part, own in zip(self._parts, columns, strict=True)]).sum(0)

    def entropy(self) -> Tensor:
        """Entropy [B] of the joint distribution."""
        return torch.stack([part.entropy() for part in self._parts]).sum(0)


def _parts(actions: ActionMap, out: Tensor, mask: Tensor | None) -> list[Part]:
    space = actions.space
    if actions.parts:
        return [p for part, own in zip(actions.parts.values(), actions.slices(out, mask), strict=True) for p in _parts(part, *own)]
    if isinstance(space, spaces.Box):
        if not actions.gaussian:
            raise ConfigError("a distribution over continuous actions needs policy.head=gaussian; got deterministic")
        return [Part("gaussian", out, actions.size)]
    if isinstance(space, spaces.MultiDiscrete):
        return [Part("categorical", logits, 1) for logits in actions.branches(out, mask)]
    if isinstance(space, spaces.MultiBinary):
        return [Part("bernoulli", out if mask is None else torch.where(mask, out, ILLEGAL), actions.size)]
    return [Part("categorical", out if mask is None else mask_logits(out, mask), 1)]


def stored_columns(actions: ActionMap) -> int:
    """Numbers of a stored action."""
    if actions.parts:
        return sum(stored_columns(part) for part in actions.parts.values())
    if isinstance(actions.space, spaces.MultiDiscrete):
        return len(actions.space.nvec)
    return 1 if isinstance(actions.space, spaces.Discrete) else actions.size


def to_environment(actions: ActionMap, stored: NDArray[Any]) -> NDArray[Any]:
    """What the environment takes, [k, ...], for stored actions [k, columns]."""
    space = actions.space
    if actions.parts:
        sizes = np.cumsum([stored_columns(part) for part in actions.parts.values()])[:-1]
        own = np.split(stored, sizes, 1)
        return actions.join_rows([to_environment(part, column) for part, column in zip(actions.parts.values(), own, strict=True)])
    if isinstance(space, spaces.Box):
        return actions.unscale_action(np.asarray(stored, np.float32))
    if isinstance(space, spaces.MultiDiscrete):
        return np.asarray(stored.astype(space.dtype) + space.start)
    if isinstance(space, spaces.MultiBinary):
        return stored.astype(np.int8).reshape(-1, *space.shape)
    return actions.unscale_action(stored[:, 0].astype(np.int64))
