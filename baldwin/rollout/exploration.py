"""How actions are explored while collecting, and the probability of what was done."""

from __future__ import annotations

import math
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from baldwin.networks import ActionMap, mask_logits
from baldwin.ops.targets import split_gaussian, tanh_gaussian_log_prob

Exploration = Literal["greedy", "random", "noise", "sample", "epsilon", "distribution"]
Amount = float | tuple[float, ...]


def random_actions(act: ActionMap, count: int, mask: Tensor | None, rng: np.random.Generator) -> NDArray[Any]:
    """Uniform over the Box, or over the legal choices."""
    if act.continuous:
        return rng.uniform(-1, 1, (count, act.size)).astype(np.float32)
    if mask is None:
        return rng.integers(0, act.size, count)
    return np.asarray(np.where(mask.numpy(), rng.random((count, act.size)), -1.0).argmax(1))


def policy_actions(
    act: ActionMap, explore: Exploration, amount: Amount, out: Tensor, mask: Tensor | None, rng: np.random.Generator
) -> NDArray[Any]:
    """Greedy, sampled, noisy or epsilon-greedy actions for the actor's outputs [L, out].

    `amount`: of exploration, for all or for each: the standard deviation of noise, or the probability of a random action.
    """
    if not act.continuous:
        logits = out if mask is None else mask_logits(out, mask)
        if explore == "epsilon":
            random = rng.random(len(out)) < np.asarray(amount)
            return np.where(random, random_actions(act, len(out), mask, rng), logits.argmax(1).numpy())
        gumbel = rng.gumbel(size=out.shape) if explore == "sample" else 0.0
        return np.asarray((logits.double().numpy() + gumbel).argmax(1))
    if explore == "greedy":
        return np.asarray(torch.tanh(out[:, : act.size]).numpy())
    noise = rng.standard_normal((len(out), act.size), dtype=np.float32)
    if explore == "sample":
        mean, log_std = split_gaussian(out)
        return np.asarray(torch.tanh(mean + log_std.exp() * torch.from_numpy(noise)).numpy())
    return np.asarray(np.clip(torch.tanh(out).numpy() + np.asarray(amount, np.float32)[..., None] * noise, -1, 1))


def log_probs(act: ActionMap, explore: Exploration, amount: Amount, out: Tensor, mask: Tensor | None, actions: NDArray[Any]) -> Tensor:
    """Log-probabilities [L] of actions that were sampled, random or epsilon-greedy, given the actor's outputs [L, out]."""
    chosen = torch.from_numpy(np.asarray(actions))
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
    return torch.log_softmax(logits.float(), -1).gather(-1, chosen[:, None]).squeeze(-1)
