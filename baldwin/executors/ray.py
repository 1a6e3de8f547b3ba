"""Many machines: workers are Ray actors that may come, go, die, hang or compute differently without ending the run.

All state lies with the driver, in one thread. A job names the shared values that it needs; a worker fetches what it
lacks, and sends back results with a fingerprint of what it computed from. So a worker needs no history: it can join at
any moment, and whatever it was doing when it left can be done again elsewhere with the same result.
"""

from __future__ import annotations

import contextlib
import logging
import os
import time
from collections import Counter, deque

from baldwin.errors import BaldwinError
from baldwin.executors.cluster import STATUS_ACTOR, StatusActor, connect, reason
from baldwin.executors.config import EXECUTORS, ExecutorConfig, WorkerFactory, overdue_message
from baldwin.executors.ray_worker import Counts, QueuedJob, RayWorkerActor, Reply, Share, WorkerHandle, payload
from baldwin.executors.streams import StreamOwners
from baldwin.types import Fingerprint, Job, Metrics, Result, Shared, failed, job_reads

POLL_INTERVAL, PING_INTERVAL = 0.5, 5.0
"""Seconds between two checks of deadlines and of the cluster's size; and after which an idle worker is pinged."""
NO_WORKER_GRACE = 10.0
"""Seconds without a worker, at the start, before a warning."""
MAX_START_FAILURES, MAX_EARLY_DEATHS = 3, 12
"""Workers in a row that could not be made, or that died while they started, with none alive, before the run stops."""

START_GRACE = 20.0
"""Seconds for which a stream of jobs waits for a worker of its own that is starting."""

log = logging.getLogger("baldwin.cluster")


