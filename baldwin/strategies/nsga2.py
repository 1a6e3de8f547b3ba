"""NSGA-II on the weights of policies alone (Deb et al. 2002): several objectives of an episode, and the front of those that nobody dominates."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, PositiveFloat

from baldwin.errors import BaldwinError
from baldwin.ops import noise, pareto, variation
from baldwin.ops.noise import Shape
from baldwin.ops.shaping import Vector
from baldwin.rollout import mean_results, weigh_objectives
from baldwin.strategies.evolution import EvolutionConfig, register_strategy
from baldwin.strategies.generational import GenerationalStrategy
from baldwin.types import Metrics, Outcome, State


class NSGA2Config(EvolutionConfig):
    """NSGA-II on weights: tournaments by front and crowding, crossover of networks, Gaussian mutation; of parents and children the best fronts survive."""

    mutable: ClassVar[tuple[str, ...]] = ("sigma", "mutation_probability", "crossover", "crossover_probability")

    name: Literal["nsga2"] = "nsga2"
    population: int = Field(40, ge=4, multiple_of=2, description="Parents, and children per generation")
    initial_sigma: PositiveFloat = Field(0.5, description="Standard deviation of the first individuals around the initial network")
    sigma: PositiveFloat = Field(0.1, description="Standard deviation of the noise on a weight")
    mutation_probability: float = Field(0.5, gt=0, le=1, description="Share of the weights that get it")
    crossover: Literal["layers", "units", "uniform"] = Field("units", description="What comes whole from one parent or the other")
    crossover_probability: float = Field(0.5, ge=0, le=1, description="Of a child to have two parents; otherwise one is mutated")
    objectives: dict[str, dict[str, float]] = Field(
        default_factory=dict,
        description="Names of objectives, each a weighted sum of `return`, reward components, and results of the environment; default: return",
    )

    @property
    def collects_results(self) -> bool:
        """Where there are objectives of its own."""
        return bool(self.objectives)


class NSGA2(GenerationalStrategy):
    """The center is the parent with the highest return."""

    def __init__(self, center: NDArray[np.float32], config: NSGA2Config, *, seed: int, shapes: tuple[Shape, ...]) -> None:
        super().__init__(center, config.population, seed=seed)
        self.config, self._shapes = config, shapes
        self.parents = np.zeros((0, len(center)), np.float32)
        self.fitness = np.zeros((0, max(1, len(config.objectives))))  # of the parents
        self.returns = np.zeros(0)
        self._objectives: dict[int, NDArray[np.float64]] = {}  # of this generation's individuals
        self._reference: list[float] = []

    def set_center(self, center: NDArray[np.float32]) -> None:
        """Not here: children are those of the parents.

        Raises:
            BaldwinError: always.
        """
        raise BaldwinError("nsga2 has parents, and no center that could be set between updates")

    def tell(self, outcomes: Sequence[Outcome]) -> Metrics | None:
        """Note the objectives, then as every generational strategy."""
        for outcome in outcomes:
            if not outcome.failed:
                found = weigh_objectives(mean_results(outcome), self.config.objectives, "algorithm.objectives")
                self._objectives[self.index_of(outcome.ticket)] = found
        return super().tell(outcomes)

    def _draw(self, index: int) -> NDArray[np.float32]:
        """Around the initial network at first, one of them unchanged; then children."""
        normals = noise.draw(self._key, self.version, index, len(self.mean))
        if not len(self.parents):
            return np.asarray(self.mean + self.config.initial_sigma * normals * bool(index), np.float32)
        rng = np.random.default_rng([*self._key, self.version, index])
        rank = pareto.non_dominated_sort(self.fitness)
        crowding = pareto.crowding_distance(self.fitness, rank)
        first, second = pareto.tournament(rank, crowding, 2, rng, min(2, len(rank)))
        child = self.parents[first]
        if rng.random() < self.config.crossover_probability:
            child = np.where(self._mask(rng), child, self.parents[second])
        mutated = rng.random(len(child)) < self.config.mutation_probability
        return np.asarray(child + self.config.sigma * normals * mutated, np.float32)

    def _mask(self, rng: np.random.Generator) -> NDArray[np.bool_]:
        if self.config.crossover == "uniform":
            return variation.uniform_mask(len(self.mean), rng)
        return (variation.layer_mask if self.config.crossover == "layers" else variation.unit_mask)(self._shapes, rng)

    def _update(self, individuals: Vector, indices: NDArray[np.int64]) -> Metrics:
        children = np.stack([self._objectives[int(index)] for index in indices])
        fitness = np.concatenate([self.fitness, children])
        parents = np.concatenate([self.parents, individuals.astype(np.float32)])
        returns = np.concatenate([self.returns, self._fitness[indices]])
        if not self._reference:
            self._reference = fitness.min(0).tolist()
        chosen = pareto.select_survivors(fitness, min(self.population, len(fitness)))
        self.parents, self.fitness, self.returns = parents[chosen], fitness[chosen], returns[chosen]
        self.mean = self.parents[int(self.returns.argmax())].astype(np.float64)
        self._objectives = {}
        front = self.fitness[pareto.pareto_front(self.fitness)]
        return {"front": float(len(front)), "hypervolume": pareto.hypervolume(front, self._reference)}

    def state_dict(self) -> State:
        """The state of every generational strategy, and the parents with their fitness, returns and objectives."""
        return super().state_dict() | {
            "parents": self.parents,
            "parent_fitness": self.fitness,
            "parent_returns": self.returns,
            "objectives": {str(index): values for index, values in self._objectives.items()},
            "reference": list(self._reference),
        }

    def load_state_dict(self, state: State) -> None:
        """Continue from a `state_dict`."""
        super().load_state_dict(state)
        self.parents, self.fitness, self.returns = (np.array(state[name]) for name in ("parents", "parent_fitness", "parent_returns"))
        self._objectives = {int(index): np.array(values) for index, values in state["objectives"].items()}
        self._reference = [float(x) for x in state["reference"]]


register_strategy(NSGA2Config, lambda center, config, shapes, seed: NSGA2(center, config, seed=seed, shapes=shapes), "Deb et al. 2002")
