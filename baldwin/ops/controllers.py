"""Controllers that keep a fraction near its target."""

from __future__ import annotations


def rl_probability(fraction: float, target: float, gain: float) -> float:
    """P = 1/2 - k (r - r*), within [0, 1]: the probability that the next individual learns. It settles at (k r* + 1/2) / (k + 1)."""
    return min(max(0.5 - gain * (fraction - target), 0.0), 1.0)
