"""Many machines: workers are Ray actors that may come, go, die, hang or disagree without ending the run.

All state lies with the driver, in one thread. A job carries indices and names the shared values that it needs; a worker
fetches what it lacks, and sends back scalars with an echo of what it computed from. So a worker needs no history: it can
join at any moment, and whatever it was doing when it left can be done again elsewhere with the same result.
"""

from __future__ import annotations

import contextlib
import logging
import os
import time
from collections import Counter, deque

from baldwin.errors import BaldwinError
from baldwin.executors.cluster import BOARD, Board, connect, reason
from baldwin.executors.config import ExecutorConfig, WorkerFactory
from baldwin.executors.seats import Counts, Member, Reply, Seat, Share, Task, payload
from baldwin.types import Arrays, Echo, Job, Metrics, Result, failed

TICK, SILENCE = 0.5, 5.0
"""Seconds between two looks at deadlines and at who has joined; and after which an idle worker is asked whether it lives."""
ALONE = 10.0
"""Seconds without a worker, at the start, before that is said."""
STILLBORN, KILLED_YOUNG = 3, 12
"""Workers that could not be made, or that died before they were, one after the other with none alive, before the run gives up."""

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
        self._reference = self._make_worker()  # it plays nothing; it says what the others must echo
        self._echo = self._reference.echo()
        self._home = str(ray.get_runtime_context().get_node_id())
        self._seat = ray.remote(num_cpus=1, max_restarts=0, max_task_retries=0, scheduling_strategy="SPREAD")(Seat)
        here = NodeAffinitySchedulingStrategy(self._home, soft=False)
        board = ray.remote(num_cpus=0, scheduling_strategy=here)(Board)
        self._board = board.options(name=f"{BOARD}{os.getpid()}-{id(self):x}").remote()
        self._members: list[Member] = []
        self._hired = 0
        self._shares: dict[str, Share] = {}
        self._queue: deque[Task] = deque()
        self._done: list[Result] = []
        self.counts, self._reported = Counts(), Metrics()
        self._stillborn: Counter[int] = Counter()  # patience with such a failure -> how many since a worker was made
        self._patience, self._census, self._lonely = 0.0, 0.0, False
        self._company = time.monotonic() + ALONE - TICK  # when somebody was last there
        self._recruit()

    @property
    def workers(self) -> int:
        """Those that can work now."""
        return max(1, sum(m.able for m in self._members))

    @property
    def slots(self) -> int:
        """Workers, also those about to start, that have nothing to do; with none left it still takes one job, and waits."""
        places = [m for m in self._members if not m.refused]
        return max(1, len(places)) - len(self._queue) - sum(m.task is not None for m in places)

    def share(self, key: str, version: int, arrays: Arrays) -> None:
        """One copy in the object store; jobs that are submitted from now on name it."""
        self.counts.shares += 1
        if key in self._shares:
            self.counts.nodes.pop(self._shares[key].number, None)
        content = {name: array.copy() for name, array in arrays.items()}
        size = sum(a.nbytes for a in content.values())
        self._shares[key] = Share(self.counts.shares, key, version, (self._ray.put(content),), size)
        self.counts.bytes_sent += size
        self._reference.receive(key, version, content)
        self._echo = self._reference.echo()

    def submit(self, job: Job) -> None:
        """Queue it for the next idle worker."""
        self._queue.append(Task(job, dict(self._shares), self._echo))
        self._recruit()
        self._deal()

    def wait(self) -> list[Result]:
        """Until a job is back, well or failed; as long as there is no worker at all, until one comes."""
        while True:
            done, self._done = self._done, []
            if done or not (self._queue or any(m.task for m in self._members)):
                return done
            futures = {m.future: m for m in self._members if m.future is not None}
            if futures:
                ready, _ = self._ray.wait(list(futures), num_returns=1, timeout=self._tick())
                if ready:
                    ready, _ = self._ray.wait(list(futures), num_returns=len(futures), timeout=0)
                for future in ready:
                    self._hear(futures[future])
            else:
                time.sleep(TICK)
            self._expel_late()
            self._recruit()
            self._deal()

    def report(self) -> Metrics:
        """Bytes, deaths, retries and so on since the last call, and how many workers there are."""
        now = self.counts.metrics()
        news = {name: value - self._reported.get(name, 0.0) for name, value in now.items()}
        self._reported = now
        return news | {"workers": float(self.workers)}

    def close(self) -> None:
        """Kill the workers: they hold nothing that is not known here."""
        for member in self._members:
            self._dismiss(member)
        self._members = []
        with contextlib.suppress(Exception):
            self._ray.kill(self._board)
        self._reference.close()
        if self._started_ray:
            self._ray.shutdown()

    def _recruit(self) -> None:
        """Look who is there, and hire until every place is taken."""
        now = time.monotonic()
        if now < self._census:
            return
        self._census = now + TICK
        for _ in range(self._vacancies() if now >= self._patience else 0):
            self._hired += 1
            actor = self._seat.remote()
            self._members.append(Member(self._hired - 1, actor, actor.hello.remote(self._make_worker)))
        starting = [m for m in self._members if not m.ready]
        for member in starting[len(starting) + min(0, self._vacancies()) :]:
            self._dismiss(member)  # the cluster shrank: nobody will come for this place
            self._members.remove(member)
        self._ask_who_lives(SILENCE)
        self._say_if_alone()
        self._board.write.remote(
            {"pid": os.getpid(), "counts": self.counts.metrics(), "queued": len(self._queue), "workers": [m.row() for m in self._members]}
        )

    def _vacancies(self) -> int:
        """Places without a worker; negative if there are fewer places than workers. A refused one keeps its CPU: nobody should follow it there."""
        if isinstance(self._config.workers, int):
            return self._config.workers - sum(not m.refused for m in self._members)
        return int(self._ray.cluster_resources().get("CPU", 0)) - len(self._members)

    def _ask_who_lives(self, silence: float) -> None:
        """An idle worker's death shows only when it is spoken to, and no job should be charged with it."""
        now = time.monotonic()
        for member in self._members:
            if member.future is None and now - member.heard >= silence:
                member.future = member.actor.ping.remote()

    def _say_if_alone(self) -> None:
        now = time.monotonic()
        if any(m.able for m in self._members):
            if self._lonely:
                log.warning("a worker is there again; going on")
            self._company, self._lonely = now, False
        elif not self._lonely and now > self._company + TICK:
            self._lonely = True
            refused = next((f"; worker {m.number} was refused: {m.refused}" for m in self._members if m.refused), "")
            log.warning("there is no worker; waiting for one (ray start --address=... on any machine adds some)%s", refused)

    def _deal(self) -> None:
        for member in self._members:
            if not self._queue:
                return
            if member.able and member.future is None:
                task = member.task = self._queue.popleft()
                member.future = member.actor.run.remote(task.job, task.shares, member.afresh)
                member.started = time.monotonic()
                self.counts.bytes_sent += payload(task.job)

    def _hear(self, member: Member) -> None:
        """Read what a worker says; a dead one says so too."""
        errors = self._ray.exceptions
        try:
            said = self._ray.get(member.future)
        except errors.RayActorError as error:
            self._dismiss(member)  # it may only be out of reach
            broken = getattr(error, "actor_init_failed", False)
            blame = not isinstance(error, errors.ActorUnavailableError)
            return self._lost(member, f"worker died ({reason(error)})", STILLBORN if broken else KILLED_YOUNG, blame)
        except errors.RayError as error:  # its own code failed outside of the job, or the job could not be unpacked there
            self._dismiss(member)
            return self._lost(member, reason(error))
        member.future, member.heard = None, time.monotonic()
        if said is None:
            return None
        if not isinstance(said, Reply):
            member.node, member.address, member.pid = said
            member.ready = True
            self._stillborn.clear()
            return self._say_if_alone()
        task, member.task = member.task, None
        if task is None:
            return None
        self._count(member, task, said)
        if said.echo != task.echo:
            return self._disagree(member, task, said.echo)
        member.afresh = False
        self._done.append(Result(task.job, said.outcomes, member.number, member.started, time.monotonic(), said.cpu_seconds))
        return None

    def _count(self, member: Member, task: Task, reply: Reply) -> None:
        member.jobs += 1
        member.busy += time.monotonic() - member.started
        member.env_steps += sum(o.env_steps for o in reply.outcomes)
        self.counts.bytes_sent += payload(reply)
        for share in [s for s in task.shares.values() if s is self._shares[s.key]]:
            holders = self.counts.nodes.setdefault(share.number, {self._home})
            if share.number in reply.fetched and member.node not in holders:
                holders.add(member.node)  # Ray moves an object to a node once
                self.counts.bytes_sent += share.size

    def _disagree(self, member: Member, task: Task, echo: Echo) -> None:
        """It computed from something else: send everything again, once; if that does not help, give it no more work."""
        self.counts.mismatches += 1
        self._queue.appendleft(task)
        if not member.afresh:
            member.afresh = True
            return
        names = [
            f"{k}: {task.echo.get(k, 'none')} here, {echo.get(k, 'none')} there"
            for k in task.echo | echo
            if task.echo.get(k) != echo.get(k)
        ]
        member.refused = "; ".join(names)
        log.warning(
            "worker %d on %s does not compute as the driver does (%s) and gets no work. Install the same versions on every machine.",
            member.number,
            member.address,
            member.refused,
        )

    def _expel_late(self) -> None:
        now = time.monotonic()
        for member in [m for m in self._members if m.task and now - m.started > self._config.timeout]:
            self.counts.timeouts += 1
            self._dismiss(member)
            self._lost(member, f"the job took longer than executor.timeout={self._config.timeout:g} s")

    def _lost(self, member: Member, reason: str, patience: int = STILLBORN, blame: bool = True) -> None:
        """Its place is free again; its job goes to the front of the queue, or is given up."""
        self._members.remove(member)
        self.counts.deaths += 1
        if not member.ready:
            return self._stillbirth(reason, patience)
        log.warning("worker %d on %s is lost: %s", member.number, member.address, reason)
        self._census = 0.0
        self._ask_who_lives(0.0)  # misfortunes seldom come alone
        task = member.task
        if task is None:
            return None
        self.counts.retries += 1
        task.tries += blame and not self._node_is_gone(member)  # a machine that left is not the job's doing
        if task.tries <= self._config.retries:
            self._queue.appendleft(task)
            return None
        self.counts.failures += 1
        outcomes = failed(task.job, f"{reason}, {task.tries} times")
        self._done.append(Result(task.job, outcomes, member.number, member.started, time.monotonic(), 0.0))
        return None

    def _stillbirth(self, reason: str, patience: int) -> None:
        """A worker that could not be made. Others may be fine; if none is, there is no point in going on. Several at once count once."""
        if time.monotonic() < self._patience:
            return
        self._stillborn[patience] += 1
        self._patience = time.monotonic() + min(60.0, 2.0 ** (self._stillborn.total() - 1))
        if self._stillborn[patience] >= patience and not any(m.able for m in self._members):
            raise BaldwinError(f"a worker could not be made: {reason}")
        log.warning("a worker could not be made: %s", reason)

    def _node_is_gone(self, member: Member) -> bool:
        return any(n["NodeID"] == member.node and not n["Alive"] for n in self._ray.nodes())

    def _dismiss(self, member: Member) -> None:
        with contextlib.suppress(Exception):
            self._ray.kill(member.actor, no_restart=True)

    def _tick(self) -> float:
        """Until the next deadline, but not longer than it may take to notice a newcomer."""
        starts = [m.started for m in self._members if m.task]
        return min(TICK, max(0.0, min(starts, default=time.monotonic()) + self._config.timeout - time.monotonic()) + 0.01)
