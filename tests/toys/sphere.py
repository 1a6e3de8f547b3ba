"""A world without episodes: the fitness of a vector is its distance to three, plus a little noise of its own."""

from __future__ import annotations

import hashlib
import os
import signal
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from baldwin.ops import seeds
from baldwin.types import CENTER, Arrays, Outcome, Perturbation, Shared, Trial

TARGET = 3.0


def vector(trial: Trial, center: np.ndarray) -> np.ndarray:
    if not isinstance(trial.params, Perturbation):
        return trial.params
    p = trial.params
    return center + p.scale * p.noise.expand(p.noise.draw(p.generation, p.pair)[None])[0]


class SphereWorker:
    def __init__(self) -> None:
        self.center = np.zeros(0)

    def receive(self, shared: Shared) -> None:
        if shared.key == CENTER:
            self.center = shared.arrays["params"]

    def shared(self, key: str, version: int) -> Arrays:
        return {"params": self.center}

    def fingerprint(self, held: Sequence[tuple[str, int]]) -> dict[str, str]:
        return {"center": hashlib.sha256(np.ascontiguousarray(self.center).data).hexdigest()}

    def evaluate(self, trials: Sequence[Trial], spec: Any) -> list[Outcome]:
        return [self.one(t) for t in trials]

    def one(self, trial: Trial) -> Outcome:
        noise = 0.01 * float(seeds.generator(7, trial.id).normal())
        value = noise - float(np.square(vector(trial, self.center) - TARGET).sum())
        return Outcome(trial.id, value, env_steps=1 + trial.id % 5)

    def close(self) -> None: ...


@dataclass(frozen=True)
class SphereJob:
    """One trial. A worker that unpickles it imports no torch, which would take longer than all else that it does."""

    trial: Trial
    kind: str = "train"
    stream: int | None = None

    @property
    def tickets(self) -> tuple[int, ...]:
        return (self.trial.id,)

    def run(self, worker: SphereWorker) -> list[Outcome]:
        return worker.evaluate((self.trial,), None)


@dataclass(frozen=True)
class Misbehaving:
    """A job that kills, hangs or raises in its worker until a file says that it did so often enough."""

    how: str
    times: int
    marks: Path
    ticket: int = 0
    stream: int | None = None

    @property
    def tickets(self) -> tuple[int, ...]:
        return (self.ticket,)

    def run(self, worker: SphereWorker) -> list[Outcome]:
        done = len(list(self.marks.glob(f"{self.ticket}-*")))
        if done < self.times:
            (self.marks / f"{self.ticket}-{done}").write_text(str(os.getpid()))
            if self.how == "die":
                os.kill(os.getpid(), signal.SIGKILL)
            if self.how == "hang":
                time.sleep(60)
            raise RuntimeError("no luck today")
        return [Outcome(self.ticket, 1.0)]
