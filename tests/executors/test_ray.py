"""Against a real Ray: what can go wrong between a driver and its workers, and that it changes nothing."""

from __future__ import annotations

import ctypes
import logging
import os
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from baldwin.errors import BaldwinError, MissingExtra, UserError
from baldwin.executors import ExecutorConfig, InlineExecutor, RayExecutor
from baldwin.executors.cluster import cluster_state, connect
from baldwin.executors.ray_worker import payload
from baldwin.types import CENTER, Arrays, Outcome, Result, Shared
from tests.executors.test_executors import CENTER_ARRAYS, broken_worker, drain, job
from tests.patience import wait_until
from tests.toys.processes import descendants
from tests.toys.sphere import Misbehaving, SphereWorker

pytestmark = pytest.mark.usefixtures("local_ray")
Make = Callable[..., RayExecutor]


@pytest.fixture
def ray_with() -> Iterator[Make]:
    made: list[RayExecutor] = []

    def make(workers: int = 1, worker: object = SphereWorker, **options: object) -> RayExecutor:
        made.append(RayExecutor(worker, ExecutorConfig(name="ray", workers=workers, **options)))  # type: ignore[arg-type]
        return made[-1]

    yield make
    for executor in made:
        executor.close()


def center(value: float) -> Arrays:
    return CENTER_ARRAYS | {"params": np.full(4, value, np.float32)}


def fitness(results: list[Result]) -> dict[int, float]:
    assert len({o.ticket for r in results for o in r.outcomes}) == sum(len(r.outcomes) for r in results), "a ticket came back twice"
    return {o.ticket: o.fitness for r in results for o in r.outcomes}


def expected(value: float, tickets: range) -> dict[int, float]:
    inline = InlineExecutor(SphereWorker)
    inline.share(Shared(CENTER, 0, center(value), 0))
    return fitness(drain(inline, [job(n) for n in tickets]))


def all_ready(executor: RayExecutor, count: int) -> None:
    """Let workers say hello; the executor listens only while it waits."""

    def ready() -> bool:
        drain(executor, [job(10**6)])
        return sum(m.ready for m in executor._handles) >= count

    wait_until(ready)


# The nine ways in which the predecessor's distributed runs went wrong.


def test_1_a_joiner_before_anything_was_shared_works_with_what_its_job_names(ray_with: Make) -> None:
    executor = ray_with(1)  # it is being made while the first value is shared
    executor.share(Shared(CENTER, 0, center(1.0), 0))
    assert fitness(drain(executor, [job(n) for n in range(4)])) == expected(1.0, range(4))


def test_2_a_joiner_during_the_update_does_not_work_with_the_old_center(ray_with: Make) -> None:
    executor = ray_with(1)
    executor.share(Shared(CENTER, 0, center(1.0), 0))
    drain(executor, [job(n) for n in range(4)])
    os.kill(executor._handles[0].pid, signal.SIGKILL)  # its successor starts while the center moves on
    executor.share(Shared(CENTER, 1, center(2.0), 1))
    assert fitness(drain(executor, [job(n) for n in range(4)])) == expected(2.0, range(4))


def test_3_a_worker_that_leaves_while_evaluating_loses_nothing(ray_with: Make, tmp_path: Path) -> None:
    executor = ray_with(2)
    executor.share(Shared(CENTER, 0, center(1.0), 0))
    results = drain(executor, [Misbehaving("die", 2, tmp_path, 100), *(job(n) for n in range(6))])
    assert fitness(results) == expected(1.0, range(6)) | {100: 1.0}
    assert (executor.counts.deaths, executor.counts.retries, executor.counts.failures) == (2, 2, 0)


def test_4_workers_that_leave_while_idle_stall_nothing_and_no_job_is_blamed(ray_with: Make) -> None:
    executor = ray_with(2, retries=1)
    executor.share(Shared(CENTER, 0, center(1.0), 0))
    all_ready(executor, 2)
    for handle in executor._handles:
        os.kill(handle.pid, signal.SIGKILL)
    assert fitness(drain(executor, [job(n) for n in range(6)])) == expected(1.0, range(6))


