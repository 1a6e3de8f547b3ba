"""One machine, all cores: persistent worker processes that may die, hang or raise without ending the run."""

from __future__ import annotations

import contextlib
import multiprocessing as mp
import os
import signal
import sys
import threading
import time
from collections import deque
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any

from baldwin.errors import BaldwinError
from baldwin.executors.config import ExecutorConfig, WorkerFactory, run_job
from baldwin.executors.shared import Parcel, open_parcel
from baldwin.types import Arrays, Job, Metrics, Result, failed

THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")


@dataclass(slots=True)
class Ticketed:
    """A job, and how often it was tried."""

    job: Job
    tries: int = 0


@dataclass(slots=True)
class Slot:
    """A worker process, and what it is busy with."""

    process: BaseProcess
    pipe: Connection
    ready: bool = False
    task: Ticketed | None = None
    started: float = 0.0
    seen: int = 0  # the last parcel it has read


def work(make_worker: WorkerFactory, pipe: Connection, life: Connection) -> None:
    """The life of a worker process: read messages in order until the pipe closes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent, which then closes the pipe
    threading.Thread(target=_die_with_parent, args=(life,), daemon=True).start()
    with contextlib.suppress(EOFError, BrokenPipeError, ConnectionResetError):
        try:
            worker = make_worker()
        except Exception as error:
            pipe.send(("broken", f"{type(error).__name__}: {error}"))
            return
        pipe.send(("ready", None))
        while True:
            kind, content = pipe.recv()
            if kind == "share":
                worker.receive(content.key, content.version, open_parcel(content))
                pipe.send(("seen", content.number))
            else:
                pipe.send(("done", run_job(content, worker)))


def _die_with_parent(life: Connection) -> None:
    """Nobody writes to this pipe: it becomes readable when the parent is gone, also while a job hangs."""
    wait([life])
    os._exit(1)


@dataclass(slots=True)
class Shares:
    """The parcels in shared memory: the newest of each key, and older ones that someone may still have to read."""

    newest: dict[str, Parcel] = field(default_factory=dict)
    old: list[Parcel] = field(default_factory=list)
    sent: int = 0

    def add(self, key: str, version: int, arrays: Arrays) -> Parcel:
        """Pack a new version."""
        self.sent += 1
        if key in self.newest:
            self.old.append(self.newest[key])
        self.newest[key] = Parcel.pack(self.sent, key, version, arrays)
        return self.newest[key]

    def forget(self, everybody_saw: int) -> None:
        """Free what all workers have passed."""
        for parcel in [p for p in self.old if p.number <= everybody_saw]:
            parcel.free()
            self.old.remove(parcel)

    def close(self) -> None:
        """Free all."""
        for parcel in [*self.newest.values(), *self.old]:
            parcel.free()
        self.newest, self.old = {}, []


class ProcessExecutor:
    """Persistent workers, torch and BLAS at one thread each; a lost job is tried elsewhere."""

    def __init__(self, make_worker: WorkerFactory, config: ExecutorConfig | None = None) -> None:
        self._config = config or ExecutorConfig()
        self._make_worker = make_worker
        self.deaths = self._reported = 0
        self._queue: deque[Ticketed] = deque()
        self._failed: list[Result] = []
        self._shares = Shares()
        self._context = _context(type(make_worker).__module__)
        self._life, self._life_line = self._context.Pipe(duplex=False)
        self._slots = [self._hire() for _ in range(self._config.count)]

    @property
    def workers(self) -> int:
        """A lost one is replaced at once."""
        return self._config.count

    @property
    def slots(self) -> int:
        """Workers that have nothing to do."""
        return self.workers - len(self._queue) - sum(s.task is not None for s in self._slots)

    def share(self, key: str, version: int, arrays: Arrays) -> None:
        """One copy in shared memory; each worker gets its name."""
        parcel = self._shares.add(key, version, arrays)
        for slot in self._slots:
            _send(slot, "share", parcel)

    def submit(self, job: Job) -> None:
        """Queue it for the next idle worker."""
        self._queue.append(Ticketed(job))
        self._deal()

    def wait(self) -> list[Result]:
        """Until a job is back, well or failed."""
        while True:
            results, self._failed = self._failed, []
            if results or not (self._queue or any(s.task for s in self._slots)):
                return results
            pipes = {slot.pipe: n for n, slot in enumerate(self._slots)}
            for ready in wait(list(pipes), timeout=self._patience()):
                result = self._read(pipes[ready])  # type: ignore[index]
                if result:
                    results.append(result)
            self._expel_late()
            self._deal()
            if results:
                return results

    def report(self) -> Metrics:
        """Deaths since the last call."""
        news, self._reported = self.deaths - self._reported, self.deaths
        return {"worker_deaths": float(news)}

    def close(self) -> None:
        """Kill the workers: they hold nothing that is not known here."""
        for slot in self._slots:
            slot.pipe.close()
            slot.process.kill()
        for slot in self._slots:
            slot.process.join()
        self._slots = []
        self._life.close()
        self._life_line.close()
        self._shares.close()

    def _hire(self) -> Slot:
        here, there = self._context.Pipe()
        process = self._context.Process(target=work, args=(self._make_worker, there, self._life), daemon=True)
        with _one_thread_environment(), _deaf_to_ctrl_c():
            process.start()
        there.close()
        slot = Slot(process, here)
        for parcel in self._shares.newest.values():
            _send(slot, "share", parcel)
        return slot

    def _deal(self) -> None:
        for slot in self._slots:
            if slot.task is None and self._queue:
                slot.task, slot.started = self._queue.popleft(), time.monotonic()
                _send(slot, "job", slot.task.job)

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
        if kind == "seen":
            slot.seen = content
            self._shares.forget(min(s.seen for s in self._slots))
            return None
        outcomes, cpu = content
        task, slot.task = slot.task, None
        return Result(task.job, outcomes, number, slot.started, time.monotonic(), cpu) if task else None

    def _expel_late(self) -> None:
        now = time.monotonic()
        for number, slot in enumerate(self._slots):
            if slot.task and slot.ready and now - slot.started > self._config.timeout:
                slot.process.kill()
                self._replace(number, f"the job took longer than executor.timeout={self._config.timeout:g} s")

    def _replace(self, number: int, reason: str) -> None:
        """A new worker for a lost one; its job goes to the front of the queue, or is given up."""
        slot = self._slots[number]
        self.deaths += 1
        slot.pipe.close()
        slot.process.join()
        self._slots[number] = self._hire()
        if not slot.task:
            return
        slot.task.tries += 1
        if slot.task.tries <= self._config.retries:
            self._queue.appendleft(slot.task)
            return
        reason = f"{reason}, {slot.task.tries} times"
        self._failed.append(Result(slot.task.job, failed(slot.task.job, reason), number, slot.started, time.monotonic(), 0.0))

    def _patience(self) -> float:
        """How long to wait before some deadline must be looked at."""
        starts = [slot.started for slot in self._slots if slot.task and slot.ready]
        return max(0.0, min(starts, default=time.monotonic()) + self._config.timeout - time.monotonic()) + 0.01


def _context(preload: str) -> Any:
    """Workers fork from a clean server that has imported what they need: quick to replace, and no inherited locks."""
    if sys.platform == "linux":
        context = mp.get_context("forkserver")
        context.set_forkserver_preload([preload])
        return context
    return mp.get_context("spawn")


@contextlib.contextmanager
def _one_thread_environment() -> Any:
    """BLAS libraries read these when a process starts."""
    before = {name: os.environ.get(name) for name in THREAD_VARIABLES}
    os.environ.update(dict.fromkeys(THREAD_VARIABLES, "1"))
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


@contextlib.contextmanager
def _deaf_to_ctrl_c() -> Any:
    """What is started in here inherits it: Ctrl-C in a terminal goes to every process, and only the parent shall act on it."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _send(slot: Slot, kind: str, content: object) -> None:
    """A worker that died meanwhile is noticed by `wait`, not here."""
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        slot.pipe.send((kind, content))


def _exit_code(process: BaseProcess) -> int | None:
    process.join(timeout=5)
    return process.exitcode
