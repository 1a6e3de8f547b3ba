"""One machine, all cores: persistent worker processes that may die, hang or raise without ending the run."""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import threading
import time
from collections import deque
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess

from baldwin.errors import BaldwinError, describe_exception
from baldwin.executors.config import EXECUTORS, ExecutorConfig, WorkerFactory, overdue_message, run_timed
from baldwin.executors.shared_arrays import SharedStore
from baldwin.executors.streams import StreamOwners
from baldwin.processes import Script, import_script, leave_script_in_worker, user_script, worker_context, worker_environment
from baldwin.types import Job, Metrics, Result, Shared, failed

MAX_START_FAILURES = 5


@dataclass(slots=True, eq=False)
class QueuedJob:
    """A job, and how often it was tried."""

    job: Job
    tries: int = 0


@dataclass(slots=True)
class WorkerProcess:
    """A worker process, and what it is busy with."""

    process: BaseProcess
    pipe: Connection
    ready: bool = False
    task: QueuedJob | None = None
    started: float = 0.0
    sent: int = 0  # number of the last shared value that was sent to it
    read: int = 0  # and of the last one that it has read


def work(script: Script | None, pipe: Connection, parent_alive: Connection) -> None:
    """The main loop of a worker process: handle messages in order until the pipe closes. The first one says how to make the worker."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent, which then closes the pipe
    os.environ.pop("PYTHONSAFEPATH", None)  # it was for starting this process, not for what an environment may start
    threading.Thread(target=_die_with_parent, args=(parent_alive,), daemon=True).start()
    with contextlib.suppress(EOFError, BrokenPipeError, ConnectionResetError):
        try:
            import_script(script)  # before anything arrives that may be defined there
            make_worker: WorkerFactory | None = None
            with contextlib.suppress(EOFError, ConnectionResetError):  # the parent is gone
                make_worker = pipe.recv()
            if make_worker is None:
                return
            worker = make_worker()
        except Exception as error:
            pipe.send(("broken", describe_exception(error)))
            return
        gc.freeze()  # what was imported is no garbage, and looking through it takes 90 ms, five ticks of a live world
        pipe.send(("ready", None))
        while True:
            kind, content = pipe.recv()
            if kind == "share":
                worker.receive(content.read())
                pipe.send(("read", content.number))
            else:
                try:
                    done = run_timed(content, worker)
                except KeyboardInterrupt as error:  # nobody sends a worker Ctrl-C: an environment raised it
                    done = (failed(content, describe_exception(error)), 0.0)
                pipe.send(("done", done))


def _die_with_parent(parent_alive: Connection) -> None:
    """Nobody writes to this pipe: it becomes readable when the parent is gone, also while a job hangs."""
    wait([parent_alive])
    os._exit(1)


class ProcessExecutor:
    """Persistent workers, torch and BLAS at one thread each; a lost job is tried elsewhere."""

    def __init__(self, make_worker: WorkerFactory, config: ExecutorConfig | None = None) -> None:
        leave_script_in_worker()
        self._config = config or ExecutorConfig()
        self._make_worker, self._script = make_worker, user_script()
        self.deaths = self._reported = 0
        self._queue: deque[QueuedJob] = deque()
        self._failed: list[Result] = []
        self._shared = SharedStore()
        self._streams = StreamOwners()
        self._context = worker_context(make_worker.__module__)
        self._parent_alive, self._parent_alive_writer = self._context.Pipe(duplex=False)
        self._slots = [self._spawn() for _ in range(self._config.count)]

    @staticmethod
    def sees_files(config: ExecutorConfig) -> bool:
        """Workers are on this machine."""
        return True

    @property
    def workers(self) -> int:
        """The number of workers; a dead one is replaced at once."""
        return self._config.count

    @property
    def slots(self) -> int:
        """Idle workers that no queued job waits for."""
        idle = {n for n, slot in enumerate(self._slots) if slot.task is None}
        waiting = [self._streams.waits_for(queued.job, range(len(self._slots))) for queued in self._queue]
        return len(idle) - sum(owner is None or owner in idle for owner in waiting)

    def share(self, shared: Shared) -> None:
        """Put one copy into shared memory. Each worker gets the name of the copy with its next job, because a busy worker does not read its small pipe."""
        self._shared.add(shared)
        self._free_shared()

    def submit(self, job: Job) -> None:
        """Queue it for the next idle worker."""
        self._queue.append(QueuedJob(job))
        self._dispatch()

    def wait(self) -> list[Result]:
        """Block until a job is finished or has failed."""
        while True:
            results, self._failed = self._failed, []
            if results or not (self._queue or any(s.task for s in self._slots)):
                return results
            pipes = {slot.pipe: n for n, slot in enumerate(self._slots)}
            for ready in wait(list(pipes), timeout=self._wait_timeout()):
                result = self._read(pipes[ready])  # type: ignore[index]
                if result:
                    results.append(result)
            self._kill_overdue()
            self._dispatch()
            if results:
                return results

    def report(self) -> Metrics:
        """Deaths since the last call."""
        new, self._reported = self.deaths - self._reported, self.deaths
        return {"worker_deaths": float(new)}

    def close(self) -> None:
        """Kill the workers: they hold nothing that is not known here."""
        for slot in self._slots:
            slot.pipe.close()
            slot.process.kill()
        for slot in self._slots:
            slot.process.join()
        self._slots = []
        self._parent_alive.close()
        self._parent_alive_writer.close()
        self._shared.close()

    def _spawn(self) -> WorkerProcess:
        """A new worker process.

        Raises:
            BaldwinError: none can be started, several times in a row.
        """
        for tries in range(1, MAX_START_FAILURES + 1):
            here, there = self._context.Pipe()
            process = self._context.Process(target=work, args=(self._script, there, self._parent_alive), daemon=True)
            try:
                with worker_environment():
                    process.start()
                here.send(self._make_worker)
                return WorkerProcess(process, here)
            except (EOFError, OSError) as error:  # the server that forks them died; the next try starts another one
                here.close()
                if tries == MAX_START_FAILURES:
                    reason = describe_exception(error)
                    raise BaldwinError(f"no worker process could be started in {tries} tries: {reason}. Is there memory left?") from error
                time.sleep(0.1 * tries)
            finally:
                there.close()
        raise AssertionError  # not reached

    def _dispatch(self) -> None:
        """Give queued jobs to idle workers, those of a stream to its owner."""
        for queued in list(self._queue):
            idle = [n for n, slot in enumerate(self._slots) if slot.task is None]
            chosen = self._streams.choose(queued.job, idle, range(len(self._slots)))
            if chosen is not None:
                self._queue.remove(queued)
                self._start(self._slots[chosen], queued)

    def _start(self, slot: WorkerProcess, queued: QueuedJob) -> None:
        """Send what is shared and the worker does not have yet, then the job."""
        for shared in [s for s in self._shared.kept if s.number > slot.sent]:
            _send(slot, "share", shared)
            slot.sent = shared.number
        slot.task = queued
        slot.started = time.monotonic()
        _send(slot, "job", queued.job)

    def _free_shared(self) -> None:
        """Free dropped values that no worker has yet to read."""
        unread = [(slot.read, slot.sent) for slot in self._slots]
        self._shared.free_dropped(lambda number: any(read < number <= sent for read, sent in unread))

    def _read(self, number: int) -> Result | None:
        slot = self._slots[number]
        try:
            kind, content = slot.pipe.recv()
        except (EOFError, OSError):
            self._replace(number, f"worker process died (exit code {_exit_code(slot.process)})")
            return None
        if kind == "broken":
            raise BaldwinError(f"a worker could not be made: {content}")
        if kind == "ready":
            slot.ready = True
            slot.started = time.monotonic()  # the deadline is for the job, not for starting Python
            return None
        if kind == "read":
            slot.read = content
            self._free_shared()
            return None
        outcomes, cpu = content
        task, slot.task = slot.task, None
        return Result(task.job, outcomes, number, slot.started, time.monotonic(), cpu) if task else None

    def _kill_overdue(self) -> None:
        now = time.monotonic()
        for number, slot in enumerate(self._slots):
            if slot.task and slot.ready and now - slot.started > self._config.timeout:
                slot.process.kill()
                self._replace(number, overdue_message("the job", self._config.timeout))

    def _replace(self, number: int, reason: str) -> None:
        """A new worker for a lost one; its job goes to the front of the queue, or is given up."""
        slot = self._slots[number]
        self.deaths += 1
        slot.pipe.close()
        slot.process.join()
        self._slots[number] = self._spawn()
        if not slot.task:
            return
        slot.task.tries += 1
        if slot.task.tries <= self._config.retries:
            self._queue.appendleft(slot.task)
            return
        reason = f"{reason}, {slot.task.tries} times"
        self._failed.append(Result(slot.task.job, failed(slot.task.job, reason), number, slot.started, time.monotonic(), 0.0))

    def _wait_timeout(self) -> float:
        """Seconds until the next deadline."""
        starts = [slot.started for slot in self._slots if slot.task and slot.ready]
        return max(0.0, min(starts, default=time.monotonic()) + self._config.timeout - time.monotonic()) + 0.01


def _send(slot: WorkerProcess, kind: str, content: object) -> None:
    """A worker that died meanwhile is noticed by `wait`, not here."""
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        slot.pipe.send((kind, content))


def _exit_code(process: BaseProcess) -> int | None:
    process.join(timeout=5)
    return process.exitcode


EXECUTORS.add("process", ProcessExecutor)
