"""A look at a Ray cluster from outside."""

from __future__ import annotations

from typing import Any

from baldwin.executors.cluster import cluster_state


def cluster_status(address: str) -> dict[str, Any]:
    """Nodes, and the workers of the runs on them, with their speed, retries and failures."""
    return cluster_state(address)
