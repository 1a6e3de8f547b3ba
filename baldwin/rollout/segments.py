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
from torch import Tensor

from baldwin.envs import VectorEnv
from baldwin.errors import EnvironmentFailure
from baldwin.networks import ActionMap, Forward, Inputs, ObservationBuffer, mask_logits
from baldwin.observations import ACTION_MASK, VECTOR, Observation, ObservationSpec, stack_observations
from baldwin.ops import seeds
from baldwin.ops.targets import split_gaussian
from baldwin.rollout.episodes import NOT_FINITE, NOTHING_LEGAL, find_bad
from baldwin.types import Arrays, Outcome, Worker

FIRST_ENV = np.zeros(1, np.int32)
OBS, NEXT_OBS, FINAL_OBS, MEMORY = "obs/", "next_obs/", "final_obs/", "memory"
"""Names, or prefixes of names, of a segment's arrays."""
NO_EPISODE = -1


@dataclass(frozen=True, slots=True)
class EpisodePosition:
    """Where an environment is: in which of its episodes, after which actions (as the learner knows them), and what the policy remembers."""

    env: int
    episode: int
    actions: NDArray[Any]  # [n, A] in [-1, 1], or [n] indices
    memory: NDArray[np.float32] = field(
        default_factory=lambda: np.zeros(0, np.float32)
    )  # [S]; it depends on policies that are gone, so that nobody could compute it again


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


class RunningEnv:
    """One environment, where it is in its episode, and what the policy sees of it."""

    def __init__(self, env: VectorEnv, obs_spec: ObservationSpec) -> None:
        self.env = env
        self.episode = NO_EPISODE
        self.elapsed = 0
        self.newest: Observation = {}  # [1, ...], without earlier frames
        self.seen = ObservationBuffer(obs_spec, 1)

    def begin(self, job: CollectJob, env: int, episode: int) -> None:
        """Reset to the start of an episode."""
        self.env.open(episode_seed(job.seed, env, episode), 0)
        self.episode = episode
        self.elapsed = 0
        self.newest = self._checked(self.env.reset(FIRST_ENV))
        self.seen.begin(slice(None), self.newest)

    def step(self, action: NDArray[Any]) -> tuple[float, bool, bool]:
        """Reward, terminated, and truncated by the environment itself.

        Raises:
            EnvironmentFailure: the environment raised, or returned what is not finite.
        """
        obs, reward, terminated, truncated = self.env.step(action, FIRST_ENV)
        self.newest = self._checked(obs)
        self.seen.advance(slice(None), self.newest)
        self.elapsed += 1
        if not np.isfinite(reward[0]):
            raise EnvironmentFailure(NOT_FINITE)
        return float(reward[0]), bool(terminated[0]), bool(truncated[0])

    def _checked(self, obs: Observation) -> Observation:
        if self.env.failures:
            raise EnvironmentFailure(self.env.failures.pop(0))
        if find_bad(obs) is not None:
            raise EnvironmentFailure(NOT_FINITE)
        return {key: array.astype(np.float32) if key == VECTOR else array.copy() for key, array in obs.items()}


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
    """Step the environments of a job. `forward`: of one network, (observations [L, ...], memory [L, S]) -> (outputs, memory).

    Returns, for each key of an observation, obs/KEY [L, T + 1, ...] (newest frames; after an episode's end, the first of the
    next one) and final_obs/KEY [ends, ...] (all frames), environment by environment; action, reward and flags [L, T]; and
    memory [L, S] after the last step, if the policy has any. Then the number of steps that were simulated again, and why
    it was cut short, if an environment failed after some steps.

    Raises:
        EnvironmentFailure: an environment failed at once, or in an episode that is needed whole.
    """
    rng = seeds.generator(job.seed, seeds.Stream.EXPLORE, job.ticket)
    replayed = sum(fast_forward(env, job, position, act) for env, position in zip(envs, job.positions, strict=True))
    memory = torch.from_numpy(np.stack([position.memory for position in job.positions]))
    observations = [_newest(envs)]
    actions: list[NDArray[Any]] = []
    rewards: list[list[float]] = []
    flags: list[list[tuple[bool, bool]]] = []
    final: list[list[Observation]] = [[] for _ in envs]
    reason = ""
    while len(actions) != job.steps:
        try:
            unit, memory = choose_actions(forward, act, job, _all_frames(envs), memory, rng)
            steps = _step_all(envs, act.unscale_action(unit), job)
        except EnvironmentFailure as error:
            if job.steps is None or not actions:
                raise
            reason = str(error)
            break
        actions.append(unit)
        rewards.append([step.reward for step in steps])
        flags.append([(step.terminated, step.truncated) for step in steps])
        for n, step in enumerate(steps):
            if step.final_obs is not None:
                final[n].append(step.final_obs)
                memory[n] = 0.0
        observations.append(_newest(envs))
        if job.steps is None and any(flags[-1][0]):
            break
    final_obs = [o for own in final for o in own]
    ended = np.array(flags).transpose(1, 0, 2)
    arrays = {OBS + key: array for key, array in stack_observations(observations, 1).items()} | {
        "action": np.stack(actions, 1),
        "reward": np.array(rewards, np.float32).T.copy(),
        "terminated": ended[..., 0].copy(),
        "truncated": ended[..., 1].copy(),
    }
    for key, array in envs[0].seen.arrays.items():
        arrays[FINAL_OBS + key] = np.stack([o[key] for o in final_obs]) if final_obs else np.empty((0, *array.shape[1:]), array.dtype)
    return arrays | ({MEMORY: memory.numpy()} if memory.shape[1] else {}), replayed, reason


