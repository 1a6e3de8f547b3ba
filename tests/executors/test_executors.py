"""All executors keep the same promises; the process executor also survives its workers."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from baldwin.errors import BaldwinError
from baldwin.executors import ExecutorConfig, ProcessExecutor, VirtualExecutor, make_executor, process
from baldwin.executors.config import DeadlinePassed, deadline
from baldwin.executors.streams import StreamOwners
from baldwin.ops.noise import Noise
from baldwin.types import CENTER, Executor, Perturbation, Result, Shared, Trial
from tests.patience import wait_until
from tests.toys.sphere import Misbehaving, SphereJob, SphereWorker

ALL = [("inline", 1), ("virtual", 3), ("process", 2), ("ray", 1)]
CENTER_ARRAYS = {"params": np.zeros(4, np.float32), "obs_moments": np.zeros(3)}


def job(ticket: int) -> SphereJob:
    return SphereJob(Trial(ticket, 0, Perturbation(Noise((1, 1), ((4,),)), 0, ticket, 0.1)))


def drain(executor: Executor, jobs: list) -> list[Result]:  # type: ignore[type-arg]
    waiting, results = list(jobs), []
    while waiting or len(results) < len(jobs):
        while waiting and executor.slots:
            executor.submit(waiting.pop(0))
        results += executor.wait()
    return results


@pytest.mark.parametrize(("name", "workers"), ALL)
def test_every_job_comes_back_once(name: str, workers: int) -> None:
    executor = make_executor(ExecutorConfig(name=name, workers=workers), SphereWorker)  # type: ignore[arg-type]
    try:
        executor.share(Shared(CENTER, 0, CENTER_ARRAYS, 0))
        results = drain(executor, [job(n) for n in range(20)])
        assert sorted(o.ticket for r in results for o in r.outcomes) == list(range(20))
        assert executor.wait() == []
        assert executor.slots >= 1
    finally:
        executor.close()


@pytest.mark.parametrize(("name", "workers"), ALL)
def test_what_is_shared_later_is_used_later(name: str, workers: int) -> None:
    executor = make_executor(ExecutorConfig(name=name, workers=workers), SphereWorker)  # type: ignore[arg-type]
    try:
        executor.share(Shared(CENTER, 0, CENTER_ARRAYS, 0))
        far = drain(executor, [job(n) for n in range(4)])
        executor.share(Shared(CENTER, 1, CENTER_ARRAYS | {"params": np.full(4, 3.0, np.float32)}, 1))
        near = drain(executor, [job(n) for n in range(4)])
        assert max(o.fitness for r in far for o in r.outcomes) < min(o.fitness for r in near for o in r.outcomes)
    finally:
        executor.close()


def test_a_worker_gets_only_the_newest_of_what_was_shared_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    sent, send = [], process._send
    monkeypatch.setattr(process, "_send", lambda slot, kind, content: (sent.append((kind, content)), send(slot, kind, content)))
    executor = make_executor(ExecutorConfig(name="process", workers=1), SphereWorker)
    try:
        for version in range(5):
            executor.share(Shared(CENTER, version, CENTER_ARRAYS, version))
        drain(executor, [job(n) for n in range(3)])
        assert [content.version for kind, content in sent if kind == "share"] == [4]
    finally:
        executor.close()


@pytest.mark.parametrize(("name", "workers"), ALL)
def test_a_job_that_raises_gives_failed_outcomes_with_the_reason(name: str, workers: int, tmp_path: Path) -> None:
    executor = make_executor(ExecutorConfig(name=name, workers=workers), SphereWorker)  # type: ignore[arg-type]
    try:
        (result,) = drain(executor, [Misbehaving("raise", 9, tmp_path)])
        assert result.outcomes[0].failed
        assert result.outcomes[0].reason == "RuntimeError: no luck today"
    finally:
        executor.close()


def test_a_killed_worker_is_replaced_and_its_job_done_elsewhere(tmp_path: Path) -> None:
    executor = ProcessExecutor(SphereWorker, ExecutorConfig(workers=2))
    try:
        executor.share(Shared(CENTER, 0, CENTER_ARRAYS, 0))
        results = drain(executor, [Misbehaving("die", 2, tmp_path, 100), *(job(n) for n in range(6))])
        assert not any(o.failed for r in results for o in r.outcomes)
        assert executor.deaths == 2
    finally:
        executor.close()


def test_a_job_that_kills_every_worker_is_given_up_and_the_rest_goes_on(tmp_path: Path) -> None:
    executor = ProcessExecutor(SphereWorker, ExecutorConfig(workers=2, retries=1))
    try:
        executor.share(Shared(CENTER, 0, CENTER_ARRAYS, 0))
        results = drain(executor, [Misbehaving("die", 99, tmp_path, 100), *(job(n) for n in range(6))])
        (bad,) = [o for r in results for o in r.outcomes if o.failed]
        assert bad.ticket == 100
        assert "worker process died (exit code -9), 2 times" in bad.reason
        assert len(results) == 7
    finally:
        executor.close()


def test_a_hung_job_is_ended_by_its_deadline(tmp_path: Path) -> None:
    executor = ProcessExecutor(SphereWorker, ExecutorConfig(workers=1, timeout=1.0, retries=1))
    try:
        results = drain(executor, [Misbehaving("hang", 1, tmp_path, 1), Misbehaving("hang", 99, tmp_path, 2)])
        reasons = {o.ticket: o.reason for r in results for o in r.outcomes}
        assert reasons[1] == ""  # hung once, done elsewhere
        assert "longer than executor.timeout=1 s (an episode that never ends needs env.max_episode_steps), 2 times" in reasons[2]
    finally:
        executor.close()


def test_inline_has_a_deadline_too(tmp_path: Path) -> None:
    executor = make_executor(ExecutorConfig(name="inline", timeout=0.3), SphereWorker)
    (result,) = drain(executor, [Misbehaving("hang", 9, tmp_path)])
    assert "executor.timeout=0.3 s" in result.outcomes[0].reason


ORPHANS = """
import sys, time
from pathlib import Path
from baldwin.executors import ExecutorConfig, ProcessExecutor
from tests.toys.sphere import Misbehaving, SphereWorker
if __name__ == "__main__":
    executor = ProcessExecutor(SphereWorker, ExecutorConfig(workers=1))
    executor.submit(Misbehaving("hang", 9, Path(sys.argv[1])))
    executor.wait()
