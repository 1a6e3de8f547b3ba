"""Randomness has an owner: every stream is a function of the run's seed and a path of small integers."""

from __future__ import annotations

from enum import IntEnum

import numpy as np
from numpy.typing import NDArray


class Stream(IntEnum):
    """The first step of a path: what the numbers are for. Never renumber: a run's identity depends on it."""

    NOISE = 0
    INIT = 1
    TRAIN = 2
    EVALUATE = 3
    ACTION_NOISE = 4
    BOOTSTRAP = 5
    VIRTUAL = 6
    COLLECT = 7
    EXPLORE = 8
    REPLAY = 9
    LEARN = 10
    CRITIC = 11
    HYBRID = 12
    MIXING = 13
    REFERENCE = 14
    MATCH = 15
    MEMBER = 16
    POPULATION = 17


def sequence(seed: int, *path: int) -> np.random.SeedSequence:
    """The root of a stream."""
    return np.random.SeedSequence(seed, spawn_key=path)


def key(seed: int, *path: int) -> tuple[int, int]:
    """A 128-bit key for a counter-based generator."""
    high, low = sequence(seed, *path).generate_state(2, np.uint64)
    return int(high), int(low)


def seeds(n: int, seed: int, *path: int) -> NDArray[np.int64]:
    """n seeds in [0, 2^31), the range every simulator accepts."""
    return sequence(seed, *path).generate_state(n, np.uint32).astype(np.int64) >> 1


def mix(*numbers: int) -> int:
    """One seed in [0, 2^31) from several numbers."""
    return int(np.random.SeedSequence(numbers).generate_state(1)[0] >> 1)


def generator(seed: int, *path: int) -> np.random.Generator:
    """A generator of its own."""
    return np.random.Generator(np.random.Philox(sequence(seed, *path)))


class NumberedGenerators:
    """Generators that share a key and differ in the counter: the n-th is a function of (seed, path, n).

    To go to one takes a fifth of the time of `generator`.
    """

    def __init__(self, seed: int, *path: int) -> None:
        self._generator = generator(seed, *path)
        self._state = self._generator.bit_generator.state

    def __getitem__(self, n: int) -> np.random.Generator:
        """The n-th generator, from its first number on; valid until another one is asked for. Each has 2^64 blocks of four numbers."""
        self._state["state"]["counter"][1] = n
        self._generator.bit_generator.state = self._state
        return self._generator
