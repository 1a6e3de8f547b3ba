"""The loop that drives every algorithm. It knows no logger and no clock; whoever iterates over it may stop at any event."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from baldwin.errors import Stalled
from baldwin.runs.checkpoint import require_finite
from baldwin.types import Algorithm, Executor, Job, Metrics, Result


@dataclass(frozen=True, slots=True)
class Asked:
    """The algorithm was asked for up to n jobs, and gave some."""

    n: int


@dataclass(frozen=True, slots=True)
class Told:
    """A job came back and was told; metrics if that completed an update."""

    result: Result
    metrics: Metrics | None


@dataclass(frozen=True, slots=True)
class Evaluated:
    """The greedy policy of this version was played on held-out seeds."""

    version: int
    results: list[Result]


Event = Asked | Told | Evaluated
Evaluation = Callable[[Algorithm], Sequence[Job]]


def loop(algorithm: Algorithm, executor: Executor, evaluation: Evaluation | None = None) -> Iterator[Event]:
    """Ask, run, tell, for as long as someone iterates.

    Before the algorithm is asked on a version whose evaluation is due, that evaluation is played to its end: what a score
    decides (stop or go on) is then decided at the same parameters whatever the number of workers.
    """
    arrived: deque[Result] = deque()
    while True:
        publish(algorithm, executor)
        due = evaluation(algorithm) if evaluation else ()
        if due:
            yield evaluate(algorithm, executor, due, arrived)
            continue
        slots = executor.slots
        jobs = algorithm.ask(slots)
        for job in jobs:
            executor.submit(job)
        if jobs:
            yield Asked(slots)
        arrived.extend(() if arrived else executor.wait())
        if not arrived:
            raise Stalled("nothing is in flight and the algorithm asks for nothing")
        result = arrived.popleft()  # one at a time: the jobs that it sets free are submitted before the next result is processed
        yield Told(result, algorithm.tell(result.outcomes))


def publish(algorithm: Algorithm, executor: Executor) -> None:
    """Share what workers need and do not have yet.

    Raises:
        Diverged: some of it is not finite.
    """
    for shared in algorithm.publish():
        require_finite(shared.arrays, f"version {shared.version}")
        executor.share(shared)


def evaluate(algorithm: Algorithm, executor: Executor, jobs: Sequence[Job], arrived: deque[Result]) -> Evaluated:
    """Run these jobs to the end. Other results that arrive meanwhile are put into `arrived`: nothing is learned during an evaluation."""
    version, waiting = algorithm.version, list(jobs)
    place = {id(job): n for n, job in enumerate(jobs)}
    done: list[Result] = []
    while len(done) < len(jobs):
        while waiting and executor.slots > 0:
            executor.submit(waiting.pop(0))
        for result in executor.wait():
            (done if id(result.job) in place else arrived).append(result)
    return Evaluated(version, sorted(done, key=lambda r: place[id(r.job)]))
