"""Returns and advantages over segments of experience [L, T, ...], time on the second axis.

`discount` [L, T, ...] is gamma, or gamma^k for a step of k frames, and 0 where the episode terminated. `ended` [L, T, 1 or C]
is true where an episode ended, by termination or by a time limit: nothing is summed across it. `next_value` is the value of
what followed a step: after a time limit, that of the episode's last observation.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


def backward_sum(x: Array, decay: Array) -> Array:
    """y_t = x_t + decay_t y_{t+1}, with y = 0 after the end."""
    y = np.empty_like(x)
    following = np.zeros_like(x[:, 0])
    for t in range(x.shape[1] - 1, -1, -1):
        following = x[:, t] + decay[:, t] * following
        y[:, t] = following
    return y


def td_errors(reward: Array, value: Array, next_value: Array, discount: Array) -> Array:
    """delta_t = r_t + discount_t V(s_{t+1}) - V(s_t)."""
    return np.asarray(reward + discount * next_value - value)


def gae(delta: Array, discount: Array, ended: Array, lam: Array | float) -> Array:
    """Generalised advantage estimation (Schulman et al. 2015, arXiv 1506.02438): A_t = delta_t + discount lambda A_{t+1}."""
    return backward_sum(delta, discount * lam * ~ended)


def gae_v(delta: Array, discount: Array, ended: Array, lam: Array | float, rho: Array) -> Array:
    """GAE with V-trace's truncated weights (Han & Sung 2019, arXiv 1905.02363): A_t = delta_t + discount lambda min(1, rho_{t+1}) A_{t+1}.

    `rho` [L, T, 1]: probability of each action now over that when it was taken.
    """
    following = np.concatenate([np.minimum(rho[:, 1:], 1), np.ones_like(rho[:, :1])], 1)
    return backward_sum(delta, discount * lam * following * ~ended)


def vtrace(delta: Array, discount: Array, ended: Array, rho: Array, rho_clip: float = 1.0, c_clip: float = 1.0) -> Array:
    """v_t - V(s_t) of V-trace (Espeholt et al. 2018, arXiv 1802.01561): min(rho_clip, rho_t) delta_t + discount min(c_clip, rho_t) (v - V)_{t+1}."""
    return backward_sum(np.minimum(rho, rho_clip) * delta, discount * np.minimum(rho, c_clip) * ~ended)


def explained_variance(predicted: Array, target: Array) -> float:
    """1 - Var(target - predicted) / Var(target): 1 is perfect, 0 no better than a constant; NaN if the targets do not vary."""
    variance = _variance(target)
    return 1 - _variance(target - predicted) / variance if variance > 0 else float("nan")


def _variance(x: Array) -> float:
    """As `np.var`, which takes twice as long for small arrays."""
    centered = (x - x.mean()).ravel()
    return float(centered @ centered) / len(centered)
