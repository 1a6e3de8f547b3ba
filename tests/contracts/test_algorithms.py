"""What every registered algorithm must hold to, whatever paper it comes from."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from baldwin.errors import TicketError
from baldwin.executors import ExecutorConfig, make_executor
from baldwin.runs.checkpoint import policy_hash
from baldwin.runs.loop import Told, loop
from baldwin.runs.tree import join, split
from baldwin.strategies import ALGORITHMS, Search
from baldwin.types import Result
from tests.toys.sphere import TARGET, SphereWorker

SETTINGS: dict[str, dict[str, Any]] = {"es": {"population": 32, "block": 8, "sigma": 0.1, "lr": 0.2, "weight_decay": 0.0}}
VARIANTS = [
    pytest.param("es", {}, id="es"),
    pytest.param("es", {"optimizer": "sgd", "lr": 0.2, "momentum": 0.5}, id="es-sgd"),
    pytest.param("es", {"optimizer": "clipup"}, id="es-clipup"),
    pytest.param("es", {"rank": 1}, id="es-low-rank"),
    pytest.param("es", {"shaping": "zscore"}, id="es-zscore"),
    pytest.param("es", {"step_cost": 0.1}, id="es-step-cost"),
    pytest.param("es", {"cap": {"rule": "twice-mean"}}, id="es-cap"),
]


def make(name: str, extra: dict[str, Any], seed: int = 3) -> Search:
    strategy_class, config_class = ALGORITHMS[name]
    config = config_class(**(SETTINGS[name] | extra))
    strategy = strategy_class(np.zeros(10, np.float32), config, seed=seed, shapes=((2, 3), (4,)))
    return Search(strategy, config, seed=seed, obs_size=1, max_episode_steps=None, normalize=True)


def versions(algorithm: Search, target: int, name: str = "inline", workers: int = 1) -> Search:
    executor = make_executor(ExecutorConfig(name=name, workers=workers), SphereWorker)  # type: ignore[arg-type]
    try:
        for _ in until(algorithm, target, loop(algorithm, executor)):
            pass
    finally:
        executor.close()
    return algorithm


def until(algorithm: Search, target: int, events: Iterator[object]) -> Iterator[object]:
    while algorithm.version < target:
        yield next(events)


def identity(algorithm: Search) -> str:
    return policy_hash(algorithm.policy_state())


def test_every_registered_algorithm_is_held_to_the_contracts() -> None:
    assert {p.values[0] for p in VARIANTS} == set(ALGORITHMS)


@pytest.mark.parametrize(("name", "extra"), VARIANTS)
def test_learns_a_toy(name: str, extra: dict[str, Any]) -> None:
    algorithm = versions(make(name, extra), 60)
    before = np.linalg.norm(np.full(10, TARGET))
    assert np.linalg.norm(algorithm.strategy.center - TARGET) < 0.1 * before


@pytest.mark.parametrize(("name", "extra"), VARIANTS)
def test_same_seed_same_result_and_another_seed_another(name: str, extra: dict[str, Any]) -> None:
    first, again, other = (identity(versions(make(name, extra, seed), 5)) for seed in (3, 3, 4))
    assert first == again != other


@pytest.mark.parametrize(("name", "extra"), VARIANTS)
def test_any_order_of_tell_gives_the_same_result(name: str, extra: dict[str, Any]) -> None:
    results = []
    for shuffle in (0, 1, 2):
        algorithm, worker, rng = make(name, extra), SphereWorker(), random.Random(shuffle)
        for _ in range(3):
            for share in algorithm.publish():
                worker.receive(*share)
            outcomes = [o for job in algorithm.ask(100) for o in job.run(worker)]
            if shuffle:
                rng.shuffle(outcomes)
            for o in outcomes:
                algorithm.tell([o])
        results.append((algorithm.version, identity(algorithm)))
    assert results[0] == results[1] == results[2]
    assert results[0][0] == 3


@pytest.mark.parametrize(("name", "extra"), VARIANTS)
def test_refuses_a_doubled_or_unknown_ticket(name: str, extra: dict[str, Any]) -> None:
    algorithm, worker = make(name, extra), SphereWorker()
    for share in algorithm.publish():
        worker.receive(*share)
    outcomes = algorithm.ask(1)[0].run(worker)
    with pytest.raises(TicketError):
        algorithm.tell([outcomes[0], outcomes[0]])
    algorithm.tell(outcomes[:1])
    with pytest.raises(TicketError):
        algorithm.tell(outcomes[:1])
    with pytest.raises(TicketError):
        algorithm.tell([type(outcomes[0])(10**9, 1.0)])
    algorithm.tell(outcomes[1:])  # a refusal leaves no trace


@pytest.mark.parametrize(("name", "extra"), VARIANTS)
def test_state_is_a_round_trip_in_the_middle_of_a_generation(name: str, extra: dict[str, Any]) -> None:
    straight = versions(make(name, extra), 4)
    executor = make_executor(ExecutorConfig(name="virtual", workers=3), SphereWorker)
    algorithm = make(name, extra)
    told = 0
    for event in loop(algorithm, executor):
        told += isinstance(event, Told)
        if algorithm.version == 2 and told % 4 == 2:
            break
    tensors: dict[str, Any] = {}
    tree = split(algorithm.state_dict(), tensors)
    resumed = make(name, extra)
    resumed.load_state_dict(join(tree, tensors))
    resumed.reissue()
    versions(resumed, 4)
    assert identity(resumed) == identity(straight)
    assert resumed.env_steps == straight.env_steps


@pytest.mark.parametrize(("name", "extra"), VARIANTS)
@pytest.mark.parametrize(
    ("executor", "workers"),
    [("virtual", 1), ("virtual", 7), ("process", 2), ("ray", 2)],
)
def test_all_executors_alike(name: str, extra: dict[str, Any], executor: str, workers: int) -> None:
    assert identity(versions(make(name, extra), 4, executor, workers)) == identity(versions(make(name, extra), 4))


def test_results_name_their_worker_and_times() -> None:
    algorithm = make("es", {})
    executor = make_executor(ExecutorConfig(name="virtual", workers=4), SphereWorker)
    events = until(algorithm, 3, loop(algorithm, executor))
    results: list[Result] = [event.result for event in events if isinstance(event, Told)]
    assert {r.worker for r in results} == {0, 1, 2, 3}
    assert all(r.finished > r.started for r in results)
