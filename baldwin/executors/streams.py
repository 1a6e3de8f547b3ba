"""Which worker continues which stream of jobs."""

from __future__ import annotations

from collections.abc import Collection, Hashable
from typing import Generic, TypeVar

from baldwin.types import Job

W = TypeVar("W", bound=Hashable)


class StreamOwners(Generic[W]):
    """A stream stays with its worker while that worker lives: elsewhere its episodes would have to be simulated again."""

    def __init__(self) -> None:
        self._owner: dict[int, W] = {}

    def owner(self, job: Job, workers: Collection[W]) -> W | None:
        """The worker that must run the job, chosen among the living ones; None if any may.

        A stream without a living owner gets the worker that owns fewest.
        """
        stream = job.stream
        if stream is None or not workers:
            return None
        if self._owner.get(stream) not in workers:
            owned = [w for s, w in self._owner.items() if s != stream]
            self._owner[stream] = min(workers, key=owned.count)
        return self._owner[stream]
