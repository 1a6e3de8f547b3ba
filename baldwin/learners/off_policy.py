"""Off-policy training for the loop: collect a stretch, remember it, learn from what is remembered.

Ticket t belongs to stream t mod S of S = 1 + overlap independent streams of lanes, and is played by the actor as it was
after ticket t - S was learned from; stretches are learned from in the order of their tickets. So the lag is bounded, and
the result is the same whoever collects, however fast.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Literal

from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, PositiveFloat, PositiveInt, field_validator

from baldwin.errors import EnvironmentFailure, TicketError
from baldwin.learners.diary import Diary
from baldwin.learners.learner import Learner
from baldwin.ops.moments import Moments
from baldwin.replay import Column, Replay
from baldwin.rollout import Collect, transitions
from baldwin.types import CENTER, Arrays, Individual, Job, Metrics, Outcome, State, outcome_state

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
    surplus: int = Field(100_000, ge=0, description="Transitions kept beyond those, so that an earlier checkpoint finds what it could draw")
    round: PositiveInt = Field(1000, description="Environment steps between two lines of metrics: a generation of this algorithm")

    @property
    def real_round(self) -> int:
        """A round ends with a stretch."""
        stretch = self.lanes * self.collect
        return -(-self.round // stretch) * stretch

    @field_validator("overlap", mode="before")
    @classmethod
    def _words(cls, value: Any) -> Any:
        return {"off": 0, "on": 1, False: 0, True: 1}.get(value, value) if isinstance(value, bool | str) else value


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
        self.moments, self._fresh = Moments.empty(obs_size), Moments.empty(obs_size)
        self.version = self.env_steps = 0
        self._streams = 1 + config.overlap
        self._diary = Diary(self._streams * config.lanes, no_action, learner)
        self._asked = self._learned = 0  # tickets
        start = (self.learner.actor_vectors()[0], self.moments.pack())
        self._actors = dict.fromkeys(range(self._streams), start)  # ticket -> who plays it
        self._reissue: list[int] = []
        self._arrived: dict[int, Outcome] = {}  # before their turn
        self._owed = 0.0  # updates
        self._failures = 0  # in a row
        self._round_steps = self._round_updates = 0
        self._seen: list[tuple[int, Metrics]] = []  # updates, and what they reported
        self._published = -1
        self._policy = self._now()

    @property
    def gradient_steps(self) -> int:
        """Critic updates so far."""
        return self.learner.updates

    @property
    def learning_steps(self) -> int:
        """Every step was learned from."""
        return self.env_steps

    def individuals(self) -> list[Individual]:
        """None is spoken of."""
        return []

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
        """Take stretches in any order; learn from them in theirs, up to the end of a round: rounds then end one at a time.

        What waits here never stalls the loop: each stretch learned from sets the next one of its stream free.
        """
        for place, outcome in enumerate(outcomes):
            ticket = outcome.ticket
            if not self._learned <= ticket < self._asked or ticket in self._arrived or ticket in [o.ticket for o in outcomes[:place]]:
                raise TicketError(f"ticket {ticket} was never given out, or came back twice. Tell a stretch only once.")
        self._arrived |= {o.ticket: o for o in outcomes}
        found: Metrics | None = None
        while found is None and self._learned in self._arrived:
            found = self._absorb(self._arrived[self._learned])
            del self._arrived[self._learned], self._actors[self._learned]
            self._actors[self._learned + self._streams] = (self.learner.actor_vectors()[0], self.moments.pack())
            self._learned += 1
        return found

    def policy_state(self) -> Arrays:
        """Greedy parameters and observation moments as they were when this round began: a version has one policy."""
        return self._policy

    def state_dict(self) -> State:
        """All that changes, open tickets included."""
        return {
            "learner": self.learner.state_dict(),
            "replay": self.replay.state_dict(),
            "obs_moments": self.moments.pack(),
            "policy": dict(self._policy),
            "fresh": self._fresh.pack(),
            "diary": self._diary.state_dict(),
            "actors": {str(t): {"params": p, "obs_moments": m} for t, (p, m) in self._actors.items()},
            "arrived": [outcome_state(o) for o in self._arrived.values()],
            "numbers": [self.version, self.env_steps, self._asked, self._learned, self._failures, self._round_steps, self._round_updates],
            "owed": self._owed,
            "reissue": self._reissue,
            "seen": [[k, m] for k, m in self._seen],
        }

    def load_state_dict(self, state: State) -> None:
        """Be the algorithm that wrote `state`."""
        self.learner.load_state_dict(state["learner"])
        self.replay.load_state_dict(state["replay"])
        self.moments, self._fresh = Moments.unpack(state["obs_moments"]), Moments.unpack(state["fresh"])
        self.learner.normalize(self.moments)
        self._policy = dict(state["policy"])
        self._diary.load_state_dict(state["diary"])
        self._actors = {int(t): (a["params"], a["obs_moments"]) for t, a in state["actors"].items()}
        self._arrived = {int(o["ticket"]): Outcome(**o) for o in state["arrived"]}
        self.version, self.env_steps, self._asked, self._learned, self._failures, self._round_steps, self._round_updates = state["numbers"]
        self._owed, self._reissue = state["owed"], list(state["reissue"])
        self._seen = [(int(k), dict(m)) for k, m in state["seen"]]
        self._published = -1

    def reissue(self) -> None:
        """Ask for every open stretch again."""
        self._reissue = [t for t in range(self._learned, self._asked) if t not in self._arrived]

    def _now(self) -> dict[str, NDArray[Any]]:
        return {"params": self.learner.actor_vectors()[0], "obs_moments": self.moments.pack()}

    def _own(self, ticket: int) -> range:
        """The lanes of a ticket's stream."""
        first = ticket % self._streams * self._config.lanes
        return range(first, first + self._config.lanes)

    def _job(self, ticket: int) -> Collect:
        params, moments = self._actors[ticket]
        random = ticket * self._config.lanes * self._config.collect < self._config.start_steps
        return Collect(
            ticket=ticket,
            seed=self._seed,
            params=params,
            obs_moments=moments,
            lanes=self._diary.where(self._own(ticket)),
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
        self._diary.give_up(self._own(outcome.ticket))

    def _remember(self, outcome: Outcome) -> None:
        for n, rows in zip(self._own(outcome.ticket), transitions(outcome.arrays), strict=True):
            ended = rows["terminated"] | rows["truncated"]
            self._diary.follow(n, rows, ended, self.replay.add(rows, self._diary.last(n)))
            if self._normalize:
                self._fresh = self._fresh.merge(Moments.of(rows["obs"]))

    def _turn(self) -> Metrics:
        """Close the round: statistics move, and all it saw becomes one line."""
        if self._normalize:
            self.moments, self._fresh = self.moments.merge(self._fresh), Moments.empty(len(self._fresh.mean))
            self.learner.normalize(self.moments)
        metrics = self._diary.turn() | {"buffer_fill": len(self.replay) / self.replay.capacity}
        metrics["update_to_data"] = self._round_updates / self._round_steps
        for name in {name for _, seen in self._seen for name in seen}:
            pairs = [(k, seen[name]) for k, seen in self._seen if name in seen]
            metrics[name] = sum(k * v for k, v in pairs) / sum(k for k, _ in pairs)
        self.version += 1
        self._policy = self._now()
        self._seen, self._round_steps, self._round_updates = [], 0, 0
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
