"""Measuring: repeated, interleaved, reported as medians with their spread."""

from __future__ import annotations

import multiprocessing as mp
import statistics
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

HERE = Path(__file__).parent


def spread(values: Sequence[float], digits: int = 0) -> str:
    """median [min .. max]"""
    return f"{statistics.median(values):,.{digits}f} [{min(values):,.{digits}f} .. {max(values):,.{digits}f}]"


def peer_python(name: str, packages: Sequence[str]) -> Path:
    """The interpreter of a peer's own venv, made when first needed, and completed when other packages are."""
    home = HERE / f".venv-{name}"
    python, installed, wanted = home / "bin" / "python", home / "packages.txt", "\n".join(packages)
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", str(home)], check=True)
    if not installed.exists() or installed.read_text() != wanted:
        print(f"installing {packages[0]} into its own venv ...", file=sys.stderr)
        subprocess.run([str(python), "-m", "pip", "install", "-q", *packages], check=True, stdout=sys.stderr)
        installed.write_text(wanted)
    return python


def in_processes(work: Callable[..., float], count: int, *args: object) -> float:
    """The sum of what `work` returns in `count` fresh processes at the same time."""
    with mp.get_context("spawn").Pool(count) as pool:
        return sum(pool.starmap(work, [args] * count))


def table(title: str, head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    print(f"\n### {title}\n")
    print("| " + " | ".join(head) + " |")
    print("|" + "---|" * len(head))
    for row in rows:
        print("| " + " | ".join(row) + " |")
    print(flush=True)