def test_5_a_hung_job_is_done_elsewhere_and_only_that_one(ray_with: Make, tmp_path: Path) -> None:
    executor = ray_with(2, timeout=1.5, retries=1)
    executor.share(Shared(CENTER, 0, center(1.0), 0))
    jobs = [Misbehaving("hang", 1, tmp_path, 100), *(job(n) for n in range(6)), Misbehaving("hang", 99, tmp_path, 200)]
    results = drain(executor, jobs)
    reasons = {o.ticket: o.reason for r in results for o in r.outcomes}
    assert (
        reasons.pop(200)
        == "the job took longer than executor.timeout=1.5 s (an episode that never ends needs env.max_episode_steps), 2 times"
    )
    assert set(reasons.values()) == {""}
    assert {t: f for t, f in fitness(results).items() if t < 100} == expected(1.0, range(6))
    assert executor.counts.timeouts == 3


def test_6_a_result_that_is_delivered_twice_counts_once(ray_with: Make) -> None:
    executor = ray_with(1)
    executor.share(Shared(CENTER, 0, center(1.0), 0))
    drain(executor, [job(10**6)])
    (handle,) = executor._handles
    executor.submit(job(0))
    delivered = handle.future
    (first,) = executor.wait()
    handle.future = delivered
    executor._receive(handle)
    executor.submit(job(1))
    (second,) = executor.wait()
    assert [o.ticket for r in (first, second) for o in r.outcomes] == [0, 1]


def test_7_many_results_at_once_meet_one_driver(ray_with: Make) -> None:
    executor = ray_with(2)
    for version in range(5):
        executor.share(Shared(CENTER, version, center(float(version)), version))
        tickets = range(100 * version, 100 * version + 60)
        assert fitness(drain(executor, [job(n) for n in tickets])) == expected(float(version), tickets)


@dataclass(frozen=True)
class Deaf:
    """Holds Python's lock, so that nothing else in its process can run, for longer than any heartbeat."""

    tickets: tuple[int, ...] = (0,)
    stream: int | None = None

    def run(self, worker: SphereWorker) -> list[Outcome]:
        ctypes.PyDLL(None).sleep(6)
        return [Outcome(0, 1.0)]


def test_8_a_worker_may_be_busy_for_longer_than_a_heartbeat(ray_with: Make) -> None:
    executor = ray_with(1)
    (result,) = drain(executor, [Deaf()])
    assert result.outcomes[0].fitness == 1.0
    assert executor.counts.deaths == 0


class Drifting(SphereWorker):
    """Its center rots in memory after the second job."""

    jobs = 0

    def evaluate(self, trials, spec):  # type: ignore[no-untyped-def]
        self.jobs += 1
        if self.jobs == 3:
            self.center = self.center + 1
        return super().evaluate(trials, spec)


def test_9a_a_worker_that_drifts_is_noticed_and_brought_back(ray_with: Make) -> None:
    executor = ray_with(1, Drifting)
    executor.share(Shared(CENTER, 0, center(1.0), 0))
    assert fitness(drain(executor, [job(n) for n in range(8)])) == expected(1.0, range(8))
    assert executor.counts.mismatches == 1
    assert executor.counts.deaths == 0


@dataclass(frozen=True)
class OneStranger:
    """The first worker that is made outside of the driver has another library."""

    mark: Path
    driver: int

    def __call__(self) -> SphereWorker:
        worker = SphereWorker()
        if os.getpid() != self.driver:
            try:
                os.close(os.open(self.mark, os.O_CREAT | os.O_EXCL))
            except FileExistsError:
                return worker
            fingerprint = worker.fingerprint
            worker.fingerprint = lambda held: fingerprint(held) | {"torch": "0.1"}  # type: ignore[method-assign]
        return worker


