"""Rules that hold a share where it is wanted."""

from __future__ import annotations


def rl_chance(share: float, wanted: float, gain: float) -> float:
    """P = 1/2 - k (r - r*), within [0, 1]: the chance that the next individual learns. It settles at (k r* + 1/2) / (k + 1)."""
    return min(max(0.5 - gain * (share - wanted), 0.0), 1.0)
