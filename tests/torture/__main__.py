"""python -m tests.torture [--minutes M] [--seed S] [--only NAME ...]: scenarios one after the other until the time is up.

Each has a seed of its own; a failure prints the line that repeats it, and its files are kept: times are part of a journal, so
that a repeated scenario may damage another byte.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
import time
import traceback
from collections import Counter
from pathlib import Path

import numpy as np

from tests.torture.configs import mutated_config
from tests.torture.damage import damaged_run
from tests.torture.kills import killed_run
from tests.torture.worlds import misbehaving_world

SCENARIOS = {"kills": killed_run, "damage": damaged_run, "configs": mutated_config, "worlds": misbehaving_world}
ORDER = ["kills", *["damage"] * 4, *["configs"] * 8, "worlds"]
"""How often each comes in turn: a run that is killed takes as long as dozens of configs."""


def play(name: str, seed: int, folder: Path) -> tuple[bool, str]:
    """Whether a scenario held, and what it did or what went wrong."""
    scratch = folder / "scenario"
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir()
    try:
        return True, SCENARIOS[name](np.random.default_rng(seed), scratch, folder / "references")
    except Exception:
        return False, traceback.format_exc(limit=4)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.torture", description=__doc__)
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--seed", type=int, default=1, help="of the first scenario; with --repeat, of the one to repeat")
    parser.add_argument("--only", nargs="+", choices=SCENARIOS, default=list(SCENARIOS))
    parser.add_argument("--repeat", action="store_true", help="one scenario and no more")
    args = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="torture-"))
    os.environ["XDG_CONFIG_HOME"] = str(folder / "config")
    order = [name for name in ORDER if name in args.only]
    end, seed = time.monotonic() + 60 * args.minutes, args.seed
    counts: Counter[str] = Counter()
    failures: list[str] = []
    while time.monotonic() < end or args.repeat:
        name = order[(seed - args.seed) % len(order)]
        started = time.monotonic()
        held, text = play(name, seed, folder)
        counts[f"{name}: {text.partition(':')[0]}" if held else f"{name}: FAILED"] += 1
        print(f"{name} {seed}: {text} ({time.monotonic() - started:.1f} s)", flush=True)
        if not held:
            failures.append(f"python -m tests.torture --repeat --only {name} --seed {seed}")
            kept = (folder / "scenario").rename(folder / f"failed-{name}-{seed}")
            print(f"repeat it: {failures[-1]}\nits files: {kept}", flush=True)
        if args.repeat:
            break
        seed += 1
    if not failures:
        shutil.rmtree(folder, ignore_errors=True)
    print("\n" + "\n".join(f"{count:6} {what}" for what, count in sorted(counts.items())))
    print("\n".join(["", *failures]) if failures else "")
    print(f"{sum(counts.values()) - len(failures)} passed, {len(failures)} failed")
    return bool(failures)


if __name__ == "__main__":
    sys.exit(main())
