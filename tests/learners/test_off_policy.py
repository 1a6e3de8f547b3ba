"""The order of segments, failures, and threads."""

from __future__ import annotations

from pathlib import Path

import pytest

from baldwin.algorithm import FailureLimits, too_many_failures
from baldwin.config import load_config
from baldwin.config.load import validate
from baldwin.errors import EnvironmentFailure
from baldwin.executors import ExecutorConfig
from baldwin.learners import DQN, SAC, TD3, CriticConfig, OffPolicyAlgorithm, TD3UpdateConfig
from baldwin.rollout import CollectJob
from baldwin.runs.build import build
from baldwin.runs.run import start, train
from baldwin.types import failed
from tests.runs.tools import train_run

SETTINGS = {
    "name": "td3",
    "actor_lag": 1,
    "start_steps": 1000,
    "rollout_length": 10,
    "steps_per_epoch": 1000,
    "buffer_size": 2000,
    "threads": 1,
}


def test_actor_lag_survives_segments_that_come_out_of_order() -> None:
    """Two are always out again once both are back, whichever was first."""
    config = validate({"env": {"id": "tests.toys.worlds:Chase"}, "algorithm": SETTINGS})
    parts = build(config)
    algorithm, worker = parts.algorithm, parts.worker_spec()
    assert isinstance(algorithm, OffPolicyAlgorithm)
    for _ in range(3):
        first, second = algorithm.ask(5)
        for job in (second, first):
            algorithm.tell(job.run(worker))
    assert algorithm.env_steps == 60


def test_an_actor_is_as_old_as_the_lag_says() -> None:
    config = validate({"env": {"id": "tests.toys.worlds:Chase"}, "algorithm": SETTINGS | {"start_steps": 0, "batch_size": 8}})
    parts = build(config)
    algorithm, worker = parts.algorithm, parts.worker_spec()
    assert isinstance(algorithm, OffPolicyAlgorithm)
    start = algorithm.learner.actor_vectors()[0]
    jobs = algorithm.ask(5)
    algorithm.tell(jobs[0].run(worker))
    then = algorithm.learner.actor_vectors()[0]
    jobs += algorithm.ask(5)
    algorithm.tell(jobs[1].run(worker))
    jobs += algorithm.ask(5)
    assert [j.ticket for j in jobs if isinstance(j, CollectJob)] == [0, 1, 2, 3]
    assert all((job.params == start).all() for job in jobs[:2])  # type: ignore[attr-defined]
    assert (jobs[2].params == then).all()  # type: ignore[attr-defined]
    assert not (then == start).all()


def test_steps_that_are_simulated_again_are_counted() -> None:
    """Every segment on another worker: each one begins by simulating the episode so far."""
    parts = build(validate({"env": {"id": "tests.toys.worlds:Uneven"}, "algorithm": SETTINGS | {"actor_lag": 0, "rollout_length": 2}}))
    algorithm, expected = parts.algorithm, 0
    for _ in range(10):
        (job,) = algorithm.ask(1)
        assert isinstance(job, CollectJob)
        expected += sum(len(position.actions) for position in job.positions)
        algorithm.tell(job.run(parts.worker_spec()))
    assert algorithm.replayed_steps == expected > 0
    assert algorithm.env_steps == 20


def test_an_environment_that_fails_now_and_then_is_trained_in(tmp_path: Path) -> None:
    settings = SETTINGS | {"rollout_length": 50, "steps_per_epoch": 200, "batch_size": 32, "critic": {"hidden": [16]}}
    config = validate(
        {
            "env": {"id": "tests.toys.awkward:Fragile"},
            "algorithm": settings,
            "policy": {"hidden": [16]},
            "stop": {"env_steps": 2000},
            "run": {"episodes": 16},
        }
    )
    seen: list[dict[str, float]] = []
    run = start(config.model_copy(update={"executor": ExecutorConfig(name="inline")}), tmp_path / "run")
    train(run, [lambda run, line: seen.append(line)])
    assert run.algorithm.env_steps >= 2000
    assert sum(line.get("failed_episodes", 0) for line in seen) > 10


def test_it_gives_up_with_the_numbers() -> None:
    parts = build(
        validate({"env": {"id": "tests.toys.worlds:Chase"}, "algorithm": SETTINGS | {"max_failures_in_a_row": 3, "actor_lag": 0}})
    )
    algorithm = parts.algorithm
    for n in range(3):
        (job,) = algorithm.ask(1)
        outcomes = failed(job, "it came loose")
        if n < 2:
            assert algorithm.tell(outcomes) is None
    with pytest.raises(
        EnvironmentFailure, match=r"collecting failed 3 times in a row, 3 of the last 3 times .*max_failures_in_a_row=3.*came loose"
    ):
        algorithm.tell(outcomes)


