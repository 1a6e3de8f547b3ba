"""Training episodes whose transitions are kept: whole ones, or stretches that go on from one job to the next.

An environment in the middle of an episode cannot be saved. But an episode is a pure function of its seed and its
actions, so a job says which episode each lane is in and which actions it has taken: a worker that stands there goes on,
any other one plays those actions again. That makes a stretch of experience a pure function of its job.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from baldwin.envs import Lanes
from baldwin.errors import EnvironmentFailure
from baldwin.ops import seeds
from baldwin.ops.targets import split_gaussian
from baldwin.policies import ActionMap
from baldwin.rollout.play import LARGEST, NOT_FINITE
from baldwin.types import Arrays, Outcome, Worker

ONE = np.zeros(1, np.int32)
OVER = -1  # no episode has this number


@dataclass(frozen=True, slots=True)
class Where:
    """Where a lane stands: in which of its episodes, after which actions (as the learner knows them)."""

    lane: int
    episode: int
    actions: NDArray[Any]  # [n, A] in [-1, 1], or [n] indices


@dataclass(frozen=True, slots=True)
class Collect:
    """Go on with these lanes for so many steps each, or a single one to the end of its episode. Carries the parameters that act."""

    ticket: int
    seed: int  # of the run
    params: NDArray[np.float32]
    obs_moments: NDArray[np.float64]
    lanes: tuple[Where, ...]
    steps: int | None
    explore: Literal["greedy", "random", "noise", "sample"]
    noise: float = 0.0  # std, in units of half the action range
    limit: int | None = None

    @property
    def kind(self) -> str:
        """Collecting."""
        return "collect"

    @property
    def tickets(self) -> tuple[int, ...]:
        """The one it answers for."""
        return (self.ticket,)

    def run(self, worker: Worker) -> list[Outcome]:
        """One outcome: its arrays are the transitions."""
        return [worker.collect(self)]


class Act(Protocol):
    """A policy for a batch of raw observations."""

    def __call__(self, obs: Tensor) -> Tensor:
        """Outputs [L, out]."""


@dataclass(slots=True)
class Live:
    """An environment that is in an episode now."""

    lanes: Lanes
    episode: int = -1
    elapsed: int = 0
    obs: NDArray[Any] = field(default_factory=lambda: np.zeros(0))

    def begin(self, plan: Collect, lane: int, episode: int) -> None:
        """The first observation of this episode."""
        self.lanes.open(seeds.seeds(1, plan.seed, seeds.Stream.COLLECT, lane, episode), 0)
        self.episode, self.elapsed = episode, 0
        self.obs = self._checked(self.lanes.reset(ONE))

    def step(self, action: NDArray[Any]) -> tuple[float, bool, bool]:
        """Reward, terminated, truncated by the environment itself."""
        obs, reward, terminated, truncated = self.lanes.step(action, ONE)
        self.obs = self._checked(obs)
        self.elapsed += 1
        if not np.isfinite(reward[0]):
            raise EnvironmentFailure(NOT_FINITE)
        return float(reward[0]), bool(terminated[0]), bool(truncated[0])

    def _checked(self, obs: NDArray[Any]) -> NDArray[Any]:
        if self.lanes.failures:
            raise EnvironmentFailure(self.lanes.failures.pop(0))
        if not np.abs(obs).max() <= LARGEST:  # NaN is not <= anything
            raise EnvironmentFailure(NOT_FINITE)
        return np.array(obs[0], np.float32)


def stand(live: Live, plan: Collect, where: Where, act: ActionMap) -> None:
    """Bring a lane to where the job wants it, if it is not there."""
    if (live.episode, live.elapsed) == (where.episode, len(where.actions)):
        return
    live.begin(plan, where.lane, where.episode)
    for action in where.actions:
        live.step(act.from_unit(action[None]))


@torch.inference_mode()
def collect(lanes: list[Live], forward: Act, act: ActionMap, plan: Collect) -> Arrays:
    """obs [L, T + 1, D] (after an end, the next episode's first), action, reward and flags [L, T], and `last` [ends, D]:
    the final observations, lane by lane.
    """
    rng = seeds.generator(plan.seed, seeds.Stream.EXPLORE, plan.ticket)
    for live, where in zip(lanes, plan.lanes, strict=True):
        stand(live, plan, where, act)
    seen = [np.stack([live.obs for live in lanes])]
    actions: list[NDArray[Any]] = []
    rewards: list[list[float]] = []
    flags: list[list[tuple[bool, bool]]] = []
    last: list[list[NDArray[Any]]] = [[] for _ in lanes]
    while len(actions) != plan.steps:
        unit = choose(forward, act, plan, seen[-1], rng)
        actions.append(unit)
        taken = act.from_unit(unit)
        rewards.append([])
        flags.append([])
        for n, live in enumerate(lanes):
            reward, terminated, cut = live.step(taken[n : n + 1])
            truncated = not terminated and (cut or live.elapsed == plan.limit)
            rewards[-1].append(reward)
            flags[-1].append((terminated, truncated))
            if terminated or truncated:
                last[n].append(live.obs)
                if plan.steps is None:
                    live.episode = OVER
                else:
                    live.begin(plan, plan.lanes[n].lane, live.episode + 1)
        seen.append(np.stack([live.obs for live in lanes]))
        if plan.steps is None and any(flags[-1][0]):
            break
    ends = [o for own in last for o in own]
    ended = np.array(flags).transpose(1, 0, 2)
    return {
        "obs": np.stack(seen, 1),
        "action": np.stack(actions, 1),
        "reward": np.array(rewards, np.float32).T.copy(),
        "terminated": ended[..., 0].copy(),
        "truncated": ended[..., 1].copy(),
        "last": np.stack(ends) if ends else np.empty((0, seen[0].shape[1]), np.float32),
    }


def transitions(arrays: Arrays) -> Iterator[dict[str, NDArray[Any]]]:
    """The steps of each lane as rows for a replay: what was seen, done and got, and what came next."""
    used = 0
    for row, obs in enumerate(arrays["obs"]):
        own = {name: arrays[name][row] for name in ("action", "reward", "terminated", "truncated")}
        ended = own["terminated"] | own["truncated"]
        following = obs[1:].copy()
        following[ended] = arrays["last"][used : used + ended.sum()]
        used += int(ended.sum())
        yield {"obs": obs[:-1], "next_obs": following, **own}


def choose(forward: Act, act: ActionMap, plan: Collect, obs: NDArray[np.float32], rng: np.random.Generator) -> NDArray[Any]:
    """Actions as the learner knows them: [L, A] in [-1, 1], or [L] indices."""
    count = len(obs)
    if plan.explore == "random":
        if act.continuous:
            return rng.uniform(-1, 1, (count, act.size)).astype(np.float32)
        return rng.integers(0, act.size, count)
    out = forward(torch.from_numpy(obs))
    if plan.explore == "greedy":
        return np.asarray(torch.tanh(out[:, : act.size]).numpy() if act.continuous else out.argmax(1).numpy())
    if not act.continuous:
        gumbel = rng.gumbel(size=out.shape) if plan.explore == "sample" else 0.0
        return np.asarray((out.double().numpy() + gumbel).argmax(1))
    noise = rng.standard_normal((count, act.size), dtype=np.float32)
    if plan.explore == "sample":
        mean, log_std = split_gaussian(out)
        return np.asarray(torch.tanh(mean + log_std.exp() * torch.from_numpy(noise)).numpy())
    return np.asarray(np.clip(torch.tanh(out).numpy() + np.float32(plan.noise) * noise, -1, 1))
