"""Frozen policies to play against: a pool that grows by snapshots, a rule that chooses among them, and a table of who beat whom."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, PositiveInt, model_validator

from baldwin.config_base import ConfigModel
from baldwin.ops import league, seeds
from baldwin.types import Arrays, Metrics, Shared, State

OPPONENTS = "opponents"
"""The key under which workers get frozen policies; the version is the number of a member."""
MEMBERS, PROBABILITIES = "opponents", "opponent_probabilities"
"""Names of a mixture's arrays, where it is kept with an actor."""
SCRIPT = 0
"""The number of the world's own script."""
SCRIPT_NAME = "script"
"""Name of the array with the name, as bytes, of a script other than the world's own, in place of parameters."""
RANDOM = "random"
"""The script that takes random legal actions: `script:random` in a pool."""
GAMES = "games"
"""Name of an outcome's array [games, 3]: the member that a whole episode was played against, the return, and `reported_win`."""
WIN = "win"
"""What a world's result calls who won; and the name of a segment's array [L, T] of `reported_win` where an episode ended."""
UNREPORTED = -1.0
"""In place of what a world does not tell."""


OWN_SCRIPT = "script"
"""The world's own script in a pool."""


def is_script(name: str) -> bool:
    """Whether an entry of a pool is a script, and no folder."""
    return name == OWN_SCRIPT or name.startswith(f"{OWN_SCRIPT}:")


def script_name(name: str) -> str:
    """What a script of a pool is called; empty for the world's own."""
    return name.removeprefix(OWN_SCRIPT).removeprefix(":")


def script_policy(name: str) -> Arrays:
    """What stands for a script where others have parameters."""
    own = script_name(name)
    return {SCRIPT_NAME: np.frombuffer(own.encode(), np.uint8)} if own else {}


class SnapshotRule(ConfigModel):
    """When the learning policy joins the pool: both must hold."""

    steps: PositiveInt = Field(200_000, description="Environment steps since the last snapshot")
    win_rate: float = Field(0.0, ge=0, le=1, description="Of the last games against the pool, at least")


class OpponentsConfig(ConfigModel):
    """Whom the learning player meets in training."""

    pool: list[str] = Field(
        ["script"],
        min_length=1,
        description="Who is there at the start: script (the world's own), script:random, script:package.module:function with "
        "(observation, legal) -> action, run directories of policies, or folders of those",
    )
    choice: Literal["uniform", "latest", "80-20", "pfsp", "pfsp-even", "nash", "given"] = Field(
        "pfsp",
        description="uniform; latest; 80-20: the newest, or an older one; pfsp: whom it loses to; pfsp-even: whom it draws with; nash; "
        "given: by `weights`",
    )
    weights: list[float] = Field(default_factory=list, description="given: of those of `pool`, in order; who joins later has none")
    snapshot: SnapshotRule | None = Field(SnapshotRule(), description="When the policy itself joins the pool; null: never")
    capacity: int = Field(20, ge=2, description="Members of the pool; beyond it, the one that is beaten most often leaves")
    drop_beaten: float | None = Field(
        None,
        ge=0.5,
        lt=1,
        description="Share of the last games that the learner won against a member, above which that leaves, once it has `games_needed`; "
        "one always stays. null: nobody leaves for that",
    )
    games_needed: PositiveInt = Field(10, description="Games against a member before its win rate counts")
    window: PositiveInt = Field(200, description="The last games against each member that its win rate is counted from")

    def foreign_code(self) -> list[str]:
        """Scripts of a user's modules."""
        return [f"pool={name}" for name in self.pool if is_script(name) and ":" in script_name(name)]

    @model_validator(mode="after")
    def _enough_games_are_remembered(self) -> Self:
        if self.drop_beaten is not None and self.window < self.games_needed:
            raise ValueError(
                f"drop_beaten asks for games_needed={self.games_needed} games, and window={self.window} are remembered. Raise window"
            )
        return self

    @model_validator(mode="after")
    def _weights_are_given(self) -> Self:
        wrong = len(self.weights) != len(self.pool) or min(self.weights, default=-1) < 0 or sum(self.weights) <= 0
        if (self.choice == "given" and wrong) or (self.choice != "given" and self.weights):
            raise ValueError(
                f"choice=given needs one weight of at least 0 for each of the {len(self.pool)} of pool; other choices need none"
            )
        return self


