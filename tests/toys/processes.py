"""Whose child is whose, and command lines in processes of their own."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from multiprocessing.process import BaseProcess
from pathlib import Path

from baldwin.processes import worker_context, worker_environment


def start_command(args: Sequence[str]) -> BaseProcess:
    """`baldwin` with these arguments in another process, which forks from a server that has imported torch: a new Python takes seconds."""
    process: BaseProcess = worker_context().Process(target=_run_command, args=(list(args),))
    with worker_environment():
        process.start()
    return process


def _run_command(args: list[str]) -> None:
    from baldwin.cli.main import main

    sys.argv = ["baldwin", *args]
    sys.stdout = sys.stderr = open(os.devnull, "w")  # noqa: SIM115 - until it ends
    main()


def descendants() -> dict[int, int]:
    """All processes below this one, and the parent of each."""
    parents = {}
    for process in Path("/proc").iterdir():
        if process.name.isdigit():
            try:
                parents[int(process.name)] = int((process / "stat").read_text().rpartition(")")[2].split()[1])
            except OSError:
                continue

    def below(pid: int) -> bool:
        while pid in parents:
            pid = parents[pid]
            if pid == os.getpid():
                return True
        return False

    return {pid: parent for pid, parent in parents.items() if below(pid)}


def command(pid: int) -> str:
    """How it calls itself."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_text()
    except OSError:
        return ""
