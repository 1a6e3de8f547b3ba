"""Evolution of members: NSGA-II for several objectives (Deb et al. 2002), the genetic (mu + lambda) algorithm and the steady state for one."""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar, Literal

import numpy as np
from pydantic import Field, PositiveInt

from baldwin.algorithm import BaseAlgorithm
from baldwin.errors import ConfigError
from baldwin.ops import pareto, pbt
from baldwin.ops.noise import Shape
from baldwin.populations.config import PopulationConfig, PopulationContext, PopulationEntry, register_population
from baldwin.populations.member import Member
from baldwin.populations.population import START, Plan, Population
from baldwin.populations.variation import VariationConfig, policy_shapes, vary_hyperparameters, vary_weights
from baldwin.types import Metrics, State

CHILD = "child"


class BreedingConfig(PopulationConfig):
    """Children of members, each trained before it is evaluated."""

    members: int = Field(8, ge=2, description="Parents that are kept, and children per generation")
    steps: int = Field(20_000, ge=0, description="Environment steps of a child's training, at least; 0: none (darwinian)")
    inheritance: Literal["lamarckian", "baldwinian", "darwinian"] = Field(
        "lamarckian",
        description="What descendants begin with: the trained weights; those before training, which only decided the fitness; "
        "darwinian: nothing is trained",
    )
    generational: bool = Field(
        False, description="All children are there before anyone is selected: the same bits for any number of workers"
    )
    variation: VariationConfig = VariationConfig()

    @property
    def training_steps(self) -> int:
        """Environment steps that a child is trained for: none if inheritance is darwinian."""
        return 0 if self.inheritance == "darwinian" else self.steps


class Breeding(Population):
    """The first `members` begin from scratch; then children, whose ids are their numbers."""

    parents_needed: ClassVar[int] = 2
    _config: BreedingConfig

    def __init__(self, config: BreedingConfig, context: PopulationContext) -> None:
        super().__init__(config, context)
        if config.inheritance != "darwinian" and not config.steps:
            raise ConfigError(f"population.steps=0 trains nothing: set population.inheritance=darwinian; got {config.inheritance}")
        if config.variation.changes_weights:
            self._check_members_can(_take_own_params, "population.variation")
        self.children: list[Member] = []
        self._shapes: tuple[Shape, ...] = policy_shapes(context.sections)
        self._in_generation = 0  # rounds that were given out

    @property
    def waits_for_all(self) -> bool:
        """Whether a round of all members ends before the next begins: in generational algorithms."""
        return self._config.generational

    def _known(self) -> list[Member]:
        return self.members + self.children

    def _all_planned(self) -> bool:
        return self._in_generation >= self._config.members

    def _plan(self) -> Plan | None:
        config, number = self._config, self._planned
        if config.generational and self._all_planned():
            return None
        inherit = config.inheritance != "baldwinian"
        pool = self.members if len(self.members) >= self.parents_needed else self.members + self.children  # until the first selection
        missing = len(pool) < self.parents_needed
        if missing and len(pool) + len(self._open) >= config.members:  # the first ones are on their way
            return None
        if missing or number < config.members:
            self._in_generation += 1
            drawn = pbt.resample(self.ranges, self.rng(0, number))
            return Plan(number, self.member_seed(number), drawn, START, steps=config.training_steps, inherit_training=inherit)
        self._in_generation += 1
        rng = self.rng(1, number)
        first, second = self._parents(pool, rng)
        return Plan(
            number,
            self.member_seed(number),
            vary_hyperparameters(first, second, self.ranges, config.variation, rng),
            CHILD,
            parents=[first.id, second.id],
            state_sha256=first.state_sha256,
            before=first.hyperparameters,
            rounds=first.rounds,
            line_steps=first.line_steps,
            steps=self._child_steps(number),
            copied=True,
            params=self._child_params(first, second, rng),
            inherit_training=inherit,
        )

    def _child_steps(self, number: int) -> int:
        """Environment steps that the child of that number is trained for."""
        return self._config.training_steps

    def _child_params(self, first: Member, second: Member, rng: np.random.Generator) -> np.ndarray[tuple[int], np.dtype[np.float32]] | None:
        variation = self._config.variation
        if self.files is None or not variation.changes_weights:
            return None
        a, b = (np.asarray(self.files.load_part(m.state_sha256, "params"), np.float32) for m in (first, second))
        return vary_weights(a, b, self._shapes, variation, rng)

    @abstractmethod
    def _parents(self, pool: list[Member], rng: np.random.Generator) -> tuple[Member, Member]:
        """Two of these members, the fitter one first."""

    def _on_round_finished(self, plan: Plan, child: Member) -> None:
        if child.state_sha256:
            self.children.append(child)

    def _select(self) -> None:
        self._in_generation = 0
        pool = self.members + self.children
        self.members = [pool[n] for n in self._survivors(pool, min(self._config.members, len(pool)))]
        self.children = []

    @abstractmethod
    def _survivors(self, pool: list[Member], count: int) -> list[int]:
        """Positions of those that stay, best first."""

    def state_dict(self) -> State:
        """And children that wait for the end of their generation."""
        return super().state_dict() | {"children": [m.as_state() for m in self.children], "in_generation": self._in_generation}

    def load_state_dict(self, state: State) -> None:
        """Continue from a `state_dict`."""
        super().load_state_dict(state)
        self.children = [Member.from_state(m) for m in state["children"]]
        self._in_generation = int(state["in_generation"])


