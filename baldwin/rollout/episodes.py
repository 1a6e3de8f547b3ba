"""Whole episodes of many individuals, stepped in one batch.

Trial t of a block plays on environment t mod width, one episode after the other; an environment that has no more trials
is dropped. So neighbours (the two of a mirrored pair) play the same numbers of episodes on neighbouring environments:
equal seeds make them start from equal states. No step is spent on a finished environment.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Self, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from baldwin.envs import OpponentEnv, TurnEnv, VectorEnv
from baldwin.networks import ActionMap, Normalizer, ObservationBuffer, StackedPolicies
from baldwin.observations import ACTION_MASK, VECTOR, Observation, ObservationSpec, take
from baldwin.opponents import SCRIPT, UNREPORTED, Mixture, reported_win
from baldwin.ops import seeds as seeding
from baldwin.ops.moments import Moments

NOISE_CHUNK = 256
MOMENT_ROWS = 4096
MAX_ABS_OBS = 1e10  # an observation beyond this would ruin the observation statistics for good
NOTHING_LEGAL = "the environment's action mask allows no action"
NOT_FINITE = f"the environment returned a reward or observation that is not finite; expected numbers within +-{MAX_ABS_OBS:g}"


@dataclass(frozen=True, slots=True)
class RolloutSpec:
    """How the episodes of a job are played."""

    purpose: str  # "train", "evaluate" or "mean": each keeps its own environments
    version: int  # of the shared center that the job was made for
    seeds: NDArray[np.int64]  # one per environment; their number is the width
    first_episode: int  # episodes that these seeds have already given
    episodes: int = 1  # of each trial
    max_steps: int | None = None  # after which an episode is truncated
    action_noise: float = 0.0
    collect_moments: bool = False  # return the moments of the observations
    skip_failed_episodes: bool = False  # an episode that fails is left out instead of failing its trial
    obs_moments: NDArray[np.float64] | None = None  # to normalise by; None: those shared with the center
    collect_results: bool = False  # return what the environment tells of each episode: components of the reward, score, behaviour
    opponents: Mixture | None = None  # of which every episode chooses; None: the world's own script

    def for_players(self, count: int) -> Self:
        """The same for so many players of each match side by side. The first has the seed of the match, the others only noise of their own."""
        if count == 1:
            return self
        own = [[seed, *(seeding.mix(seed, player) for player in range(1, count))] for seed in self.seeds.tolist()]
        return replace(self, seeds=np.array(own, np.int64).ravel())

    def choose_opponent(self, env: int, episode: int) -> int:
        """Whom an environment meets in its episode of this number; environments with equal seeds meet the same."""
        return self.opponents.choose(int(self.seeds[env]), 0, self.first_episode + episode) if self.opponents else SCRIPT


@dataclass(slots=True)
class RolloutResult:
    """Results of the trials of a block."""

    returns: NDArray[np.float64]  # [N, episodes]; NaN where it failed
    lengths: NDArray[np.int64]  # [N, episodes]
    truncated: NDArray[np.bool_]  # [N, episodes]
    reasons: dict[int, str]  # trial -> why it failed
    moments: Moments
    opponents: NDArray[np.int64]  # [N, episodes], members of the pool
    wins: NDArray[np.float64]  # [N, episodes], who won against these, where the world tells
    results: dict[str, NDArray[np.float64]]  # name -> [N, episodes], NaN where an episode did not tell; empty unless asked for

    def of_matches(self, players: int) -> RolloutResult:
        """The same with one row for so many players of a match: mean returns and results, the steps of all. A failed one fails all."""
        if players == 1:
            return self

        def by_match(array: NDArray[Any]) -> NDArray[Any]:
            return array.reshape(-1, players, array.shape[1])

        return RolloutResult(
            by_match(self.returns).mean(1),
            by_match(self.lengths).sum(1),
            by_match(self.truncated)[:, 0],
            {row // players: reason for row, reason in sorted(self.reasons.items(), reverse=True)},
            self.moments,
            by_match(self.opponents)[:, 0],
            by_match(self.wins)[:, 0],
            {name: by_match(values).mean(1) for name, values in self.results.items()},
        )

    def games(self) -> NDArray[np.float64]:
        """Opponent, return and who won, of each episode that did not fail, [games, 3]."""
        played = np.isfinite(self.returns)
        return np.stack([array[played] for array in (self.opponents, self.returns, self.wins)], 1).astype(np.float64)


class MomentsAccumulator:
    """Collects observations and reduces them a few thousand at a time."""

    def __init__(self, size: int) -> None:
        self._rows = np.empty((MOMENT_ROWS, size))
        self._filled = 0
        self._moments = Moments.empty(size)

    def add(self, obs: NDArray[np.floating]) -> None:
        """Add observations [k, D]."""
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
    """Gaussian action noise, seeded by environment and episode, so that the two of a pair get the same."""

    def __init__(self, spec: RolloutSpec, size: int) -> None:
        self._spec = spec
        self._size = size
        self._chunks: dict[int, tuple[np.random.Generator, NDArray[np.float32]]] = {}

    def start(self, env: int, episode: int) -> None:
        """Prepare the noise of a new episode."""
        rng = seeding.generator(int(self._spec.seeds[env]), seeding.Stream.ACTION_NOISE, self._spec.first_episode + episode)
        self._chunks[env] = (rng, self._draw(rng))

    def rows(self, envs: NDArray[np.int32], elapsed: NDArray[np.int64]) -> Tensor:
        """The noise [k, size] of each environment at its step."""
        out = np.empty((len(envs), self._size), np.float32)
        for row, (env, step) in enumerate(zip(envs.tolist(), elapsed.tolist(), strict=True)):
            rng, chunk = self._chunks[env]
            if step and step % NOISE_CHUNK == 0:
                chunk = self._draw(rng)
                self._chunks[env] = (rng, chunk)
            out[row] = chunk[step % NOISE_CHUNK]
        return torch.from_numpy(out)

    def _draw(self, rng: np.random.Generator) -> NDArray[np.float32]:
        return rng.standard_normal((NOISE_CHUNK, self._size), dtype=np.float32) * np.float32(self._spec.action_noise)


class BlockState:
    """Which trial each environment plays, and the results so far."""

    def __init__(self, envs: VectorEnv, trials: int, spec: RolloutSpec, rewards: tuple[str, ...] = ()) -> None:
        """`rewards`: names of the components of the reward."""
        self.envs, self.spec, self.trials, self.rewards = envs, spec, trials, rewards
        self.returns = np.full((trials, spec.episodes), np.nan)
        self.lengths = np.zeros((trials, spec.episodes), np.int64)
        self.truncated = np.zeros((trials, spec.episodes), np.bool_)
        self.opponents = np.full((trials, spec.episodes), SCRIPT, np.int64)
        self.wins = np.full((trials, spec.episodes), UNREPORTED)
        self.reasons: dict[int, str] = {}
        width = min(envs.width, trials)
        self.ids = np.arange(width, dtype=np.int32)  # the environments in use
        self.row = np.arange(width)  # the row of the stack that each of them plays
        self.episode_index = np.zeros(width, np.int64)  # how many episodes each has played
        self.elapsed = np.zeros(width, np.int64)
        self.decisions = np.zeros(width, np.int64)  # fewer than the elapsed steps where players wait for their turns
        self.total = np.zeros(width)
        self.results: dict[str, NDArray[np.float64]] = {}
        self._components: dict[int, NDArray[np.float64]] = {}  # environment -> sums over its episode

    def add_components(self, components: NDArray[np.float32]) -> None:
        """Add the components [k, C] of a step's rewards."""
        for env, values in zip(self.ids.tolist(), components, strict=True):
            self._components[env] = self._components.get(env, 0.0) + values.astype(np.float64)

    def _note_results(self, at: int, trial: int, episode: int) -> None:
        """What the environment tells of the episode that ended at this position."""
        env = int(self.ids[at])
        tell = getattr(self.envs, "result", None)
        result = flat_result(tell(env)) if tell else {}
        self.wins[trial, episode] = reported_win(result)
        if not self.spec.collect_results:
            return
        for name, value in (dict(zip(self.rewards, self._components.pop(env, ()), strict=False)) | result).items():
            self.results.setdefault(name, np.full(self.returns.shape, np.nan))[trial, episode] = value

    def trial_of(self, at: int) -> tuple[int, int]:
        """Which trial, and which of its episodes, the environment at this position plays now."""
        episode_index = int(self.episode_index[at])
        return int(self.ids[at]) + episode_index // self.spec.episodes * self.envs.width, episode_index % self.spec.episodes

    def reset(self, positions: NDArray[np.intp]) -> Observation:
        """Begin the next episodes of the environments at these positions; their first observations."""
        ids = self.ids[positions]
        if self.spec.opponents:
            chosen = [self.spec.choose_opponent(int(self.ids[at]), int(self.episode_index[at])) for at in positions.tolist()]
            for at, opponent in zip(positions.tolist(), chosen, strict=True):
                self.opponents[self.trial_of(at)] = opponent
            cast("OpponentEnv", self.envs).opponents[ids] = chosen
        return self.envs.reset(ids)

    def finish(self, at: int, truncated: bool, reason: str) -> int | None:
        """Record the episode that ended at this position; returns the trial that comes next, or None."""
        trial, episode = self.trial_of(at)
        told = not reason and (self.spec.collect_results or self.spec.opponents)  # a match that failed, or never began, has no result
        if told:
            self._note_results(at, trial, episode)
        reason = reason or ("" if np.isfinite(self.total[at]) else NOT_FINITE)
        if reason:
            self._components.pop(int(self.ids[at]), None)
            self.reasons.setdefault(trial, reason)
        else:
            self.returns[trial, episode] = self.total[at]
        self.lengths[trial, episode] = self.decisions[at]
        self.truncated[trial, episode] = truncated
        self.episode_index[at] += 1
        self.elapsed[at], self.decisions[at], self.total[at] = 0, 0, 0.0
        following, _ = self.trial_of(at)
        return following if following < self.trials else None

    def drop(self, keep: NDArray[np.bool_]) -> None:
        """Continue with these positions only."""
        self.ids, self.row, self.episode_index = self.ids[keep], self.row[keep], self.episode_index[keep]
        self.elapsed, self.decisions, self.total = self.elapsed[keep], self.decisions[keep], self.total[keep]


