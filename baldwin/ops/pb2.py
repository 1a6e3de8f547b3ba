"""Population-based bandits (Parker-Holder et al. 2020, arXiv 2002.02518): a Gaussian process over how much scores changed, whose past fades.

Hyper-parameters `x` [N, D] lie in [0, 1]; `t` [N] are the rounds in which they were used; `y` [N] is by how much the score changed then.
"""

from __future__ import annotations

import itertools
import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
JITTER = 1e-8  # on the diagonal, so that equal points can be inverted


class Kernel(NamedTuple):
    """Squared-exponential in `x`, fading with the distance in `t` (Bogunovic et al. 2016, arXiv 1601.06650), plus noise on observations."""

    lengthscale: float = 0.3
    fading: float = 0.1  # epsilon: 0 remembers for ever, 1 only the same round
    noise: float = 0.1  # variance


KERNELS = tuple(Kernel(*values) for values in itertools.product((0.1, 0.2, 0.4, 0.8), (0.0, 0.1, 0.3), (0.03, 0.1, 0.3)))
"""Those that `fit` chooses from; scores are standardised before."""


def covariance(x: Array, t: Array, other_x: Array, other_t: Array, kernel: Kernel) -> Array:
    """exp(-|x - x'|^2 / 2 l^2) (1 - eps)^(|t - t'| / 2), [N, M]."""
    distance = np.square(x[:, None] - other_x[None]).sum(-1)
    age = np.abs(t[:, None] - other_t[None])
    return np.asarray(np.exp(-distance / (2 * kernel.lengthscale**2)) * (1 - kernel.fading) ** (age / 2))


def posterior(x: Array, t: Array, y: Array, at_x: Array, at_t: Array, kernel: Kernel) -> tuple[Array, Array]:
    """Mean and standard deviation [M] of the change at other points, given those that were observed; its prior is a standard normal."""
    if not len(x):
        return np.zeros(len(at_x)), np.ones(len(at_x))
    cross = covariance(x, t, at_x, at_t, kernel)  # [N, M]
    lower = np.linalg.cholesky(_noisy(x, t, kernel))
    whitened = np.linalg.solve(lower, cross)
    mean = whitened.T @ np.linalg.solve(lower, y)
    return mean, np.sqrt(np.maximum(1 - np.square(whitened).sum(0), 0.0))


def log_likelihood(x: Array, t: Array, y: Array, kernel: Kernel) -> float:
    """The logarithm of the density of the observed changes."""
    lower = np.linalg.cholesky(_noisy(x, t, kernel))
    whitened = np.linalg.solve(lower, y)
    return float(-0.5 * whitened @ whitened - np.log(np.diag(lower)).sum() - 0.5 * len(y) * math.log(2 * math.pi))


def fit(x: Array, t: Array, y: Array) -> Kernel:
    """The kernel under which the observed changes are most likely."""
    return max(KERNELS, key=lambda kernel: log_likelihood(x, t, y, kernel))


def exploration(observed: int) -> float:
    """beta of GP-UCB, which grows with the number of observations: 0.2 + log(0.4 n), at least 0.2 (the authors' code)."""
    return 0.2 + max(0.0, math.log(0.4 * max(1, observed)))


def choose(x: Array, t: Array, y: Array, pending_x: Array, pending_t: Array, candidates: Array, now: float) -> int:
    """The candidate with the highest mean + sqrt(beta) std in the round `now`.

    The mean is of what was observed. The deviation counts hyper-parameters in use as if they were observed, too, so that members that
    choose one after the other do not choose the same.
    """
    changes = (y - y.mean()) / (y.std() or 1.0) if len(y) else y
    kernel = fit(x, t, changes) if len(y) else Kernel()
    at = np.full(len(candidates), now)
    mean, _ = posterior(x, t, changes, candidates, at, kernel)
    both_x, both_t = np.concatenate([x, pending_x]), np.concatenate([t, pending_t])
    _, deviation = posterior(both_x, both_t, np.zeros(len(both_x)), candidates, at, kernel)
    return int(np.argmax(mean + math.sqrt(exploration(len(y))) * deviation))


def _noisy(x: Array, t: Array, kernel: Kernel) -> Array:
    return covariance(x, t, x, t, kernel) + (kernel.noise + JITTER) * np.eye(len(x))
