"""Children from parents: recombination and mutation of real vectors and of networks.

Vectors are [..., D], bounds [D] or numbers; infinite bounds are allowed in `sbx`. Functions that end in `_at` are the deterministic part:
they get the uniform random numbers that the others draw.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

from baldwin.errors import ConfigError
from baldwin.ops.noise import Shape

Array = NDArray[np.float64]
Number = Array | float  # one for each variable [D], or the same for all
Mask = NDArray[np.bool_]
CLOSE = 1e-14  # parents that differ by less have nothing to recombine


def sbx(
    a: ArrayLike, b: ArrayLike, low: Number, high: Number, rng: np.random.Generator, eta: float = 20.0, probability: float = 0.5
) -> tuple[Array, Array]:
    """Simulated binary crossover within bounds (Deb & Agrawal 1995): two children of the parents a and b.

    Args:
        a: one parent [..., D].
        b: the other one.
        low: smallest values [D].
        high: largest values [D].
        rng: the source of randomness.
        eta: distribution index; the larger, the closer the children are to their parents.
        probability: of each variable to be recombined; the others are inherited as they are.

    Raises:
        ConfigError: a parent is out of bounds, or their shapes differ.
    """
    a, b = within_bounds(a, low, high), within_bounds(b, low, high)
    if a.shape != b.shape:
        raise ConfigError(f"expected parents of one shape; got {list(a.shape)} and {list(b.shape)}")
    smaller, larger = sbx_at(a, b, low, high, rng.random(a.shape), eta)
    swap = rng.random(a.shape) < 0.5  # the child near the smaller parent is the first or the second with equal probability
    crossed = rng.random(a.shape) < probability
    first, second = np.where(swap, larger, smaller), np.where(swap, smaller, larger)
    return np.where(crossed, first, a), np.where(crossed, second, b)


def sbx_at(a: Array, b: Array, low: Number, high: Number, u: Array, eta: float) -> tuple[Array, Array]:
    """The children near the smaller and near the larger parent, variable by variable, for the uniform numbers u in [0, 1).

    They are (a + b) / 2 -+ beta |a - b| / 2, where the spread beta is drawn by u from a polynomial density that ends at the bounds.
    """
    smaller, larger = np.minimum(a, b), np.maximum(a, b)
    distance = larger - smaller
    apart = distance > CLOSE
    scale = np.where(apart, distance, 1.0)
    below = _spread(1 + 2 * (smaller - low) / scale, u, eta)
    above = _spread(1 + 2 * (high - larger) / scale, u, eta)
    middle = (smaller + larger) / 2
    first = np.where(apart, middle - below * distance / 2, smaller)
    second = np.where(apart, middle + above * distance / 2, larger)
    return np.clip(first, low, high), np.clip(second, low, high)


def polynomial_mutation(
    x: ArrayLike,
    low: Number,
    high: Number,
    rng: np.random.Generator,
    eta: float = 20.0,
    probability: float | None = None,
) -> Array:
    """Mutate each variable with this probability (1 / D if not given) by a polynomial density that ends at finite bounds (Deb & Goyal 1996).

    Raises:
        ConfigError: x is out of bounds, or a bound is infinite.
    """
    x = within_bounds(x, low, high)
    if not (np.isfinite(low).all() and np.isfinite(high).all()):
        raise ConfigError("polynomial mutation needs finite bounds, because its step is a share of their distance; use gaussian_mutation")
    mutated = polynomial_mutation_at(x, low, high, rng.random(x.shape), eta)
    chosen = rng.random(x.shape) < (1 / x.shape[-1] if probability is None else probability)
    return np.where(chosen, mutated, x)


def polynomial_mutation_at(x: Array, low: Number, high: Number, u: Array, eta: float) -> Array:
    """x moved down for u < 1/2 and up for u > 1/2, at most to the bounds."""
    width = np.asarray(high, np.float64) - low
    scale = np.where(width > 0, width, 1.0)
    power = eta + 1
    to_low = 1 - (x - low) / scale  # 1 at the lower bound
    to_high = 1 - (high - x) / scale
    down = (2 * u + (1 - 2 * u) * to_low**power) ** (1 / power) - 1
    up = 1 - (2 * (1 - u) + (2 * u - 1) * to_high**power) ** (1 / power)
    return np.clip(x + np.where(u <= 0.5, down, up) * width, low, high)


def gaussian_mutation(x: ArrayLike, sigma: Number, rng: np.random.Generator, probability: float = 1.0) -> Array:
    """Add normal noise with this standard deviation (a number or [D]) to each variable with this probability."""
    x = np.asarray(x, np.float64)
    chosen = rng.random(x.shape) < probability
    return np.where(chosen, x + sigma * rng.standard_normal(x.shape), x)


def uniform_mask(size: int, rng: np.random.Generator, share: float = 0.5) -> Mask:
    """Which of `size` parameters come from the first parent: each on its own, with the probability `share`."""
    return rng.random(size) < share


def layer_mask(shapes: tuple[Shape, ...], rng: np.random.Generator, share: float = 0.5) -> Mask:
    """Which parameters [D] come from the first parent, decided for whole layers (see `layers`)."""
    return np.concatenate([np.full(_size(layer), rng.random() < share) for layer in layers(shapes)])


def unit_mask(shapes: tuple[Shape, ...], rng: np.random.Generator, share: float = 0.5) -> Mask:
    """Which parameters [D] come from the first parent, decided for each unit: its incoming weights and its bias, or a channel's filter and its bias, stay together."""
    parts = []
    for layer in layers(shapes):
        units = rng.random(layer[0][0]) < share
        parts += [np.repeat(units, math.prod(shape[1:])) for shape in layer]
    return np.concatenate(parts)


