"""What is known of episodes besides their returns, and objectives made of it."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from baldwin.errors import EnvironmentFailure
from baldwin.types import Outcome

RESULT = "result/"
"""Prefix of what an environment tells of the episodes of a trial, among the arrays of its outcome."""
RETURN = "return"
Objectives = Mapping[str, Mapping[str, float]]
"""Names of objectives, each a weighted sum of `return`, components of the reward, and results of the environment."""


def mean_results(outcome: Outcome) -> dict[str, float]:
    """The return, and means over episodes of what the environment told, by name."""
    told = {name.removeprefix(RESULT): float(np.nanmean(a)) for name, a in outcome.arrays.items() if name.startswith(RESULT)}
    return {RETURN: outcome.scalar, **told}


def weigh_objectives(results: Mapping[str, float], objectives: Objectives, where: str) -> NDArray[np.float64]:
    """The objectives [M]; without any, the return. `where` they are written, for the message.

    Raises:
        EnvironmentFailure: the environment does not tell one of their parts.
    """
    found = []
    for name, weights in (objectives or {RETURN: {RETURN: 1.0}}).items():
        unknown = [part for part in weights if part not in results]
        if unknown:
            raise EnvironmentFailure(
                f"{where}.{name} has {', '.join(unknown)}, which the environment does not tell; it tells: {', '.join(results)}"
            )
        found.append(sum(weight * results[part] for part, weight in weights.items()))
    return np.array(found)
