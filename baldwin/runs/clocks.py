"""Where the time went: of the whole run, of a generation, of each worker."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, field

from baldwin.types import Metrics, Result

MOST_WORKERS = 16  # whose idle time is in the metrics


@dataclass(slots=True)
class Clock:
    """Time spent by all processes that ever worked on the run."""

    wall_before: float = 0.0
    cpu_workers: float = 0.0
    cpu_before: float = 0.0
    _wall: float = field(default_factory=time.monotonic)
    _cpu: float = field(default_factory=time.process_time)

    @property
    def wall(self) -> float:
        """Wall-clock seconds, of earlier processes too."""
        return self.wall_before + time.monotonic() - self._wall

    @property
    def cpu(self) -> float:
        """CPU seconds of this process and of all jobs."""
        return self.cpu_before + self.cpu_workers + time.process_time() - self._cpu

    def restart(self, wall: float, cpu: float) -> None:
        """Go on from these readings."""
        self.wall_before, self.cpu_before, self.cpu_workers = wall, cpu, 0.0
        self._wall, self._cpu = time.monotonic(), time.process_time()


@dataclass(slots=True)
class StragglerMeter:
    """When the jobs of the generation ran, for the time lost to stragglers."""

    busy: float = 0.0
    first: float = math.inf
    last: float = -math.inf

    def add(self, result: Result) -> None:
        """Add the time of a finished job."""
        self.busy += result.finished - result.started
        self.first, self.last = min(self.first, result.started), max(self.last, result.finished)

    def lost(self, workers: int) -> float:
        """The share of worker time in which there was nothing to do."""
        whole = (self.last - self.first) * workers
        return max(0.0, 1.0 - self.busy / whole) if whole > 0 else 0.0


@dataclass(slots=True)
class IdleMeter:
    """How long each worker had nothing to do: from the end of a job to the start of its next one."""

    free: dict[int, float] = field(default_factory=dict)  # worker -> when its last job ended
    gaps: dict[int, float] = field(default_factory=dict)  # since the last call
    popped: float = -math.inf
    now: float = -math.inf

    def add(self, result: Result) -> None:
        """Add the time of a finished job."""
        if math.isinf(self.popped):
            self.popped = result.started
        since = self.free.get(result.worker, self.popped)
        self.gaps[result.worker] = self.gaps.get(result.worker, 0.0) + max(0.0, result.started - since)
        self.free[result.worker], self.now = result.finished, max(self.now, result.finished)

    def pop(self) -> Metrics:
        """The share of the time since the last call, of each worker that came back meanwhile; of the first few, if there are many."""
        seconds, self.popped = self.now - self.popped, self.now
        gaps, self.gaps = self.gaps, {}
        return {f"idle/{worker}": min(1.0, gaps[worker] / seconds) for worker in sorted(gaps)[:MOST_WORKERS]} if seconds > 0 else {}
