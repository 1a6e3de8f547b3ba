"""Which worker continues which stream of jobs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection

from baldwin.types import Job


class StreamOwners:
    """A stream stays with its worker while that worker lives: elsewhere its episodes would have to be simulated again."""

    def __init__(self) -> None:
        self._owner: dict[int, int] = {}  # stream -> number of its worker

    def choose(self, job: Job, idle: Collection[int], workers: Collection[int], starting: bool = False) -> int | None:
        """An idle worker for the job; None if it has to wait, for the worker that owns its stream or for one that is starting.

        A stream leaves its owner if that died, or if it owns several while an idle worker owns none. A job of no stream goes to the worker
        that owns fewest, so that an update keeps none of them waiting where somebody else can do it.
        """
        if not idle:
            return None
        self._owner = {stream: worker for stream, worker in self._owner.items() if worker in workers}
        owned = Counter(self._owner.values())
        fewest = min(idle, key=lambda worker: (owned[worker], worker))
        if job.stream is None:
            return fewest
        owner = self._owner.get(job.stream)
        if owner in idle:
            return owner
        if owner is None and starting and owned[fewest]:
            return None
        if owner is None or (owned[owner] > 1 and not owned[fewest]):
            self._owner[job.stream] = fewest
            return fewest
        return None

    def waits_for(self, job: Job, workers: Collection[int]) -> int | None:
        """The living worker that owns the job's stream; None if any worker may take it."""
        owner = None if job.stream is None else self._owner.get(job.stream)
        return owner if owner in workers else None