@torch.inference_mode()
def play_episodes(
    envs: VectorEnv,
    obs_spec: ObservationSpec,
    stack: StackedPolicies,
    trials: int,
    normalize: Normalizer,
    act: ActionMap,
    spec: RolloutSpec,
    rewards: tuple[str, ...] = (),
    players: int = 1,
) -> RolloutResult:
    """Play every episode of every trial of the block. `rewards`: names of the components of the reward.

    `players`: so many neighbouring trials are the players of one match, which ends for all of them at once.
    """
    envs.open(spec.seeds, spec.first_episode)
    block = BlockState(envs, trials, spec, rewards)
    max_steps = spec.max_steps or np.iinfo(np.int64).max
    moments = MomentsAccumulator(obs_spec.vector_size)
    noise = ActionNoise(spec, act.size) if spec.action_noise and act.continuous else None
    if noise:
        for env in block.ids.tolist():
            noise.start(env, 0)
    obs = block.reset(np.arange(len(block.ids)))
    seen = ObservationBuffer(obs_spec, len(block.ids))
    seen.begin(slice(None), obs)
    whole = True  # every row of the stack is in use
    while True:
        bad = find_bad(obs)
        deciding = cast("TurnEnv", envs).deciding[block.ids].copy() if hasattr(envs, "deciding") else None
        if spec.collect_moments and VECTOR in obs:
            flags = [own for own in (deciding, None if bad is None else ~bad) if own is not None]
            moments.add(obs[VECTOR][np.logical_and.reduce(flags)] if flags else obs[VECTOR])
        out, mask = stack(normalize(seen.tensors), _of_rows(deciding, block.row, stack.width)), seen.tensors.get(ACTION_MASK)
        if not whole:
            rows = torch.from_numpy(block.row)
            out, mask = out[rows], None if mask is None else mask[rows]
        if mask is not None:
            for env in block.ids[~act.has_legal(mask).numpy()].tolist():
                envs.failures.setdefault(env, NOTHING_LEGAL)
        actions = act(out, noise.rows(block.ids, block.elapsed) if noise else None, mask)
        if bad is not None and act.continuous:
            actions[bad] = 0.0
        obs, reward, terminated, truncated, components, _ = envs.step(actions, block.ids)
        if spec.collect_results and components is not None:
            block.add_components(components)
        block.elapsed += 1
        block.decisions += 1 if deciding is None else deciding
        block.total += reward
        over = terminated | truncated | (block.elapsed >= max_steps)
        if bad is not None:
            block.total[bad] = np.nan
            over = over | bad
        if envs.failures:
            over = over | np.isin(block.ids, list(envs.failures))
        if players > 1:
            over = over.reshape(-1, players).any(1).repeat(players)
        seen.advance(slice(None) if whole else block.row, obs)
        if not over.any():
            continue
        obs = _reset_finished(block, stack, seen, obs, over, terminated, noise)
        if not len(block.ids):
            return RolloutResult(
                block.returns, block.lengths, block.truncated, block.reasons, moments.flush(), block.opponents, block.wins, block.results
            ).of_matches(players)
        whole = len(block.ids) == stack.width
        if not whole and 2 * len(block.ids) <= stack.width:
            stack.keep(torch.from_numpy(block.row))
            seen.keep(block.row)
            block.row, whole = np.arange(len(block.ids)), True


