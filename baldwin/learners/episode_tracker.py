"""The open episodes of a learner's environments: where to continue them, and how they went."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from baldwin.learners.replay_learner import ReplayLearner
from baldwin.networks import ObservationBuffer
from baldwin.observations import Observation, ObservationSpec
from baldwin.opponents import SCRIPT, UNREPORTED, WIN, game_score
from baldwin.ops.statistics import latency_percentiles, return_stats
from baldwin.rollout import FAILED, LATENCIES, OBS, REPLACED, UNBEGUN, EpisodePosition
from baldwin.types import Arrays, Metrics, State

EMPTY_STATS = ("return_mean", "return_std", "return_min", "return_max", "episode_length", "q_bias")


@dataclass(slots=True)
class OpenEpisode:
    """An episode that has not ended."""

    number: int = 0
    actions: list[NDArray[Any]] = field(default_factory=list)  # one block per segment
    last_index: int = -1  # of its newest row in the replay
    total_reward: float = 0.0
    discounted_return: float = 0.0
    length: int = 0
    frames: int = 0  # as many, unless steps last several
    start: tuple[Observation, NDArray[Any]] | None = None  # first observation [1, ...], with all frames, and action
    memory: NDArray[np.float32] = field(default_factory=lambda: np.zeros(0, np.float32))  # of the policy, [S]


class FinishedEpisode(NamedTuple):
    """What is reported of an episode."""

    total_reward: float
    length: int
    q_bias: float  # the critics' value of its start minus the discounted return


class EpisodeTracker:
    """For every environment the open episode; for the epoch, statistics of the episodes that ended in it."""

    def __init__(self, n_envs: int, empty_actions: NDArray[Any], obs_spec: ObservationSpec, learner: ReplayLearner | None = None) -> None:
        """`empty_actions` [0, ...]: the actions of an episode that has not begun. `learner`: whose Q-values are compared with returns."""
        self._empty_actions, self._learner, self._obs_spec = empty_actions, learner, obs_spec
        self._open = [OpenEpisode() for _ in range(n_envs)]
        self._finished: list[FinishedEpisode] = []
        self._failed = 0  # episodes that failed, or did not begin, in this epoch
        self._last_stats: Metrics = {name: 0.0 for name in EMPTY_STATS if learner or name != "q_bias"}
        self._latencies: list[NDArray[np.float32]] = []  # of live worlds, in this epoch
        self._replaced = 0
        self.on_end: Callable[[int, int, float | None], None] | None = None  # (environment, episode, game_score; None: given up)

    def positions(self, envs: Sequence[int], opponents: Sequence[int] | None = None) -> tuple[EpisodePosition, ...]:
        """Where these environments are in their episodes; `opponents` of all environments, where they have any."""
        return tuple(
            EpisodePosition(n, self._open[n].number, self._actions(n), self._open[n].memory, opponents[n] if opponents else SCRIPT)
            for n in envs
        )

    def remember(self, env: int, memory: NDArray[np.float32]) -> None:
        """What the policy remembers [S] where the environment stands now."""
        self._open[env].memory = memory

    def last_index(self, env: int) -> int:
        """Index in the replay of the newest row of the open episode, or -1."""
        return self._open[env].last_index

    def drop_episodes(self, envs: Sequence[int]) -> None:
        """Give up the open episodes of these environments; the next ones begin."""
        for n in envs:
            if self.on_end:
                self.on_end(n, self._open[n].number, None)
            self._begin_next(n)

    def _fail(self, n: int) -> None:
        """The open episode failed: it counts neither as a return nor as a game."""
        self._failed += 1
        self.drop_episodes([n])

    def _begin_next(self, n: int) -> None:
        self._open[n] = OpenEpisode(self._open[n].number + 1, memory=np.zeros_like(self._open[n].memory))

    def add_latencies(self, arrays: Arrays) -> None:
        """Those of a segment in a live world."""
        if LATENCIES in arrays:
            self._latencies.append(np.asarray(arrays[LATENCIES], np.float32))
            self._replaced += int(arrays[REPLACED])

    def add_segments(self, envs: Sequence[int], arrays: Arrays) -> None:
        """Follow these environments through a segment each: rows [L, T, ...] of action, reward, terminated, truncated, who won and what failed."""
        ends = np.any(arrays["terminated"] | arrays["truncated"], axis=1).tolist()
        totals = arrays["reward"].sum(1, dtype=np.float64).tolist()
        actions = arrays["action"].copy()
        for row, env in enumerate(envs):
            if ends[row] or UNBEGUN in arrays:
                self.add_steps(env, {name: array[row] for name, array in arrays.items()})
                continue
            episode = self._open[env]
            episode.total_reward += totals[row]
            episode.length += actions.shape[1]
            episode.actions.append(actions[row])

    def add_steps(
        self, env: int, rows: Arrays, last_index: int = -1, final_obs: Iterator[Observation] | None = None, valued: bool = True
    ) -> None:
        """Follow an environment through these rows, the last of which has that index in the replay.

        `valued`: an episode's first action is one that the critics value; not where a player may wait for its turn.
        `final_obs`: the last observation of each episode that ends in them, to bootstrap from where Q-values are compared with returns.
        """
        gamma = self._learner.config.gamma if self._learner else 1.0
        ended = rows["terminated"] | rows["truncated"]
        failed, unbegun = rows.get(FAILED, np.zeros_like(ended)), rows.get(UNBEGUN, np.zeros(len(ended) + 1, np.int64))
        for start, stop in pairwise([0, *(np.flatnonzero(ended) + 1).tolist(), len(ended)]):
            for _ in range(int(unbegun[start])):
                self._fail(env)
            if start == stop:
                continue
            episode, reward = self._open[env], rows["reward"][start:stop].astype(np.float64)
            if valued and episode.start is None and self._learner:
                episode.start = (self._first_obs(rows, start), rows["action"][start].copy())
            episode.total_reward += float(reward.sum())
            frames = rows["elapsed"][start:stop] if "elapsed" in rows else np.ones(len(reward), np.int64)
            age = episode.frames + np.cumsum(frames) - frames  # before each step
            episode.discounted_return += float((gamma**age * reward).sum())
            episode.frames += int(frames.sum())
            episode.length += len(reward)
            episode.actions.append(rows["action"][start:stop].copy())
            episode.last_index = last_index
            if ended[stop - 1]:
                last_obs = next(final_obs) if final_obs else None
                if failed[stop - 1]:
                    self._fail(env)
                    continue
                truncated_at = last_obs if rows["truncated"][stop - 1] else None
                self._finished.append(FinishedEpisode(episode.total_reward, episode.length, self._q_bias(episode, truncated_at)))
                if self.on_end:
                    told = float(rows[WIN][stop - 1]) if WIN in rows else UNREPORTED
                    self.on_end(env, episode.number, game_score(episode.total_reward, told))
                self._begin_next(env)

    def pop_stats(self) -> Metrics:
        """Statistics of the episodes that ended since the last call, or the last known ones if none did."""
        if self._finished:
            returns, lengths, q_bias = (np.array(column, np.float64) for column in zip(*self._finished, strict=True))
            self._last_stats = return_stats(returns) | {"episode_length": float(lengths.mean())}
            self._last_stats |= {"q_bias": float(q_bias.mean())} if self._learner else {}
        count = len(self._finished)
        self._finished = []
        if self._latencies:
            self._last_stats |= latency_percentiles(np.concatenate(self._latencies).tolist()) | {REPLACED: float(self._replaced)}
        self._latencies, self._replaced = [], 0
        failed, self._failed = self._failed, 0
        return self._last_stats | {"episodes": float(count), "failed_episodes": float(failed)}

    def state_dict(self) -> State:
        """Open episodes with their actions, and the epoch's statistics so far."""
        return {
            "open": [self._episode_state(n) for n in range(len(self._open))],
            "finished": [episode._asdict() for episode in self._finished],
            "last_stats": self._last_stats,
            "latencies": np.concatenate(self._latencies) if self._latencies else np.zeros(0, np.float32),
            "replaced": self._replaced,
            "failed": self._failed,
        }

    def load_state_dict(self, state: State) -> None:
        """Continue from a `state_dict`."""
        self._open = [_episode_from_state(e) for e in state["open"]]
        self._finished = [FinishedEpisode(**e) for e in state["finished"]]
        self._last_stats = dict(state["last_stats"])
        self._latencies = [np.array(own) for own in (state.get("latencies", ()),) if len(own)]
        self._replaced = int(state.get("replaced", 0))
        self._failed = int(state.get("failed", 0))

    def _actions(self, env: int) -> NDArray[Any]:
        episode = self._open[env]
        if len(episode.actions) > 1:
            episode.actions = [np.concatenate(episode.actions)]
        return episode.actions[0] if episode.actions else self._empty_actions

    def _first_obs(self, rows: Arrays, row: int) -> Observation:
        """The observation of a row that begins an episode, with all frames."""
        seen = ObservationBuffer(self._obs_spec, 1)
        seen.begin(slice(None), {key: rows[OBS + key][row : row + 1] for key in seen.arrays})
        return seen.arrays

    def _q_bias(self, episode: OpenEpisode, truncated_at: Observation | None) -> float:
        """The critics' value of the start minus the discounted return, bootstrapped where a time limit ended the episode."""
        if episode.start is None or self._learner is None:
            return 0.0
        obs, action = episode.start
        realised = episode.discounted_return
        if truncated_at is not None:
            realised += self._learner.config.gamma**episode.frames * float(self._learner.q_values(truncated_at)[0])
        return float(self._learner.q_values(obs, action[None])[0]) - realised

    def _episode_state(self, env: int) -> State:
        e = self._open[env]
        start = {} if e.start is None else {"obs": dict(e.start[0]), "action": np.atleast_1d(e.start[1])}
        return {
            "number": e.number,
            "actions": self._actions(env),
            "last_index": e.last_index,
            "total_reward": e.total_reward,
            "discounted_return": e.discounted_return,
            "length": e.length,
            "frames": e.frames,
            "start": start,
            "memory": e.memory,
        }


def _episode_from_state(state: State) -> OpenEpisode:
    start, actions = state["start"], state["actions"]
    begun = (start["obs"], start["action"].reshape(actions.shape[1:])) if start else None
    return OpenEpisode(**(state | {"actions": [actions] if state["length"] else [], "start": begun}))
