"""Weight-CEM over learners that train side by side (Advanced SAC's evolver, with its defects mended), and a bandit over their hyper-parameters.

After each round, everybody's weights are drawn anew around those of the best (cross-entropy method), but the very best keep theirs. All begin with one
initialisation, since the mean of networks that were initialised apart is no network of use. Observation statistics come with the weights.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, PositiveFloat

from baldwin.algorithm import BaseAlgorithm
from baldwin.errors import ConfigError, RunDirectoryError
from baldwin.ops import bandit, weight_cem
from baldwin.ops.ranges import Choice, Int, Log, Value
from baldwin.populations.config import PopulationConfig, PopulationContext, PopulationEntry, register_population
from baldwin.populations.member import Hyperparameters, Member
from baldwin.populations.population import CONTINUE, START, Plan, Population, plan_state
from baldwin.types import Metrics, Outcome, State

DRAWN, REPLACED = "drawn", "replaced"


class EvolverConfig(PopulationConfig):
    """Weight-CEM over concurrent learners: weights are drawn around the elites', hyper-parameters by a bandit, the least selected are replaced."""

    name: Literal["evolver"] = "evolver"
    elites: float = Field(0.3, gt=0, le=1, description="Share of the members whose weights make the distribution, at least one")
    elitism: int = Field(1, ge=0, description="Of the best, so many keep their weights")
    std_floor: float = Field(0.002, ge=0, description="Smallest standard deviation of a weight; 0 makes clones of a single elite")
    std_cap: PositiveFloat = Field(1.0, description="And the largest")
    replace_after: float = Field(
        4.0, gt=0, description="The member that was least often an elite is replaced when it is so many times behind the mean"
    )
    bandit_rate: float = Field(0.5, gt=0, le=1, description="How far the normal distribution of a number moves towards the elites' values")
    bandit_discount: float = Field(0.9, gt=0, le=1, description="How much of the counts of choices is kept from round to round")
    asynchronous: bool = Field(
        False,
        description="No member waits for another: elites are selected after as many results as there are members, in the order of arrival, "
        "and each draws weights when its own round has ended",
    )


@dataclass(frozen=True, slots=True)
class EliteDistribution:
    """What weights are drawn from: an independent normal distribution of each, around those of the elites."""

    mean: NDArray[np.float64]
    std: NDArray[np.float64]
    elites: list[int] = field(default_factory=list)  # best first; none at the start, when all draw the one initialisation
    obs_moments: NDArray[np.float64] | None = None  # of the best

    def sample(self, rng: np.random.Generator) -> NDArray[np.float32]:
        """Weights [W] of a new learner, drawn around the mean of the elites."""
        return np.asarray(self.mean + self.std * rng.standard_normal(len(self.mean)), np.float32)


