"""Whose child is whose."""

from __future__ import annotations

import os
from pathlib import Path


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