class RayExecutor:
    """Elastic workers on a Ray cluster, one CPU each."""

    def __init__(self, make_worker: WorkerFactory, config: ExecutorConfig | None = None) -> None:
        self._config = config or ExecutorConfig(name="ray")
        self._make_worker = make_worker
        self._started_ray = connect(self._config)
        try:
            self._open()
        except BaseException:
            if self._started_ray:
                self._ray.shutdown()
            raise

    def _open(self) -> None:
        import ray
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        self._ray = ray
        self._reference = self._make_worker()  # it runs no jobs: its fingerprint is what the others' must equal
        self._fingerprint = self._reference.fingerprint(())
        self._driver_node = str(ray.get_runtime_context().get_node_id())
        self._actor_class = ray.remote(num_cpus=1, max_restarts=0, max_task_retries=0, scheduling_strategy="SPREAD")(RayWorkerActor)
        here = NodeAffinitySchedulingStrategy(self._driver_node, soft=False)
        status_actor = ray.remote(num_cpus=0, scheduling_strategy=here)(StatusActor)
        self._status_actor = status_actor.options(name=f"{STATUS_ACTOR}{os.getpid()}-{id(self):x}").remote()
        self._handles: list[WorkerHandle] = []
        self._n_started = 0
        self._shares: list[Share] = []
        self._streams = StreamOwners()
        self._queue: deque[QueuedJob] = deque()
        self._done: list[Result] = []
        self.counts, self._reported = Counts(), Metrics()
        self._start_failures: Counter[int] = Counter()  # limit of such failures -> how many since a worker started
        self._next_start, self._next_scale_check, self._warned_no_workers = 0.0, 0.0, False
        self._last_available = time.monotonic() + NO_WORKER_GRACE - POLL_INTERVAL  # when somebody was last there
        self._scale()

    @staticmethod
    def sees_files(config: ExecutorConfig) -> bool:
        """On a cluster, workers may be on other machines."""
        return config.address == "local"

    @property
    def workers(self) -> int:
        """The number of workers that can run jobs now; at least 1."""
        return max(1, sum(m.available for m in self._handles))

    @property
    def slots(self) -> int:
        """Idle workers, also those that are starting, that no queued job waits for; without any worker, one job."""
        usable = [h for h in self._handles if not h.refused]
        idle = {h.number for h in usable if h.task is None}
        available = [h.number for h in self._handles if h.available]
        waiting = [self._streams.waits_for(queued.job, available) for queued in self._queue]
        free = len(idle) if usable else 1
        return free - sum(owner is None or owner in idle for owner in waiting)

    def share(self, shared: Shared) -> None:
        """Put one copy into the object store. Jobs that are submitted from now on name it; a value on demand is named only by jobs that read it."""
        self.counts.shares += 1
        for old in [s for s in self._shares if s.key == shared.key and (s.version < shared.oldest or s.version == shared.version)]:
            self._shares.remove(old)
            self.counts.nodes.pop(old.number, None)
        if shared.version < shared.oldest:
            return
        content = {name: array.copy() for name, array in shared.arrays.items()}
        size = sum(a.nbytes for a in content.values())
        reference = (self._ray.put(content),)
        self._shares.append(Share(self.counts.shares, shared.key, shared.version, shared.oldest, reference, size, shared.on_demand))
        if shared.on_demand:  # its name is its hash, and nobody may ever need it
            return
        self.counts.bytes_sent += size
        self._reference.receive(shared)
        self._fingerprint = self._reference.fingerprint([(s.key, s.version) for s in self._shares if not s.on_demand])

    def submit(self, job: Job) -> None:
        """Queue it for the next idle worker."""
        reads = job_reads(job)
        needed = [share for share in self._shares if not share.on_demand or share.key in reads]
        self._queue.append(QueuedJob(job, needed, self._fingerprint))
        self._scale()
        self._dispatch()

    def wait(self) -> list[Result]:
        """Block until a job is finished or has failed; without any worker, until one joins."""
        while True:
            done, self._done = self._done, []
            if done or not (self._queue or any(m.task for m in self._handles)):
                return done
            futures = {m.future: m for m in self._handles if m.future is not None}
            if futures:
                ready, _ = self._ray.wait(list(futures), num_returns=1, timeout=self._poll_timeout())
                if ready:
                    ready, _ = self._ray.wait(list(futures), num_returns=len(futures), timeout=0)
                for future in ready:
                    self._receive(futures[future])
            else:
                time.sleep(POLL_INTERVAL)
            self._kill_overdue()
            self._scale()
            self._dispatch()

    def report(self) -> Metrics:
        """Bytes, deaths, retries and so on since the last call, and the number of workers."""
        now = self.counts.metrics()
        new = {name: value - self._reported.get(name, 0.0) for name, value in now.items()}
        self._reported = now
        return new | {"workers": float(self.workers)}

    def close(self) -> None:
        """Kill the workers: they hold nothing that is not known here."""
        for handle in self._handles:
            self._kill(handle)
        self._handles = []
        with contextlib.suppress(Exception):
            self._ray.kill(self._status_actor)
        self._reference.close()
        if self._started_ray:
            self._ray.shutdown()

    def _scale(self) -> None:
        """Start workers until there are as many as wanted; stop those that the cluster has no room for."""
        now = time.monotonic()
        if now < self._next_scale_check:
            return
        self._next_scale_check = now + POLL_INTERVAL
        for _ in range(self._missing_workers() if now >= self._next_start else 0):
            self._n_started += 1
            actor = self._actor_class.remote()
            self._handles.append(WorkerHandle(self._n_started - 1, actor, actor.setup.remote(self._make_worker)))
        starting = [m for m in self._handles if not m.ready]
        for handle in starting[len(starting) + min(0, self._missing_workers()) :]:
            self._kill(handle)  # the cluster shrank: it has no room for this one
            self._handles.remove(handle)
        self._ping_idle(PING_INTERVAL)
        self._warn_if_no_workers()
        self._status_actor.write.remote(
            {"pid": os.getpid(), "counts": self.counts.metrics(), "queued": len(self._queue), "workers": [m.row() for m in self._handles]}
        )

    def _missing_workers(self) -> int:
        """Workers to start; negative if there are too many. A refused one keeps its CPU, so that no other is started there."""
        if isinstance(self._config.workers, int):
            return self._config.workers - sum(not m.refused for m in self._handles)
        return int(self._ray.cluster_resources().get("CPU", 0)) - len(self._handles)

    def _ping_idle(self, silence: float) -> None:
        """The death of an idle worker shows only when it is called, and no job should be blamed for it."""
        now = time.monotonic()
        for handle in self._handles:
            if handle.future is None and now - handle.last_seen >= silence:
                handle.future = handle.actor.ping.remote()

    def _warn_if_no_workers(self) -> None:
        now = time.monotonic()
        if any(m.available for m in self._handles):
            if self._warned_no_workers:
                log.warning("a worker is there again; going on")
            self._last_available, self._warned_no_workers = now, False
        elif not self._warned_no_workers and now > self._last_available + POLL_INTERVAL:
            self._warned_no_workers = True
            refused = next((f"; worker {m.number} was refused: {m.refused}" for m in self._handles if m.refused), "")
            log.warning("there is no worker; waiting for one (ray start --address=... on any machine adds some)%s", refused)

    def _dispatch(self) -> None:
        """Give queued jobs to idle workers: those of a stream to its owner, others if possible to one that holds what they read."""
        for queued in list(self._queue):
            available = {h.number: h for h in self._handles if h.available}
            idle = [n for n, h in available.items() if h.future is None]
            holders = [n for n in idle if available[n].holds.issuperset(job_reads(queued.job))]
            chosen = self._streams.choose(queued.job, holders or idle, available, self._more_are_starting())
            if chosen is not None:
                handle = available[chosen]
                self._queue.remove(queued)
                handle.task = queued
                handle.future = handle.actor.run.remote(queued.job, queued.shares, handle.resync)
                handle.started = time.monotonic()
                self.counts.bytes_sent += payload(queued.job)

    def _more_are_starting(self) -> bool:
        """Whether a worker will be ready soon: not those that the cluster may never have room for."""
        now = time.monotonic()
        return any(not h.ready and now - h.created < START_GRACE for h in self._handles)

    def _receive(self, handle: WorkerHandle) -> None:
        """Take what a worker sent, or notice that it died."""
        errors = self._ray.exceptions
        try:
            reply = self._ray.get(handle.future)
        except errors.RayActorError as error:
            self._kill(handle)  # it may only be out of reach
            broken = getattr(error, "actor_init_failed", False)
            blame = not isinstance(error, errors.ActorUnavailableError)
            return self._on_worker_lost(handle, f"worker died ({reason(error)})", MAX_START_FAILURES if broken else MAX_EARLY_DEATHS, blame)
        except errors.RayError as error:  # it failed outside of the job, or could not unpack the job
            self._kill(handle)
            return self._on_worker_lost(handle, reason(error))
        handle.future, handle.last_seen = None, time.monotonic()
        if reply is None:
            return None
        if not isinstance(reply, Reply):
            handle.node, handle.address, handle.pid = reply
            handle.ready = True
            self._start_failures.clear()
            return self._warn_if_no_workers()
        task, handle.task = handle.task, None
        if task is None:
            return None
        self._count(handle, task, reply)
        if reply.fingerprint != task.fingerprint:
            return self._on_mismatch(handle, task, reply.fingerprint)
        handle.resync = False
        self._done.append(Result(task.job, reply.outcomes, handle.number, handle.started, time.monotonic(), reply.cpu_seconds))
        return None

    def _count(self, handle: WorkerHandle, task: QueuedJob, reply: Reply) -> None:
        handle.jobs += 1
        handle.busy += time.monotonic() - handle.started
        handle.env_steps += sum(o.env_steps for o in reply.outcomes)
        handle.holds = frozenset(reply.holds)
        self.counts.bytes_sent += payload(reply)
        for share in [s for s in task.shares if s in self._shares]:
            holders = self.counts.nodes.setdefault(share.number, set() if share.on_demand else {self._driver_node})
            if share.number in reply.fetched and handle.node not in holders:
                holders.add(handle.node)  # Ray moves an object to a node once
                self.counts.bytes_sent += share.size

    def _on_mismatch(self, handle: WorkerHandle, task: QueuedJob, fingerprint: Fingerprint) -> None:
        """It computed from something else: send everything again, once; if that does not help, give it no more jobs."""
        self.counts.mismatches += 1
        self._queue.appendleft(task)
        if not handle.resync:
            handle.resync = True
            return
        names = [
            f"{k}: {task.fingerprint.get(k, 'none')} here, {fingerprint.get(k, 'none')} there"
            for k in task.fingerprint | fingerprint
            if task.fingerprint.get(k) != fingerprint.get(k)
        ]
        handle.refused = "; ".join(names)
        log.warning(
            "worker %d on %s does not compute as the driver does (%s) and gets no work. Install the same versions on every machine.",
            handle.number,
            handle.address,
            handle.refused,
        )

    def _kill_overdue(self) -> None:
        now = time.monotonic()
        for handle in [m for m in self._handles if m.task and now - m.started > self._config.timeout]:
            self.counts.timeouts += 1
            self._kill(handle)
            self._on_worker_lost(handle, overdue_message("the job", self._config.timeout))

    def _on_worker_lost(self, handle: WorkerHandle, reason: str, limit: int = MAX_START_FAILURES, blame: bool = True) -> None:
        """Forget a worker; its job goes to the front of the queue, or is given up."""
        self._handles.remove(handle)
        self.counts.deaths += 1
        if not handle.ready:
            return self._on_start_failure(reason, limit)
        log.warning("worker %d on %s is lost: %s", handle.number, handle.address, reason)
        self._next_scale_check = 0.0
        self._ping_idle(0.0)  # others may have died with it
        task = handle.task
        if task is None:
            return None
        self.counts.retries += 1
        task.tries += blame and not self._node_is_gone(handle)  # a job is not blamed for a machine that left
        if task.tries <= self._config.retries:
            self._queue.appendleft(task)
            return None
        self.counts.failures += 1
        outcomes = failed(task.job, f"{reason}, {task.tries} times")
        self._done.append(Result(task.job, outcomes, handle.number, handle.started, time.monotonic(), 0.0))
        return None

    def _on_start_failure(self, reason: str, limit: int) -> None:
        """Count a worker that could not be made; stop if that goes on and none is alive. Several at once count once."""
        if time.monotonic() < self._next_start:
            return
        self._start_failures[limit] += 1
        self._next_start = time.monotonic() + min(60.0, 2.0 ** (self._start_failures.total() - 1))
        if self._start_failures[limit] >= limit and not any(m.available for m in self._handles):
            raise BaldwinError(f"a worker could not be made: {reason}")
        log.warning("a worker could not be made: %s", reason)

    def _node_is_gone(self, handle: WorkerHandle) -> bool:
        return any(n["NodeID"] == handle.node and not n["Alive"] for n in self._ray.nodes())

    def _kill(self, handle: WorkerHandle) -> None:
        with contextlib.suppress(Exception):
            self._ray.kill(handle.actor, no_restart=True)

    def _poll_timeout(self) -> float:
        """Seconds until the next deadline, at most POLL_INTERVAL, so that new machines are noticed."""
        starts = [m.started for m in self._handles if m.task]
        return min(POLL_INTERVAL, max(0.0, min(starts, default=time.monotonic()) + self._config.timeout - time.monotonic()) + 0.01)


EXECUTORS.add("ray", RayExecutor)
