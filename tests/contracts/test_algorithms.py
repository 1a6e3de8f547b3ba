"""What every registered algorithm must hold to, whatever paper it comes from."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from baldwin.algorithm import ALGORITHMS
from baldwin.config import RunConfig
from baldwin.config.load import validate
from baldwin.envs import EnvConfig
from baldwin.errors import TicketError
from baldwin.executors import ExecutorConfig, make_executor
from baldwin.executors.config import WorkerFactory
from baldwin.runs.build import build, evaluation_jobs
from baldwin.runs.checkpoint import policy_hash
from baldwin.runs.loop import Asked, Told, loop
from baldwin.strategies import EvolutionAlgorithm
from baldwin.tree import join, split
from baldwin.types import CENTER, Algorithm, Result, Shared
from tests.toys.contexts import toy_context
from tests.toys.sphere import TARGET, SphereWorker

ES = {"population": 32, "block": 8, "sigma": 0.1, "lr": 0.2, "weight_decay": 0.0}
STEADY = {"variance": 0.05, "variance_floor": 1e-3, "block": 4}
CHASE = EnvConfig(id="tests.toys.worlds:Chase", kwargs={"size": 1})
LEARNER = {
    "start_steps": 100,
    "batch_size": 64,
    "rollout_length": 20,
    "steps_per_epoch": 60,
    "buffer_size": 3000,
    "gamma": 0.8,
    "threads": 1,
}
LEARNER |= {"actor_lr": 3e-3, "critic_lr": 3e-3, "critic": {"hidden": [16, 16]}}
SAC = LEARNER | {"alpha_lr": 3e-3}
SMALL_LEARNER = {"batch_size": 64, "gamma": 0.8, "actor_lr": 3e-3, "critic_lr": 3e-3, "critic": {"hidden": [16, 16]}}
HYBRID = {"start_steps": 200, "buffer_size": 3000, "checkpoint_slack": 3000, "learner": SMALL_LEARNER}
CEMRL = HYBRID | {"strategy": {"variance": 0.01, "noise_start": 0.01, "noise_end": 1e-4, "divide_variance_by_k": True}}
ASYNC = HYBRID | {"critic_steps_per_job": 50, "steps_per_epoch": 60, "mean_episodes": 3}
SAC_LEARNER = {"learner": SMALL_LEARNER | {"name": "sac", "alpha_lr": 3e-3, "init_alpha": 0.1}}
SEGMENTS = {"n_envs": 4, "block": 2, "rollout_length": 20, "steps_per_epoch": 80, "gamma": 0.8, "lr": 3e-3}
PPO = SEGMENTS | {"batch_size": 40, "epochs": 6}
DQN = {k: v for k, v in LEARNER.items() if k not in ("critic", "actor_lr", "critic_lr")}
DQN |= {"lr": 3e-3, "updates_per_step": 1.0, "target_update_interval": 20, "epsilon_steps": 600}
WINDOWS = {"target": "retrace", "n_step": 2, "sequence": 4, "burn_in": 1, "batch_size": 16, "encoder_lr": 3e-3, "updates_per_step": 0.25}
MEMORY = {"memory": {"kind": "gru", "size": 8}}
ENCODER = {"encoders": {"obs": {"kind": "mlp", "hidden": [16]}}}
VARIANTS = [
    pytest.param("es", ES, id="es"),
    pytest.param("es", ES | {"optimizer": "sgd", "lr": 0.2, "momentum": 0.5}, id="es-sgd"),
    pytest.param("es", ES | {"optimizer": "clipup"}, id="es-clipup"),
    pytest.param("es", ES | {"rank": 1}, id="es-low-rank"),
    pytest.param("es", ES | {"shaping": "zscore"}, id="es-zscore"),
    pytest.param("es", ES | {"step_cost": 0.1}, id="es-step-cost"),
    pytest.param("es", ES | {"cap": {"rule": "twice-mean"}}, id="es-cap"),
    pytest.param("nsga2", {"population": 32, "block": 8, "initial_sigma": 1.0, "sigma": 0.4, "mutation_probability": 0.3}, id="nsga2"),
    pytest.param("cem", {"variance": 0.05, "noise_start": 0.05, "noise_end": 1e-4, "population": 20, "block": 4}, id="cem"),
    pytest.param("cem", {"variance": 0.05, "noise_start": 0.02, "population": 20, "importance_mixing": True}, id="cem-mixing"),
    pytest.param("sep-cma-es", {"population": 16, "block": 4, "sigma": 0.3}, id="sep-cma-es"),
    pytest.param("acem", STEADY | {"noise_start": 0.05, "noise_end": 1e-4}, id="acem"),
    pytest.param("one-plus-one", STEADY | {"factor": 0.8}, id="one-plus-one"),
    pytest.param(
        "aes", STEADY | {"variance_rule": "fixed", "mean_trials": 2, "variance_floor": 0.02, "common_random_numbers": "none"}, id="aes"
    ),
    pytest.param("td3", LEARNER, id="td3"),
    pytest.param("td3", LEARNER | {"actor_lag": 2, "n_step": 3}, id="td3-actor-lag"),
    pytest.param("sac", SAC, id="sac"),
    pytest.param("cem-rl", CEMRL, id="cem-rl"),
    pytest.param("p-cem-rl", CEMRL, id="p-cem-rl"),
    pytest.param("p-cem-rl", CEMRL | SAC_LEARNER | {"critic_schedule": "parallel"}, id="p-cem-rl-parallel-sac"),
    pytest.param(
        "acem-rl",
        {k: v for k, v in ASYNC.items() if k != "mean_episodes"}
        | {"strategy": {"variance": 0.01, "noise_start": 0.01, "divide_variance_by_k": True}},
        id="acem-rl",
    ),
    pytest.param("one-plus-one-rl", ASYNC, id="one-plus-one-rl"),
    pytest.param("aes-rl", ASYNC, id="aes-rl"),
    pytest.param("aes-rl", ASYNC | SAC_LEARNER | {"behaviour": "faithful", "strategy": {"scale": 5.0}}, id="aes-rl-faithful-sac"),
    pytest.param("ppo", PPO, id="ppo"),
    pytest.param("ppo", PPO | {"actor_lag": 1, "advantage": "gae-v", "normalize_reward": True}, id="ppo-actor-lag"),
    pytest.param("a2c", SEGMENTS | {"rollout_length": 5, "lr": 7e-3, "steps_per_epoch": 100}, id="a2c"),
    pytest.param("reinforce", {"gamma": 0.8, "lr": 1e-2, "steps_per_epoch": 80}, id="reinforce"),
    pytest.param("reinforce", {"gamma": 0.8, "lr": 3e-2, "steps_per_epoch": 160, "baseline": False}, id="reinforce-no-baseline"),
    pytest.param("impala", SEGMENTS | {"rollout_length": 10}, id="impala"),
    pytest.param("a3c", SEGMENTS | {"rollout_length": 10, "block": 1}, id="a3c"),
    pytest.param("dqn", DQN, id="dqn"),
    pytest.param("dqn", DQN | {"dueling": True, "noisy": True, "n_step": 2, "actor_lag": 1}, id="dqn-dueling-noisy"),
    pytest.param(
        "dqn", DQN | {"prioritized": {"beta_updates": 1000, "initial": "td-error"}, "n_step": 2, "actor_lag": 1}, id="dqn-prioritized"
    ),
    pytest.param(
        "sac",
        SAC | WINDOWS | {"prioritized": True, "rnd": {"kind": "reward", "hidden": [8], "strength": 0.1}, "policy": MEMORY},
        id="sac-recurrent",
    ),
    pytest.param(
        "td3",
        LEARNER
        | {
            "sequence": 2,
            "updates_per_step": 0.5,
            "curiosity": {"kind": "icm", "hidden": [8], "strength": 0.1},
            "shared_encoder": False,
            "policy": ENCODER,
        },
        id="td3-windows",
    ),
    pytest.param("td3", LEARNER | {"noisy": True}, id="td3-noisy"),
    pytest.param(
        "dqn",
        DQN
        | WINDOWS
        | {"siamese": {"kind": "atc", "hidden": [8], "size": 8}, "prediction": {"hidden": [8]}, "rescale_values": True, "policy": MEMORY},
        id="dqn-recurrent",
    ),
    pytest.param(
        "sac", SAC | {"n_envs": 3, "rollout_length": 10, "n_critics": 3, "updates_per_step": 1.5, "noisy": True}, id="sac-noisy-n-envs"
    ),
]


VARIANTS += [pytest.param(name, {}, id=name) for name in ALGORITHMS if name not in {p.values[0] for p in VARIANTS}]
"""An algorithm that is not listed above, such as a plugin's, is held to the contracts with its defaults."""
BY_ARRIVAL = "results take effect in the order of arrival: another order is another result"