@pytest.mark.parametrize(
    ("failures", "gives_up"), [([1, 0] * 50, False), ([1] * 9 + [0] + [1] * 9 + [0] * 81, False), (([1] * 19 + [0]) * 5, True)]
)
def test_it_gives_up_by_rate(failures: list[int], gives_up: bool) -> None:
    limits = FailureLimits(max_failures_in_a_row=100, max_failure_rate=0.9)
    assert bool(too_many_failures(failures, limits)) == gives_up
    assert not too_many_failures(failures[:99], limits)  # too few to know a rate


def test_small_networks_get_one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("baldwin.learners.learner.cores", lambda: 8)
    small = TD3UpdateConfig(critic=CriticConfig(hidden=[64, 64]))
    assert (small.resolved().threads, TD3UpdateConfig().resolved().threads) == (1, 4)
    assert TD3UpdateConfig(threads=3).resolved().threads == 3


COLLECTING = [
    [],
    ["algorithm.noisy=true"],
    ["algorithm.action_noise=0.1"],
    ["algorithm.action_noise=0.2"],
    ["algorithm.rnd={kind: action, hidden: [8], n_samples: 2}"],
    ["algorithm.rnd={kind: action, hidden: [8], n_samples: 5}"],
    ["algorithm.n_envs=2", "algorithm.action_noise=0.1"],
    ["algorithm.n_envs=2", "algorithm.action_noise=0.1", "algorithm.exploration_spread=3"],
]


def test_every_option_of_collecting_changes_what_is_done() -> None:
    found = []
    for options in COLLECTING:
        own = ["env.id=Pendulum-v1", "algorithm.name=sac", "algorithm.start_steps=0", "policy.hidden=[8]", "algorithm.buffer_size=100"]
        parts = build(load_config(None, [], [*own, *options]))
        (job,) = parts.algorithm.ask(1)
        (outcome,) = job.run(parts.worker_spec())
        found.append(outcome.arrays["action"].tobytes())
    assert len(set(found)) == len(found)


OFF = [
    *("algorithm.target=nstep", "algorithm.n_step=1", "algorithm.sequence=auto", "algorithm.burn_in=0", "algorithm.burn_in_gradient=false"),
    *("algorithm.refresh=false", "algorithm.prioritized=false", "algorithm.curiosity=none", "algorithm.rnd=none", "algorithm.siamese=none"),
    *("algorithm.prediction=false", "algorithm.noisy=false", "algorithm.exploration_spread=1", "algorithm.rescale_values=false"),
    *("algorithm.trace_lambda=1", "algorithm.shared_encoder=true", "algorithm.actor_trains_encoder=false", "policy.memory=none"),
]
ALONE = {
    "sac": (SAC, ["algorithm.clip_epsilon=null", "algorithm.ensemble=2", "algorithm.action_noise=0", "algorithm.discrete_dqn_like=false"]),
    "td3": (TD3, ["algorithm.clip_epsilon=null"]),
    "dqn": (DQN, ["algorithm.dueling=false"]),
}


@pytest.mark.parametrize("name", ALONE)
def test_options_that_are_off_give_the_plain_learner_and_the_same_bits(name: str, tmp_path: Path) -> None:
    kind, own = ALONE[name]
    plain = [
        *(f"algorithm.name={name}", f"env.id={'CartPole-v1' if name == 'dqn' else 'Pendulum-v1'}", "policy.hidden=[8]"),
        *("algorithm.start_steps=40", "algorithm.rollout_length=20", "algorithm.batch_size=8", "algorithm.steps_per_epoch=80"),
        *("algorithm.buffer_size=100", "executor.name=inline", "run.evaluate_every=9", "run.episodes=1", "stop.env_steps=80"),
    ]
    plain += [] if name == "dqn" else ["algorithm.critic.hidden=[8]"]
    once, again = (load_config(None, [], [*plain, *options]) for options in ([], [*OFF, *own]))
    assert once == again
    runs = [train_run(config, tmp_path / str(n)) for n, config in enumerate((once, again))]
    assert type(runs[1].algorithm.learner) is kind  # type: ignore[attr-defined]
    assert runs[0].params_sha256() == runs[1].params_sha256()
