"""What was lived: transitions in preallocated columns, drawn uniformly, shared without copies."""

from baldwin.replay.ring import Column, Drawer, Replay, ReplayView

__all__ = ["Column", "Drawer", "Replay", "ReplayView"]
