"""Workers on a Ray cluster: the actor, and what the driver knows of it."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from baldwin.executors.config import WorkerFactory, run_timed
from baldwin.types import Fingerprint, Job, Metrics, Outcome, Shared, Worker


class Reply(NamedTuple):
    """What a worker sends back."""

    outcomes: list[Outcome]
    cpu_seconds: float
    fingerprint: Fingerprint  # what it was computed from
    fetched: tuple[int, ...]  # numbers of the shared values that it had to fetch first
    holds: tuple[str, ...]  # keys of the values on demand that it has now


class RayWorkerActor:
    """A Ray actor that holds one worker."""

    def __init__(self) -> None:
        self._worker: Worker
        self._held: dict[tuple[str, int], int] = {}  # (key, version) -> number

    def setup(self, make_worker: WorkerFactory) -> tuple[str, str, int]:
        """Make the worker; returns (node id, address, process id)."""
        import ray

        self._worker = make_worker()
        self._worker.fingerprint(())  # fails now if the environment cannot be made
        context = ray.get_runtime_context()
        return context.get_node_id(), ray.util.get_node_ip_address(), os.getpid()

    def ping(self) -> None:
        """Answer, to show that this actor is alive."""

    def run(self, job: Job, shares: list[Share], resync: bool) -> Reply:
        """Fetch the shared values that are not held yet (all of them, to resynchronise), and run the job."""
        import ray

        if resync:
            self._held = {}
        holds = () if resync else self._holds()
        fetched = [s for s in shares if (s.key not in holds if s.on_demand else self._held.get((s.key, s.version)) != s.number)]
        for share in fetched:
            self._worker.receive(Shared(share.key, share.version, ray.get(share.where[0]), share.oldest, share.on_demand))
        used = [(share.key, share.version) for share in shares if not share.on_demand]
        self._held = {(share.key, share.version): share.number for share in shares if not share.on_demand}
        outcomes, cpu = run_timed(job, self._worker)
        return Reply(outcomes, cpu, self._worker.fingerprint(used), tuple(s.number for s in fetched), self._holds())

    def _holds(self) -> tuple[str, ...]:
        """Keys of the values on demand that its worker has: fetched, or made by a job."""
        held = getattr(self._worker, "held_on_demand", tuple)  # not every worker keeps such values
        return tuple(held())


class Share(NamedTuple):
    """A value in the object store. The reference travels inside a tuple, so that Ray does not fetch it before it is needed."""

    number: int  # counts all values ever shared
    key: str
    version: int
    oldest: int
    where: tuple[Any]
    size: int
    on_demand: bool


@dataclass(slots=True, eq=False)
class QueuedJob:
    """A job with all that it depends on, as of the moment it was submitted."""

    job: Job
    shares: list[Share]
    fingerprint: Fingerprint
    tries: int = 0


@dataclass(slots=True, eq=False)
class WorkerHandle:
    """What the driver knows of a worker."""

    number: int
    actor: Any
    future: Any  # of setup, of a ping, or of a job
    node: str = ""
    address: str = ""
    pid: int = 0
    ready: bool = False
    refused: str = ""  # why it gets no work
    resync: bool = False  # its last fingerprint was wrong
    holds: frozenset[str] = frozenset()  # keys of the values on demand that it had after its last job
    task: QueuedJob | None = None
    created: float = field(default_factory=time.monotonic)
    started: float = 0.0  # of its job
    last_seen: float = 0.0
    jobs: int = 0
    env_steps: int = 0
    busy: float = 0.0

    @property
    def available(self) -> bool:
        """Whether it can be given work."""
        return self.ready and not self.refused

    def row(self) -> dict[str, Any]:
        """This worker's row of `baldwin cluster status`."""
        state = "refused" if self.refused else "starting" if not self.ready else "busy" if self.task else "idle"
        return {
            "worker": self.number,
            "node": self.address,
            "pid": self.pid,
            "state": state,
            "jobs": self.jobs,
            "env_steps": self.env_steps,
            "steps_per_second": self.env_steps / self.busy if self.busy else 0.0,
            "retries": self.task.tries if self.task else 0,
            "reason": self.refused,
        }


@dataclass(slots=True)
class Counts:
    """How often what happened since the start: deaths, retries, bytes sent and so on."""

    deaths: int = 0
    timeouts: int = 0
    retries: int = 0
    mismatches: int = 0
    failures: int = 0  # jobs given up
    bytes_sent: int = 0
    shares: int = 0
    nodes: dict[int, set[str]] = field(default_factory=dict)  # number of a shared value -> the nodes that fetched it

    def metrics(self) -> Metrics:
        """The counts under the names that they have in the metrics of a run."""
        names = {
            "deaths": "worker_deaths",
            "timeouts": "timeouts",
            "retries": "retries",
            "mismatches": "mismatches",
            "failures": "jobs_failed",
        }
        return {label: float(getattr(self, name)) for name, label in (names | {"bytes_sent": "bytes_sent"}).items()}


def payload(content: Any) -> int:
    """Bytes that an object takes on the wire, as Ray packs it; arrays are counted without being copied."""
    from ray import cloudpickle

    buffers: list[int] = []
    head = cloudpickle.dumps(content, protocol=5, buffer_callback=lambda b: buffers.append(b.raw().nbytes))
    return len(head) + sum(buffers)
