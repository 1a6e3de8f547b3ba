"""What happens in a segment, step by step."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from baldwin.envs import StepResult
from baldwin.networks import (
    ActionDistribution,
    ActionMap,
)
from baldwin.observations import Observation
from baldwin.opponents import WIN
from baldwin.rollout.collect_job import (
    DECIDED,
    FAILED,
    FINAL_OBS,
    MEMORIES,
    OBS,
    UNBEGUN,
)
from baldwin.rollout.running_envs import RunningEnvs

UNKNOWN_STEPS = 128  # for which there is space at first in an episode that is collected whole
NOT_BEGUN = "an episode did not begin"


class Recorder:
    """The steps of a segment as they happen: arrays [L, T, ...] by name, written in place."""

    def __init__(self, running: RunningEnvs, steps: int | None, unbegun: NDArray[np.int64] | None = None) -> None:
        """`steps`: how many there will be; None: nobody knows. `unbegun`: as in `add_observation`."""
        self._running, self._steps = running, steps or UNKNOWN_STEPS
        self.count = 0  # steps so far
        self._seen = 0  # observations so far: one more, unless the next episode did not begin
        self._arrays: dict[str, NDArray[Any]] = {}
        self.deciding: NDArray[np.bool_] | None = None  # whose next action counts; None: everybody's
        self.outputs: list[Tensor] = []  # of the network, where log-probabilities are asked for
        self.masks: list[Tensor] = []
        self.memories: list[Tensor] = []  # before each step, where they are asked for
        self.log_probs: list[Tensor] = []  # the same
        self.final: list[list[Observation]] = [[] for _ in running.ids]
        self.reason = ""  # of the first failure
        self._failed: list[tuple[int, list[int]]] = []  # step, and whose episodes failed with it
        self._unbegun: list[tuple[int, NDArray[np.int64]]] = []  # observation, and how many episodes [L] did not begin before it
        self.add_observation(unbegun)

    def add(self, actions: NDArray[Any], step: StepResult, truncated: NDArray[np.bool_], over: NDArray[np.int32], games: bool) -> None:
        """One step of all environments; `truncated` by a time limit too; `over`: those whose episodes ended; `games`: against a pool."""
        self._put("action", self.count, actions)
        self._put("reward", self.count, step.reward, np.float32)
        self._put("terminated", self.count, step.terminated)
        self._put("truncated", self.count, truncated)
        if step.components is not None:
            self._put("rewards", self.count, step.components)
        if step.elapsed is not None:
            self._put("elapsed", self.count, step.elapsed)
        if games:
            self._put(WIN, self.count, self._running.wins(over))
        if self._running.failures:
            self._failed.append((self.count, list(self._running.failures)))
            self._note_reason()
        self.count += 1
        for n in over.tolist():
            self.final[n].append({key: array[n].copy() for key, array in self._running.seen.arrays.items()})

    def add_observation(self, unbegun: NDArray[np.int64] | None = None) -> None:
        """What is seen now: after an episode's end, the first observation of the next one. `unbegun`: how many did not begin before it [L]."""
        if unbegun is not None and unbegun.any():
            self._unbegun.append((self._seen, unbegun))
            self._note_reason()
        for key, array in self._running.newest.items():
            self._put(OBS + key, self._seen, array)
        self.deciding = self._running.deciding
        if self.deciding is not None:
            self._put(DECIDED, self._seen, self.deciding)
        self._seen += 1

    def _note_reason(self) -> None:
        self.reason = self.reason or next(iter(self._running.failures.values()), NOT_BEGUN)

    def cut(self) -> None:
        """End with the steps so far."""
        if self._seen == self.count:  # the next episode did not begin
            self.add_observation()

    @property
    def failed(self) -> NDArray[np.bool_]:
        """The steps with which an episode failed [L, T]."""
        found = np.zeros((len(self.final), self.count), np.bool_)
        for step, envs in self._failed:
            found[envs, step] = True
        return found

    def failures(self) -> dict[str, NDArray[Any]]:
        """Episodes that failed and that did not begin, if there were any."""
        if not self.reason:
            return {}
        unbegun = np.zeros((len(self.final), self._seen), np.int64)
        for at, counts in self._unbegun:
            unbegun[:, at] += counts
        return {FAILED: self.failed, UNBEGUN: unbegun}

    def arrays(self) -> dict[str, NDArray[Any]]:
        """The steps as arrays by name, as `collect` returns them."""
        found = {name: np.ascontiguousarray(a[:, : self.count + _is_seen(name)]) for name, a in self._arrays.items()}
        if DECIDED in found and found[DECIDED].all():
            del found[DECIDED]
        final_obs = [o for own in self.final for o in own]
        for key, array in self._running.seen.arrays.items():
            found[FINAL_OBS + key] = np.stack([o[key] for o in final_obs]) if final_obs else np.empty((0, *array.shape[1:]), array.dtype)
        return found

    def _put(self, name: str, step: int, values: NDArray[Any], dtype: Any = None) -> None:
        """The values [L, ...] of one step."""
        array = self._arrays.get(name)
        if array is None:
            shape = len(values), self._steps + _is_seen(name), *values.shape[1:]
            array = self._arrays[name] = np.empty(shape, dtype or values.dtype)
        elif step >= array.shape[1]:
            array = self._arrays[name] = np.concatenate((array, np.empty_like(array)), 1)
        array[:, step] = values

    def kept(self) -> dict[str, NDArray[Any]]:
        """What the job asked for of every step: memories [L, T, S], log_prob [L, T]."""
        found = {MEMORIES: self.memories[: self.count], "log_prob": self.log_probs[: self.count]}
        return {name: torch.stack(values, 1).numpy() for name, values in found.items() if values}

    def log_prob(self, act: ActionMap, log_std: Tensor | None) -> NDArray[np.float32]:
        """Log-probabilities [L, T] of the actions."""
        actions = torch.from_numpy(self._arrays["action"][:, : self.count])  # [L, T, columns]
        mask = torch.stack(self.masks[: self.count], 1).flatten(0, 1) if self.masks else None
        outputs = torch.stack(self.outputs[: self.count], 1).flatten(0, 1)
        found = ActionDistribution(act, outputs, mask, log_std)
        return np.asarray(found.log_prob(actions.flatten(0, 1)).view(actions.shape[:2]).numpy())


def _is_seen(name: str) -> bool:
    """Whether an array tells what is seen: before every step, and after the last one."""
    return name.startswith(OBS) or name == DECIDED
