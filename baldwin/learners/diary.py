"""The episodes that lanes are in: enough to go on with them anywhere, and to say how they went."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from baldwin.learners.learner import Learner
from baldwin.rollout import Where
from baldwin.types import Arrays, Metrics, State

NOTHING_YET = ("return_mean", "return_std", "return_min", "return_max", "episode_length", "q_bias")


@dataclass(slots=True)
class Episode:
    """One that is not over."""

    number: int = 0
    actions: list[NDArray[Any]] = field(default_factory=list)  # a block for each stretch
    last: int = -1  # serial of its newest row in the replay
    total: float = 0.0
    discounted: float = 0.0
    length: int = 0
    first: tuple[NDArray[Any], NDArray[Any]] | None = None  # observation and action that it began with


class Diary:
    """Of every lane: the open episode. Of the round: how the episodes went that ended in it."""

    def __init__(self, lanes: int, no_action: NDArray[Any], learner: Learner) -> None:
        self._no_action, self._learner = no_action, learner  # [0, ...]: the actions of an episode that has not begun
        self._open = [Episode() for _ in range(lanes)]
        self._ended: list[tuple[float, int, float]] = []  # return, length, Q - realised return
        self._typical: Metrics = dict.fromkeys(NOTHING_YET, 0.0)

    def where(self, lanes: Sequence[int]) -> tuple[Where, ...]:
        """Where these lanes stand."""
        return tuple(Where(n, self._open[n].number, self._actions(n)) for n in lanes)

    def last(self, lane: int) -> int:
        """The newest row of the lane's episode, or -1."""
        return self._open[lane].last

    def give_up(self, lanes: Sequence[int]) -> None:
        """Their episodes are lost; the next ones begin."""
        for n in lanes:
            self._open[n] = Episode(self._open[n].number + 1)

    def follow(self, lane: int, rows: Arrays, ended: NDArray[np.bool_], last: int) -> None:
        """A lane went on by these rows, the last of which has serial `last`."""
        gamma = self._learner.config.gamma
        for start, stop in pairwise([0, *(np.flatnonzero(ended) + 1).tolist(), len(ended)]):
            if start == stop:
                continue
            episode, reward = self._open[lane], rows["reward"][start:stop].astype(np.float64)
            if episode.first is None:
                episode.first = (rows["obs"][start].copy(), rows["action"][start].copy())
            episode.total += float(reward.sum())
            episode.discounted += float((gamma ** (episode.length + np.arange(len(reward))) * reward).sum())
            episode.length += len(reward)
            episode.actions.append(rows["action"][start:stop].copy())
            episode.last = last
            if ended[stop - 1]:
                cut_off = rows["next_obs"][stop - 1] if rows["truncated"][stop - 1] else None
                self._ended.append((episode.total, episode.length, self._optimism(episode, cut_off)))
                self.give_up([lane])

    def turn(self) -> Metrics:
        """How the round's episodes went, or the last ones before it; a new round begins."""
        if self._ended:
            returns, lengths, optimism = (np.array(column, np.float64) for column in zip(*self._ended, strict=True))
            found = returns.mean(), returns.std(), returns.min(), returns.max(), lengths.mean(), optimism.mean()
            self._typical = {name: float(value) for name, value in zip(NOTHING_YET, found, strict=True)}
        count, self._ended = len(self._ended), []
        return self._typical | {"episodes": float(count)}

    def state_dict(self) -> State:
        """All that changes."""
        return {
            "open": [self._write(n) for n in range(len(self._open))],
            "ended": [list(e) for e in self._ended],
            "typical": self._typical,
        }

    def load_state_dict(self, state: State) -> None:
        """Be the diary that wrote `state`."""
        self._open = [_read(e) for e in state["open"]]
        self._ended = [(float(r), int(n), float(b)) for r, n, b in state["ended"]]
        self._typical = dict(state["typical"])

    def _actions(self, lane: int) -> NDArray[Any]:
        return np.concatenate([self._no_action, *self._open[lane].actions])

    def _optimism(self, episode: Episode, cut_off: NDArray[Any] | None) -> float:
        """The critics' value of how the episode began, less what came of it (and of what it was cut off from)."""
        obs, action = episode.first or (self._no_action, self._no_action)
        realised = episode.discounted
        if cut_off is not None:
            realised += self._learner.config.gamma**episode.length * float(self._learner.values(cut_off[None])[0])
        return float(self._learner.values(obs[None], action[None])[0]) - realised

    def _write(self, lane: int) -> State:
        e = self._open[lane]
        first = {} if e.first is None else {"obs": e.first[0], "action": np.atleast_1d(e.first[1])}
        return {"numbers": [e.number, e.last, e.total, e.discounted, e.length], "first": first, "actions": self._actions(lane)}


def _read(state: State) -> Episode:
    number, last, total, discounted, length = state["numbers"]
    first, actions = state["first"], state["actions"]
    begun = (first["obs"], first["action"].reshape(actions.shape[1:])) if first else None
    return Episode(number, [actions] if length else [], last, total, discounted, length, begun)
