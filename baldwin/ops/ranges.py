"""Ranges of hyper-parameters: where values are drawn from, how they are perturbed, what is allowed.

Each has `sample(rng)`, `perturb(value, rng, factors)` and `contains(value)`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TypeGuard

import numpy as np

from baldwin.errors import ConfigError

Single = float | int | str | bool | None
Value = Single | list[Single]  # a list only as one of the values of a choice, such as the layers of a network
FACTORS = (0.8, 1.2)  # Jaderberg et al. 2017, arXiv 1711.09846, section 4


@dataclass(frozen=True)
class Uniform:
    """Real numbers from low to high, all equally likely."""

    low: float
    high: float

    def __post_init__(self) -> None:
        _check_bounds(self, self.low, self.high)

    def sample(self, rng: np.random.Generator) -> float:
        """A value of the range."""
        return float(rng.uniform(self.low, self.high))

    def perturb(self, value: float, rng: np.random.Generator, factors: tuple[float, ...] = FACTORS) -> float:
        """The value times one of the factors, at most to the bounds. Zero stays zero: only `sample` leads away from it."""
        return _scaled(value, rng, factors, self.low, self.high)

    def contains(self, value: Value) -> bool:
        """Whether it is a number between the bounds, which are included."""
        return _is_number(value) and self.low <= value <= self.high


@dataclass(frozen=True)
class Log:
    """Positive numbers from low to high, whose logarithms are equally likely."""

    low: float
    high: float

    def __post_init__(self) -> None:
        _check_bounds(self, self.low, self.high)
        if self.low <= 0:
            raise ConfigError(f"{self}: a logarithmic range must be above zero; use Uniform, or raise low")

    def sample(self, rng: np.random.Generator) -> float:
        """A value of the range."""
        drawn = math.exp(rng.uniform(math.log(self.low), math.log(self.high)))
        return min(max(drawn, self.low), self.high)  # exp(log(x)) is not always x

    def perturb(self, value: float, rng: np.random.Generator, factors: tuple[float, ...] = FACTORS) -> float:
        """The value times one of the factors, at most to the bounds."""
        return _scaled(value, rng, factors, self.low, self.high)

    def contains(self, value: Value) -> bool:
        """Whether it is a number between the bounds, which are included."""
        return _is_number(value) and self.low <= value <= self.high


@dataclass(frozen=True)
class Int:
    """Whole numbers from low to high, both included, all equally likely."""

    low: int
    high: int

    def __post_init__(self) -> None:
        _check_bounds(self, self.low, self.high)
        if not (_is_whole(self.low) and _is_whole(self.high)):
            raise ConfigError(f"{self}: the bounds must be whole numbers; use Uniform for others")

    def sample(self, rng: np.random.Generator) -> int:
        """A value of the range."""
        return int(rng.integers(self.low, self.high, endpoint=True))

    def perturb(self, value: int, rng: np.random.Generator, factors: tuple[float, ...] = FACTORS) -> int:
        """The value times one of the factors, rounded but changed by at least one, at most to the bounds."""
        factor = float(rng.choice(factors))
        changed = round(value * factor)
        if changed == value and factor != 1:  # otherwise small numbers could never change
            changed += 1 if factor > 1 else -1
        return min(max(changed, self.low), self.high)

    def contains(self, value: Value) -> bool:
        """Whether it is a whole number between the bounds."""
        return _is_whole(value) and self.low <= value <= self.high


@dataclass(frozen=True)
class Choice:
    """One of several values. `ordered`: they are perturbed to a neighbour in the list, otherwise to any other."""

    values: tuple[Value, ...]
    ordered: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "values", tuple(self.values))
        if not self.values:
            raise ConfigError("a choice needs at least one value")
        if any(_equal(a, b) for n, a in enumerate(self.values) for b in self.values[:n]):
            raise ConfigError(f"{self}: a value is listed twice; list each once")

    def index(self, value: Value) -> int:
        """Which of the values it is.

        Raises:
            ConfigError: none of them.
        """
        if not self.contains(value):
            raise ConfigError(f"expected one of {list(self.values)}; got {value!r}")
        return next(n for n, own in enumerate(self.values) if _equal(own, value))

    def sample(self, rng: np.random.Generator) -> Value:
        """One of the values, all equally likely."""
        return self.values[int(rng.integers(len(self.values)))]

    def perturb(self, value: Value, rng: np.random.Generator, factors: tuple[float, ...] = FACTORS) -> Value:
        """Another of the values; `factors` is not used. The only value of a list stays.

        Raises:
            ConfigError: the value is none of them.
        """
        at = self.index(value)
        reach = 1 if self.ordered else len(self.values)
        others = [own for n, own in enumerate(self.values) if 0 < abs(n - at) <= reach]
        return others[int(rng.integers(len(others)))] if others else value

    def contains(self, value: Value) -> bool:
        """Whether it is one of the values."""
        return any(_equal(own, value) for own in self.values)


Range = Uniform | Log | Int | Choice
Numbers = Uniform | Log | Int


def to_unit(found: Numbers, value: float) -> float:
    """Where a value lies in its range, from 0 to 1; in a logarithmic one by its logarithm."""
    low, high, at = (math.log(v) if isinstance(found, Log) else float(v) for v in (found.low, found.high, value))
    return (at - low) / (high - low) if high > low else 0.0


def from_unit(found: Numbers, place: float) -> float | int:
    """The inverse of `to_unit`; a whole number where the range has only those."""
    if isinstance(found, Log):
        value = math.exp(math.log(found.low) + place * (math.log(found.high) - math.log(found.low)))
    else:
        value = found.low + place * (found.high - found.low)
    value = min(max(value, found.low), found.high)
    return round(value) if isinstance(found, Int) else value


def _check_bounds(what: Uniform | Log | Int, low: Value, high: Value) -> None:
    if not (_is_number(low) and _is_number(high)) or low > high:
        raise ConfigError(f"{what}: expected two finite numbers, the smaller one first")


def _scaled(value: float, rng: np.random.Generator, factors: tuple[float, ...], low: float, high: float) -> float:
    return min(max(value * float(rng.choice(factors)), low), high)


def _is_number(value: Value) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _is_whole(value: Value) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool)


def _equal(a: Value, b: Value) -> bool:
    """True is not 1 and False is not 0, unlike in Python."""
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(_equal, a, b))
    return a == b and isinstance(a, bool) == isinstance(b, bool)