class Mixture(NamedTuple):
    """Whom an episode that begins now is played against."""

    members: NDArray[np.int64]  # [N]
    probabilities: NDArray[np.float64]  # [N]

    def choose(self, seed: int, env: int, episode: int) -> int:
        """The member for an episode of an environment: a function of these numbers, wherever it is computed."""
        draw = seeds.generator(seed, seeds.Stream.MATCH, env, episode).random()
        at = int(np.searchsorted(np.cumsum(self.probabilities), draw, "right"))
        return int(self.members[min(at, len(self.members) - 1)])


@dataclass(slots=True)
class PoolMember:
    """One of the pool. The world's own script has no policy, other scripts only their name."""

    number: int
    name: str
    policy: dict[str, NDArray[Any]] = field(default_factory=dict)  # params, obs_moments
    steps: int = 0  # at which it was made
    active: bool = True
    rates: dict[int, float] = field(default_factory=dict)  # by opponent, what the learner won when it became this member
    games: dict[int, int] = field(default_factory=dict)


class Table(NamedTuple):
    """Results of the members and, last, of the learner."""

    players: list[str]
    win_rate: NDArray[np.float64]  # [N, N]; 0.5 where they never met
    games: NDArray[np.float64]  # [N, N]


class OpponentPool:
    """Members in the order in which they joined, and the learner's last results against each."""

    def __init__(self, config: OpponentsConfig, policies: Sequence[tuple[str, Arrays]] = ()) -> None:
        """`policies`: names and arrays of those of `pool` that are no scripts, in order."""
        self._config = config
        given = iter(policies)
        self.members: list[PoolMember] = []
        for name in config.pool:
            number = SCRIPT if name == OWN_SCRIPT else len(self.members) + 1
            policy = script_policy(name) if is_script(name) else next(given)[1]
            self.members.append(PoolMember(number, name, {key: np.array(array) for key, array in policy.items()}))
        self._weights = dict(zip((member.number for member in self.members), config.weights, strict=False))
        self._next = 1 + max(member.number for member in self.members)
        self._recent: dict[int, list[float]] = {}
        self._last_snapshot = 0
        self._shared: set[int] = set()

    @property
    def active(self) -> list[PoolMember]:
        """Members that may be chosen."""
        return [member for member in self.members if member.active]

    def mixture(self) -> Mixture:
        """Probabilities of the active members by the rule of the config."""
        active = self.active
        count = len(active)
        rates = np.array([self._rate(member.number) for member in active])
        games = np.array([float(len(self._recent.get(member.number, ()))) for member in active])
        needed = self._config.games_needed
        choices: dict[str, Callable[[], NDArray[np.float64]]] = {
            "uniform": lambda: league.uniform(count),
            "latest": lambda: league.latest(count),
            "80-20": lambda: league.mostly_latest(count),
            "pfsp": lambda: league.pfsp(rates, games, games_needed=needed),
            "pfsp-even": lambda: league.pfsp(rates, games, games_needed=needed, prefer="even"),
            "given": lambda: self._given(active),
            "nash": lambda: league.nash(self.table().win_rate[:-1, :-1], 2000),
        }
        return Mixture(np.array([member.number for member in active]), choices[self._config.choice]())

    def _given(self, active: Sequence[PoolMember]) -> NDArray[np.float64]:
        """Weights of those of the pool; all alike where nobody who has one is left."""
        weights = np.array([self._weights.get(member.number, 0.0) for member in active])
        return np.asarray(weights / weights.sum()) if weights.any() else league.uniform(len(active))

    def record(self, number: int, score: float) -> None:
        """The learner's result (1, 0.5 or 0) of a game against a member."""
        self._recent[number] = [*self._recent.get(number, []), score][-self._config.window :]

    def snapshot(self, policy: Arrays, steps: int) -> bool:
        """Let the policy join after so many steps, if it is time; whether it did."""
        rule = self._config.snapshot
        if rule is None or steps - self._last_snapshot < rule.steps or self.win_rate() < rule.win_rate:
            return False
        rates = {number: self._rate(number) for number in self._recent}
        games = {number: len(scores) for number, scores in self._recent.items()}
        arrays = {key: np.array(array) for key, array in policy.items()}
        self.members.append(PoolMember(self._next, f"step {steps:,}", arrays, steps, rates=rates, games=games))
        self._next += 1
        self._last_snapshot = steps
        while len(self.active) > self._config.capacity and (rivals := [m for m in self.active if m.number != SCRIPT][:-1]):
            max(rivals, key=lambda member: (self._rate(member.number), -member.number)).active = False
        return True

    def drop_beaten(self) -> None:
        """Let members leave that the learner beats more often than the config wants to see; the one that it beats least always stays."""
        share = self._config.drop_beaten
        if share is None:
            return
        beaten = [member for member in self.active if self._has_games(member.number) and self._rate(member.number) > share]
        if len(beaten) == len(self.active):
            beaten.remove(min(beaten, key=lambda member: (self._rate(member.number), -member.number)))
        for member in beaten:
            member.active = False

    def _has_games(self, number: int) -> bool:
        return len(self._recent.get(number, ())) >= self._config.games_needed

    def win_rate(self) -> float:
        """Share of the last games that were won, the mean over the active members; 0.5 before the first game."""
        known = [self._rate(member.number) for member in self.active if self._recent.get(member.number)]
        return float(np.mean(known)) if known else 0.5

    def forget(self, in_use: set[int]) -> None:
        """Drop members that left and that no open episode needs, and results against them."""
        self.members = [member for member in self.members if member.active or member.number in in_use]
        known = {member.number for member in self.members}
        self._recent = {number: scores for number, scores in self._recent.items() if number in known}
        for member in self.members:
            member.rates = {number: rate for number, rate in member.rates.items() if number in known}
            member.games = {number: count for number, count in member.games.items() if number in known}

    def publish(self) -> list[Shared]:
        """Policies that workers do not have yet."""
        held = [member for member in self.members if member.policy]
        new = [member for member in held if member.number not in self._shared]
        self._shared |= {member.number for member in new}
        oldest = min((member.number for member in held), default=0)
        return [Shared(OPPONENTS, member.number, member.policy, oldest) for member in new]

    def metrics(self) -> Metrics:
        """The learner's win rate and the number of its opponents, for the run's metrics."""
        return {"win_rate": self.win_rate(), "opponents": float(len(self.active))}

    def table(self) -> Table:
        """Who won how often: what each member had won as the learner when it joined, and what the learner wins now."""
        active = self.active
        place = {member.number: row for row, member in enumerate(active)}
        count = len(active) + 1
        rates, games = np.full((count, count), 0.5), np.zeros((count, count))
        rows = [(row, member.rates, member.games) for row, member in enumerate(active)]
        now = {number: self._rate(number) for number in self._recent}
        rows.append((count - 1, now, {number: len(scores) for number, scores in self._recent.items()}))
        for row, own_rates, own_games in rows:
            for number, rate in own_rates.items():
                if number in place and place[number] != row:
                    column = place[number]
                    rates[row, column], rates[column, row] = rate, 1 - rate
                    games[row, column] = games[column, row] = own_games[number]
        return Table([*(member.name for member in active), "learner"], rates, games)

    def _rate(self, number: int) -> float:
        scores = self._recent.get(number)
        return float(np.mean(scores)) if scores else 0.5

    def state_dict(self) -> State:
        """Members with their parameters, and results."""
        return {
            "members": [
                {
                    "number": m.number,
                    "name": m.name,
                    "policy": m.policy,
                    "steps": m.steps,
                    "active": m.active,
                    "rates": {str(n): rate for n, rate in m.rates.items()},
                    "games": {str(n): count for n, count in m.games.items()},
                }
                for m in self.members
            ],
            "recent": {str(number): np.array(scores) for number, scores in self._recent.items()},
            "next": self._next,
            "last_snapshot": self._last_snapshot,
        }

    def load_state_dict(self, state: State) -> None:
        """Continue from a `state_dict`."""
        self.members = [
            PoolMember(
                int(m["number"]),
                str(m["name"]),
                dict(m["policy"]),
                int(m["steps"]),
                bool(m["active"]),
                {int(n): float(rate) for n, rate in m["rates"].items()},
                {int(n): int(count) for n, count in m["games"].items()},
            )
            for m in state["members"]
        ]
        self._recent = {int(number): scores.tolist() for number, scores in state["recent"].items()}
        self._next, self._last_snapshot = int(state["next"]), int(state["last_snapshot"])
        self._shared = set()


