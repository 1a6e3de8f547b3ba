"""The order of stretches."""

from __future__ import annotations

from baldwin.config.load import validate
from baldwin.learners import OffPolicyAlgorithm
from baldwin.rollout import CollectJob
from baldwin.runs.build import build

SETTINGS = {
    "name": "td3",
    "actor_lag": 1,
    "start_steps": 1000,
    "rollout_length": 10,
    "steps_per_epoch": 1000,
    "buffer_size": 2000,
    "threads": 1,
}


def test_an_overlap_survives_stretches_that_come_out_of_order() -> None:
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


def test_an_actor_is_as_old_as_the_overlap_says() -> None:
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
