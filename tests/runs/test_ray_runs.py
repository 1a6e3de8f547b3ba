"""The same run on Ray: the same bits for any number of workers, whoever comes, goes or is killed."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from baldwin.runs.resume import resume
from baldwin.runs.run import Run, train
from tests.patience import wait_until
from tests.populations.test_populations import records
from tests.populations.test_populations import small as small_population
from tests.runs.test_exactness import lines
from tests.runs.tools import SMALL, in_process, shown, small, train_run
from tests.toys.processes import command, descendants


@pytest.fixture(scope="module")
def quiet(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return train_run(small(), tmp_path_factory.mktemp("quiet") / "run")


def workers_alive() -> list[int]:
    """Process ids of the actors that play. A child of theirs bears their name until it becomes the program that it was made for."""
    actors = {pid: parent for pid, parent in descendants().items() if command(pid).startswith("ray::RayWorkerActor")}
    return [pid for pid, parent in actors.items() if parent not in actors]


MOST = 6  # killed workers: each takes seconds to be replaced


@pytest.fixture
def worker_killer() -> Iterator[Callable[[float, float], list[int]]]:
    """Kills a random worker every so often until the test is over, but no more than MOST: on a busy machine none would live long enough to work."""
    over, threads, killed = threading.Event(), [], []

    def prowl(every: float, least: float) -> None:
        rng = random.Random(0)
        while not over.wait(rng.uniform(least, every)) and len(killed) < MOST:
            alive = workers_alive()
            if alive:
                victim = rng.choice(alive)
                os.kill(victim, signal.SIGKILL)
                killed.append(victim)

    def hire(every: float, least: float) -> list[int]:
        threads.append(threading.Thread(target=prowl, args=(every, least)))
        threads[-1].start()
        return killed

    yield hire
    over.set()
    for thread in threads:
        thread.join()


@pytest.mark.usefixtures("local_ray")
@pytest.mark.parametrize("workers", [3])  # one and two: tests/contracts, tests/executors
def test_any_number_of_ray_workers_gives_the_same_hash(quiet: Run, workers: int, tmp_path: Path) -> None:
    run = train_run(small("Hopper-v5", "executor.name=ray", f"executor.workers={workers}"), tmp_path / "run")
    assert run.params_sha256() == quiet.params_sha256()
    assert lines(tmp_path / "run") == lines(quiet.directory.path)
    assert run.last["bytes_sent"] > 0


@pytest.mark.usefixtures("local_ray")
def test_killed_ray_workers_change_nothing(quiet: Run, tmp_path: Path, worker_killer: Callable[[float, float], list[int]]) -> None:
    options = ("executor.name=ray", "executor.workers=2", "executor.retries=50", "stop.generations=5")
    killed = worker_killer(3.0, 2.0)
    for attempt in range(20):
        run = train_run(small("Hopper-v5", *options), tmp_path / str(attempt))
        assert run.params_sha256() == quiet.params_sha256()
        if len(killed) > 1:
            return
    raise AssertionError("nobody was killed")


@pytest.mark.usefixtures("local_ray")
def test_kill_9_of_the_driver_and_resume_with_other_workers(quiet: Run, tmp_path: Path) -> None:
    out = tmp_path / "run"
    options = ["env.id=Hopper-v5", "env.max_episode_steps=25", *SMALL, "executor.name=ray", "executor.workers=2"]
    process = subprocess.Popen(
        [sys.executable, "-m", "baldwin", "train", *(f"-m{o}" for o in options), "--out", str(out), "--quiet"], stdout=subprocess.DEVNULL
    )
    wait_until(lambda: (out / "metrics.jsonl").exists() and len((out / "metrics.jsonl").read_text().splitlines()) > 1)
    process.kill()
    process.wait()
    done = in_process("resume", out, "--quiet", "-m", "executor.workers=1")
    assert done.returncode == 0, done.stderr
    assert shown(out)["params_sha256"] == quiet.params_sha256()
    assert lines(out) == lines(quiet.directory.path)


@pytest.fixture
def cluster() -> Iterator[Any]:
    """A head that does no work, and nodes that a test may add and remove."""
    import ray
    from ray.cluster_utils import Cluster

    ray.shutdown()
    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
    yield made
    ray.shutdown()
    made.shutdown()


def test_nodes_may_leave_and_join_in_the_middle_of_a_run(quiet: Run, cluster: Any, tmp_path: Path) -> None:
    first = cluster.add_node(num_cpus=1)
    seen: list[tuple[int, float]] = []
    second = []

    def move(run: Run, line: dict[str, float]) -> None:
        if "return_mean" not in line:
            return
        seen.append((int(line["generation"]), line["workers"]))
        if run.algorithm.version == 1:
            second.append(cluster.add_node(num_cpus=1))
            cluster.wait_for_nodes()
        if run.algorithm.version == 3:
            cluster.remove_node(first)

    options = ("executor.name=ray", "executor.workers=max", f"executor.address={cluster.address}")
    run = train_run(small("Hopper-v5", *options), tmp_path / "run", watchers=[move])
    assert run.params_sha256() == quiet.params_sha256()
    assert lines(tmp_path / "run") == lines(quiet.directory.path)
    assert [generation for generation, _ in seen] == [1, 2, 3, 4, 5]


def test_members_of_a_population_move_when_nodes_leave_and_join(cluster: Any, tmp_path: Path) -> None:
    """Workers cannot read the run's files here; what a node that leaves holds of states is sent to others."""
    calm = train_run(small_population("pbt", "stop.generations=4"), tmp_path / "calm")
    first = cluster.add_node(num_cpus=1)

    def move(run: Run, line: dict[str, float]) -> None:
        if "return_mean" in line and run.algorithm.version == 1:
            cluster.add_node(num_cpus=1)
            cluster.wait_for_nodes()
        if "return_mean" in line and run.algorithm.version == 3:
            cluster.remove_node(first)

    options = ("stop.generations=4", "executor.name=ray", "executor.workers=max", f"executor.address={cluster.address}")
    run = train_run(small_population("pbt", *options), tmp_path / "run", watchers=[move])
    assert run.params_sha256() == calm.params_sha256()
    assert records(tmp_path / "run") == records(tmp_path / "calm")
    assert lines(tmp_path / "run") == lines(tmp_path / "calm")


