"""A league of learners with roles (AlphaStar, Vinyals et al. 2019): main agents, main exploiters and league exploiters.

Every round a member trains against frozen players that its role chooses. Main agents meet each other as they are now, and past players whom they lose to;
main exploiters look for the weaknesses of the main agents of now; league exploiters for those of the whole league. Exploiters that have found one, or
were given enough time, join the league and begin again.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, PositiveInt

from baldwin.errors import ConfigError
from baldwin.opponents import OpponentsConfig
from baldwin.ops.league import pfsp
from baldwin.populations.config import PopulationConfig, PopulationContext, PopulationEntry, register_population
from baldwin.populations.member import GAMES, WINS, Member
from baldwin.populations.population import CONTINUE, START, Plan, Population
from baldwin.types import Arrays, Metrics, Outcome, State

MAIN, MAIN_EXPLOITER, LEAGUE_EXPLOITER = "main", "main-exploiter", "league-exploiter"
SCRIPT = "script"


class LeagueConfig(PopulationConfig):
    """A league: main agents, main exploiters and league exploiters, each learning against the players that its role looks for."""

    name: Literal["league"] = "league"
    members: Literal[1] = Field(1, description="A league has as many members as its roles together")
    main: PositiveInt = Field(1, description="Main agents: the result")
    main_exploiters: int = Field(1, ge=0, description="Learners that look for weaknesses of the main agents of now")
    league_exploiters: int = Field(1, ge=0, description="Learners that look for weaknesses of the whole league")
    self_play: float = Field(
        0.35,
        ge=0,
        le=1,
        description="Share of a main agent's games against main agents of now; the others are against past players, by pfsp",
    )
    capacity: int = Field(50, ge=2, description="Past players; beyond it, the one that main agents beat most often leaves")
    exploited: float = Field(
        0.7, gt=0.5, le=1, description="Win rate at which an exploiter has found a weakness, joins the league and begins again"
    )
    patience: PositiveInt = Field(4, description="Rounds after which it does so all the same")
    reset_probability: float = Field(
        0.25, ge=0, le=1, description="Of a league exploiter to begin again when it joins; main exploiters always do"
    )
    games_needed: PositiveInt = Field(10, description="Games against a player before its win rate counts")


@dataclass(slots=True)
class LeaguePlayer:
    """A frozen player. The script has no state."""

    name: str
    role: str
    member: int = -1
    state_sha256: str = ""
    steps: int = 0
    wins: dict[str, float] = field(default_factory=dict)  # by player, the share of games that it won while it learned
    games: dict[str, int] = field(default_factory=dict)


class League(Population):
    """Members in the order main, main exploiters, league exploiters. A round is one of each; one waits for all."""

    _config: LeagueConfig

    def __init__(self, config: LeagueConfig, context: PopulationContext) -> None:
        super().__init__(config, context)
        if config.search:
            raise ConfigError(f"a league does not search hyper-parameters: give {', '.join(config.search)} one value each")
        counts = {MAIN: config.main, MAIN_EXPLOITER: config.main_exploiters, LEAGUE_EXPLOITER: config.league_exploiters}
        self.roles = [role for role, count in counts.items() for _ in range(count)]
        self.members = [Member(n, self.member_seed(n), {}) for n in range(len(self.roles))]
        self.players: list[LeaguePlayer] = [LeaguePlayer(SCRIPT, SCRIPT)]
        self._rates: list[dict[str, float]] = [{} for _ in self.roles]  # of each member: by player, its last results
        self._games: list[dict[str, int]] = [{} for _ in self.roles]
        self._ready = list(range(len(self.roles)))

    @property
    def waits_for_all(self) -> bool:
        """Always: who joins the league is decided when every member has finished its round."""
        return True

    @property
    def best(self) -> Member | None:
        """The main agent with the highest score."""
        known = [m for m, role in zip(self.members, self.roles, strict=True) if role == MAIN and np.isfinite(m.score) and m.state_sha256]
        return max(known, key=lambda m: m.score) if known else None

    def _all_planned(self) -> bool:
        return not self._ready

    def _plan(self) -> Plan | None:
        if not self._ready:
            return None
        number = self._ready.pop(0)
        member = self.members[number]
        names, weights = self._opponents_of(number)
        return Plan(
            number,
            member.seed,
            {},
            CONTINUE if member.state_sha256 else START,
            parents=[number] if member.state_sha256 else [],
            state_sha256=member.state_sha256,
            rounds=member.rounds,
            line_steps=member.line_steps,
            leave_episodes=bool(member.state_sha256),  # episodes against players of the round before stay behind
            opponents=names,
            opponent_weights=weights,
        )

    def _opponents_of(self, number: int) -> tuple[list[str], list[float]]:
        """The league, and the share of games against each; after its training the member plays matches against all of them."""
        role = self.roles[number]
        past = [player.name for player in self.players]
        mains = list({player.member: player.name for player in self.players if player.role == MAIN}.values())
        if role == MAIN_EXPLOITER and mains:
            return past, [(name in mains) / len(mains) for name in past]
        share = self._config.self_play if role == MAIN and mains else 0.0
        hard = pfsp(
            np.array([self._rates[number].get(name, 0.5) for name in past]),
            np.array([float(self._games[number].get(name, 0)) for name in past]),
            games_needed=self._config.games_needed,
        )
        now = [share * (name in mains) / max(1, len(mains)) for name in past]
        return past, ((1 - share) * hard + now).tolist()

    def _pool_of(self, plan: Plan) -> tuple[OpponentsConfig | None, list[tuple[str, Arrays]]]:
        states = {player.name: player.state_sha256 for player in self.players}
        policies = [(name, self._policy(states[name])) for name in plan.opponents if name != SCRIPT]
        return OpponentsConfig(pool=plan.opponents, choice="given", weights=plan.opponent_weights, snapshot=None, window=10_000), policies

    def _policy(self, state_sha256: str) -> Arrays:
        assert self.files is not None
        policy = self.files.load_part(state_sha256, "policy")
        return {key: policy[key] for key in ("params", "obs_moments")}

    def _finish(self, outcome: Outcome) -> None:
        plan = self._plans[outcome.ticket]
        if not outcome.failed:
            wins, games = (np.asarray(outcome.arrays[name]) for name in (WINS, GAMES))
            for name, won, played in zip(plan.opponents, wins.tolist(), games.tolist(), strict=True):
                if played:
                    self._rates[plan.member][name] = won / played
                    self._games[plan.member][name] = int(played)
        super()._finish(outcome)

    def _on_round_finished(self, plan: Plan, child: Member) -> None:
        if not child.state_sha256:
            child.state_sha256, child.line_steps = plan.state_sha256, plan.line_steps
        self.members[plan.member] = child

    def _select(self) -> None:
        """Main agents join the league after every round; exploiters when they have found a weakness, or their time is over."""
        rng = self.rng(1, self.version)
        self._ready = list(range(len(self.roles)))
        before = list(self.members)
        for number, (role, member) in reversed(
            list(enumerate(zip(self.roles, before, strict=True)))
        ):  # exploiters first: they met those of before
            if not np.isfinite(member.score):  # its last round failed
                continue
            if role == MAIN:
                self._join(number)
                continue
            found = self._win_rate(number) >= self._config.exploited
            if found or member.rounds >= self._config.patience:
                self._join(number)
                if role == MAIN_EXPLOITER or rng.random() < self._config.reset_probability:
                    fresh = self.member_seed(len(self.roles) + self._planned + number)
                    self.members[number] = Member(number, fresh, {})
                    self._rates[number], self._games[number] = {}, {}
        self._forget()

    def _win_rate(self, number: int) -> float:
        """Of an exploiter, against those whom it looks for: the main agents of now, or the whole league."""
        league = {player.name for player in self.players}
        newest = {player.member: player.name for player in self.players if player.role == MAIN}
        mains = set(newest.values())
        targets = mains if self.roles[number] == MAIN_EXPLOITER else league
        rates = [rate for name, rate in self._rates[number].items() if name in targets]
        return float(np.mean(rates)) if rates else 0.0

    def _join(self, number: int) -> None:
        member = self.members[number]
        name = f"{self.roles[number]} {number}, generation {self.version + 1}"
        known = {player.name for player in self.players}
        rates = {other: rate for other, rate in self._rates[number].items() if other in known}
        games = {other: self._games[number][other] for other in rates}
        self.players.append(LeaguePlayer(name, self.roles[number], number, member.state_sha256, member.line_steps, rates, games))

    def _forget(self) -> None:
        """Beyond its capacity, the league loses the player that main agents beat most often."""
        mains = [n for n, role in enumerate(self.roles) if role == MAIN]
        while len(self.players) > self._config.capacity:
            beaten = [np.mean([self._rates[n].get(player.name, 0.5) for n in mains]) for player in self.players[1:-1]]
            del self.players[1 + int(np.argmax(beaten))]

    def _known(self) -> list[Member]:
        frozen = [Member(-1, 0, {}, state_sha256=player.state_sha256) for player in self.players]
        return self.members + frozen

    def _more_metrics(self) -> Metrics:
        rates = list(self._rates[0].values())
        return {"players": float(len(self.players)), "win_rate": float(np.mean(rates)) if rates else 0.5}

    def state_dict(self) -> State:
        """And the frozen players, the results of members against them, and who waits for a worker."""
        return super().state_dict() | {
            "players": [asdict(player) for player in self.players],
            "rates": [dict(r) for r in self._rates],
            "member_games": [dict(g) for g in self._games],
            "ready": list(self._ready),
        }

    def load_state_dict(self, state: State) -> None:
        """Continue from a `state_dict`."""
        super().load_state_dict(state)
        self.players = [LeaguePlayer(**player) for player in state["players"]]
        self._rates, self._games = [dict(r) for r in state["rates"]], [dict(g) for g in state["member_games"]]
        self._ready = [int(n) for n in state["ready"]]


def league_matrix(players: list[LeaguePlayer]) -> tuple[list[str], NDArray[np.float64], NDArray[np.float64]]:
    """Names, win rates and games of frozen players: what each won against those before it while it learned; 0.5 where they never met."""
    names = [player.name for player in players]
    rates, games = np.full((len(names), len(names)), 0.5), np.zeros((len(names), len(names)))
    for row, player in enumerate(players):
        for other, rate in player.wins.items():
            if other in names:
                column = names.index(other)
                rates[row, column], rates[column, row] = rate, 1 - rate
                games[row, column] = games[column, row] = player.games[other]
    return names, rates, games


register_population(PopulationEntry(LeagueConfig, League, "Vinyals et al. 2019, Nature 575"))
