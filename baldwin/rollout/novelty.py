"""Choosing, among several draws of the policy, what was seldom done before (rnd: action)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from baldwin.networks import ActionMap, NumpyMLP
from baldwin.ops.exploration import best_of_k_log_density, best_of_k_log_prob
from baldwin.ops.noise import Shape
from baldwin.rollout.exploration import Amount, Exploration, log_probs, policy_actions

Score = Callable[[NDArray[np.float32]], NDArray[np.float32]]
"""Actions as numbers [L, A] -> how little is known about them [L]."""


@dataclass(frozen=True, slots=True)
class Novelty:
    """A predictor and the random network that it learned to predict, for scaled features and actions; its error is what is not known."""

    params: NDArray[np.float32]  # [2, D]
    shapes: tuple[Shape, ...]
    mean: NDArray[np.float32]  # of the inputs
    std: NDArray[np.float32]
    bound: float  # of scaled inputs
    n_samples: int

    def score(self, features: Tensor) -> Score:
        """For actions in states with these features [L, F]."""
        networks, seen = NumpyMLP(self.params, self.shapes, "relu"), features.numpy()

        def score(numbers: NDArray[np.float32]) -> NDArray[np.float32]:
            x = np.clip((np.concatenate((seen, numbers), 1) - self.mean) / self.std, -self.bound, self.bound)
            predicted, random = networks.forward(x.astype(np.float32))[0]
            return np.asarray(np.square(predicted - random).sum(-1))

        return score

    def choose(
        self,
        act: ActionMap,
        explore: Exploration,
        amount: Amount,
        out: Tensor,
        mask: Tensor | None,
        rng: np.random.Generator,
        score: Score,
        *,
        with_log_prob: bool = True,
    ) -> tuple[NDArray[np.float32], Tensor]:
        """The best-scored of `n_samples` draws of the policy for each row of its outputs, and the log-probability that this is executed."""
        rows, k = np.arange(len(out)), self.n_samples

        def draw() -> tuple[NDArray[np.float32], NDArray[np.float32]]:
            drawn = [policy_actions(act, explore, amount, out, mask, rng) for _ in range(k)]
            return np.stack(drawn), np.stack([score(as_numbers(act, own)) for own in drawn])

        drawn, scores = draw()
        best = scores.argmax(0)
        actions = drawn[best, rows]
        if not with_log_prob:
            return actions, torch.empty(0)
        if act.continuous:
            own = log_probs(act, explore, amount, out, mask, actions)
            _, others = draw()
            return actions, best_of_k_log_density(own, torch.from_numpy(scores[best, rows]), torch.from_numpy(others.T.copy()), k)
        choices = [np.full(len(out), n) for n in range(act.size)]
        probs = torch.stack([log_probs(act, explore, amount, out, mask, own).exp() for own in choices], -1)
        probs = probs if mask is None else probs * mask
        all_scores = torch.from_numpy(np.stack([score(as_numbers(act, own)) for own in choices], -1))
        return actions, best_of_k_log_prob(probs, all_scores, torch.from_numpy(actions), k)


def as_numbers(act: ActionMap, actions: NDArray[np.float32]) -> NDArray[np.float32]:
    """Continuous actions as they are, choices as one-hot vectors."""
    return actions if act.continuous else np.eye(act.size, dtype=np.float32)[actions]