def _newest(envs: list[RunningEnv]) -> Observation:
    return {key: np.concatenate([env.newest[key] for env in envs]) for key in envs[0].newest}


def _all_frames(envs: list[RunningEnv]) -> dict[str, Tensor]:
    return {key: torch.from_numpy(np.concatenate([env.seen.arrays[key] for env in envs])) for key in envs[0].seen.arrays}


class Step(NamedTuple):
    """One step of one environment, and its last observation if that ended the episode."""

    reward: float
    terminated: bool
    truncated: bool
    final_obs: Observation | None


def _step_all(envs: list[RunningEnv], actions: NDArray[Any], job: CollectJob) -> list[Step]:
    """Step every environment once; where an episode ends, the next one begins."""
    steps = []
    for n, env in enumerate(envs):
        reward, terminated, truncated_by_env = env.step(actions[n : n + 1])
        truncated = not terminated and (truncated_by_env or env.elapsed == job.max_episode_steps)
        ended = terminated or truncated
        final_obs = {key: array[0].copy() for key, array in env.seen.arrays.items()} if ended else None
        steps.append(Step(reward, terminated, truncated, final_obs))
        if ended and job.steps is None:
            env.episode = NO_EPISODE
        elif ended:
            env.begin(job, job.positions[n].env, env.episode + 1)
    return steps


def transitions(arrays: Arrays) -> Iterator[dict[str, NDArray[Any]]]:
    """The steps of each environment as rows for a replay buffer: obs/KEY and next_obs/KEY (newest frames), action, reward, flags."""
    used = 0
    keys = [name.removeprefix(OBS) for name in arrays if name.startswith(OBS)]
    for n in range(len(arrays["reward"])):
        rows = {name: arrays[name][n] for name in ("action", "reward", "terminated", "truncated")}
        ended = rows["terminated"] | rows["truncated"]
        ends = slice(used, used + int(ended.sum()))
        used = ends.stop
        for key in keys:
            obs = arrays[OBS + key][n]
            next_obs = obs[1:].copy()
            next_obs[ended] = arrays[FINAL_OBS + key][ends][:, -obs.shape[1] :]
            rows |= {OBS + key: obs[:-1], NEXT_OBS + key: next_obs}
        yield rows


def final_observations(arrays: Arrays) -> Iterator[Observation]:
    """The last observation [1, ...] of every episode that ended, with all frames, in the order of `transitions`."""
    names = [name for name in arrays if name.startswith(FINAL_OBS)]
    for n in range(len(arrays[names[0]])):
        yield {name.removeprefix(FINAL_OBS): arrays[name][n : n + 1] for name in names}


def choose_actions(
    forward: Forward, act: ActionMap, job: CollectJob, obs: Inputs, memory: Tensor, rng: np.random.Generator
) -> tuple[NDArray[Any], Tensor]:
    """Actions as the learner knows them, [L, A] in [-1, 1] or [L] indices of legal choices; and the memory after this step."""
    count, mask = len(memory), obs.get(ACTION_MASK)
    if mask is not None and not bool(act.has_legal(mask).all()):
        raise EnvironmentFailure(NOTHING_LEGAL)
    if job.explore == "random" and not memory.shape[1]:
        return random_actions(act, count, mask, rng), memory
    out, memory = forward(obs, memory)
    if job.explore == "random":
        return random_actions(act, count, mask, rng), memory
    return policy_actions(act, job, out, mask, rng), memory


def random_actions(act: ActionMap, count: int, mask: Tensor | None, rng: np.random.Generator) -> NDArray[Any]:
    """Uniform over the Box, or over the legal choices."""
    if act.continuous:
        return rng.uniform(-1, 1, (count, act.size)).astype(np.float32)
    if mask is None:
        return rng.integers(0, act.size, count)
    return np.asarray(np.where(mask.numpy(), rng.random((count, act.size)), -1.0).argmax(1))


def policy_actions(act: ActionMap, job: CollectJob, out: Tensor, mask: Tensor | None, rng: np.random.Generator) -> NDArray[Any]:
    """Greedy, sampled or noisy actions for the actor's outputs [L, out]."""
    if not act.continuous:
        logits = out if mask is None else mask_logits(out, mask)
        gumbel = rng.gumbel(size=out.shape) if job.explore == "sample" else 0.0
        return np.asarray((logits.double().numpy() + gumbel).argmax(1))
    if job.explore == "greedy":
        return np.asarray(torch.tanh(out[:, : act.size]).numpy())
    noise = rng.standard_normal((len(out), act.size), dtype=np.float32)
    if job.explore == "sample":
        mean, log_std = split_gaussian(out)
        return np.asarray(torch.tanh(mean + log_std.exp() * torch.from_numpy(noise)).numpy())
    return np.asarray(np.clip(torch.tanh(out).numpy() + np.float32(job.noise) * noise, -1, 1))