def test_9b_a_worker_with_other_libraries_gets_no_work_and_the_run_goes_on(
    ray_with: Make, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    executor = ray_with(2, OneStranger(tmp_path / "made", os.getpid()))
    executor.share(Shared(CENTER, 0, center(1.0), 0))
    wait_until(lambda: bool(drain(executor, [job(n) for n in range(8)])) and any(m.refused for m in executor._handles))
    assert fitness(drain(executor, [job(n) for n in range(8)])) == expected(1.0, range(8))
    assert executor.counts.mismatches == 2
    assert "torch: none here, 0.1 there" in caplog.text
    all_ready(executor, 3)  # somebody else took its place
    assert executor.workers == 2


# What else a person meets.


def test_a_job_that_kills_three_workers_is_given_up_with_its_reason(ray_with: Make, tmp_path: Path) -> None:
    executor = ray_with(2)
    executor.share(Shared(CENTER, 0, center(1.0), 0))
    results = drain(executor, [Misbehaving("die", 99, tmp_path, 100), *(job(n) for n in range(6))])
    (bad,) = [o for r in results for o in r.outcomes if o.failed]
    assert bad.ticket == 100
    assert bad.reason.startswith("worker died (")
    assert bad.reason.endswith(", 3 times")
    assert len(list(tmp_path.iterdir())) == 3


def test_a_worker_that_cannot_be_made_is_an_error(ray_with: Make) -> None:
    executor = ray_with(1, broken_worker_outside(os.getpid()))
    executor.submit(job(0))
    with pytest.raises(BaldwinError, match="no simulator here"):
        executor.wait()


@dataclass(frozen=True)
class broken_worker_outside:  # noqa: N801
    driver: int

    def __call__(self) -> SphereWorker:
        return SphereWorker() if os.getpid() == self.driver else broken_worker()


def test_one_that_fails_after_two_that_were_killed_is_the_first_to_fail(ray_with: Make, tmp_path: Path) -> None:
    executor = ray_with(1, unlucky_worker_outside(os.getpid(), tmp_path))
    executor.share(Shared(CENTER, 0, center(1.0), 0))
    assert fitness(drain(executor, [job(0)])) == expected(1.0, range(1))
    assert executor.counts.deaths == 3


@dataclass(frozen=True)
class unlucky_worker_outside:  # noqa: N801
    driver: int
    starts: Path

    def __call__(self) -> SphereWorker:
        if os.getpid() == self.driver:
            return SphereWorker()
        started = len(list(self.starts.iterdir()))
        (self.starts / str(started)).touch()
        if started < 2:
            os.kill(os.getpid(), signal.SIGKILL)
        return broken_worker() if started == 2 else SphereWorker()


def test_with_no_worker_left_it_waits_and_says_so(ray_with: Make, caplog: pytest.LogCaptureFixture) -> None:
    executor = ray_with(1)
    executor.share(Shared(CENTER, 0, center(1.0), 0))
    drain(executor, [job(0)])
    vacancies, begun = executor._missing_workers, time.monotonic()
    executor._missing_workers = lambda: vacancies() if time.monotonic() - begun > 4 else 0  # type: ignore[method-assign]
    os.kill(executor._handles[0].pid, signal.SIGKILL)
    executor.submit(job(1))
    with caplog.at_level(logging.WARNING):
        (result,) = executor.wait()
    assert fitness([result]) == expected(1.0, range(1, 2))
    assert "there is no worker; waiting" in caplog.text
    assert "a worker is there again" in caplog.text


def test_the_wire_carries_indices_not_parameters(ray_with: Make) -> None:
    executor = ray_with(1)

    def traffic(version: int, dimension: int, jobs: int) -> float:
        executor.share(Shared(CENTER, version, CENTER_ARRAYS | {"params": np.zeros(dimension, np.float32)}, version))
        assert executor.report()["bytes_sent"] < 4 * dimension + 100
        drain(executor, [Anything(n) for n in range(jobs)])
        return executor.report()["bytes_sent"]

    few, many = traffic(0, 1_000, 10), traffic(1, 1_000, 40)
    assert many == pytest.approx(4 * few, rel=0.1)
    assert traffic(2, 1_000_000, 40) == pytest.approx(many, rel=0.1)


class KeepingWorker(SphereWorker):
    """Keeps values on demand, as a worker for members does."""

    def __init__(self) -> None:
        super().__init__()
        self.kept: dict[str, Arrays] = {}

    def receive(self, shared: Shared) -> None:
        if shared.on_demand:
            self.kept[shared.key] = shared.arrays
        super().receive(shared)

    def held_on_demand(self) -> tuple[str, ...]:
        return tuple(self.kept)


@dataclass(frozen=True)
class ReadAndMake:
    """Adds one to the value that it reads; its worker keeps the result under another name."""

    ticket: int
    reads: tuple[str, ...]
    makes: str
    stream: int | None = None

    @property
    def tickets(self) -> tuple[int, ...]:
        return (self.ticket,)

    def run(self, worker: KeepingWorker) -> list[Outcome]:
        made = worker.kept[self.reads[0]]["content"] + 1
        worker.receive(Shared(self.makes, 0, {"content": made}, 0, on_demand=True))
        return [Outcome(self.ticket, float(made[0]), arrays={"pid": np.array(os.getpid())})]


def test_a_value_on_demand_goes_only_to_a_worker_that_reads_it_and_lacks_it(ray_with: Make) -> None:
    size = 1_000_000
    executor = ray_with(2, KeepingWorker)
    executor.share(Shared(CENTER, 0, center(1.0), 0))
    all_ready(executor, 2)
    executor.report()

    def run(reads: str, makes: str) -> tuple[float, int, float]:
        """The outcome, the worker, and the megabytes that it took."""
        executor.submit(ReadAndMake(0, (reads,), makes))
        ((outcome,),) = [result.outcomes for result in executor.wait()]
        return outcome.scalar, int(outcome.arrays["pid"]), round(executor.report()["bytes_sent"] / size, 1)

    def share(key: str, value: int) -> None:
        executor.share(Shared(key, 0, {"content": np.full(size, value, np.uint8)}, 0, on_demand=True))

    share("a", 0)
    assert executor.report()["bytes_sent"] == 0
    value, maker, sent = run("a", "b")
    assert (value, sent) == (1.0, 1.0)
    share("b", 1)
    assert run("b", "c") == (2.0, maker, 0.0)  # it made the value, and is preferred
    os.kill(maker, signal.SIGKILL)
    wait_until(lambda: maker not in descendants())
    share("c", 2)
    value, other, sent = run("c", "d")
    assert (value, other != maker, sent) == (3.0, True, 1.0)
    executor.share(Shared("c", 0, {}, 1, on_demand=True))
    assert [share.key for share in executor._shares] == [CENTER, "a", "b"]


@dataclass(frozen=True)
class Anything:
    ticket: int
    stream: int | None = None

    @property
    def tickets(self) -> tuple[int, ...]:
        return (self.ticket,)

    def run(self, worker: SphereWorker) -> list[Outcome]:
        return [Outcome(self.ticket, float(len(worker.center)))]


def test_a_ray_client_address_is_refused_with_what_to_do() -> None:
    with pytest.raises(UserError, match=r"executor.address=ray://there:10001: expected local, auto or host:port"):
        connect(ExecutorConfig(name="ray", address="ray://there:10001"))


def test_payload_counts_arrays_without_their_copies() -> None:
    small, large = payload({"a": np.zeros(10)}), payload({"a": np.zeros(100_010)})
    assert large - small == pytest.approx(800_000, abs=20)


def test_nothing_listens_on_a_public_interface() -> None:
    import ray

    assert os.environ["RAY_AUTH_MODE"] == "token"
    assert {n["NodeManagerAddress"] for n in ray.nodes()} == {"127.0.0.1"}
    mine = {link for pid in [os.getpid(), *descendants()] for link in sockets(pid)}
    found = [entry for entry in listening() if entry[1] in mine]
    assert found
    assert {address for address, _ in found} <= {"0100007F", "0000000000000000FFFF00000100007F"}


def sockets(pid: int) -> list[str]:
    try:
        return [os.readlink(fd)[8:-1] for fd in Path(f"/proc/{pid}/fd").iterdir() if os.readlink(fd).startswith("socket:")]
    except OSError:
        return []


def listening() -> list[tuple[str, str]]:
    lines = [line.split() for name in ("tcp", "tcp6") for line in Path(f"/proc/net/{name}").read_text().splitlines()[1:]]
    return [(w[1].split(":")[0], w[9]) for w in lines if w[3] == "0A"]


def test_without_ray_the_error_prints_the_install_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(MissingExtra, match=r"pip install 'baldwin-rl\[ray\]'"):
        connect(ExecutorConfig(name="ray"))


def test_the_status_actor_tells_others_how_the_workers_are(ray_with: Make) -> None:
    executor = ray_with(1)
    executor.share(Shared(CENTER, 0, center(1.0), 0))
    all_ready(executor, 1)
    drain(executor, [job(n) for n in range(20)])
    executor._next_scale_check = 0.0
    executor._scale()
    state = cluster_state("auto")
    (run,) = [r for r in state["runs"] if r["pid"] == os.getpid()]
    assert sum(w["jobs"] for w in run["workers"]) >= 20
    assert {w["state"] for w in run["workers"]} == {"idle"}
    assert all(w["steps_per_second"] > 0 for w in run["workers"])
    assert state["nodes"][0]["alive"]


def test_no_cluster_at_the_address_is_a_users_mistake(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ray.is_initialized", lambda: False)

    with pytest.raises(UserError, match=r"cannot join a Ray cluster at 127.0.0.1:1: .*refused.* ray start --head"):
        connect(ExecutorConfig(name="ray", address="127.0.0.1:1"))
