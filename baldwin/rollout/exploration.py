"""How actions are explored while collecting, and the probability of what was done."""

from __future__ import annotations

import math
from typing import Any, Literal

import numpy as np
import torch
from gymnasium import spaces
from numpy.typing import NDArray
from torch import Tensor

from baldwin.networks import ActionDistribution, ActionMap, Categorical, mask_logits
from baldwin.ops.targets import MAX_ACTION, split_gaussian, tanh_gaussian_log_prob

Exploration = Literal["greedy", "random", "noise", "sample", "epsilon", "distribution"]
Amount = float | tuple[float, ...]


def random_actions(act: ActionMap, count: int, mask: Tensor | None, rng: np.random.Generator) -> NDArray[Any]:
    """Uniform over the Box, or over the legal choices; rows, where actions have several parts."""
    if act.parts:
        masks = [own for _, own in act.slices(torch.empty(count, act.outputs), mask)]
        own = [random_actions(part, count, m, rng) for part, m in zip(act.parts.values(), masks, strict=True)]
        return np.concatenate([_row(part, actions) for part, actions in zip(act.parts.values(), own, strict=True)], 1)
    if isinstance(act.space, spaces.MultiDiscrete):
        legal = (
            [torch.ones(count, int(n), dtype=torch.bool) for n in act.space.nvec]
            if mask is None
            else torch.split(mask, act.space.nvec.tolist(), -1)
        )
        return np.stack([_legal(own, rng) for own in legal], 1).astype(np.float32)
    if isinstance(act.space, spaces.MultiBinary):
        flags = rng.integers(0, 2, (count, act.size))
        return (flags if mask is None else flags * mask.numpy()).astype(np.float32)
    if act.continuous:
        return rng.uniform(-1, 1, (count, act.size)).astype(np.float32)
    if mask is None:
        return rng.integers(0, act.size, count)
    return _legal(mask, rng)


def _legal(mask: Tensor, rng: np.random.Generator) -> NDArray[np.int64]:
    """A legal choice each, uniformly; `mask` [count, n]."""
    return np.asarray(np.where(mask.numpy(), rng.random(tuple(mask.shape)), -1.0).argmax(1))


def _row(act: ActionMap, actions: NDArray[Any]) -> NDArray[np.float32]:
    """Random actions of a part as rows: numbers of a Box before they are squashed, so that they are uniform after it."""
    if act.continuous:
        return np.asarray(np.arctanh(np.clip(actions, -MAX_ACTION, MAX_ACTION)), np.float32)
    return np.asarray(actions.reshape(len(actions), -1), np.float32)


def policy_actions(
    act: ActionMap, explore: Exploration, amount: Amount, out: Tensor, mask: Tensor | None, rng: np.random.Generator
) -> NDArray[Any]:
    """Greedy, sampled, noisy or epsilon-greedy actions for the actor's outputs [L, out].

    `amount`: of exploration, for all or for each: the standard deviation of noise, or the probability of a random action.
    """
    if act.in_rows:
        return epsilon_greedy_rows(act, amount, out, mask, rng)
    if not act.continuous:
        logits = (out if mask is None else mask_logits(out, mask)).numpy()
        if explore == "epsilon":
            random = rng.random(len(logits)) < np.asarray(amount)
            return np.where(random, random_actions(act, len(logits), mask, rng), logits.argmax(1))
        gumbel = rng.gumbel(size=logits.shape) if explore == "sample" else 0.0
        return np.asarray((logits.astype(np.float64) + gumbel).argmax(1))
    if explore == "greedy":
        return np.asarray(torch.tanh(out[:, : act.size]).numpy())
    noise = rng.standard_normal((len(out), act.size), dtype=np.float32)
    if explore == "sample":
        mean, log_std = split_gaussian(out)
        sampled = torch.tanh(mean + log_std.exp() * torch.from_numpy(noise)).numpy()
        return with_noise(sampled, amount, rng.standard_normal(sampled.shape, dtype=np.float32)) if np.any(amount) else sampled
    return with_noise(torch.tanh(out).numpy(), amount, noise)


def epsilon_greedy_rows(act: ActionMap, epsilon: Amount, out: Tensor, mask: Tensor | None, rng: np.random.Generator) -> NDArray[np.float32]:
    """Actions [L, columns] of several parts: choices by their largest output, or all of a row at random; numbers as the policy samples them."""
    random = rng.random(len(out)) < np.asarray(epsilon)
    anything, at, columns = random_actions(act, len(out), mask, rng), 0, []
    for part in ActionDistribution(act, out, mask).parts:
        if isinstance(part, Categorical):
            columns.append(np.where(random[:, None], anything[:, at : at + 1], part.mode().numpy()))
        else:
            columns.append(part.sample(rng))
        at += part.columns
    return np.concatenate(columns, 1, dtype=np.float32)


def with_noise(actions: NDArray[np.float32], amount: Amount, noise: NDArray[np.float32]) -> NDArray[np.float32]:
    """Actions [L, A] plus noise [L, A] of this standard deviation, or of one for each row, within [-1, 1]."""
    return np.asarray(np.clip(actions + np.asarray(amount, np.float32)[..., None] * noise, -1, 1))


def log_probs(act: ActionMap, explore: Exploration, amount: Amount, out: Tensor, mask: Tensor | None, actions: NDArray[Any]) -> Tensor:
    """Log-probabilities [L] of actions that were sampled, random, epsilon-greedy, or greedy choices, given the actor's outputs [L, out]."""
    chosen = torch.from_numpy(np.asarray(actions))
    if act.parts:
        masks = [own for _, own in act.slices(torch.empty(len(chosen), act.outputs), mask)]
        columns = torch.split(chosen, [part.columns for part in act.parts.values()], -1)
        each = [
            log_probs(part, explore, amount, out, m, own.numpy()) for part, m, own in zip(act.parts.values(), masks, columns, strict=True)
        ]
        return torch.stack(each).sum(0)
    if isinstance(act.space, spaces.MultiDiscrete):
        sizes = act.space.nvec.tolist()
        choices = (
            [torch.full((len(chosen),), float(n)) for n in sizes]
            if mask is None
            else [m.sum(-1).float() for m in torch.split(mask, sizes, -1)]
        )
        return -torch.stack(choices).log().sum(0)
    if act.continuous:
        if explore == "random":
            return torch.full((len(chosen),), -act.size * math.log(2.0))
        return tanh_gaussian_log_prob(*split_gaussian(out), chosen)
    legal = torch.full((len(chosen),), float(act.size)) if mask is None else mask.sum(-1).float()
    if explore == "random":
        return -legal.log()
    logits = out if mask is None else mask_logits(out, mask)
    if explore == "epsilon":
        epsilon = torch.as_tensor(amount, dtype=torch.float32)
        return (epsilon / legal + (1 - epsilon) * (chosen == logits.argmax(1))).log()
    if explore == "greedy":
        return torch.where(chosen == logits.argmax(1), 0.0, -torch.inf)
    return torch.log_softmax(logits.float(), -1).gather(-1, chosen[:, None]).squeeze(-1)