class JobOpponents:
    """A pool for algorithms that play whole episodes: whom the episodes of each open job choose from, and the results of a generation.

    Results count when the generation ends, in the order of tickets: until then every job gets the same mixture, whoever is faster.
    """

    def __init__(self, pool: OpponentPool) -> None:
        self.pool = pool
        self._mixture = pool.mixture()
        self._jobs: dict[int, Mixture] = {}  # number of an open job -> its mixture
        self._games: dict[int, NDArray[np.float64]] = {}  # ticket -> games of this generation

    def mixture_of(self, job: int) -> Mixture:
        """That of now for a new job; for one that is made again, the same as before."""
        return self._jobs.setdefault(job, self._mixture)

    def add(self, ticket: int, arrays: Arrays) -> None:
        """Take the games of an outcome, if it has any."""
        if GAMES in arrays:
            self._games[ticket] = np.asarray(arrays[GAMES], np.float64)

    def end_generation(self, policy: Arrays, steps: int, open_jobs: Iterable[int]) -> Metrics:
        """Count the results; metrics of the generation; then a snapshot, if it is time. `open_jobs`: those whose results are still to come."""
        for ticket in sorted(self._games):
            for member, *ended in self._games[ticket].tolist():
                self.pool.record(int(member), game_score(*ended))
        self._games = {}
        metrics = self.pool.metrics()
        self.pool.snapshot({key: policy[key] for key in ("params", "obs_moments")}, steps)
        self.pool.drop_beaten()
        self._jobs = {job: self._jobs[job] for job in sorted(set(open_jobs)) if job in self._jobs}
        self.pool.forget({int(number) for mixture in self._jobs.values() for number in mixture.members})
        self._mixture = self.pool.mixture()
        return metrics

    def state_dict(self) -> State:
        """The pool, mixtures of open jobs, and this generation's results so far."""
        return {
            "pool": self.pool.state_dict(),
            "mixture": mixture_arrays(self._mixture),
            "jobs": {str(job): mixture_arrays(mixture) for job, mixture in self._jobs.items()},
            "games": {str(ticket): games for ticket, games in self._games.items()},
        }

    def load_state_dict(self, state: State) -> None:
        """Continue from a `state_dict`."""
        self.pool.load_state_dict(state["pool"])
        self._mixture = Mixture(state["mixture"][MEMBERS], state["mixture"][PROBABILITIES])
        self._jobs = {int(job): Mixture(kept[MEMBERS], kept[PROBABILITIES]) for job, kept in state["jobs"].items()}
        self._games = {int(ticket): np.array(games) for ticket, games in state["games"].items()}


