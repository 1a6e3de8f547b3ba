"""Populations without training: outcomes that are made up, and simulated workers."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from baldwin.populations.member import RETURNS, STATE_HASH, TrainMember
from baldwin.populations.population import Population
from baldwin.rollout import RESULT
from baldwin.types import Outcome


def state_name(ticket: int) -> str:
    """The state that the round of this ticket has made."""
    return f"{ticket + 1:064x}"


def trained(job: TrainMember, returns: Sequence[float], results: Mapping[str, float] | None = None) -> Outcome:
    """What comes of a round: the returns of its evaluation, and what the environment told."""
    arrays = {
        STATE_HASH: np.frombuffer(bytes.fromhex(state_name(job.ticket)), np.uint8),
        RETURNS: np.array(returns),
        **{RESULT + name: np.array([value]) for name, value in (results or {}).items()},
    }
    return Outcome(job.ticket, float(np.mean(returns)), env_steps=1, arrays=arrays)


def ask_all(population: Population) -> list[TrainMember]:
    """A job for each of as many workers as can be busy."""
    return [job for job in population.ask(99) if isinstance(job, TrainMember)]


@dataclass(frozen=True)
class Round:
    """A round of training, and when a simulated worker was busy with it."""

    job: TrainMember
    worker: int
    started: float
    finished: float


def simulate(population: Population, outcome_of: Callable[[TrainMember], Outcome], workers: int, rounds: int) -> list[Round]:
    """So many rounds of unequal length, in the order of their ends. An idle worker asks again whenever a result has come."""
    rng, now, idle, ended = np.random.default_rng(0), 0.0, list(range(workers)), []
    running: list[tuple[float, int, Round]] = []
    while len(ended) < rounds:
        for job in population.ask(len(idle)):
            assert isinstance(job, TrainMember)
            found = Round(job, idle.pop(0), now, now + rng.lognormal())
            heapq.heappush(running, (found.finished, job.ticket, found))
        now, _, found = heapq.heappop(running)
        population.tell([outcome_of(found.job)])
        idle.append(found.worker)
        ended.append(found)
    return ended


def pauses(rounds: Sequence[Round]) -> list[tuple[float, float]]:
    """When a worker was idle between two of its rounds: from when to when."""
    by_start = sorted(rounds, key=lambda r: r.started)
    ends: dict[int, float] = {}
    found = []
    for r in by_start:
        if ends.get(r.worker, r.started) < r.started:
            found.append((ends[r.worker], r.started))
        ends[r.worker] = r.finished
    return found
