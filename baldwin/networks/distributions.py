"""Policies that choose at random: samples, log-probabilities and entropies of every kind of action, illegal choices left out.

A stored action is one row of numbers, part after part: the index of a choice, a flag, or a number of a Gaussian as it was
drawn, before it is squashed or clipped into the Box: so its log-probability can be computed exactly.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any, Protocol

import numpy as np
import torch
from gymnasium import spaces
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import logsigmoid, softplus

from baldwin.errors import ConfigError
from baldwin.networks.actions import ILLEGAL, ActionMap, mask_logits
from baldwin.ops.targets import split_gaussian, tanh_log_slope

LOG_2PI = math.log(2 * math.pi)


class Part(Protocol):
    """Independent choices of one kind, for a batch B."""

    columns: int  # of the stored action

    def mode(self) -> Tensor:
        """The most probable action [B, columns]."""

    def sample(self, rng: np.random.Generator) -> NDArray[np.float32]:
        """An action [B, columns]."""

    def log_prob(self, action: Tensor) -> Tensor:
        """Log-probability [B] of an action [B, columns]."""

    def entropy(self) -> Tensor:
        """Entropy of each row's distribution, [B]."""


class _CategoricalLogProb(torch.autograd.Function):
    """log softmax of the chosen logit, as one node of the graph."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, chosen: Tensor) -> Tensor:
        log_probs = torch.log_softmax(logits, -1)
        ctx.save_for_backward(log_probs, chosen)
        return log_probs.gather(-1, chosen).squeeze(-1)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        log_probs, chosen = ctx.saved_tensors
        grad = grad.unsqueeze(-1)
        return log_probs.exp().mul_(-grad).scatter_add_(-1, chosen, grad), None


class Categorical:
    """One choice of several; `logits` [B, n], illegal ones masked."""

    columns = 1

    def __init__(self, logits: Tensor) -> None:
        self.logits = logits

    def mode(self) -> Tensor:
        """The index of the largest logit, as a float: [B, 1]."""
        return self.logits.argmax(-1, keepdim=True).float()

    def sample(self, rng: np.random.Generator) -> NDArray[np.float32]:
        """The drawn choice, as a float [B, 1]: the index of the largest of logits plus Gumbel noise."""
        logits = self.logits.numpy()
        return np.asarray((logits + rng.gumbel(size=logits.shape)).argmax(-1)[..., None], np.float32)

    def log_prob(self, action: Tensor) -> Tensor:
        """log softmax of the chosen logit."""
        if not torch.is_grad_enabled():
            return torch.log_softmax(self.logits, -1).gather(-1, action.long()).squeeze(-1)
        return _CategoricalLogProb.apply(self.logits, action.long())  # type: ignore[no-any-return, no-untyped-call]

    def entropy(self) -> Tensor:
        """- sum p log p."""
        log_probs = torch.log_softmax(self.logits, -1)
        return -(log_probs.exp() * log_probs).sum(-1)


class Bernoulli:
    """Flags; `logits` [B, n], illegal ones masked."""

    def __init__(self, logits: Tensor) -> None:
        self._logits = logits
        self.columns = logits.shape[-1]

    def mode(self) -> Tensor:
        """Flags that are more probable than not."""
        return (self._logits > 0).float()

    def sample(self, rng: np.random.Generator) -> NDArray[np.float32]:
        """Each flag by itself."""
        return np.asarray(rng.random(tuple(self._logits.shape)) < torch.sigmoid(self._logits.double()).numpy(), np.float32)

    def log_prob(self, action: Tensor) -> Tensor:
        """Sum over the flags."""
        return (action * logsigmoid(self._logits) + (1 - action) * logsigmoid(-self._logits)).sum(-1)

    def entropy(self) -> Tensor:
        """Sum over the flags."""
        return (softplus(self._logits) - torch.sigmoid(self._logits) * self._logits).sum(-1)


class _NormalLogProb(torch.autograd.Function):
    """Sum over the last axis of log N(a; mean, exp(log_std)); by hand, since a dozen small operations take longer than a layer."""

    @staticmethod
    def forward(ctx: Any, action: Tensor, mean: Tensor, log_std: Tensor) -> Tensor:
        precision = torch.exp(-log_std)
        z = (action - mean).mul_(precision)
        ctx.save_for_backward(z, precision)
        return z.square().sum(-1).mul_(-0.5).sub_(log_std.sum(-1) + 0.5 * LOG_2PI * mean.shape[-1])

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[None, Tensor, Tensor]:
        z, precision = ctx.saved_tensors
        grad = grad.unsqueeze(-1)
        to_log_std = z.square().sub_(1).mul_(grad)
        if precision.ndim < z.ndim:
            to_log_std = to_log_std.flatten(0, -2).sum(0)
        return None, (z * precision).mul_(grad), to_log_std


class Gaussian:
    """Independent normals; `mean` [B, A], `log_std` [B, A] or [A]. `squashed`: the environment gets tanh of the number."""

    def __init__(self, mean: Tensor, log_std: Tensor, squashed: bool) -> None:
        self.mean, self.log_std, self._squashed = mean, log_std, squashed
        self.columns = mean.shape[-1]

    def mode(self) -> Tensor:
        """The mean of the Gaussian, [B, A]."""
        return self.mean

    def sample(self, rng: np.random.Generator) -> NDArray[np.float32]:
        """mean + std noise."""
        return _normal(self.mean.numpy(), np.exp(self.log_std.numpy()), rng)

    def log_prob(self, action: Tensor) -> Tensor:
        """The density of the number; of the squashed one, if it is squashed."""
        normal: Tensor = _NormalLogProb.apply(action, self.mean, self.log_std)  # type: ignore[no-untyped-call]
        return normal - tanh_log_slope(action).sum(-1) if self._squashed else normal

    def entropy(self) -> Tensor:
        """Entropy of the normals; that of squashed ones has no closed form."""
        return (self.log_std + (0.5 + 0.5 * LOG_2PI)).sum(-1).expand(self.mean.shape[:-1])


class ActionDistribution:
    """The joint distribution of all parts of an action; the parts are independent given the observation."""

    def __init__(self, actions: ActionMap, out: Tensor, mask: Tensor | None = None, log_std: Tensor | None = None) -> None:
        """`out` [B, outputs] of the network; `mask` [B, choices], false for what is illegal.

        `log_std` [A]: of all continuous parts, one after the other, where the network gives only means (policy.head=deterministic).
        """
        spreads = iter([] if log_std is None else torch.split(log_std, _box_sizes(actions), -1))
        self.parts = list(_parts(actions, out, mask, spreads))

    def mode(self) -> Tensor:
        """Greedy actions [B, columns]."""
        return torch.cat([part.mode() for part in self.parts], -1)

    def sample(self, rng: np.random.Generator) -> NDArray[np.float32]:
        """Actions [B, columns]; not differentiable."""
        if len(self.parts) == 1:
            return self.parts[0].sample(rng)
        return np.concatenate([part.sample(rng) for part in self.parts], -1)

    def log_prob(self, action: Tensor) -> Tensor:
        """Log-probability [B] of whole actions [B, columns]."""
        if len(self.parts) == 1:
            return self.parts[0].log_prob(action)
        columns = torch.split(action, [part.columns for part in self.parts], -1)
        return torch.stack([part.log_prob(own) for part, own in zip(self.parts, columns, strict=True)]).sum(0)

    def entropy(self) -> Tensor:
        """Entropy [B] of the joint distribution."""
        if len(self.parts) == 1:
            return self.parts[0].entropy()
        return torch.stack([part.entropy() for part in self.parts]).sum(0)


Sampler = Callable[[Tensor, Tensor | None, np.random.Generator], NDArray[np.float32]]
"""(outputs [B, n], mask [B, choices], random numbers) -> actions [B, columns]."""


def make_sampler(actions: ActionMap, log_std: Tensor | None) -> Sampler:
    """What `ActionDistribution(actions, out, mask, log_std).sample(rng)` draws, prepared for many calls."""
    if isinstance(actions.space, spaces.Discrete):
        return lambda out, mask, rng: Categorical(out if mask is None else mask_logits(out, mask)).sample(rng)
    if log_std is None or actions.parts:
        return lambda out, mask, rng: ActionDistribution(actions, out, mask, log_std).sample(rng)
    std = np.exp(log_std.numpy())
    return lambda out, mask, rng: _normal(out.numpy(), std, rng)


def _normal(mean: NDArray[np.float32], std: NDArray[np.float32], rng: np.random.Generator) -> NDArray[np.float32]:
    noise = rng.standard_normal(mean.shape, dtype=np.float32)
    noise *= std
    noise += mean
    return noise


def _parts(actions: ActionMap, out: Tensor, mask: Tensor | None, spreads: Iterator[Tensor]) -> Iterator[Part]:
    space = actions.space
    if actions.parts:
        for part, (own, own_mask) in zip(actions.parts.values(), actions.slices(out, mask), strict=True):
            yield from _parts(part, own, own_mask, spreads)
    elif isinstance(space, spaces.Box):
        if actions.gaussian:
            yield Gaussian(*split_gaussian(out), actions.squashed)
            return
        log_std = next(spreads, None)
        if log_std is None:
            raise ConfigError("a distribution over continuous actions needs policy.head=gaussian, or a log_std; got neither")
        yield Gaussian(out, log_std, actions.squashed)
    elif isinstance(space, spaces.MultiDiscrete):
        yield from (Categorical(logits) for logits in actions.branches(out, mask))
    elif isinstance(space, spaces.MultiBinary):
        yield Bernoulli(out if mask is None else torch.where(mask, out, ILLEGAL))
    else:
        yield Categorical(out if mask is None else mask_logits(out, mask))


def _box_sizes(actions: ActionMap) -> list[int]:
    """Numbers of each continuous part without a spread of its own."""
    if actions.parts:
        return [size for part in actions.parts.values() for size in _box_sizes(part)]
    return [actions.size] if actions.continuous and not actions.gaussian else []


def spread_size(actions: ActionMap) -> int:
    """Numbers of the `log_std` that a distribution over these actions needs besides the network's outputs."""
    return sum(_box_sizes(actions))


def to_environment(actions: ActionMap, stored: NDArray[Any]) -> NDArray[Any]:
    """What the environment takes, [k, ...], for stored actions [k, columns]."""
    space = actions.space
    if actions.parts:
        sizes = np.cumsum([part.columns for part in actions.parts.values()])[:-1]
        own = np.split(stored, sizes, 1)
        return actions.join_rows([to_environment(part, column) for part, column in zip(actions.parts.values(), own, strict=True)])
    if isinstance(space, spaces.Box):
        return actions.to_box(torch.from_numpy(np.ascontiguousarray(stored, np.float32)))
    if isinstance(space, spaces.MultiDiscrete):
        return np.asarray(stored.astype(space.dtype) + space.start)
    if isinstance(space, spaces.MultiBinary):
        return stored.astype(np.int8).reshape(-1, *space.shape)
    return actions.unscale_action(stored[:, 0].astype(np.int64))
