"""Copies that are simulators of their own, for backends whose episodes depend on what was played before them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from baldwin.envs.vector_env import Ids, StepResult, VectorEnv
from baldwin.observations import Observation
from baldwin.ops.seeds import mix

FIRST = np.zeros(1, np.int32)


class SeparateEnvs:
    """One simulator per copy, seeded anew for every episode."""

    def __init__(self, envs: Sequence[VectorEnv]) -> None:
        """`envs`: of width one each."""
        self._envs = envs
        self.width = len(envs)
        self.failures: dict[int, str] = {}
        self._seeds = np.zeros(self.width, np.int64)
        self._episode = np.zeros(self.width, np.int64)

    def open(self, seeds: NDArray[np.int64], first_episode: int | NDArray[np.int64]) -> None:
        """Seeds of all copies and numbers of their next episodes, as `VectorEnv.open` says."""
        self._seeds[:] = seeds
        self._episode[:] = first_episode
        self.failures.clear()

    def reset(self, ids: Ids) -> Observation:
        """Begin the next episode of these copies, each with a seed of its own."""
        rows = []
        for n in ids.tolist():
            self._envs[n].open(np.array([mix(int(self._seeds[n]), int(self._episode[n]))]), 0)
            self._episode[n] += 1
            rows.append(self._envs[n].reset(FIRST))
            self._note_failure(n)
        return {key: np.concatenate([row[key] for row in rows]) for key in rows[0]}

    def step(self, actions: NDArray[Any], ids: Ids) -> StepResult:
        """Step these copies one after the other."""
        steps = []
        for row, n in enumerate(ids.tolist()):
            steps.append(self._envs[n].step(actions[row : row + 1], FIRST))
            self._note_failure(n)
        obs = {key: np.concatenate([step.obs[key] for step in steps]) for key in steps[0].obs}
        reward, terminated, truncated = (np.concatenate(parts) for parts in zip(*(step[1:4] for step in steps), strict=True))
        components = [step.components for step in steps if step.components is not None]
        elapsed = [step.elapsed for step in steps if step.elapsed is not None]
        return StepResult(
            obs,
            reward,
            terminated,
            truncated,
            np.concatenate(components) if components else None,
            np.concatenate(elapsed) if elapsed else None,
        )

    def close(self) -> None:
        """Close every copy of the environment."""
        for env in self._envs:
            env.close()

    def _note_failure(self, n: int) -> None:
        if self._envs[n].failures:
            self.failures.setdefault(n, self._envs[n].failures.pop(0))