class OpponentAssignment:
    """A pool, and against which of its members each environment plays its open episode."""

    def __init__(self, pool: OpponentPool, n_envs: int, seed: int) -> None:
        self.pool, self._seed = pool, seed
        first = pool.mixture()
        self.current = [first.choose(seed, env, 0) for env in range(n_envs)]
        self.mixture = first  # the opponents of the segment that is being taken

    def end(self, env: int, episode: int, score: float | None) -> None:
        """An episode ended with that `game_score`, or was given up (None); the next one is against a member of `mixture`."""
        if score is not None:
            self.pool.record(self.current[env], score)
        self.current[env] = self.mixture.choose(self._seed, env, episode + 1)

    def arrays(self) -> dict[str, NDArray[Any]]:
        """The mixture of now, to be kept with an actor."""
        return mixture_arrays(self.pool.mixture())

    def end_epoch(self, policy: Arrays, steps: int, actors: Iterable[Arrays]) -> Metrics:
        """Metrics of the epoch; then a snapshot, if it is time. `actors`: those whose segments may still come."""
        metrics = self.pool.metrics()
        self.pool.snapshot(policy, steps)
        self.pool.drop_beaten()
        self.pool.forget({*self.current, *(int(n) for actor in actors for n in actor[MEMBERS])})
        return metrics

    def state_dict(self) -> State:
        """The pool, and who plays whom."""
        return {"pool": self.pool.state_dict(), "current": np.array(self.current)}

    def load_state_dict(self, state: State) -> None:
        """Continue from a `state_dict`."""
        self.pool.load_state_dict(state["pool"])
        self.current = state["current"].tolist()


def reported_win(result: Mapping[str, Any]) -> float:
    """What a world's result says of who won, in [0, 1]: 1, 0.5 or 0; UNREPORTED, if it does not."""
    win = result.get(WIN)
    return float(win) if isinstance(win, int | float | np.number) and 0 <= win <= 1 else UNREPORTED


def game_score(total_reward: float, win: float = UNREPORTED) -> float:
    """What the world told of who won; else 1 for a return above zero, 0.5 for zero, 0 below."""
    return float(np.sign(total_reward) + 1) / 2 if win == UNREPORTED else win


def mixture_arrays(mixture: Mixture) -> dict[str, NDArray[Any]]:
    """As a checkpoint, or an actor, keeps it."""
    return {MEMBERS: mixture.members, PROBABILITIES: mixture.probabilities}


def stored_mixture(actor: Arrays) -> Mixture | None:
    """The opponents that were kept with an actor, if it has any."""
    return Mixture(actor[MEMBERS], actor[PROBABILITIES]) if MEMBERS in actor else None
