"""Off-policy training for the loop: collect a stretch, remember it, learn from what is remembered.

Ticket t belongs to stream t mod S of S = 1 + overlap independent streams of lanes, and is played by the actor as it was
after ticket t - S was learned from; stretches are learned from in the order of their tickets. So the lag is bounded, and
the result is the same whoever collects, however fast.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, PositiveFloat, PositiveInt, field_validator

from baldwin.errors import EnvironmentFailure, TicketError
from baldwin.learners.learner import Learner
from baldwin.ops.moments import Moments
from baldwin.replay import Column, Replay
from baldwin.rollout import Collect, Where
from baldwin.types import CENTER, Arrays, Job, Metrics, Outcome, State

PATIENCE = 5  # stretches that may fail one after the other


class OffPolicyConfig(BaseModel):
    """How experience is collected and remembered."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    policy_defaults: ClassVar[dict[str, Any]] = {"hidden": [256, 256], "activation": "relu", "init": "torch", "normalize_obs": False}

    start_steps: int = Field(10_000, ge=0, description="Random actions and no updates until then")
    updates_per_step: PositiveFloat = Field(1.0, description="Updates for each environment step (updates-to-data ratio)")
    lanes: PositiveInt = Field(1, description="Environments of a stream, stepped side by side")
    collect: PositiveInt = Field(50, description="Steps of each lane between updates")
    overlap: int = Field(0, ge=0, description="Stretches that are collected while others are learned from: the actor's lag. off is 0")
    capacity: PositiveInt = Field(1_000_000, description="Transitions that are remembered")
    round: PositiveInt = Field(1000, description="Environment steps between two lines of metrics: a generation of this algorithm")

    @property
    def surplus(self) -> int:
        """Rows that the replay keeps beyond its capacity, so that an earlier checkpoint finds what it could draw."""
        return max(self.capacity // 4, 100_000)

    @field_validator("overlap", mode="before")
    @classmethod
    def _words(cls, value: Any) -> Any:
        return {"off": 0, "on": 1, False: 0, True: 1}.get(value, value) if isinstance(value, bool | str) else value


@dataclass(slots=True)
class Episode:
    """The episode that a lane is in."""

    number: int = 0
    actions: list[NDArray[Any]] = field(default_factory=list)  # a block for each stretch
    last: int = -1  # serial of its newest row in the replay
    total: float = 0.0
    discounted: float = 0.0
    length: int = 0
    first: tuple[NDArray[Any], NDArray[Any]] | None = None  # observation and action that it began with

    def following(self) -> Episode:
        """The next one."""
        return Episode(self.number + 1)


class OffPolicy:
    """An algorithm for the loop, made of a learner and a replay."""

    def __init__(
        self,
        learner: Learner,
        replay: Replay,
        config: OffPolicyConfig,
        *,
        seed: int,
        explore: Literal["noise", "sample"],
        noise: float,
        obs_size: int,
        max_episode_steps: int | None,
        normalize: bool,
        no_action: NDArray[Any],
    ) -> None:
        self.learner, self.replay, self._config, self._seed = learner, replay, config, seed
        self._explore, self._noise, self._limit, self._normalize = explore, noise, max_episode_steps, normalize
        self._no_action = no_action  # [0, ...]: the actions of an episode that has not begun
        self.moments, self._fresh = Moments.empty(obs_size), Moments.empty(obs_size)
        self.version = self.env_steps = 0
        self._streams = 1 + config.overlap
        self._lanes = [Episode() for _ in range(self._streams * config.lanes)]
        self._asked = self._learned = 0  # tickets
        start = (self.learner.actor_vectors()[0], self.moments.pack())
        self._actors = dict.fromkeys(range(self._streams), start)  # ticket -> who plays it
        self._reissue: list[int] = []
        self._arrived: dict[int, Outcome] = {}  # before their turn
        self._owed = 0.0  # updates
        self._failures = 0  # in a row
        self._round_steps = self._round_updates = 0
        self._seen: list[tuple[int, Metrics]] = []  # updates, and what they reported
        self._ended: list[tuple[float, int, float]] = []  # return, length, Q - realised return of the round's episodes
        self._typical: Metrics = dict.fromkeys(("return_mean", "return_std", "return_min", "return_max", "episode_length", "q_bias"), 0.0)
        self._published = -1

    @property
    def gradient_steps(self) -> int:
        """Critic updates so far."""
        return self.learner.updates

    def publish(self) -> list[tuple[str, int, Arrays]]:
        """The greedy policy, once a round, for evaluations; stretches carry their own actor."""
        if self._published == self.version:
            return []
        self._published = self.version
        return [(CENTER, self.version, self.policy_state())]

    def ask(self, n: int) -> list[Job]:
        """Up to n stretches: lost ones first, then those whose actor is known."""
        jobs: list[Job] = []
        while len(jobs) < n:
            if self._reissue:
                ticket = self._reissue.pop(0)
            elif self._asked in self._actors:
                ticket, self._asked = self._asked, self._asked + 1
            else:
                break
            jobs.append(self._job(ticket))
        return jobs

    def tell(self, outcomes: Sequence[Outcome]) -> Metrics | None:
        """Take stretches in any order; learn from them in theirs, from one at each call: rounds then end one at a time.

        What waits here never stalls the loop: each stretch learned from sets the next one of its stream free.
        """
        for place, outcome in enumerate(outcomes):
            ticket = outcome.ticket
            if not self._learned <= ticket < self._asked or ticket in self._arrived or ticket in [o.ticket for o in outcomes[:place]]:
                raise TicketError(f"ticket {ticket} was never given out, or came back twice. Tell a stretch only once.")
        self._arrived |= {o.ticket: o for o in outcomes}
        if self._learned not in self._arrived:
            return None
        found = self._absorb(self._arrived[self._learned])
        del self._arrived[self._learned], self._actors[self._learned]
        self._actors[self._learned + self._streams] = (self.learner.actor_vectors()[0], self.moments.pack())
        self._learned += 1
        return found

    def policy_state(self) -> Arrays:
        """Greedy parameters and observation moments."""
        return {"params": self.learner.actor_vectors()[0], "obs_moments": self.moments.pack()}

    def state_dict(self) -> State:
        """All that changes, open tickets included."""
        return {
            "learner": self.learner.state_dict(),
            "replay": self.replay.state_dict(),
            "obs_moments": self.moments.pack(),
            "fresh": self._fresh.pack(),
            "lanes": [_write_episode(e, self._no_action) for e in self._lanes],
            "actors": {str(t): {"params": p, "obs_moments": m} for t, (p, m) in self._actors.items()},
            "arrived": [
                {"ticket": o.ticket, "fitness": o.fitness, "env_steps": o.env_steps, "reason": o.reason, "arrays": dict(o.arrays)}
                for o in self._arrived.values()
            ],
            "numbers": [self.version, self.env_steps, self._asked, self._learned, self._failures, self._round_steps, self._round_updates],
            "owed": self._owed,
            "reissue": self._reissue,
            "seen": [[k, m] for k, m in self._seen],
            "ended": [list(e) for e in self._ended],
            "typical": self._typical,
        }

    def load_state_dict(self, state: State) -> None:
        """Be the algorithm that wrote `state`."""
        self.learner.load_state_dict(state["learner"])
        self.replay.load_state_dict(state["replay"])
        self.moments, self._fresh = Moments.unpack(state["obs_moments"]), Moments.unpack(state["fresh"])
        self.learner.normalize(self.moments)
        self._lanes = [_read_episode(e) for e in state["lanes"]]
        self._actors = {int(t): (a["params"], a["obs_moments"]) for t, a in state["actors"].items()}
        self._arrived = {int(o["ticket"]): Outcome(**o) for o in state["arrived"]}
        self.version, self.env_steps, self._asked, self._learned, self._failures, self._round_steps, self._round_updates = state["numbers"]
        self._owed, self._reissue = state["owed"], list(state["reissue"])
        self._seen = [(int(k), dict(m)) for k, m in state["seen"]]
        self._ended = [(float(r), int(n), float(b)) for r, n, b in state["ended"]]
        self._typical = dict(state["typical"])
        self._published = -1

    def reissue(self) -> None:
        """Ask for every open stretch again."""
        self._reissue = [t for t in range(self._learned, self._asked) if t not in self._arrived]

    def _own(self, ticket: int) -> range:
        """The lanes of a ticket's stream."""
        first = ticket % self._streams * self._config.lanes
        return range(first, first + self._config.lanes)

    def _job(self, ticket: int) -> Collect:
        params, moments = self._actors[ticket]
        where = [Where(n, self._lanes[n].number, np.concatenate([self._no_action, *self._lanes[n].actions])) for n in self._own(ticket)]
        random = ticket * self._config.lanes * self._config.collect < self._config.start_steps
        return Collect(
            ticket=ticket,
            seed=self._seed,
            params=params,
            obs_moments=moments,
            lanes=tuple(where),
            steps=self._config.collect,
            explore="random" if random else self._explore,
            noise=self._noise,
            limit=self._limit,
        )

    def _absorb(self, outcome: Outcome) -> Metrics | None:
        """Remember a stretch, pay the updates it brings; metrics when it completes a round."""
        if outcome.failed:
            self._give_up(outcome)
            return None
        self._failures = 0
        self._remember(outcome)
        self.env_steps += outcome.env_steps
        self._round_steps += outcome.env_steps
        if self.env_steps > self._config.start_steps:
            self._owed += outcome.env_steps * self._config.updates_per_step
            due, before = int(self._owed), self.learner.updates
            self._owed -= due
            self._seen.append((due, self.learner.update(self.replay, due)))
            self._round_updates += self.learner.updates - before
        return self._turn() if self._round_steps >= self._config.round else None

    def _give_up(self, outcome: Outcome) -> None:
        """A stretch that failed is lost, and its episodes with it."""
        self._failures += 1
        if self._failures >= PATIENCE:
            raise EnvironmentFailure(f"{PATIENCE} stretches failed one after the other; the last reason: {outcome.reason}")
        for n in self._own(outcome.ticket):
            self._lanes[n] = self._lanes[n].following()

    def _remember(self, outcome: Outcome) -> None:
        arrays, used = outcome.arrays, 0
        for row, n in enumerate(self._own(outcome.ticket)):
            obs, ended = arrays["obs"][row], arrays["terminated"][row] | arrays["truncated"][row]
            following = obs[1:].copy()
            following[ended] = arrays["last"][used : used + ended.sum()]
            used += int(ended.sum())
            own = {name: arrays[name][row] for name in ("action", "reward", "terminated", "truncated")}
            rows = {"obs": obs[:-1], "next_obs": following, **own}
            last = self.replay.add(rows, self._lanes[n].last)
            self._follow(n, rows, ended, last)
            if self._normalize:
                self._fresh = self._fresh.merge(Moments.of(obs[:-1]))

    def _follow(self, n: int, rows: Arrays, ended: NDArray[np.bool_], last: int) -> None:
        """Keep account of the episode on a lane through a stretch, and of those that ended in it."""
        cuts = [0, *(np.flatnonzero(ended) + 1).tolist(), len(ended)]
        for start, stop in pairwise(cuts):
            if start == stop:
                continue
            episode, reward = self._lanes[n], rows["reward"][start:stop].astype(np.float64)
            if episode.first is None:
                episode.first = (rows["obs"][start].copy(), rows["action"][start].copy())
            powers = self.learner.config.gamma ** (episode.length + np.arange(len(reward)))
            episode.total += float(reward.sum())
            episode.discounted += float((powers * reward).sum())
            episode.length += len(reward)
            episode.actions.append(rows["action"][start:stop].copy())
            episode.last = last
            if ended[stop - 1]:
                cut_off = rows["next_obs"][stop - 1] if rows["truncated"][stop - 1] else None
                self._ended.append((episode.total, episode.length, self._optimism(episode, cut_off)))
                self._lanes[n] = episode.following()

    def _optimism(self, episode: Episode, cut_off: NDArray[Any] | None) -> float:
        """The critics' value of how the episode began, less what came of it (and of what it was cut off from)."""
        assert episode.first is not None
        realised = episode.discounted
        if cut_off is not None:
            realised += self.learner.config.gamma**episode.length * float(self.learner.values(cut_off[None])[0])
        obs, action = episode.first
        return float(self.learner.values(obs[None], action[None])[0]) - realised

    def _turn(self) -> Metrics:
        """Close the round: statistics move, and all it saw becomes one line."""
        if self._normalize:
            self.moments, self._fresh = self.moments.merge(self._fresh), Moments.empty(len(self._fresh.mean))
            self.learner.normalize(self.moments)
        if self._ended:
            returns, lengths, optimism = (np.array(column, np.float64) for column in zip(*self._ended, strict=True))
            self._typical = {
                "return_mean": float(returns.mean()),
                "return_std": float(returns.std()),
                "return_min": float(returns.min()),
                "return_max": float(returns.max()),
                "episode_length": float(lengths.mean()),
                "q_bias": float(optimism.mean()),
            }
        metrics = {**self._typical, "episodes": float(len(self._ended)), "buffer_fill": len(self.replay) / self.replay.capacity}
        metrics["update_to_data"] = self._round_updates / self._round_steps
        for name in {name for _, seen in self._seen for name in seen}:
            pairs = [(k, seen[name]) for k, seen in self._seen if name in seen]
            metrics[name] = sum(k * v for k, v in pairs) / sum(k for k, _ in pairs)
        self.version += 1
        self._seen, self._ended, self._round_steps, self._round_updates = [], [], 0, 0
        return dict(sorted(metrics.items()))


def replay_columns(obs_size: int, no_action: NDArray[Any]) -> dict[str, Column]:
    """What is remembered of a step."""
    return {
        "obs": Column("<f4", (obs_size,)),
        "action": Column(no_action.dtype.str, no_action.shape[1:]),
        "reward": Column("<f4"),
        "next_obs": Column("<f4", (obs_size,)),
        "terminated": Column("|b1"),
        "truncated": Column("|b1"),
    }


def _write_episode(episode: Episode, no_action: NDArray[Any]) -> State:
    first = {} if episode.first is None else {"obs": episode.first[0], "action": np.atleast_1d(episode.first[1])}
    numbers = [episode.number, episode.last, episode.total, episode.discounted, episode.length]
    return {"numbers": numbers, "first": first, "actions": np.concatenate([no_action, *episode.actions])}


def _read_episode(state: State) -> Episode:
    number, last, total, discounted, length = state["numbers"]
    first, actions = state["first"], state["actions"]
    begun = (first["obs"], first["action"].reshape(actions.shape[1:])) if first else None
    return Episode(number, [actions] if length else [], last, total, discounted, length, begun)