def _of_rows(deciding: NDArray[np.bool_] | None, rows: NDArray[np.intp], width: int) -> Tensor | None:
    """Flags of environments as flags of the rows that they play; rows that nobody plays any more count for nothing."""
    if deciding is None or deciding.all():
        return None
    found = torch.ones(width, dtype=torch.bool)
    found[torch.from_numpy(rows)] = torch.from_numpy(deciding)
    return found


def flat_result(result: Mapping[str, Any]) -> dict[str, float]:
    """The numbers of what a world tells after the end, those of nested maps (`behaviour`, `objectives`) beside the others."""
    flat: dict[str, float] = {}
    for name, value in result.items():
        if isinstance(value, Mapping):
            flat |= flat_result(value)
        elif isinstance(value, int | float | np.number):
            flat[name] = float(value)
    return flat


def find_bad(obs: Observation) -> NDArray[np.bool_] | None:
    """Which observations have numbers that are not finite, or absurd; None if all are sound."""
    bad: NDArray[np.bool_] | None = None
    for array in obs.values():
        if array.dtype.kind == "f":
            size = np.abs(array)
            if not size.max() <= MAX_ABS_OBS:  # NaN is not <= anything
                own = np.asarray(~(size.reshape(len(size), -1) <= MAX_ABS_OBS).all(1))
                bad = own if bad is None else bad | own
    return bad


def _reset_finished(
    block: BlockState,
    stack: StackedPolicies,
    seen: ObservationBuffer,
    obs: Observation,
    over: NDArray[np.bool_],
    terminated: NDArray[np.bool_],
    noise: ActionNoise | None,
) -> Observation:
    """Record the episodes that are over, begin the next ones, drop environments that have none."""
    keep = np.ones(len(block.ids), np.bool_)
    refill: list[int] = []
    for at in np.flatnonzero(over).tolist():
        env, row = int(block.ids[at]), int(block.row[at])
        before, _ = block.trial_of(at)
        following = block.finish(at, truncated=not terminated[at], reason=block.envs.failures.pop(env, ""))
        if following is None:
            keep[at] = False
            continue
        if following != before:
            stack.load(row, following)
        stack.reset(row)
        if noise:
            noise.start(env, int(block.episode_index[at]))
        refill.append(at)
    if refill:
        begun = block.reset(np.array(refill, np.intp))
        seen.begin(block.row[refill], begun)
        obs = {key: np.array(array) for key, array in obs.items()}
        for key, array in begun.items():
            obs[key][refill] = array
    if keep.all():
        return obs
    block.drop(keep)
    return take(obs, keep)