def make(name: str, settings: dict[str, Any], seed: int = 3, folder: Path | None = None) -> Algorithm:
    entry = ALGORITHMS[name]
    if entry.make_strategy is None:
        return build(chase(name, settings, seed), folder).algorithm
    config: Any = entry.config(**settings)
    strategy = entry.make_strategy(np.zeros(10, np.float32), config, ((2, 3), (4,)), seed)
    return EvolutionAlgorithm(strategy, config, toy_context(seed, max_episode_steps=None))


def chase(name: str, settings: dict[str, Any], seed: int = 3) -> RunConfig:
    policy = {"hidden": [16, 16], "normalize_obs": True} | settings.get("policy", {})
    settings = {key: value for key, value in settings.items() if key != "policy"}
    env = EnvConfig(id="tests.toys.worlds:DiscreteChase") if name == "dqn" else CHASE
    return validate({"env": env.model_dump(), "policy": policy, "algorithm": {"name": name, **settings}, "run": {"seed": seed}})


def worker(name: str, settings: dict[str, Any]) -> WorkerFactory:
    """Where the algorithm's toy lives."""
    return SphereWorker if ALGORITHMS[name].family == "strategy" else build(chase(name, settings)).worker_spec


def versions(algorithm: Algorithm, target: int, make_worker: WorkerFactory, executor: str = "inline", workers: int = 1) -> Algorithm:
    running = make_executor(ExecutorConfig(name=executor, workers=workers), make_worker)  # type: ignore[arg-type]
    try:
        for _ in until(algorithm, target, loop(algorithm, running)):
            pass
    finally:
        running.close()
    return algorithm


