"""Segments of experience side by side, as the on-policy learners take them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from baldwin.learners.turns import complete_spans
from baldwin.networks import ObservationBuffer
from baldwin.observations import Observation, ObservationSpec
from baldwin.rollout import DECIDED, FINAL_OBS, OBS, START_MEMORY, START_OBS
from baldwin.types import Arrays


@dataclass(frozen=True, slots=True)
class Experience:
    """L segments of up to T steps. Shorter ones are padded at the end; `valid` says which steps are real."""

    obs: Observation  # [L, T, ...], all frames
    last_obs: Observation  # [L, ...], after the last real step
    final_obs: Observation  # [E, ...], the last observation of each episode that ended
    final_at: NDArray[np.int64]  # [E, 2], segment and step at which it ended
    action: NDArray[np.float32]  # [L, T, columns], as a distribution stores them
    log_prob: NDArray[np.float32]  # [L, T], when they were taken
    reward: NDArray[np.float32]  # [L, T, C]
    terminated: NDArray[np.bool_]  # [L, T]
    truncated: NDArray[np.bool_]  # [L, T]
    elapsed: NDArray[np.int32]  # [L, T] frames
    valid: NDArray[np.bool_]  # [L, T]
    memory: NDArray[np.float32]  # [L, S] of the policy at the start

    @property
    def ended(self) -> NDArray[np.bool_]:
        """Where an episode ended [L, T]."""
        return self.terminated | self.truncated

    @property
    def begins(self) -> NDArray[np.bool_]:
        """Steps before which an episode ended [L, T]; a segment's first step continues from `memory`."""
        return np.concatenate([np.zeros_like(self.terminated[:, :1]), self.ended[:, :-1]], 1)

    @property
    def steps(self) -> int:
        """Steps of all segments, padding not counted."""
        return int(self.valid.sum())


def from_segment(arrays: Arrays, spec: ObservationSpec) -> Experience:
    """The arrays of one collected segment of some environments. Of players that take turns, a step is from one decision to the next."""
    reward = arrays["reward"]
    count, steps = reward.shape
    ended = arrays["terminated"] | arrays["truncated"]
    newest = {name.removeprefix(OBS): a for name, a in arrays.items() if name.startswith(OBS)}
    obs = _with_frames(newest, arrays, ended, spec)
    components = np.asarray(arrays["rewards"] if "rewards" in arrays else reward[..., None], np.float32)
    elapsed = np.asarray(arrays["elapsed"] if "elapsed" in arrays else np.ones((count, steps)), np.int32)
    experience = Experience(
        obs={key: array[:, :-1] for key, array in obs.items()},
        last_obs={key: array[:, -1] for key, array in obs.items()},
        final_obs={name.removeprefix(FINAL_OBS): a for name, a in arrays.items() if name.startswith(FINAL_OBS)},
        final_at=np.argwhere(ended),
        action=arrays["action"],
        log_prob=arrays["log_prob"],
        reward=components,
        terminated=arrays["terminated"],
        truncated=arrays["truncated"],
        elapsed=elapsed,
        valid=np.ones((count, steps), np.bool_),
        memory=arrays.get(START_MEMORY, np.zeros((count, 0), np.float32)),
    )
    return by_decisions(experience, arrays[DECIDED]) if DECIDED in arrays else experience