def layers(shapes: tuple[Shape, ...]) -> list[list[Shape]]:
    """The tensors of a network (`network.shapes`) by layer: a weight [units, ...] and the vectors [units] that follow it.

    Vectors of another length are layers of their own. An LSTM or a GRU has two: that of its inputs and that of its state.
    """
    found: list[list[Shape]] = []
    for shape in shapes:
        if len(shape) == 1 and found and shape[0] == found[-1][0][0]:
            found[-1].append(shape)
        else:
            found.append([shape])
    return found


def uniform_crossover(a: ArrayLike, b: ArrayLike, rng: np.random.Generator, share: float = 0.5) -> Array:
    """A child whose parameters come from a with the probability `share`, else from b, each on its own."""
    a, b = _parents(a, b)
    return np.where(uniform_mask(a.size, rng, share), a, b)


def layer_crossover(a: ArrayLike, b: ArrayLike, shapes: tuple[Shape, ...], rng: np.random.Generator, share: float = 0.5) -> Array:
    """A child [D] whose layers come from a with the probability `share`, else from b.

    Raises:
        ConfigError: the parents [D] do not have these shapes.
    """
    a, b = _parents(a, b, _size(shapes))
    return np.where(layer_mask(shapes, rng, share), a, b)


def unit_crossover(a: ArrayLike, b: ArrayLike, shapes: tuple[Shape, ...], rng: np.random.Generator, share: float = 0.5) -> Array:
    """A child [D] whose units come from a with the probability `share`, else from b.

    Networks that were initialised apart order their units differently: recombine those that have a common ancestor.

    Raises:
        ConfigError: the parents [D] do not have these shapes.
    """
    a, b = _parents(a, b, _size(shapes))
    return np.where(unit_mask(shapes, rng, share), a, b)


def within_bounds(x: ArrayLike, low: Number, high: Number) -> Array:
    """x as an array.

    Raises:
        ConfigError: a value is NaN or out of bounds.
    """
    x = np.asarray(x, np.float64)
    outside = ~((x >= low) & (x <= high))
    if outside.any():
        place = tuple(int(n) for n in np.argwhere(outside)[0])
        bounds = [float(np.broadcast_to(bound, x.shape)[place]) for bound in (low, high)]
        raise ConfigError(
            f"expected values between the bounds; got {x[place]:g} at {list(place)}, whose bounds are {bounds}. Clip it first."
        )
    return x


def _spread(room: Array, u: Array, eta: float) -> Array:
    """beta for the uniform numbers u, where the parents' distance fits `room` times between the mirrored bounds."""
    power = eta + 1
    mass = 2 - room**-power  # twice the probability that unbounded SBX stays within the bounds
    x = u * mass
    contracting, expanding = np.minimum(x, 1.0), np.maximum(x, 1.0)
    return np.asarray(np.where(x <= 1, contracting, 1 / (2 - expanding)) ** (1 / power))


def _parents(a: ArrayLike, b: ArrayLike, size: int | None = None) -> tuple[Array, Array]:
    a, b = np.asarray(a, np.float64), np.asarray(b, np.float64)
    if a.ndim != 1 or a.shape != b.shape or size not in (None, a.size):
        wanted = "two flat parameter vectors of one size" if size is None else f"two flat parameter vectors of size {size}"
        raise ConfigError(f"expected {wanted}; got the shapes {list(a.shape)} and {list(b.shape)}")
    return a, b


def _size(shapes: tuple[Shape, ...] | list[Shape]) -> int:
    return sum(map(math.prod, shapes))
