"""Small runs of every exact algorithm, their undisturbed ends, and how a command may end."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from subprocess import CompletedProcess

from baldwin.config import RunConfig, load_config
from baldwin.runs.resume import resume
from baldwin.runs.run import start, train
from tests.populations import test_populations
from tests.runs import test_hybrid_runs, test_learner_runs, test_sees_and_remembers
from tests.runs.tools import small

SEEING = ("lstm", "virtual-batch", "sac-images")
POPULATIONS = ("pbt", "nsga2", "genetic", "evolver")
EXACT = ("es", "cem", "sep-cma-es", "td3", "sac", "cem-rl", "p-cem-rl", *SEEING, *POPULATIONS)
"""Algorithms and populations whose hash does not depend on the order of arrival, and policies with memory and images."""
PAUSED, WHOLE = 3, 6  # generations


def config_of(algorithm: str, generations: int, *overrides: str) -> RunConfig:
    """A run of a few seconds."""
    options = [f"stop.generations={generations}", "stop.env_steps=null", "run.checkpoint_every=1", *overrides]
    if algorithm in SEEING:
        return load_config(None, [], [*test_sees_and_remembers.options_of(algorithm), *options])
    if algorithm in POPULATIONS:
        return test_populations.small(algorithm, *options)
    if algorithm in test_learner_runs.KINDS:
        return test_learner_runs.small(algorithm, *options)
    if algorithm in test_hybrid_runs.KINDS:
        return test_hybrid_runs.small(algorithm, *options)
    return small("Hopper-v5", f"algorithm.name={algorithm}", *options)


def verb(algorithm: str) -> str:
    """The command that begins a run."""
    return "evolve" if algorithm in POPULATIONS else "train"


def reference(algorithm: str, seed: int, folder: Path) -> tuple[Path, str]:
    """A paused run, and the hash that it has when it is continued undisturbed; made once."""
    paused = folder / f"{algorithm}-s{seed}"
    if not (paused / "hash").exists():
        shutil.rmtree(paused, ignore_errors=True)
        train(start(config_of(algorithm, PAUSED, f"run.seed={seed}"), paused / "run"))
        shutil.copytree(paused / "run", paused / "whole")
        run, _ = resume(paused / "whole", [f"stop.generations={WHOLE}"])
        train(run)
        (paused / "hash").write_text(run.params_sha256())
    return paused / "run", (paused / "hash").read_text()


def final_hash(done: CompletedProcess[str]) -> str:
    found = re.search(r"^params_sha256 (\w+)$", done.stdout, re.MULTILINE)
    assert found, done.stdout + done.stderr
    return found[1]


def check_ending(done: CompletedProcess[str]) -> None:
    """Done, or a message: never a traceback, a signal, or an empty word."""
    assert done.returncode in (0, 1, 2), f"exit code {done.returncode}: {done.stderr[-2000:]}"
    assert "Traceback" not in done.stderr, done.stderr[-3000:]
    assert done.returncode == 0 or "error: " in done.stderr.lower(), done.stderr[-2000:]
