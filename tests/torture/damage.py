"""Flipped bits, cut, missing and exchanged files: the same hash, or a message that names what is wrong."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np

from tests.runs.tools import in_process
from tests.torture.runs import EXACT, WHOLE, check_ending, final_hash, reference

KINDS = ("flip", "cut", "empty", "delete", "swap", "append")


def damage(rng: np.random.Generator, file: Path, other: Path) -> str:
    """Do something to a file; `other` is its counterpart in another run."""
    kind = str(rng.choice(KINDS))
    content = bytearray(file.read_bytes())
    if kind == "flip" and content:
        content[int(rng.integers(len(content)))] ^= 1 << int(rng.integers(8))
    elif kind == "cut":
        del content[int(rng.integers(len(content) + 1)) :]
    elif kind == "empty":
        content.clear()
    elif kind == "append":
        content += bytes(rng.integers(0, 256, int(rng.integers(1, 100)), dtype=np.uint8))
    file.write_bytes(content)
    if kind == "delete":
        file.unlink()
    elif kind == "swap" and other.is_file():
        shutil.copy(other, file)
    return f"{kind} {file.parent.name}/{file.name}"


def damaged_run(rng: np.random.Generator, scratch: Path, references: Path) -> str:
    """A paused run, damaged and resumed."""
    algorithm = str(rng.choice(EXACT))
    paused, expected = reference(algorithm, 1, references)
    other, _ = reference(algorithm, 2, references)
    run = Path(shutil.copytree(paused, scratch / "run"))
    files = sorted(p for p in run.rglob("*") if p.is_file())
    chosen = [files[n] for n in rng.choice(len(files), int(rng.integers(1, 4)), replace=False)]
    done_to = [damage(rng, file, other / file.relative_to(run)) for file in chosen]
    for command in (("show", run), ("timeline", run), ("compare", run), ("evaluate", run, "--episodes", 1)):
        check_ending(in_process(*command))
    done = in_process("resume", run, "-m", f"stop.generations={WHOLE}")
    check_ending(done)
    edited = "was edited" in done.stderr  # a config without a checkpoint that knows better
    if done.returncode == 0 and not edited:
        assert final_hash(done) == expected, f"{algorithm} after {done_to}: {done.stderr}"
    ending = "refused" if done.returncode else "edited config" if edited else "warned" if "warning" in done.stderr else "unharmed"
    return f"{algorithm} {ending}: {', '.join(done_to)}"
