"""Who works on a Ray cluster: the seat at the far end, and what the driver knows of it."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from baldwin.executors.config import WorkerFactory, run_job
from baldwin.types import Echo, Job, Metrics, Outcome, Worker


class Reply(NamedTuple):
    """What a worker sends back."""

    outcomes: list[Outcome]
    cpu_seconds: float
    echo: Echo  # what it was computed from
    fetched: tuple[int, ...]  # the numbers of the shares that it had to fetch for it


class Seat:
    """The far end: a worker in an actor of its own."""

    def __init__(self) -> None:
        self._worker: Worker
        self._held: dict[str, int] = {}

    def hello(self, make_worker: WorkerFactory) -> tuple[str, str, int]:
        """Become a worker: (node id, address, process id)."""
        import ray

        self._worker = make_worker()
        self._worker.echo()  # whoever cannot make the environment says so now
        context = ray.get_runtime_context()
        return context.get_node_id(), ray.util.get_node_ip_address(), os.getpid()

    def ping(self) -> None:
        """Be alive."""

    def run(self, job: Job, shares: dict[str, Share], afresh: bool) -> Reply:
        """Fetch what is not held yet (everything, if asked to start afresh), and do the job."""
        import ray

        if afresh:
            self._held = {}
        fetched = [share for key, share in shares.items() if self._held.get(key) != share.number]
        for share in fetched:
            self._worker.receive(share.key, share.version, ray.get(share.where[0]))
            self._held[share.key] = share.number
        outcomes, cpu = run_job(job, self._worker)
        return Reply(outcomes, cpu, self._worker.echo(), tuple(s.number for s in fetched))


class Share(NamedTuple):
    """A value in the object store. The reference travels inside a tuple, so that Ray does not fetch it before it is needed."""

    number: int
    key: str
    version: int
    where: tuple[Any]
    size: int


@dataclass(slots=True)
class Task:
    """A job with all that it depends on, as of the moment it was submitted."""

    job: Job
    shares: dict[str, Share]
    echo: Echo
    tries: int = 0


@dataclass(slots=True)
class Member:
    """A worker, as the driver sees it."""

    number: int
    actor: Any
    future: Any  # of hello, of a ping, or of the job
    node: str = ""
    address: str = ""
    pid: int = 0
    ready: bool = False
    refused: str = ""  # why it gets no work
    afresh: bool = False  # its last echo was wrong
    task: Task | None = None
    started: float = 0.0
    heard: float = 0.0
    jobs: int = 0
    env_steps: int = 0
    busy: float = 0.0

    @property
    def able(self) -> bool:
        """Whether it can be given work."""
        return self.ready and not self.refused

    def row(self) -> dict[str, Any]:
        """For the board."""
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
    """What happened, since the start."""

    deaths: int = 0
    timeouts: int = 0
    retries: int = 0
    mismatches: int = 0
    failures: int = 0  # jobs given up
    bytes_sent: int = 0
    shares: int = 0
    nodes: dict[int, set[str]] = field(default_factory=dict)  # share -> the nodes that fetched it

    def metrics(self) -> Metrics:
        """As they go into the metrics of a run."""
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