"""


def test_a_hung_worker_does_not_outlive_its_parent(tmp_path: Path) -> None:
    process = subprocess.Popen([sys.executable, "-c", ORPHANS, str(tmp_path)])
    wait_until(lambda: any(p.read_text() for p in tmp_path.glob("0-*")))
    worker = int(next(tmp_path.glob("0-*")).read_text())
    process.kill()
    process.wait()
    wait_until(lambda: not Path(f"/proc/{worker}").exists())
    assert not Path(f"/proc/{worker}").exists()


def broken_worker() -> SphereWorker:
    raise RuntimeError("no simulator here")


def test_a_worker_that_cannot_be_made_is_an_error_at_once() -> None:
    executor = ProcessExecutor(broken_worker, ExecutorConfig(workers=1))
    try:
        executor.submit(job(0))
        with pytest.raises(BaldwinError, match="no simulator here"):
            executor.wait()
    finally:
        executor.close()


def test_shared_memory_is_given_back() -> None:
    executor = ProcessExecutor(SphereWorker, ExecutorConfig(workers=3))
    seen: set[str] = set()
    executor.share(Shared(CENTER, 0, CENTER_ARRAYS, 0))
    try:
        drain(executor, [job(0), job(1), job(2)])  # all are up
        for version in range(20):
            executor.share(Shared(CENTER, version, CENTER_ARRAYS, version))
            seen |= {s.memory for s in executor._shared.kept}
            drain(executor, [job(0), job(1)])  # one worker stays idle, and must not hold the others' memory back
        assert len(executor._shared.dropped) < 5
    finally:
        executor.close()
    assert len(seen) == 20
    assert not seen & set(os.listdir("/dev/shm"))


def test_virtual_time_is_that_of_the_cost_model() -> None:
    config = ExecutorConfig(name="virtual", workers=2, latency=1.0, step_seconds=0.5, jitter=0.0)
    executor = VirtualExecutor(SphereWorker, config)
    executor.share(Shared(CENTER, 0, CENTER_ARRAYS, 0))
    results = drain(executor, [job(n) for n in range(3)])  # 1, 2 and 3 steps: 1.5 s, 2 s, 2.5 s on two workers
    assert [r.finished for r in results] == [1.5, 2.0, 4.0]
    assert executor.now == 4.0


def test_virtual_arrival_order_is_a_function_of_its_seed() -> None:
    def order(seed: int) -> list[int]:
        executor = VirtualExecutor(SphereWorker, ExecutorConfig(name="virtual", workers=8, jitter=1.0, seed=seed))
        executor.share(Shared(CENTER, 0, CENTER_ARRAYS, 0))
        return [r.outcomes[0].ticket for r in drain(executor, [job(n) for n in range(30)])]

    assert order(0) == order(0) != order(1)


def test_a_hung_worker_is_noticed_however_much_is_shared_meanwhile(tmp_path: Path) -> None:
    """A pipe holds a few hundred messages, and a busy worker reads none: the driver must not wait for it."""
    executor = ProcessExecutor(SphereWorker, ExecutorConfig(workers=2, timeout=3.0, retries=0))
    try:
        executor.share(Shared(CENTER, 0, CENTER_ARRAYS, 0))
        executor.submit(Misbehaving("hang", 1, tmp_path, 100))
        for version in range(1, 1000):
            executor.share(Shared(CENTER, version, CENTER_ARRAYS, version))
        assert len(executor._shared.kept) + len(executor._shared.dropped) < 5
        (result,) = executor.wait()
        assert "longer than executor.timeout=3 s" in result.outcomes[0].reason
    finally:
        executor.close()


@dataclass(frozen=True)
class OfStream:
    stream: int | None


def test_streams_are_spread_over_workers_that_start_one_after_the_other() -> None:
    patient = StreamOwners()
    assert [patient.choose(OfStream(s), [0], [0], starting=True) for s in (0, 1)] == [0, None]  # type: ignore[arg-type]
    assert patient.choose(OfStream(1), [1], [0, 1]) == 1  # type: ignore[arg-type]
    owners = StreamOwners()
    assert [owners.choose(OfStream(s), [0], [0]) for s in (0, 1)] == [0, 0]  # type: ignore[arg-type]
    assert owners.choose(OfStream(1), [1], [0, 1]) == 1  # type: ignore[arg-type]  # its owner is busy and has another
    assert owners.choose(OfStream(0), [1], [0, 1]) is None  # type: ignore[arg-type]  # now everyone has one
    assert owners.waits_for(OfStream(0), [0, 1]) == 0  # type: ignore[arg-type]
    assert owners.choose(OfStream(0), [1], [1]) == 1  # type: ignore[arg-type]  # its owner died
    assert owners.choose(OfStream(None), [1, 2], [1, 2]) == 2  # type: ignore[arg-type]  # who owns none keeps none waiting
    assert owners.choose(OfStream(None), [1], [1, 2]) == 1  # type: ignore[arg-type]


def test_deadlines_nest() -> None:
    def work() -> None:
        begun = time.monotonic()
        with deadline(60, "the inner"):
            pass
        while time.monotonic() - begun < 30:
            pass

    with pytest.raises(DeadlinePassed, match="the outer"), deadline(0.3, "the outer"):
        work()


def test_executors_are_imported_without_torch() -> None:
    """Ray starts a process for every actor: with torch it would take three times as long."""
    code = "import sys, baldwin.executors; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
