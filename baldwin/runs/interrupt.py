"""Ctrl-C takes effect only when nothing is half written."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from baldwin.types import Executor, Job, Metrics, Result, Shared


class Interruptible:
    """An executor whose `wait` is interrupted by SIGINT and SIGTERM; a signal at any other time takes effect at the next `wait`."""

    def __init__(self, executor: Executor) -> None:
        self._executor = executor
        self._waiting = self._asked = False

    @property
    def workers(self) -> int:
        """As the executor says."""
        return self._executor.workers

    @property
    def slots(self) -> int:
        """As the executor says."""
        return self._executor.slots

    def share(self, shared: Shared) -> None:
        """As the executor does."""
        self._executor.share(shared)

    def submit(self, job: Job) -> None:
        """As the executor does."""
        self._executor.submit(job)

    def wait(self) -> list[Result]:
        """As the executor does, or KeyboardInterrupt."""
        self._waiting = True
        try:
            if self._asked:
                raise KeyboardInterrupt
            return self._executor.wait()
        finally:
            self._waiting = False

    def report(self) -> Metrics:
        """As the executor does."""
        return self._executor.report()

    def close(self) -> None:
        """As the executor does."""
        self._executor.close()

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Handle the signals in here; only the main thread can."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return

        def stop(_signal: int, _frame: FrameType | None) -> None:
            self._asked = True
            if self._waiting:
                raise KeyboardInterrupt

        before = {s: signal.signal(s, stop) for s in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
