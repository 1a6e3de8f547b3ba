"""Weight-CEM over learners that train side by side (Advanced SAC's evolver, with its defects mended), and a bandit over their hyper-parameters.

After each round, everybody's weights are drawn anew around those of the best (cross-entropy method), but the very best keep theirs. All begin with one
initialisation, since the mean of networks that were initialised apart is no network of use. Observation statistics come with the weights.
"""

from __future__ import annotations

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
from baldwin.populations.population import CONTINUE, START, Plan, Population
from baldwin.types import State

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


class Evolver(Population):
    """Rounds of all members; one waits for all. A replacement joins with the next round, since its weights come from the elites of all."""

    _config: EvolverConfig

    def __init__(self, config: EvolverConfig, context: PopulationContext) -> None:
        super().__init__(config, context)
        if config.members < 2:
            raise ConfigError(f"population.members: the evolver compares members, at least two; got {config.members}")
        self._counts = {key: np.ones(len(r.values)) for key, r in self.ranges.items() if isinstance(r, Choice)}
        self._normals = {key: _first_normal(r) for key, r in self.ranges.items() if not isinstance(r, Choice)}
        self.members = [Member(n, self.member_seed(n), self._draw_hyperparameters(n)) for n in range(config.members)]
        self._times_elite = np.zeros(config.members)
        self._ready = list(range(config.members))
        self._next_weights: dict[int, NDArray[np.float32]] = {}  # member -> what it goes on with; others keep theirs
        self._elites: list[int] = []  # of the last round, best first
        self._obs_moments: NDArray[np.float64] | None = None
        self._check_members_can(self._take_first_weights, "population.name=evolver")

    def _take_first_weights(self, algorithm: BaseAlgorithm) -> None:
        """Those that all members begin with; a member must be able to take them."""
        self._first_weights = np.array(algorithm.weights(), np.float32)
        algorithm.set_weights(self._first_weights)

    @property
    def waits_for_all(self) -> bool:
        """Always: weights are drawn from the elites of all members."""
        return True

    def _all_planned(self) -> bool:
        return not self._ready

    def _plan(self) -> Plan | None:
        if not self._ready:
            return None
        number = self._ready.pop(0)
        member = self.members[number]
        drawn = self._next_weights.get(number)
        if not member.state_sha256:
            weights = self._first_weights if drawn is None else drawn
            operator, parents = (START, []) if drawn is None else (REPLACED, list(self._elites))
            moments = None if drawn is None else self._obs_moments
            return Plan(number, member.seed, member.hyperparameters, operator, parents=parents, weights=weights, obs_moments=moments)
        return Plan(
            number,
            member.seed,
            member.hyperparameters,
            CONTINUE if drawn is None else DRAWN,
            parents=[number] if drawn is None else list(self._elites),
            state_sha256=member.state_sha256,
            before=member.hyperparameters,
            rounds=member.rounds,
            line_steps=member.line_steps,
            weights=drawn,
            obs_moments=None if drawn is None else self._obs_moments,
        )

    def _on_round_finished(self, plan: Plan, child: Member) -> None:
        if not child.state_sha256:  # it failed: it goes on from before, with weights that are drawn
            child.state_sha256, child.line_steps = plan.state_sha256, plan.line_steps
        self.members[plan.member] = child

    def _select(self) -> None:
        config = self._config
        self._ready = list(range(config.members))
        self._next_weights = {}
        fitness = np.array([m.score if m.state_sha256 else np.nan for m in self.members])
        weights = self._weights_of_all(np.isfinite(fitness))
        if not np.isfinite(weights).all(1).any():
            return
        elites = weight_cem.trained_elites(weights, fitness, config.elites).tolist()
        new = weight_cem.next_weights(
            weights, fitness, self.rng(1, self.version), config.elites, config.std_floor, config.std_cap, config.elitism
        )
        drawn = dict(enumerate(new.astype(np.float32)))
        self._elites = elites
        self._times_elite[elites] += 1
        self._update_bandit([self.members[n].hyperparameters for n in elites])
        self._obs_moments = np.asarray(self._state_of(elites[0])["policy"]["obs_moments"], np.float64)
        self._next_weights = {n: own for n, own in drawn.items() if n not in elites[: config.elitism]}
        self._replace_least_selected(elites, drawn)

    def _weights_of_all(self, known: NDArray[np.bool_]) -> NDArray[np.float32]:
        """Everything that is trained [N, W]; NaN where nothing is known of a member."""
        weights = np.full((len(self.members), len(self._first_weights)), np.nan, np.float32)
        for n in np.flatnonzero(known).tolist():
            weights[n] = self._state_of(n)["weights"]
        return weights

    def _state_of(self, number: int) -> State:
        if self.files is None:
            raise RunDirectoryError("the states of members are in a run's directory, and this population was built without one")
        return self.files.load(self.members[number].state_sha256)

    def _replace_least_selected(self, elites: list[int], drawn: dict[int, NDArray[np.float32]]) -> None:
        """A new learner takes the place of the one that was least often an elite; everybody's count begins anew."""
        worst = weight_cem.least_selected(self._times_elite, self._config.replace_after)
        if worst is None or worst in elites:
            return
        number = self._config.members + self._planned
        self.members[worst] = Member(worst, self.member_seed(number), self._draw_hyperparameters(number))
        self._next_weights[worst] = drawn[worst]
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
                chosen = [found.values.index(value) for value in values]
                self._counts[key] = bandit.dirichlet_update(self._counts[key], chosen, self._config.bandit_discount)
            else:
                floor = 0.02 * (_scaled(found, found.high) - _scaled(found, found.low))
                mean, std = self._normals[key]
                scaled = [_scaled(found, value) for value in values]
                self._normals[key] = bandit.truncated_normal_update(mean, std, scaled, self._config.bandit_rate, floor)

    def state_dict(self) -> State:
        """And the bandit, who was an elite how often, and the weights that were drawn."""
        return super().state_dict() | {
            "counts": dict(self._counts),
            "normals": {key: list(normal) for key, normal in self._normals.items()},
            "times_elite": self._times_elite,
            "ready": self._ready,
            "elites": self._elites,
            "next_weights": {str(n): weights for n, weights in self._next_weights.items()},
            "obs_moments": {} if self._obs_moments is None else {"packed": self._obs_moments},
        }

    def load_state_dict(self, state: State) -> None:
        """Continue from a `state_dict`."""
        super().load_state_dict(state)
        self._counts = {key: np.array(counts) for key, counts in state["counts"].items()}
        self._normals = {key: (float(mean), float(std)) for key, (mean, std) in state["normals"].items()}
        self._times_elite = np.array(state["times_elite"])
        self._ready, self._elites = ([int(n) for n in state[name]] for name in ("ready", "elites"))
        self._next_weights = {int(n): np.array(weights, np.float32) for n, weights in state["next_weights"].items()}
        self._obs_moments = state["obs_moments"].get("packed")


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
