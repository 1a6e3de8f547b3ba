"""Training episodes that go on from one job to the next.

An environment in the middle of an episode cannot be saved. But an episode is a pure function of its seed and its
actions, so a job says which episode each lane is in and which actions it has taken: a worker that stands there goes on,
any other one plays those actions again. That makes a stretch of experience a pure function of its job.
"""

from __future__ import annotations

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


@dataclass(frozen=True, slots=True)
class Where:
    """Where a lane stands: in which of its episodes, after which actions (as the learner knows them)."""

    lane: int
    episode: int
    actions: NDArray[Any]  # [n, A] in [-1, 1], or [n] indices


@dataclass(frozen=True, slots=True)
class Collect:
    """Go on with these lanes for so many steps each. Self-contained: it carries the parameters that act."""

    ticket: int
    seed: int  # of the run
    params: NDArray[np.float32]
    obs_moments: NDArray[np.float64]
    lanes: tuple[Where, ...]
    steps: int
    explore: Literal["random", "noise", "sample"]
    noise: float = 0.0  # std, in units of half the action range
    limit: int | None = None

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
    obs = np.empty((len(lanes), plan.steps + 1, len(lanes[0].obs)), np.float32)
    actions: list[NDArray[Any]] = []
    reward = np.empty((len(lanes), plan.steps), np.float32)
    terminated, truncated = np.zeros(reward.shape, np.bool_), np.zeros(reward.shape, np.bool_)
    last: list[list[NDArray[Any]]] = [[] for _ in lanes]
    obs[:, 0] = [live.obs for live in lanes]
    for t in range(plan.steps):
        unit = choose(forward, act, plan, obs[:, t], rng)
        actions.append(unit)
        taken = act.from_unit(unit)
        for n, live in enumerate(lanes):
            reward[n, t], terminated[n, t], cut = live.step(taken[n : n + 1])
            truncated[n, t] = not terminated[n, t] and (cut or live.elapsed == plan.limit)
            if terminated[n, t] or truncated[n, t]:
                last[n].append(live.obs)
                live.begin(plan, plan.lanes[n].lane, live.episode + 1)
            obs[n, t + 1] = live.obs
    ends = [o for own in last for o in own]
    return {
        "obs": obs,
        "action": np.stack(actions, 1),
        "reward": reward,
        "terminated": terminated,
        "truncated": truncated,
        "last": np.stack(ends) if ends else np.empty((0, obs.shape[2]), np.float32),
    }


def choose(forward: Act, act: ActionMap, plan: Collect, obs: NDArray[np.float32], rng: np.random.Generator) -> NDArray[Any]:
    """Actions as the learner knows them: [L, A] in [-1, 1], or [L] indices."""
    count = len(obs)
    if plan.explore == "random":
        if act.continuous:
            return rng.uniform(-1, 1, (count, act.size)).astype(np.float32)
        return rng.integers(0, act.size, count)
    out = forward(torch.from_numpy(obs))
    if not act.continuous:
        gumbel = rng.gumbel(size=out.shape) if plan.explore == "sample" else 0.0
        return np.asarray((out.double().numpy() + gumbel).argmax(1))
    noise = rng.standard_normal((count, act.size), dtype=np.float32)
    if plan.explore == "sample":
        mean, log_std = split_gaussian(out)
        return np.asarray(torch.tanh(mean + log_std.exp() * torch.from_numpy(noise)).numpy())
    return np.asarray(np.clip(torch.tanh(out).numpy() + np.float32(plan.noise) * noise, -1, 1))