def _take_own_params(algorithm: BaseAlgorithm) -> None:
    algorithm.set_policy_params(np.array(algorithm.policy_state()["params"], np.float32))


class NSGA2PopulationConfig(BreedingConfig):
    """NSGA-II over learners: several objectives, such as the score and a kind of behaviour, and the front of those that nobody dominates."""

    name: Literal["nsga2"] = "nsga2"
    reference: list[float] | None = Field(
        None, description="Point from which the hypervolume is measured; default: the worst of the first generation in each objective"
    )


class NSGA2Population(Breeding):
    """Binary tournaments by front and crowding; of parents and children together the best fronts survive."""

    scores_by_objective = False  # which of several? the best is the one with the highest return
    _config: NSGA2PopulationConfig

    def __init__(self, config: NSGA2PopulationConfig, context: PopulationContext) -> None:
        super().__init__(config, context)
        if config.reference is not None and len(config.reference) != len(config.objectives):
            raise ConfigError(
                f"population.reference: expected one number for each of the {len(config.objectives)} objectives; got {config.reference}"
            )
        self._reference: list[float] = config.reference or []

    def _fitness(self, members: list[Member]) -> np.ndarray[tuple[int, int], np.dtype[np.float64]]:
        return np.array([self.objectives_of(m) for m in members]).reshape(len(members), max(1, len(self._config.objectives)))

    def _parents(self, pool: list[Member], rng: np.random.Generator) -> tuple[Member, Member]:
        fitness = self._fitness(pool)
        rank = pareto.non_dominated_sort(fitness)
        chosen = pareto.tournament(rank, pareto.crowding_distance(fitness, rank), 2, rng)
        first, second = sorted(chosen.tolist(), key=lambda n: (rank[n], -pool[n].score))
        return pool[first], pool[second]

    def _survivors(self, pool: list[Member], count: int) -> list[int]:
        fitness = self._fitness(pool)
        if not self._reference and len(pool):
            self._reference = fitness.min(0).tolist()
        return [int(n) for n in pareto.select_survivors(fitness, count)]

    def front(self) -> list[Member]:
        """The members that no other dominates."""
        return [self.members[n] for n in pareto.pareto_front(self._fitness(self.members)).tolist()] if self.members else []

    def _more_metrics(self) -> Metrics:
        front = self.front()
        return {"front": float(len(front)), "hypervolume": pareto.hypervolume(self._fitness(front), self._reference) if front else 0.0}

    def state_dict(self) -> State:
        """The state of every genetic algorithm, and the reference point of the hypervolume."""
        return super().state_dict() | {"reference": list(self._reference), "front": [m.id for m in self.front()]}

    def load_state_dict(self, state: State) -> None:
        """Continue from a `state_dict`."""
        super().load_state_dict(state)
        self._reference = [float(x) for x in state["reference"]]


class GeneticConfig(BreedingConfig):
    """Genetic (mu + lambda) algorithm over learners: of parents and children together the best survive."""

    name: Literal["genetic"] = "genetic"
    tournament: PositiveInt = Field(2, description="Members of which the best becomes a parent")


class Genetic(Breeding):
    """Mu + lambda by the first objective alone: the best of parents and children survive."""

    _config: GeneticConfig

    def _parents(self, pool: list[Member], rng: np.random.Generator) -> tuple[Member, Member]:
        fitness = [float(self.objectives_of(m)[0]) for m in pool]
        size = min(self._config.tournament, len(pool))
        chosen = [max(rng.choice(len(pool), size, replace=False).tolist(), key=fitness.__getitem__) for _ in range(2)]
        first, second = sorted(chosen, key=fitness.__getitem__, reverse=True)
        return pool[first], pool[second]

    def _survivors(self, pool: list[Member], count: int) -> list[int]:
        fitness = np.array([self.objectives_of(m)[0] for m in pool])
        return [int(n) for n in np.argsort(-fitness, kind="stable")[:count]]


class SteadyStatePopulationConfig(GeneticConfig):
    """Steady-state genetic algorithm over learners: a child takes the place of the worst member at once, if it is better."""

    name: Literal["steady-state"] = "steady-state"  # type: ignore[assignment]
    generational: Literal[False] = False


class SteadyStatePopulation(Genetic):
    """Nobody waits for a generation."""

    _config: SteadyStatePopulationConfig

    def _on_round_finished(self, plan: Plan, child: Member) -> None:
        if not child.state_sha256:
            return
        self.members.append(child)
        if len(self.members) > self._config.members:
            self.members = [self.members[n] for n in self._survivors(self.members, self._config.members)]

    def _select(self) -> None:
        self._in_generation = 0


register_population(PopulationEntry(NSGA2PopulationConfig, NSGA2Population, "Deb et al. 2002"))
register_population(PopulationEntry(GeneticConfig, Genetic, "Holland 1975; Such et al. 2017, arXiv 1712.06567"))
register_population(PopulationEntry(SteadyStatePopulationConfig, SteadyStatePopulation, "Whitley 1989"))