def test_with_the_last_node_gone_the_run_waits_for_another(
    quiet: Run, cluster: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    first = cluster.add_node(num_cpus=1)
    monkeypatch.setattr("ray._private.utils.set_sigterm_handler", lambda handler: None)  # only the main thread may, and it waits
    over = threading.Event()

    def come() -> None:
        wait_until(lambda: "there is no worker; waiting" in caplog.text)
        cluster.add_node(num_cpus=1)
        over.wait()  # a node ends with the thread that started it

    def leave(run: Run, line: dict[str, float]) -> None:
        if "return_mean" in line and run.algorithm.version == 2:
            cluster.remove_node(first)

    newcomer = threading.Thread(target=come, daemon=True)
    newcomer.start()
    options = ("executor.name=ray", "executor.workers=max", f"executor.address={cluster.address}")
    run = train_run(small("Hopper-v5", *options), tmp_path / "run", watchers=[leave])
    over.set()
    newcomer.join()
    assert run.params_sha256() == quiet.params_sha256()


CHAOS = [
    "env.max_episode_steps=500",
    "policy.hidden=[16]",
    "algorithm.population=64",
    "algorithm.block=8",
    "algorithm.episodes=1",
    "algorithm.lr=0.05",
    "algorithm.sigma=0.1",
    "run.evaluate_every=10",
]


@pytest.mark.slow  # test_killed_ray_workers_change_nothing checks the same for a few seconds
@pytest.mark.parametrize(("seconds", "at_least"), [(60, 5)])
@pytest.mark.usefixtures("local_ray")
def test_chaos_changes_nothing(seconds: int, at_least: int, tmp_path: Path, worker_killer: Callable[[float, float], list[int]]) -> None:
    killed = worker_killer(6.0, 3.0)
    options = ("executor.name=ray", "executor.workers=2", "executor.retries=50", f"stop.wall_seconds={seconds}", "stop.generations=100000")
    wild = train_run(small("CartPole-v1", *CHAOS, *options), tmp_path / "wild")
    while not wild.algorithm.version:  # so busy a machine that not one generation was made
        seconds += 20
        wild, _ = resume(tmp_path / "wild", [f"stop.wall_seconds={seconds}"])
        train(wild)
    quietly = ("executor.name=process", "executor.workers=2", f"stop.generations={wild.algorithm.version}")
    calm = train_run(small("CartPole-v1", *CHAOS, *quietly), tmp_path / "calm")
    print(f"{len(killed)} workers killed, {wild.algorithm.version} generations, score {wild.score}")
    assert len(killed) >= at_least
    assert wild.params_sha256() == calm.params_sha256()