class Evolver(Population):
    """Rounds of all members; the elites of all are selected when all have finished, or, if asynchronous, by the newest result of each.

    Where one waits for all, the ticket of member n in round r is r * members + n, and all random numbers of its round follow from it.
    A member that fails in round r is replaced at once, by a learner made from what was known when round r began: its first round, which
    counts as r + 1, begins as soon as a worker is free, and nobody waits for it in round r. So neither a ticket nor what it means
    depends on who was faster.
    """

    _config: EvolverConfig

    def __init__(self, config: EvolverConfig, context: PopulationContext) -> None:
        super().__init__(config, context)
        if config.members < 2:
            raise ConfigError(f"population.members: the evolver compares members, at least two; got {config.members}")
        self._counts = {key: np.ones(len(r.values)) for key, r in self.ranges.items() if isinstance(r, Choice)}
        self._normals = {key: _first_normal(r) for key, r in self.ranges.items() if not isinstance(r, Choice)}
        self.members = [self._new_learner(n, n) for n in range(config.members)]
        self._tickets = list(range(config.members))  # of each member's last round that has ended
        self._times_elite = np.zeros(config.members)
        self._ready = list(range(config.members))  # whose next round was not given out yet
        self._replacements: list[Plan] = []  # first rounds of learners in place of failed ones, for the next generation
        self._redrawn: list[int] = []  # who draws weights for its next round; others keep theirs
        self._check_members_can(self._take_first_weights, "population.name=evolver")

    def _take_first_weights(self, algorithm: BaseAlgorithm) -> None:
        """Those that all members begin with; a member must be able to take them."""
        first = np.array(algorithm.weights(), np.float32)
        algorithm.set_weights(first)
        self._distribution = EliteDistribution(first.astype(np.float64), np.zeros(len(first)))

    @property
    def waits_for_all(self) -> bool:
        """Whether a round ends with its slowest member: unless the evolver is asynchronous."""
        return not self._config.asynchronous

    def _all_planned(self) -> bool:
        return not self._ready and not any(plan.ticket is not None and self._is_due(plan.ticket) for plan in self._replacements)

    def _is_due(self, ticket: int) -> bool:
        return ticket // self._config.members == self.version

    def _plan(self) -> Plan | None:
        """Who belongs to this round goes first, since it ends with the last of them; replacements for the next one are behind."""
        if self._ready:
            return self._round_of(self._ready.pop(0))
        return self._replacements.pop(0) if self._replacements else None

    def _round_of(self, number: int) -> Plan:
        member = self.members[number]
        ticket = self._planned if self._config.asynchronous else self.version * self._config.members + number
        if not member.state_sha256:
            return self._first_round(member, ticket)
        plan = Plan(
            number,
            member.seed,
            member.hyperparameters,
            CONTINUE,
            parents=[number],
            state_sha256=member.state_sha256,
            before=member.hyperparameters,
            rounds=member.rounds,
            line_steps=member.line_steps,
            ticket=ticket,
        )
        if number not in self._redrawn:
            return plan
        self._redrawn.remove(number)
        return self._with_drawn_weights(plan, DRAWN, ticket)

    def _first_round(self, member: Member, ticket: int) -> Plan:
        plan = Plan(member.id, member.seed, member.hyperparameters, ticket=ticket)
        return self._with_drawn_weights(plan, REPLACED if self._distribution.elites else START, ticket)

    def _new_learner(self, place: int, number: int) -> Member:
        """The learner of that number, in the place of a member."""
        return Member(place, self.member_seed(number), self._draw_hyperparameters(number))

    def _replacement(self, place: int, ticket: int) -> Member:
        """The learner that follows the one in this place whose last round had that ticket: no two have the same number."""
        return self._new_learner(place, ticket + self._config.members)

    def _with_drawn_weights(self, plan: Plan, operator: str, ticket: int) -> Plan:
        found = self._distribution
        weights = found.sample(self.rng(1, ticket))
        return replace(plan, operator=operator, parents=list(found.elites), weights=weights, obs_moments=found.obs_moments)

    def _on_outcomes(self, outcomes: Sequence[Outcome]) -> Metrics | None:
        if self.waits_for_all:
            self._replace_failed([outcome for outcome in outcomes if self._is_due(outcome.ticket)])
        return super()._on_outcomes(outcomes)

    def _replace_failed(self, outcomes: Iterable[Outcome]) -> None:
        """Plan what begins in place of those that have failed in this round. Their members stay as they were until it ends."""
        count = self._config.members
        for ticket in [outcome.ticket for outcome in outcomes if outcome.failed]:
            self._replacements.append(self._first_round(self._replacement(ticket % count, ticket), ticket + count))

    def _on_round_finished(self, plan: Plan, child: Member) -> None:
        place, ticket = plan.member, plan.ticket or 0
        if plan.seed != self.members[place].seed:  # it was replaced while it trained, which only an asynchronous evolver does
            return
        self._tickets[place] = ticket
        self.members[place] = child if child.state_sha256 else self._replacement(place, ticket)
        if self._config.asynchronous:
            self._ready.append(place)

    def _select(self) -> None:
        new = [m.id for m in self.members if not m.state_sha256]  # where one waits for all, their rounds were planned when others failed
        going_on = [n for n in range(len(self.members)) if n not in new]
        elites, weights = self._elites()
        if elites:
            self._update_distributions(elites, weights, new)
            self._replace_least_selected(elites)
        kept = elites[: self._config.elitism] if elites else going_on
        self._redrawn = [n for n in going_on if n not in kept and self.members[n].state_sha256]
        if self.waits_for_all:
            self._ready = going_on

    def _end_generation(self) -> Metrics:
        metrics = super()._end_generation()
        self._replace_failed(self._arrived.values())  # a replacement that has failed already, too
        return metrics

    def _elites(self) -> tuple[list[int], NDArray[np.float32]]:
        """The best members whose weights are finite, best first, and these weights [K, W]; only their files are read."""
        scores = [m.score if m.state_sha256 else np.nan for m in self.members]
        fitness = np.where(np.isfinite(scores), scores, np.nan)
        while np.isfinite(fitness).any():
            elites = weight_cem.elite_indices(fitness, self._config.elites)
            weights = np.stack([self._part_of_state(n, "weights") for n in elites.tolist()])
            finite = np.isfinite(weights).all(1)
            if finite.all():
                return elites.tolist(), weights
            fitness[elites[~finite]] = np.nan
        return [], np.zeros((0, len(self._distribution.mean)), np.float32)

    def _part_of_state(self, number: int, *keys: str) -> NDArray[Any]:
        if self.files is None:
            raise RunDirectoryError("the states of members are in a run's directory, and this population was built without one")
        return np.asarray(self.files.load_part(self.members[number].state_sha256, *keys))

    def _update_distributions(self, elites: list[int], weights: NDArray[np.float32], new: list[int]) -> None:
        """Those of weights and of hyper-parameters. A replacement is neither ahead nor behind: it begins with the mean of the counts."""
        mean, std = weight_cem.elite_distribution(weights, self._config.std_floor, self._config.std_cap)
        moments = np.asarray(self._part_of_state(elites[0], "policy", "obs_moments"), np.float64)
        self._distribution = EliteDistribution(mean, std, elites, moments)
        self._update_bandit([self.members[n].hyperparameters for n in elites])
        self._times_elite[elites] += 1
        self._times_elite[new] = np.delete(self._times_elite, new).mean()

    def _replace_least_selected(self, elites: list[int]) -> None:
        """A new learner takes the place of the one that was least often an elite; everybody's count begins anew."""
        worst = weight_cem.least_selected(self._times_elite, self._config.replace_after)
        if worst is None or worst in elites:
            return
        self.members[worst] = self._replacement(worst, self._tickets[worst])
        if self._config.asynchronous and worst not in self._ready:  # it trains, and what comes of it will be passed over
            self._ready.append(worst)
        self._times_elite[:] = 0
        self._times_elite[elites] = 1

    def _draw_hyperparameters(self, number: int) -> Hyperparameters:
        rng, drawn = self.rng(0, number), {}
        for key in sorted(self.ranges):
            found = self.ranges[key]
            if isinstance(found, Choice):
                drawn[key] = found.values[bandit.dirichlet_sample(self._counts[key], rng)]
            else:
                low, high = (_scaled(found, value) for value in (found.low, found.high))
                drawn[key] = _unscaled(found, bandit.truncated_normal_sample(*self._normals[key], low, high, rng))
        return {key: drawn[key] for key in self.ranges}

    def _update_bandit(self, elites: list[Hyperparameters]) -> None:
        for key, found in self.ranges.items():
            values = [own[key] for own in elites]
            if isinstance(found, Choice):
                chosen = [found.index(value) for value in values]
                self._counts[key] = bandit.dirichlet_update(self._counts[key], chosen, self._config.bandit_discount)
            else:
                floor = 0.02 * (_scaled(found, found.high) - _scaled(found, found.low))
                mean, std = self._normals[key]
                scaled = [_scaled(found, value) for value in values]
                self._normals[key] = bandit.truncated_normal_update(mean, std, scaled, self._config.bandit_rate, floor)

    def state_dict(self) -> State:
        """And the distributions of weights and hyper-parameters, who was an elite how often, and the replacements that wait for a worker."""
        return super().state_dict() | {
            "counts": dict(self._counts),
            "normals": {key: list(normal) for key, normal in self._normals.items()},
            "times_elite": self._times_elite,
            "ready": self._ready,
            "tickets": self._tickets,
            "redrawn": self._redrawn,
            "replacements": [plan_state(plan) for plan in self._replacements],
            "distribution": asdict(self._distribution),
        }

    def load_state_dict(self, state: State) -> None:
        """Continue from a `state_dict`."""
        super().load_state_dict(state)
        self._counts = {key: np.array(counts) for key, counts in state["counts"].items()}
        self._normals = {key: (float(mean), float(std)) for key, (mean, std) in state["normals"].items()}
        self._times_elite = np.array(state["times_elite"])
        self._ready, self._redrawn, self._tickets = ([int(n) for n in state[name]] for name in ("ready", "redrawn", "tickets"))
        self._replacements = [Plan(**plan) for plan in state["replacements"]]
        self._distribution = EliteDistribution(**state["distribution"])


def _scaled(found: Any, value: Value) -> float:
    """The number as the bandit sees it: of a logarithmic range, its logarithm."""
    return float(np.log(float(value))) if isinstance(found, Log) else float(value)  # type: ignore[arg-type]


def _unscaled(found: Any, value: float) -> Value:
    if isinstance(found, Log):
        return float(np.clip(np.exp(value), found.low, found.high))
    return round(value) if isinstance(found, Int) else value


def _first_normal(found: Any) -> tuple[float, float]:
    """The middle of the range, and half of its width: nearly uniform."""
    low, high = _scaled(found, found.low), _scaled(found, found.high)
    return (low + high) / 2, (high - low) / 2


register_population(PopulationEntry(EvolverConfig, Evolver, "Advanced SAC; de Boer et al. 2005"))
