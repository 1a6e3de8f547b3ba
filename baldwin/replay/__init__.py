"""What was lived: transitions in preallocated columns, drawn uniformly, shared without copies."""

from baldwin.replay.ring import Column, Replay, ReplayView

__all__ = ["Column", "Replay", "ReplayView"]
