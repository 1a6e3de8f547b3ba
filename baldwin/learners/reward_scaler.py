"""Rewards divided by the standard deviation of their discounted sums, as VecNormalize of Stable-Baselines3 does it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from baldwin.learners.experience import Experience
from baldwin.ops.moments import Moments
from baldwin.types import State

STD_FLOOR = 1e-4


class RewardScaler:
    """For every environment the discounted sum of its episode so far; statistics of all of them, frozen within a segment."""

    def __init__(self, n_envs: int, gamma: float, weights: NDArray[np.float32]) -> None:
        """`gamma`: the discount per frame; `weights` [C] of the components, all of which are divided by the same number."""
        self._gamma, self._weights = gamma, weights
        self._sums = np.zeros((n_envs, 1))
        self._moments = Moments.empty(1)

    def scale(self, experience: Experience, envs: Sequence[int], clip: float) -> Experience:
        """The segments of these environments with scaled rewards; their own sums are part of the statistics."""
        rows, sums = list(envs), []
        for t in range(experience.valid.shape[1]):
            reward = experience.reward[:, t] @ self._weights
            self._sums[rows] = self._gamma ** experience.elapsed[:, t, None] * self._sums[rows] + reward[:, None]
            sums.append(self._sums[rows][experience.valid[:, t]])
            self._sums[np.array(rows)[experience.ended[:, t]]] = 0.0
        self._moments = self._moments.merge(Moments.of(np.concatenate(sums)))
        scaled = np.clip(experience.reward / self._moments.std(STD_FLOOR), -clip, clip)
        return replace(experience, reward=scaled.astype(np.float32))

    def forget(self, envs: Sequence[int]) -> None:
        """The episodes of these environments were given up."""
        self._sums[list(envs)] = 0.0

    def state_dict(self) -> State:
        """The discounted sums of the open episodes [n_envs, 1], and the moments of all sums so far."""
        return {"sums": self._sums.copy(), "moments": self._moments.pack()}

    def load_state_dict(self, state: State) -> None:
        """Continue from a `state_dict`."""
        self._sums = state["sums"].copy()
        self._moments = Moments.unpack(state["moments"])
