"""Training episodes whose transitions are stored: whole ones, or segments that continue from one job to the next.

An environment in the middle of an episode cannot be saved. But an episode is a pure function of its seed and its
actions, so a job says which episode each environment is in and which actions it has taken: a worker whose environment is
there continues it, any other one takes those actions again first. That makes a segment a pure function of its job.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from baldwin.envs import VectorEnv
from baldwin.errors import EnvironmentFailure
from baldwin.networks import ActionMap, Forward
from baldwin.ops import seeds
from baldwin.ops.targets import split_gaussian
from baldwin.rollout.episodes import MAX_ABS_OBS, NOT_FINITE
from baldwin.types import Arrays, Outcome, Worker

FIRST_ENV = np.zeros(1, np.int32)
NO_EPISODE = -1


@dataclass(frozen=True, slots=True)
class EpisodePosition:
    """Where an environment is: in which of its episodes, after which actions (as the learner knows them)."""

    env: int
    episode: int
    actions: NDArray[Any]  # [n, A] in [-1, 1], or [n] indices


@dataclass(frozen=True, slots=True)
class CollectJob:
    """Continue these environments for so many steps each, or a single one to the end of its episode. Carries the parameters that act."""

    ticket: int
    seed: int  # of the run
    params: NDArray[np.float32]
    obs_moments: NDArray[np.float64]
    positions: tuple[EpisodePosition, ...]
    steps: int | None  # None: to the end of the episode
    explore: Literal["greedy", "random", "noise", "sample"]
    noise: float = 0.0  # standard deviation, in units of half the action range
    max_episode_steps: int | None = None
    stream: int | None = None

    @property
    def kind(self) -> str:
        """For the timeline."""
        return "collect"

    @property
    def tickets(self) -> tuple[int, ...]:
        """Its only ticket."""
        return (self.ticket,)

    def run(self, worker: Worker) -> list[Outcome]:
        """One outcome; its arrays are those of `collect`."""
        return [worker.collect(self)]


@dataclass(slots=True)
class RunningEnv:
    """One environment, and where it is in its episode."""

    env: VectorEnv
    episode: int = NO_EPISODE
    elapsed: int = 0
    obs: NDArray[Any] = field(default_factory=lambda: np.zeros(0))

    def begin(self, job: CollectJob, env: int, episode: int) -> None:
        """Reset to the start of an episode."""
        self.env.open(episode_seed(job.seed, env, episode), 0)
        self.episode = episode
        self.elapsed = 0
        self.obs = self._checked(self.env.reset(FIRST_ENV))

    def step(self, action: NDArray[Any]) -> tuple[float, bool, bool]:
        """Reward, terminated, and truncated by the environment itself.

        Raises:
            EnvironmentFailure: the environment raised, or returned what is not finite.
        """
        obs, reward, terminated, truncated = self.env.step(action, FIRST_ENV)
        self.obs = self._checked(obs)
        self.elapsed += 1
        if not np.isfinite(reward[0]):
            raise EnvironmentFailure(NOT_FINITE)
        return float(reward[0]), bool(terminated[0]), bool(truncated[0])

    def _checked(self, obs: NDArray[Any]) -> NDArray[Any]:
        if self.env.failures:
            raise EnvironmentFailure(self.env.failures.pop(0))
        if not np.abs(obs).max() <= MAX_ABS_OBS:  # NaN is not <= anything
            raise EnvironmentFailure(NOT_FINITE)
        return np.array(obs[0], np.float32)


def episode_seed(seed: int, env: int, episode: int) -> NDArray[np.int64]:
    """The seed [1] of an episode that is collected."""
    return seeds.seeds(1, seed, seeds.Stream.COLLECT, env, episode)


def fast_forward(running: RunningEnv, job: CollectJob, position: EpisodePosition, act: ActionMap) -> int:
    """Bring an environment to where the job continues; the number of steps that had to be simulated again."""
    if (running.episode, running.elapsed) == (position.episode, len(position.actions)):
        return 0
    running.begin(job, position.env, position.episode)
    for action in position.actions:
        running.step(act.unscale_action(action[None]))
    return len(position.actions)


@torch.inference_mode()
def collect(envs: list[RunningEnv], forward: Forward, act: ActionMap, job: CollectJob) -> tuple[Arrays, int, str]:
    """Step the environments of a job.

    Returns obs [L, T + 1, D] (after an episode's end, the first of the next one), action, reward and flags [L, T], and
    `final_obs` [ends, D], environment by environment; the number of steps that were simulated again; and why it was cut
    short, if an environment failed after some steps.

    Raises:
        EnvironmentFailure: an environment failed at once, or in an episode that is needed whole.
    """
    rng = seeds.generator(job.seed, seeds.Stream.EXPLORE, job.ticket)
    replayed = sum(fast_forward(env, job, position, act) for env, position in zip(envs, job.positions, strict=True))
    observations = [np.stack([env.obs for env in envs])]
    actions: list[NDArray[Any]] = []
    rewards: list[list[float]] = []
    flags: list[list[tuple[bool, bool]]] = []
    final: list[list[NDArray[Any]]] = [[] for _ in envs]
    reason = ""
    while len(actions) != job.steps:
        unit = choose_actions(forward, act, job, observations[-1], rng)
        try:
            steps = _step_all(envs, act.unscale_action(unit), job)
        except EnvironmentFailure as error:
            if job.steps is None or not actions:
                raise
            reason = str(error)
            break
        actions.append(unit)
        rewards.append([step.reward for step in steps])
        flags.append([(step.terminated, step.truncated) for step in steps])
        for own, step in zip(final, steps, strict=True):
            own += [] if step.final_obs is None else [step.final_obs]
        observations.append(np.stack([env.obs for env in envs]))
        if job.steps is None and any(flags[-1][0]):
            break
    final_obs = [o for own in final for o in own]
    ended = np.array(flags).transpose(1, 0, 2)
    arrays = {
        "obs": np.stack(observations, 1),
        "action": np.stack(actions, 1),
        "reward": np.array(rewards, np.float32).T.copy(),
        "terminated": ended[..., 0].copy(),
        "truncated": ended[..., 1].copy(),
        "final_obs": np.stack(final_obs) if final_obs else np.empty((0, observations[0].shape[1]), np.float32),
    }
    return arrays, replayed, reason


class Step(NamedTuple):
    """One step of one environment, and its last observation if that ended the episode."""

    reward: float
    terminated: bool
    truncated: bool
    final_obs: NDArray[Any] | None


def _step_all(envs: list[RunningEnv], actions: NDArray[Any], job: CollectJob) -> list[Step]:
    """Step every environment once; where an episode ends, the next one begins."""
    steps = []
    for n, env in enumerate(envs):
        reward, terminated, truncated_by_env = env.step(actions[n : n + 1])
        truncated = not terminated and (truncated_by_env or env.elapsed == job.max_episode_steps)
        ended = terminated or truncated
        steps.append(Step(reward, terminated, truncated, env.obs if ended else None))
        if ended and job.steps is None:
            env.episode = NO_EPISODE
        elif ended:
            env.begin(job, job.positions[n].env, env.episode + 1)
    return steps


def transitions(arrays: Arrays) -> Iterator[dict[str, NDArray[Any]]]:
    """The steps of each environment as rows for a replay buffer."""
    used = 0
    for n, obs in enumerate(arrays["obs"]):
        own = {name: arrays[name][n] for name in ("action", "reward", "terminated", "truncated")}
        ended = own["terminated"] | own["truncated"]
        next_obs = obs[1:].copy()
        next_obs[ended] = arrays["final_obs"][used : used + ended.sum()]
        used += int(ended.sum())
        yield {"obs": obs[:-1], "next_obs": next_obs, **own}


def choose_actions(forward: Forward, act: ActionMap, job: CollectJob, obs: NDArray[np.float32], rng: np.random.Generator) -> NDArray[Any]:
    """Actions as the learner knows them: [L, A] in [-1, 1], or [L] indices."""
    count = len(obs)
    if job.explore == "random":
        if act.continuous:
            return rng.uniform(-1, 1, (count, act.size)).astype(np.float32)
        return rng.integers(0, act.size, count)
    out = forward(torch.from_numpy(obs))
    if job.explore == "greedy":
        return np.asarray(torch.tanh(out[:, : act.size]).numpy() if act.continuous else out.argmax(1).numpy())
    if not act.continuous:
        gumbel = rng.gumbel(size=out.shape) if job.explore == "sample" else 0.0
        return np.asarray((out.double().numpy() + gumbel).argmax(1))
    noise = rng.standard_normal((count, act.size), dtype=np.float32)
    if job.explore == "sample":
        mean, log_std = split_gaussian(out)
        return np.asarray(torch.tanh(mean + log_std.exp() * torch.from_numpy(noise)).numpy())
    return np.asarray(np.clip(torch.tanh(out).numpy() + np.float32(job.noise) * noise, -1, 1))
