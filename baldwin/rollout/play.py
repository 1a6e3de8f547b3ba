"""The one loop in which an environment is stepped.

Member t of a block plays on lane t mod width, one episode after the other; a lane that has no more members is dropped.
So neighbours (the two of a pair) sit on neighbouring lanes and play the same numbers of episodes there: equal lane
seeds make them meet equal worlds. No step is spent on a finished lane.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from baldwin.envs import Lanes
from baldwin.ops import seeds as seeding
from baldwin.ops.moments import Moments
from baldwin.policies import ActionMap, Stack

NOISE_CHUNK = 256
MOMENT_ROWS = 4096
LARGEST = 1e10  # an observation beyond this would blind the statistics for ever
NOT_FINITE = f"the environment returned a reward or observation that is not finite; expected numbers within +-{LARGEST:g}"


@dataclass(frozen=True, slots=True)
class Plan:
    """How the episodes of a job are played."""

    purpose: str  # "train" or "evaluate": each keeps its own lanes
    version: int  # of the shared centre that the job was made for
    seeds: NDArray[np.int64]  # one a lane; their number is the width
    skip: int  # episodes that these seeds have already given
    episodes: int = 1  # of each trial
    limit: int | None = None  # steps after which the clock ends an episode
    action_noise: float = 0.0
    collect: bool = False  # observation moments
    lenient: bool = False  # an episode that fails is left out, and does not fail its trial
    moments: NDArray[np.float64] | None = None  # what to normalise by; if not given, what was shared with the centre


@dataclass(slots=True)
class Played:
    """What the members of a block came to."""

    returns: NDArray[np.float64]  # [N, episodes]; NaN where it failed
    lengths: NDArray[np.int64]  # [N, episodes]
    truncated: NDArray[np.bool_]  # [N, episodes]
    reasons: dict[int, str]  # member -> why it failed
    moments: Moments


class Tally:
    """Collects observations and reduces them a few thousand at a time."""

    def __init__(self, size: int) -> None:
        self._rows = np.empty((MOMENT_ROWS, size))
        self._filled = 0
        self._moments = Moments.empty(size)

    def add(self, obs: NDArray[np.floating]) -> None:
        """Count these observations [k, D]."""
        if self._filled + len(obs) > MOMENT_ROWS:
            self.flush()
        if len(obs) > MOMENT_ROWS:
            self._moments = self._moments.merge(Moments.of(obs))
            return
        self._rows[self._filled : self._filled + len(obs)] = obs
        self._filled += len(obs)

    def flush(self) -> Moments:
        """The moments of all that was added."""
        if self._filled:
            self._moments = self._moments.merge(Moments.of(self._rows[: self._filled]))
            self._filled = 0
        return self._moments


class ActionNoise:
    """Gaussian action noise, seeded by lane and episode, so that the two of a pair get the same."""

    def __init__(self, plan: Plan, size: int) -> None:
        self._plan = plan
        self._size = size
        self._chunks: dict[int, tuple[np.random.Generator, NDArray[np.float32]]] = {}

    def start(self, lane: int, episode: int) -> None:
        """A new episode begins on this lane."""
        rng = seeding.generator(int(self._plan.seeds[lane]), seeding.Stream.ACTION_NOISE, self._plan.skip + episode)
        self._chunks[lane] = (rng, self._draw(rng))

    def rows(self, lanes: NDArray[np.int32], elapsed: NDArray[np.int64]) -> Tensor:
        """The noise [k, size] of each lane at its step."""
        out = np.empty((len(lanes), self._size), np.float32)
        for row, (lane, step) in enumerate(zip(lanes.tolist(), elapsed.tolist(), strict=True)):
            rng, chunk = self._chunks[lane]
            if step and step % NOISE_CHUNK == 0:
                chunk = self._draw(rng)
                self._chunks[lane] = (rng, chunk)
            out[row] = chunk[step % NOISE_CHUNK]
        return torch.from_numpy(out)

    def _draw(self, rng: np.random.Generator) -> NDArray[np.float32]:
        return rng.standard_normal((NOISE_CHUNK, self._size), dtype=np.float32) * np.float32(self._plan.action_noise)


class Block:
    """The bookkeeping of one job: who plays where, and what came of it."""

    def __init__(self, lanes: Lanes, members: int, plan: Plan) -> None:
        self.lanes, self.plan, self.members = lanes, plan, members
        self.returns = np.full((members, plan.episodes), np.nan)
        self.lengths = np.zeros((members, plan.episodes), np.int64)
        self.truncated = np.zeros((members, plan.episodes), np.bool_)
        self.reasons: dict[int, str] = {}
        width = min(lanes.width, members)
        self.ids = np.arange(width, dtype=np.int32)  # the lanes at work
        self.row = np.arange(width)  # where each of them sits in the stack
        self.turn = np.zeros(width, np.int64)  # how many episodes each has played
        self.elapsed = np.zeros(width, np.int64)
        self.total = np.zeros(width)

    def member(self, at: int) -> tuple[int, int]:
        """Which member, and which of its episodes, the lane at this place plays now."""
        turn = int(self.turn[at])
        return int(self.ids[at]) + turn // self.plan.episodes * self.lanes.width, turn % self.plan.episodes

    def finish(self, at: int, cut: bool, reason: str) -> int | None:
        """Write down the episode that ended at this place; the member that comes next, or None."""
        member, episode = self.member(at)
        reason = reason or ("" if np.isfinite(self.total[at]) else NOT_FINITE)
        if reason:
            self.reasons.setdefault(member, reason)
        else:
            self.returns[member, episode] = self.total[at]
        self.lengths[member, episode] = self.elapsed[at]
        self.truncated[member, episode] = cut
        self.turn[at] += 1
        self.elapsed[at], self.total[at] = 0, 0.0
        following, _ = self.member(at)
        return following if following < self.members else None

    def drop(self, keep: NDArray[np.bool_]) -> None:
        """Go on with these places only."""
        self.ids, self.row, self.turn = self.ids[keep], self.row[keep], self.turn[keep]
        self.elapsed, self.total = self.elapsed[keep], self.total[keep]


@torch.inference_mode()
def play(lanes: Lanes, stack: Stack, members: int, normalize: Callable[[Tensor], Tensor], act: ActionMap, plan: Plan) -> Played:
    """Play every episode of every member of the block."""
    lanes.open(plan.seeds, plan.skip)
    block = Block(lanes, members, plan)
    limit = plan.limit or np.iinfo(np.int64).max
    obs = lanes.reset(block.ids)
    tally = Tally(obs.shape[1])
    noise = ActionNoise(plan, act.size) if plan.action_noise and act.continuous else None
    if noise:
        for lane in block.ids.tolist():
            noise.start(lane, 0)
    inputs = torch.zeros(len(block.ids), obs.shape[1])
    whole = True  # every row of the stack is at work
    while True:
        bad = None if np.abs(obs).max() <= LARGEST else ~(np.abs(obs) <= LARGEST).all(1)  # NaN is not <= anything
        if plan.collect:
            tally.add(obs if bad is None else obs[~bad])
        if whole:
            inputs.copy_(torch.from_numpy(obs))
            out = stack(normalize(inputs))
        else:
            rows = torch.from_numpy(block.row)
            inputs[rows] = torch.from_numpy(obs).to(inputs.dtype)
            out = stack(normalize(inputs))[rows]
        actions = act(out, noise.rows(block.ids, block.elapsed) if noise else None)
        if bad is not None and act.continuous:
            actions[bad] = 0.0
        obs, reward, terminated, truncated = lanes.step(actions, block.ids)
        block.elapsed += 1
        block.total += reward
        over = terminated | truncated | (block.elapsed >= limit)
        if bad is not None:
            block.total[bad] = np.nan
            over = over | bad
        if lanes.failures:
            over = over | np.isin(block.ids, list(lanes.failures))
        if not over.any():
            continue
        obs = _turn_over(block, stack, obs, over, terminated, noise)
        if not len(block.ids):
            return Played(block.returns, block.lengths, block.truncated, block.reasons, tally.flush())
        whole = len(block.ids) == len(inputs)
        if not whole and 2 * len(block.ids) <= len(inputs):
            stack.keep(torch.from_numpy(block.row))
            block.row = np.arange(len(block.ids))
            inputs, whole = torch.zeros(len(block.ids), obs.shape[1]), True


def _turn_over(
    block: Block, stack: Stack, obs: NDArray[np.floating], over: NDArray[np.bool_], terminated: NDArray[np.bool_], noise: ActionNoise | None
) -> NDArray[np.floating]:
    """Close the episodes that are over, begin the next ones on their lanes, drop lanes that have none."""
    keep = np.ones(len(block.ids), np.bool_)
    refill: list[int] = []
    for at in np.flatnonzero(over).tolist():
        lane = int(block.ids[at])
        before, _ = block.member(at)
        following = block.finish(at, cut=not terminated[at], reason=block.lanes.failures.pop(lane, ""))
        if following is None:
            keep[at] = False
            continue
        if following != before:
            stack.load(int(block.row[at]), following)
        if noise:
            noise.start(lane, int(block.turn[at]))
        refill.append(at)
    if refill:
        obs = np.array(obs)
        obs[refill] = block.lanes.reset(block.ids[refill])
    if keep.all():
        return obs
    block.drop(keep)
    return obs[keep]
