"""The `population:` section: what every algorithm over members has, and ranges of hyper-parameters."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

from pydantic import Field, PositiveInt, ValidationError, field_validator

from baldwin.algorithm import FailureLimits
from baldwin.errors import ConfigError, nearest
from baldwin.ops.ranges import Choice, Int, Log, Range, Uniform, Value
from baldwin.parts import Sections
from baldwin.populations.member import with_hyperparameters
from baldwin.registry import ConfigEntry, Registry
from baldwin.types import Algorithm

RANGES: dict[str, Callable[..., Range]] = {"uniform": Uniform, "log": Log, "int": Int, "choice": lambda *values: Choice(values)}
Spelling = dict[Literal["uniform", "log", "int", "choice"], list[Value]]


def is_range(value: Any) -> bool:
    """Whether a value of a config file is a range: {uniform: [a, b]}, {log: [a, b]}, {int: [a, b]} or {choice: [...]}."""
    return isinstance(value, Mapping) and len(value) == 1 and next(iter(value)) in RANGES and isinstance(next(iter(value.values())), list)


def parse_range(spelling: Mapping[Any, Any]) -> Range:
    """The range of its spelling.

    Raises:
        ConfigError: its bounds make no sense.
    """
    ((kind, values),) = spelling.items()
    if kind != "choice" and len(values) != 2:
        raise ConfigError(f"expected {kind}: [low, high]; got {values}")
    return RANGES[kind](*values)


def middle(found: Range) -> Value:
    """A value of the range that stands for it where one is needed."""
    if isinstance(found, Choice):
        return found.values[0]
    if isinstance(found, Int):
        return (found.low + found.high) // 2
    return (found.low * found.high) ** 0.5 if isinstance(found, Log) else (found.low + found.high) / 2


def extremes(found: Range) -> list[Value]:
    """The values that are checked before a run begins: both ends, or all choices."""
    return list(found.values) if isinstance(found, Choice) else [found.low, found.high]


class PopulationConfig(FailureLimits):
    """The `population:` section. The first line of a subclass's docstring is what `baldwin list populations` shows."""

    copies_states: ClassVar[bool] = True  # members go on from each other's states, so that only mutable keys can be searched

    name: str
    members: PositiveInt = Field(8, description="Members that are trained side by side")
    steps: PositiveInt = Field(20_000, description="Environment steps of a round of a member's training, at least: it ends with an update")
    episodes: PositiveInt = Field(16, description="Episodes that a member is compared by, on seeds that all members share")
    search: dict[str, Spelling] = Field(
        default_factory=dict,
        description="Ranges of config keys, as in {algorithm.lr: {log: [1e-5, 1e-2]}}; the same as writing the range in place of the value",
    )
    objectives: dict[str, dict[str, float]] = Field(
        default_factory=dict,
        description="Names of objectives, each a weighted sum of `return`, reward components, and results of the environment; default: return",
    )

    @field_validator("search")
    @classmethod
    def _ranges_make_sense(cls, value: dict[str, Spelling]) -> dict[str, Spelling]:
        for key, spelling in value.items():
            if len(spelling) != 1:
                raise ValueError(f"{key}: expected one of uniform, log, int, choice; got {spelling}")
            try:
                parse_range(spelling)
            except ConfigError as error:
                raise ValueError(f"{key}: {error}") from error
        return value

    @property
    def ranges(self) -> dict[str, Range]:
        """The search space by config key."""
        return {key: parse_range(spelling) for key, spelling in self.search.items()}

    def check_search(self, sections: Sections) -> None:
        """Refuse keys that are not there, values that are not allowed, and keys that cannot change in mid-training.

        Raises:
            ConfigError: with the key, and what to do.
        """
        for key, found in self.ranges.items():
            head, *rest = key.split(".")
            if head not in ("env", "policy", "algorithm") or not rest:
                raise ConfigError(
                    f"population.search: expected a key of env, policy or algorithm, such as algorithm.lr; got {key!r}."
                    + nearest(key, [f"algorithm.{name}" for name in type(sections.algorithm).model_fields])
                )
            section = getattr(sections, head)
            if rest[0] not in type(section).model_fields:
                raise ConfigError(f"population.search: unknown key {key!r}.{nearest(rest[0], type(section).model_fields)}")
            for value in extremes(found):
                try:
                    with_hyperparameters(sections, {key: value})
                except ValidationError as error:
                    raise ConfigError(f"{key}: {error.errors()[0]['msg']}; the range {self.search[key]} holds {value!r}") from error
            weights = head == "env" and rest[0] == "reward_weights"
            if self.copies_states and not weights and not section.is_mutable(rest):
                allowed = sorted({name for c in type(sections.algorithm).__mro__ for name in getattr(c, "mutable", ())})
                raise ConfigError(
                    f"{key} cannot change in mid-training, and members of {self.name} go on from each other's states. Those of {sections.algorithm.name} "
                    f"that can: {', '.join(allowed)}. To compare values of {key}: baldwin sweep"
                )


@dataclass(frozen=True, slots=True)
class PopulationContext:
    """What a population is built from besides its own config."""

    sections: Sections  # of the run, with a middle value where there is a range
    seed: int
    files: Path | None  # folder of the members' states; None: nothing will be trained
    shared_files: bool  # workers can read that folder
    generations_kept: int


@dataclass(frozen=True, slots=True)
class PopulationEntry(ConfigEntry[PopulationConfig]):
    """A population algorithm in the registry: name, config model, builder, summary, paper."""

    build: Callable[[Any, PopulationContext], Algorithm]
    paper: str


POPULATIONS: Registry[PopulationEntry] = Registry("population")


def register_population(entry: PopulationEntry) -> PopulationEntry:
    """Add an algorithm over members to the registry."""
    return POPULATIONS.add(entry.name, entry)