def by_decisions(experience: Experience, decided: NDArray[np.bool_]) -> Experience:
    """Steps that last from one decision of a player to its next, or to the end: their rewards and frames are those of all rows between.

    `decided` [L, T + 1]: rows in which the player decides; the last one is after the segment. A decision that is not answered when the segment
    ends is left out.
    """
    spans = [complete_spans(own, ended) for own, ended in zip(decided, experience.ended, strict=True)]
    count, length = len(spans), max(1, *(len(own) for own in spans))
    rows = [(n, step, start, stop) for n, own in enumerate(spans) for step, (start, stop) in enumerate(own)]

    def spread(array: NDArray[Any], values: Sequence[Any]) -> NDArray[Any]:
        found = np.zeros((count, length, *array.shape[2:]), array.dtype)
        for (n, step, _, _), value in zip(rows, values, strict=True):
            found[n, step] = value
        return found

    def first(array: NDArray[Any]) -> NDArray[Any]:
        return spread(array, [array[n, start] for n, _, start, _ in rows])

    def last(array: NDArray[Any]) -> NDArray[Any]:
        return spread(array, [array[n, stop - 1] for n, _, _, stop in rows])

    def total(array: NDArray[Any]) -> NDArray[Any]:
        return spread(array, [array[n, start:stop].sum(0) for n, _, start, stop in rows])

    answered = {(n, stop - 1): step for n, step, _, stop in rows}
    kept = [at for at, end in enumerate(experience.final_at.tolist()) if tuple(end) in answered]
    final_at = [(n, answered[n, t]) for n, t in experience.final_at[kept].tolist()]
    last_obs, memory = {key: array.copy() for key, array in experience.last_obs.items()}, experience.memory.copy()
    for n, own in enumerate(spans):
        if not own:
            continue
        begin, end = own[0][0], own[-1][1]
        if end < experience.valid.shape[1]:  # else the last observation is that of its next decision
            for key, array in last_obs.items():
                array[n] = experience.obs[key][n, end]
        if experience.ended[n, :begin].any():  # its first step is in another episode than the one that it remembers
            memory[n] = 0.0
    return replace(
        experience,
        obs={key: first(array) for key, array in experience.obs.items()},
        last_obs=last_obs,
        final_obs={key: array[kept] for key, array in experience.final_obs.items()},
        final_at=np.array(final_at, np.int64).reshape(-1, 2),
        action=first(experience.action),
        log_prob=first(experience.log_prob),
        reward=total(experience.reward),
        terminated=last(experience.terminated),
        truncated=last(experience.truncated),
        elapsed=total(experience.elapsed),
        valid=spread(experience.valid, [True] * len(rows)),
        memory=memory,
    )


def _with_frames(newest: Observation, arrays: Arrays, ended: NDArray[np.bool_], spec: ObservationSpec) -> Observation:
    """Observations [L, T + 1, ...] with all frames, from the newest ones and the first observation."""
    if not any(name.startswith(START_OBS) for name in arrays):
        return newest
    count, steps = ended.shape
    seen = ObservationBuffer(spec, count)
    found = {key: np.empty((count, steps + 1, *a.shape[1:]), a.dtype) for key, a in seen.arrays.items()}
    for key, array in seen.arrays.items():
        array[:] = arrays[START_OBS + key] if START_OBS + key in arrays else newest[key][:, 0]
        found[key][:, 0] = array
    for t in range(1, steps + 1):
        now = {key: a[:, t] for key, a in newest.items()}
        seen.advance(slice(None), now)
        begun = np.flatnonzero(ended[:, t - 1])
        if len(begun):
            seen.begin(begun, {key: a[begun] for key, a in now.items()})
        for key, array in seen.arrays.items():
            found[key][:, t] = array
    return found


def join(parts: Sequence[Experience]) -> Experience:
    """Segments below each other, the shorter ones padded to the longest."""
    if len(parts) == 1:
        return parts[0]
    steps = max(part.valid.shape[1] for part in parts)
    firsts = np.cumsum([0, *(len(part.valid) for part in parts)])
    joined: dict[str, Any] = {}
    for field in fields(Experience):
        values = [getattr(part, field.name) for part in parts]
        if field.name == "final_at":
            joined[field.name] = np.concatenate([at + np.array([first, 0]) for at, first in zip(values, firsts[:-1], strict=True)])
        elif field.name in ("last_obs", "final_obs", "obs"):
            padded = field.name == "obs"
            joined[field.name] = {key: np.concatenate([_pad(v[key], steps) if padded else v[key] for v in values]) for key in values[0]}
        else:
            joined[field.name] = np.concatenate(values if field.name == "memory" else [_pad(v, steps) for v in values])
    return Experience(**joined)


def _pad(array: NDArray[Any], steps: int) -> NDArray[Any]:
    missing = steps - array.shape[1]
    return np.pad(array, [(0, 0), (0, missing)] + [(0, 0)] * (array.ndim - 2)) if missing else array
