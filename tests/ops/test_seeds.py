"""Streams of random numbers are functions of a seed and a path."""

from __future__ import annotations

import numpy as np

from baldwin.ops import seeds


def test_numbered_generators_are_functions_of_their_number() -> None:
    """In any order, however many numbers of another kind were drawn before; and they differ."""
    numbered = seeds.NumberedGenerators(3, 1)
    drawn = {n: numbered[n].random(1000) for n in (0, 1, 2, 2**40)}
    numbered[1].integers(0, 5, 3, dtype=np.int32)  # leaves half of a number in the generator
    for n in reversed(drawn):
        np.testing.assert_array_equal(numbered[n].random(1000), drawn[n])
        np.testing.assert_array_equal(seeds.NumberedGenerators(3, 1)[n].random(1000), drawn[n])
    everything = np.concatenate(
        [*drawn.values(), seeds.NumberedGenerators(4, 1)[0].random(1000), seeds.NumberedGenerators(3, 2)[0].random(1000)]
    )
    assert len(np.unique(everything)) == len(everything)
    np.testing.assert_array_equal(numbered[0].random(1000), seeds.generator(3, 1).random(1000))
