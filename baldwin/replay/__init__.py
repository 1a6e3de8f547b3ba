"""The replay buffer: transitions in preallocated columns, sampled uniformly, shared with other processes without copies."""

from baldwin.replay.buffer import Column, ReplayBuffer, ReplayView, ViewSampler

__all__ = ["Column", "ReplayBuffer", "ReplayView", "ViewSampler"]
