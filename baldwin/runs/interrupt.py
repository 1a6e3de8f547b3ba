"""Ctrl-C takes effect only when nothing is half written."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from baldwin.types import Executor, Job, Metrics, Result, Shared

KEPT = (signal.SIGINT, signal.SIGTERM)


class Signals:
    """SIGINT and SIGTERM, kept until someone waits: then they raise KeyboardInterrupt."""

    def __init__(self) -> None:
        self._asked = self._waiting = False

    @staticmethod
    @contextmanager
    def held() -> Iterator[Signals]:
        """Keep the signals that arrive in here; only the main thread can, in others there are none."""
        signals = Signals()
        if threading.current_thread() is not threading.main_thread():
            yield signals
            return
        before = {s: signal.getsignal(s) for s in KEPT}
        signals.listen()
        try:
            yield signals
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def listen(self) -> None:
        """Be the handler, also again after a library such as Ray put its own in place."""
        if threading.current_thread() is threading.main_thread():
            for number in KEPT:
                signal.signal(number, self._arrive)

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """A signal that arrives in here, or came before, raises KeyboardInterrupt at once."""
        self._waiting = True
        try:
            if self._asked:
                raise KeyboardInterrupt
            yield
        finally:
            self._waiting = False

    def _arrive(self, _signal: int, _frame: FrameType | None) -> None:
        self._asked = True
        if self._waiting:
            self._waiting = False  # only once: what follows is saving
            raise KeyboardInterrupt


class InterruptibleExecutor:
    """An executor whose `wait` is interrupted by signals; all else is passed on."""

    def __init__(self, executor: Executor, signals: Signals) -> None:
        self._executor, self._signals = executor, signals

    @property
    def workers(self) -> int:
        """The number of workers now."""
        return self._executor.workers

    @property
    def slots(self) -> int:
        """How many more jobs it would take now."""
        return self._executor.slots

    def share(self, shared: Shared) -> None:
        """Make a value available to all workers."""
        self._executor.share(shared)

    def submit(self, job: Job) -> None:
        """Hand a job to the executor."""
        self._executor.submit(job)

    def wait(self) -> list[Result]:
        """Block until a job is finished.

        Raises:
            KeyboardInterrupt: a signal came, now or earlier.
        """
        with self._signals.waiting():
            return self._executor.wait()

    def report(self) -> Metrics:
        """Metrics of the workers since the last call."""
        return self._executor.report()

    def close(self) -> None:
        """Stop all workers."""
        self._executor.close()
