"""MAP-Elites (Mouret and Clune 2015, arXiv 1504.04909): the best member for every kind of behaviour, on a grid of descriptors."""

from __future__ import annotations

from typing import Literal, Self

import numpy as np
from pydantic import Field, PositiveInt, field_validator, model_validator

from baldwin.errors import EnvironmentFailure
from baldwin.ops import archive
from baldwin.populations.config import PopulationContext, PopulationEntry, register_population
from baldwin.populations.genetic import Breeding, BreedingConfig
from baldwin.populations.member import Member
from baldwin.populations.population import Plan
from baldwin.types import Metrics, State


class MapElitesConfig(BreedingConfig):
    """MAP-Elites over learners: a grid of behaviours, each cell with the best member that behaves so."""

    name: Literal["map-elites"] = "map-elites"
    generational: Literal[False] = False
    descriptors: dict[str, tuple[float, float]] = Field(
        min_length=1, description="Results of the environment that make up the behaviour, each with its range, as in {busy: [0, 1]}"
    )
    bins: PositiveInt = Field(10, description="Cells of the grid per descriptor")
    improved: float = Field(
        1.0, ge=0, le=1, description="Probability that a child is trained; the others are variations of their parents, and nothing more"
    )
    offset: float = Field(0.0, description="Smallest possible fitness: the QD score sums what elites have above it")

    @field_validator("descriptors")
    @classmethod
    def _ranges_grow(cls, value: dict[str, tuple[float, float]]) -> dict[str, tuple[float, float]]:
        for name, (low, high) in value.items():
            if low >= high:
                raise ValueError(f"{name}: expected [low, high] with low < high; got {[low, high]}")
        return value

    @model_validator(mode="after")
    def _untrained_children_differ(self) -> Self:
        if self.improved < 1 and self.inheritance == "darwinian":
            raise ValueError(
                f"improved={self.improved:g} has no effect with inheritance=darwinian, where no child is trained. Leave one out"
            )
        if self.improved < 1 and not self.variation.changes_weights:
            raise ValueError(
                f"improved={self.improved:g} leaves children untrained, which would be copies of their parents: "
                "set variation.weight_sigma or variation.crossover"
            )
        return self


class MapElites(Breeding):
    """`members` are the elites, one for each cell that is filled. Parents are drawn uniformly from them; children are mutated, and trained if `steps` say so."""

    parents_needed = 1
    _config: MapElitesConfig

    def __init__(self, config: MapElitesConfig, context: PopulationContext) -> None:
        super().__init__(config, context)
        self._bins = (config.bins,) * len(config.descriptors)
        self.cells: list[int] = []  # of the members

    def cell_of(self, member: Member) -> int:
        """The cell of the grid that the member's behaviour belongs to.

        Raises:
            EnvironmentFailure: the environment does not tell a descriptor.
        """
        names = list(self._config.descriptors)
        unknown = [name for name in names if name not in member.results]
        if unknown:
            raise EnvironmentFailure(
                f"population.descriptors: the environment does not tell {', '.join(unknown)}; it tells: {', '.join(member.results)}"
            )
        low, high = zip(*self._config.descriptors.values(), strict=True)
        return int(archive.cell_index([[member.results[name] for name in names]], low, high, self._bins)[0])

    def _parents(self, pool: list[Member], rng: np.random.Generator) -> tuple[Member, Member]:
        first, second = rng.integers(len(pool), size=2).tolist()
        return pool[first], pool[second]

    def _child_steps(self, number: int) -> int:
        """None where chance says so."""
        return super()._child_steps(number) if self.rng(2, number).random() < self._config.improved else 0

    def _on_round_finished(self, plan: Plan, child: Member) -> None:
        if not child.state_sha256:
            return
        cell, fitness = self.cell_of(child), float(self.objectives_of(child)[0])
        if cell not in self.cells:
            self.cells.append(cell)
            self.members.append(child)
        elif fitness > float(self.objectives_of(self.members[self.cells.index(cell)])[0]):
            self.members[self.cells.index(cell)] = child

    def _survivors(self, pool: list[Member], count: int) -> list[int]:
        return list(range(len(self.members)))

    def _select(self) -> None:
        self._in_generation = 0

    def elites(self) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
        """Fitness of the elite of each cell; minus infinity where there is none."""
        grid = archive.empty_grid(self._bins)
        for cell, member in zip(self.cells, self.members, strict=True):
            grid[cell] = self.objectives_of(member)[0]
        return grid

    def _more_metrics(self) -> Metrics:
        grid = self.elites()
        return {"coverage": archive.coverage(grid), "qd_score": archive.qd_score(grid, self._config.offset)}

    def state_dict(self) -> State:
        """And the cells of the members."""
        return super().state_dict() | {"cells": list(self.cells)}

    def load_state_dict(self, state: State) -> None:
        """Continue from a `state_dict`."""
        super().load_state_dict(state)
        self.cells = [int(c) for c in state["cells"]]


register_population(PopulationEntry(MapElitesConfig, MapElites, "arXiv 1504.04909"))
