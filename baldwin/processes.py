"""How worker processes are started: from a server that has imported what they need, deaf to Ctrl-C, one thread each.

It imports nothing heavy, so that a command can start the server first and import torch beside it.
"""

from __future__ import annotations

import contextlib
import multiprocessing as mp
import os
import signal
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from importlib.abc import SourceLoader
from multiprocessing import forkserver, resource_tracker
from types import ModuleType
from typing import Any, NamedTuple, TypeVar

T = TypeVar("T")

LEARNER_NICENESS = 5  # beside a live world
WORKER_MODULE = "baldwin.rollout.worker"
VARIABLES = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "PYTHONSAFEPATH"), "1")
"""One thread for BLAS; and no import of what happens to lie in the working directory."""


_importing_script = False


class Script(NamedTuple):
    """The user's program, which may register environments that workers need."""

    path: str
    package: str | None  # of a module that was started by `python -m`
    source: bytes  # as it was when it started: somebody may edit the file meanwhile


class RunInScript(BaseException):
    """Ends the import of a script in a worker process, at the line where it starts a run."""


class _ScriptLoader(SourceLoader):
    def __init__(self, script: Script) -> None:
        self._script = script

    def get_filename(self, fullname: str) -> str:
        return self._script.path

    def get_data(self, path: str | bytes) -> bytes:
        return self._script.source


@cache
def user_script() -> Script | None:
    """The script of this process; none in a notebook, on standard input, of `python -m` of a package, or of the command `baldwin`."""
    main = sys.modules["__main__"]
    path, spec = getattr(main, "__file__", None), getattr(main, "__spec__", None)
    of_package = spec is not None and spec.name.rpartition(".")[2] == "__main__"
    if path is None or not os.path.isfile(path) or of_package or os.path.basename(path) == "baldwin":
        return None
    with open(path, "rb") as file:
        return Script(os.path.abspath(path), spec.parent if spec else None, file.read())


def import_script(script: Script | None) -> None:
    """Let this worker process know what the user's script defines and registers, up to where it starts a run.

    multiprocessing would go on from there, so that a script without `if __name__ == "__main__"` starts its run in every worker.
    """
    global _importing_script
    if script is None:
        return
    module = ModuleType("__mp_main__")
    module.__file__, module.__package__ = script.path, script.package
    sys.modules["__main__"] = sys.modules["__mp_main__"] = module
    _importing_script = True
    try:
        with contextlib.suppress(RunInScript, SystemExit):
            _ScriptLoader(script).exec_module(module)
    finally:
        _importing_script = False


def leave_script_in_worker() -> None:
    """Called where runs and worker processes are started.

    Raises:
        RunInScript: this process is a worker that is importing the user's script.
    """
    if _importing_script:
        raise RunInScript


def worker_context(preload: str = WORKER_MODULE) -> Any:
    """Where to make worker processes: they fork from a clean server with this module, quick to replace, and no inherited locks.

    One server serves all executors of this process, so it has what a run's workers need whoever starts it.
    """
    if sys.platform == "linux":
        context = mp.get_context("forkserver")
        context.set_forkserver_preload([WORKER_MODULE, preload])
        return context
    return mp.get_context("spawn")


def start_server() -> None:
    """Let the server import what workers need from now on; where it cannot be started, workers will say so."""
    if sys.platform == "linux" and len(os.sched_getaffinity(0)) > 1:
        worker_context()
        with contextlib.suppress(OSError), worker_environment():
            forkserver.ensure_running()


def lower_priority() -> None:
    """Lower the priority of this process, which learns, but not of its workers: a live world may share the machine, and does not wait.

    On Linux it is that of the calling thread, and of threads and processes that it starts.
    """
    if hasattr(os, "nice"):
        os.nice(max(0, LEARNER_NICENESS - os.nice(0)))


def call_at_lower_priority(work: Callable[[], T]) -> T:
    """What `work` returns, in a thread of lower priority: a worker that learns now may play again later, and nobody can raise a priority."""
    with ThreadPoolExecutor(1, initializer=lower_priority) as thread:
        return thread.submit(work).result()


@contextlib.contextmanager
def _main_is_hidden() -> Iterator[None]:
    """multiprocessing does not see which script this is, and imports none."""
    main = sys.modules["__main__"]
    before: dict[str, Any] = {name: main.__dict__.pop(name) for name in ("__file__", "__spec__") if name in main.__dict__}
    main.__spec__ = None
    try:
        yield
    finally:
        main.__dict__.update(before)


@contextlib.contextmanager
def worker_environment() -> Iterator[None]:
    """Processes started in here have these variables, import no script, and never get Ctrl-C: only the parent shall act on it.

    The signal mask is inherited. For the parent itself, a signal that comes meanwhile stays pending.
    """
    before = {name: os.environ.get(name) for name in VARIABLES}
    os.environ.update(VARIABLES)
    try:
        resource_tracker.ensure_running()  # when it starts, it unblocks the signal
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            with _main_is_hidden():
                yield
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