def until(algorithm: Algorithm, target: int, events: Iterator[object]) -> Iterator[object]:
    while algorithm.version < target:
        yield next(events)


def identity(algorithm: Algorithm) -> str:
    return policy_hash(algorithm.policy_state())


def unbroken(name: str, settings: dict[str, Any]) -> tuple[str, int]:
    """Identity and steps of four versions without any trouble, computed once for all tests that compare with them."""
    return _unbroken(name, json.dumps(settings))


@cache
def _unbroken(name: str, settings: str) -> tuple[str, int]:
    algorithm = versions(make(name, json.loads(settings)), 4, worker(name, json.loads(settings)))
    return identity(algorithm), algorithm.env_steps


def test_every_registered_algorithm_is_held_to_the_contracts() -> None:
    assert {p.values[0] for p in VARIANTS} == set(ALGORITHMS)
    assert "random-search" in ALGORITHMS, "tests/plugin is not installed: run make setup"


@pytest.mark.parametrize(("name", "settings"), VARIANTS)
def test_learns_a_toy(name: str, settings: dict[str, Any]) -> None:
    entry = ALGORITHMS[name]
    enough = 15 if entry.family == "hybrid" else 500 if entry.asynchronous and entry.family == "strategy" else 60
    algorithm = make(name, settings)
    events = loop(algorithm, make_executor(ExecutorConfig(name="inline"), worker(name, settings)))
    for part in range(1, 6):
        for _ in until(algorithm, part * enough // 5, events):
            pass
        if distance(algorithm, name, settings) < 1:
            break
    assert distance(algorithm, name, settings) < 1
    if not isinstance(algorithm, EvolutionAlgorithm):
        assert algorithm.gradient_steps > 0
        assert not any(map(sum, algorithm._recent_failures.values()))  # type: ignore[attr-defined]


def distance(algorithm: Algorithm, name: str, settings: dict[str, Any]) -> float:
    """How far it is from solving its toy, where less than 1 counts as solved."""
    if isinstance(algorithm, EvolutionAlgorithm):
        return float(np.linalg.norm(algorithm.strategy.center - TARGET) / (0.1 * np.linalg.norm(np.full(10, TARGET))))
    greedy = build(chase(name, settings))
    executor = make_executor(ExecutorConfig(name="inline"), greedy.worker_spec)
    executor.share(Shared(CENTER, 0, algorithm.policy_state(), 0))
    returns = []
    for job in evaluation_jobs(0, greedy.env_spec, greedy.dim, 8, seed=0):
        executor.submit(job)
        returns += [o.fitness for o in executor.wait()[0].outcomes]
    return float(np.mean(returns) / -2.0)  # standing still gives about -7


@pytest.mark.parametrize(("name", "settings"), VARIANTS)
def test_same_seed_same_result_and_another_seed_another(name: str, settings: dict[str, Any]) -> None:
    again, other = (identity(versions(make(name, settings, seed), 4, worker(name, settings))) for seed in (3, 4))
    assert unbroken(name, settings)[0] == again != other


@pytest.mark.parametrize(("name", "settings"), VARIANTS)
def test_any_order_of_tell_gives_the_same_result(name: str, settings: dict[str, Any]) -> None:
    if ALGORITHMS[name].asynchronous:
        pytest.skip(BY_ARRIVAL)
    results = []
    for shuffle in (0, 1, 2):
        algorithm, at_work, rng = make(name, settings), worker(name, settings)(), random.Random(shuffle)
        while algorithm.version < 3:
            for shared in algorithm.publish():
                at_work.receive(shared)
            outcomes = [o for job in algorithm.ask(100) for o in job.run(at_work)]
            if shuffle:
                rng.shuffle(outcomes)
            for o in outcomes:
                algorithm.tell([o])
                if algorithm.version == 3:
                    break
        results.append((algorithm.version, identity(algorithm)))
    assert results[0] == results[1] == results[2]
    assert results[0][0] == 3


@pytest.mark.parametrize(("name", "settings"), VARIANTS)
def test_refuses_a_doubled_or_unknown_ticket(name: str, settings: dict[str, Any]) -> None:
    algorithm, at_work = make(name, settings), worker(name, settings)()
    for shared in algorithm.publish():
        at_work.receive(shared)
    outcomes = algorithm.ask(1)[0].run(at_work)
    with pytest.raises(TicketError):
        algorithm.tell([outcomes[0], outcomes[0]])
    algorithm.tell(outcomes[:1])
    with pytest.raises(TicketError):
        algorithm.tell(outcomes[:1])
    with pytest.raises(TicketError):
        algorithm.tell([type(outcomes[0])(10**9, 1.0)])
    algorithm.tell(outcomes[1:])  # a refusal leaves no trace


@pytest.mark.parametrize(("name", "settings"), VARIANTS)
def test_state_is_a_round_trip_in_the_middle_of_a_generation(name: str, settings: dict[str, Any]) -> None:
    if ALGORITHMS[name].asynchronous:
        pytest.skip(BY_ARRIVAL)
    executor = make_executor(ExecutorConfig(name="virtual", workers=3), worker(name, settings))
    algorithm = make(name, settings)
    beyond = 0
    for event in loop(algorithm, executor):
        beyond += isinstance(event, Told) and algorithm.version >= 2
        if beyond == 2:  # one result into a generation, others open
            break
    tensors: dict[str, Any] = {}
    tree = split(algorithm.state_dict(), tensors)
    resumed = make(name, settings)
    resumed.load_state_dict(join(tree, tensors))
    resumed.reissue()
    versions(resumed, 4, worker(name, settings))
    assert (identity(resumed), resumed.env_steps) == unbroken(name, settings)


FIRST = [p for n, p in enumerate(VARIANTS) if p.values[0] not in {q.values[0] for q in VARIANTS[:n]}]
"""One variant of each algorithm: what an executor does with jobs does not depend on, say, the optimiser."""
FAMILIES = [p for n, p in enumerate(FIRST) if ALGORITHMS[p.values[0]].family not in {ALGORITHMS[q.values[0]].family for q in FIRST[:n]}]
"""One of each family for Ray, whose workers take seconds to start, but `es`, which tests/runs/test_ray_runs.py has."""
EVERYWHERE = [
    pytest.param(*variant.values, executor, workers, id=f"{executor}-{workers}-{variant.id}")
    for executor, workers, variants in (("virtual", 1, FIRST), ("virtual", 7, VARIANTS), ("process", 2, FIRST), ("ray", 2, FAMILIES[1:]))
    for variant in variants
    if not ALGORITHMS[variant.values[0]].asynchronous or (executor, workers) == ("virtual", 1)
]


@pytest.mark.parametrize(("name", "settings", "executor", "workers"), EVERYWHERE)
def test_all_executors_alike(name: str, settings: dict[str, Any], executor: str, workers: int, tmp_path: Path) -> None:
    there = versions(make(name, settings, folder=tmp_path), 4, worker(name, settings), executor, workers)
    assert identity(there) == unbroken(name, settings)[0]


@pytest.mark.parametrize(("name", "settings"), [p for p in VARIANTS if ALGORITHMS[p.values[0]].asynchronous])
def test_steady_state_goes_again_as_its_arrivals_say(name: str, settings: dict[str, Any]) -> None:
    """On simulated workers it is deterministic; from the events, with a state saved and loaded in between, it is the same."""
    results, target = [], 8 if ALGORITHMS[name].family == "hybrid" else 30
    for _ in range(2):
        algorithm, again = make(name, settings), make(name, settings)
        executor = make_executor(ExecutorConfig(name="virtual", workers=5), worker(name, settings))
        stale = 0.0
        for event in until(algorithm, target, loop(algorithm, executor)):
            if isinstance(event, Asked):
                again.ask(event.n)
            elif isinstance(event, Told):
                again.tell([replace(o, derived={}) for o in event.result.outcomes])  # as from a journal
                stale = max(stale, (event.metrics or {}).get("staleness", 0.0))
                if again.version == target // 2:
                    tensors: dict[str, Any] = {}
                    tree = split(again.state_dict(), tensors)
                    again = make(name, settings)
                    again.load_state_dict(join(tree, tensors))
        assert stale >= 1
        assert identity(again) == identity(algorithm)
        results.append(identity(algorithm))
    assert results[0] == results[1]


@pytest.mark.parametrize(("name", "settings"), VARIANTS)
def test_a_version_has_one_policy(name: str, settings: dict[str, Any]) -> None:
    """So that a checkpoint in the middle of it and a replay of the journal agree."""
    algorithm, policies = make(name, settings), dict[int, set[str]]()
    executor = make_executor(ExecutorConfig(name="virtual", workers=3), worker(name, settings))
    for _ in until(algorithm, 5, loop(algorithm, executor)):
        policies.setdefault(algorithm.version, set()).add(identity(algorithm))
    assert all(len(found) == 1 for found in policies.values())


def test_results_name_their_worker_and_times() -> None:
    algorithm = make("es", ES)
    executor = make_executor(ExecutorConfig(name="virtual", workers=4), SphereWorker)
    events = until(algorithm, 3, loop(algorithm, executor))
    results: list[Result] = [event.result for event in events if isinstance(event, Told)]
    assert {r.worker for r in results} == {0, 1, 2, 3}
    assert all(r.finished > r.started for r in results)


@pytest.mark.parametrize(("name", "settings"), VARIANTS)
def test_checkpoints_have_no_unlabelled_numbers(name: str, settings: dict[str, Any]) -> None:
    """A list in a state holds maps, or values of one kind: tickets, lengths, trials. Never fields whose meaning is their position."""
    algorithm = make(name, settings)
    executor = make_executor(ExecutorConfig(name="virtual", workers=3), worker(name, settings))
    for _ in until(algorithm, 3, loop(algorithm, executor)):
        pass

    def check(value: Any, path: str) -> None:
        if isinstance(value, dict):
            for key, inner in value.items():
                check(inner, f"{path}/{key}")
        elif isinstance(value, list | tuple):
            assert len({type(v) for v in value}) <= 1, f"{path} mixes types: {value}"
            assert not any(isinstance(v, list | tuple) for v in value), f"{path} is a list of lists: {value}"
            for n, inner in enumerate(value):
                check(inner, f"{path}/{n}")

    check(algorithm.state_dict(), "")
