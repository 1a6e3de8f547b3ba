"""Where jobs run, and how one job is run."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, Literal

from pydantic import Field, PositiveInt, field_validator

from baldwin.config_base import ConfigModel
from baldwin.errors import describe_exception
from baldwin.ops.threads import cores
from baldwin.registry import Registry
from baldwin.types import Executor, Job, Outcome, Worker, failed

WorkerFactory = Callable[[], Worker]


class ExecutorConfig(ConfigModel):
    """Where jobs run. Results do not depend on any of this."""

    name: str = Field("process", description="inline: this process; process: all cores; ray: a cluster; virtual: simulated workers")
    workers: PositiveInt | Literal["auto", "max"] = Field(
        "auto", description="auto and max: as many as there are cores; with ray, as the cluster has, growing with it"
    )
    timeout: float = Field(600.0, gt=0, le=1e8, description="Seconds after which a job counts as hung and is tried elsewhere")
    retries: int = Field(2, ge=0, description="How often a job that killed or hung its worker is tried again")
    address: str = Field("local", description="ray: local starts Ray on this machine; auto or host:port joins a cluster made by ray start")
    runtime_env: dict[str, Any] = Field(default_factory=dict, description="ray: what workers need besides, such as {working_dir: .}")
    step_seconds: float = Field(30e-6, gt=0, description="virtual: what an environment step costs")
    critic_seconds: float = Field(6e-3, ge=0, description="virtual: what a critic step costs")
    actor_seconds: float = Field(3e-3, ge=0, description="virtual: what an actor step costs")
    latency: float = Field(1e-3, ge=0, description="virtual: what a job costs besides its steps")
    jitter: float = Field(0.1, ge=0, description="virtual: spread (sigma of a log-normal) of each job's cost")
    seed: int = Field(0, ge=0, description="virtual: of the jitter")

    def foreign_code(self) -> list[str]:
        """A cluster, and what Ray would install on it: both run what others wrote."""
        address = [f"address={self.address}"] if self.address != "local" else []
        return address + ([f"runtime_env={self.runtime_env}"] if self.runtime_env else [])

    @field_validator("name")
    @classmethod
    def _name_is_registered(cls, value: str) -> str:
        return EXECUTORS.check(value)

    @property
    def sees_files(self) -> bool:
        """Whether workers can read the files of the driver's machine."""
        sees_files = getattr(EXECUTORS.find(self.name), "sees_files", None)  # one that does not say may be on other machines
        return bool(sees_files and sees_files(self))

    @property
    def count(self) -> int:
        """The number of workers, `auto` resolved."""
        return self.workers if isinstance(self.workers, int) else cores()


EXECUTORS: Registry[Callable[[WorkerFactory, ExecutorConfig], Executor]] = Registry("executor")


class DeadlinePassed(BaseException):
    """A job took longer than `executor.timeout`. Not an Exception: nobody on the way may take it for an environment's own."""


def overdue_message(what: str, seconds: float) -> str:
    """Why something was given up."""
    return f"{what} took longer than executor.timeout={seconds:g} s (an episode that never ends needs env.max_episode_steps)"


@contextmanager
def deadline(seconds: float, what: str) -> Iterator[None]:
    """Raise DeadlinePassed in here after so many seconds, where the platform and the thread allow it."""
    if threading.current_thread() is not threading.main_thread() or not hasattr(signal, "setitimer"):
        yield
        return

    def ring(_signal: int, _frame: FrameType | None) -> None:
        raise DeadlinePassed(overdue_message(what, seconds))

    before = signal.signal(signal.SIGALRM, ring)
    outer, started = signal.setitimer(signal.ITIMER_REAL, seconds)[0], time.monotonic()
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        if outer:  # a deadline around this one goes on
            signal.setitimer(signal.ITIMER_REAL, max(1e-3, outer - (time.monotonic() - started)))


def run_job(job: Job, worker: Worker) -> list[Outcome]:
    """The outcomes; an exception becomes failed ones with its reason."""
    try:
        return job.run(worker)
    except (Exception, SystemExit) as error:
        return failed(job, describe_exception(error))


def run_timed(job: Job, worker: Worker) -> tuple[list[Outcome], float]:
    """What `run_job` returns, and the CPU seconds it took."""
    started = time.process_time()
    outcomes = run_job(job, worker)
    return outcomes, time.process_time() - started
