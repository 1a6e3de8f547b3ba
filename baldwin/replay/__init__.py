"""The replay buffer: transitions in preallocated columns, sampled uniformly or by priorities, shared with other processes without copies."""

from baldwin.replay.buffer import ELAPSED, LOG_PROB, MEMORY, PREVIOUS_INDEX, Column, ReplayBuffer, ReplayView, ViewSampler
from baldwin.replay.prioritized import PrioritizedConfig, PrioritizedSampler

__all__ = [
    "ELAPSED",
    "LOG_PROB",
    "MEMORY",
    "PREVIOUS_INDEX",
    "Column",
    "PrioritizedConfig",
    "PrioritizedSampler",
    "ReplayBuffer",
    "ReplayView",
    "ViewSampler",
]
