"""Which policy collects a segment, and how it gets to the workers."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
import pytest

from baldwin.config import load_config
from baldwin.learners.a3c import LEARNER, GradientJob
from baldwin.learners.impala import MAX_LAG
from baldwin.learners.policy_gradient_algorithm import MAX_JOB_PARAMS, PolicyGradientAlgorithm
from baldwin.rollout import ACTOR, CollectJob
from baldwin.runs.build import Parts, build

COMMON = [
    "env.id=tests.toys.worlds:Chase",
    "algorithm.n_envs=3",
    "algorithm.block=1",
    "algorithm.rollout_length=1",
    "algorithm.steps_per_epoch=1",
]


def small(name: str, *options: str) -> tuple[Parts, PolicyGradientAlgorithm]:
    parts = build(load_config(None, [], [*COMMON, f"algorithm.name={name}", *options]))
    assert isinstance(parts.algorithm, PolicyGradientAlgorithm)
    return parts, parts.algorithm


@pytest.mark.parametrize(("name", "options"), [("impala", ["algorithm.segments_per_update=1"]), ("a3c", [])])
def test_all_wait_for_a_segment_that_is_too_far_behind(name: str, options: list[str]) -> None:
    parts, algorithm = small(name, "policy.hidden=[4]", *options)
    worker, found = parts.worker_spec(), None
    (late,) = algorithm.ask(1)
    while jobs := algorithm.ask(1):
        algorithm.tell(jobs[0].run(worker))
        assert len(algorithm._actors) <= 2  # the newest, and that of the open job
    assert algorithm._learned == MAX_LAG + 1
    jobs = [late]
    while not found:
        found = algorithm.tell(jobs[0].run(worker))
        jobs = algorithm.ask(1)
    assert found["staleness"] == MAX_LAG + 1
    worker.close()


@pytest.mark.parametrize(("name", "versions"), [("ppo", [0, 1, 2, 3]), ("impala", [0, 1, 2, 3]), ("a3c", [0, 3, 6, 9])])
def test_a_large_policy_is_broadcast_once_per_version_and_only_the_newest(name: str, versions: list[int]) -> None:
    """Three segments are collected between two broadcasts, each of which is an update of a3c."""
    parts, algorithm = small(name, "policy.hidden=[320,320]")
    assert parts.dim > MAX_JOB_PARAMS
    worker, sent = parts.worker_spec(), defaultdict(list)
    while algorithm._learned <= versions[-1]:
        for shared in algorithm.publish():
            worker.receive(shared)
            sent[shared.key].append(shared.version)
        assert algorithm.publish() == []
        for job in algorithm.ask(3):
            collect = job.collect if isinstance(job, GradientJob) else job
            assert not isinstance(collect, CollectJob) or collect.params is None
            assert not isinstance(job, GradientJob) or job.params is None
            algorithm.tell(job.run(worker))
    worker.close()
    assert sent[ACTOR][: len(versions)] == versions
    assert sent[LEARNER] == (sent[ACTOR] if name == "a3c" else [])


@pytest.mark.parametrize("name", ["ppo", "a3c"])
def test_weights_from_elsewhere_are_broadcast_under_the_version_that_they_replace(name: str) -> None:
    _, algorithm = small(name, "policy.hidden=[320,320]")
    algorithm.publish()
    weights = algorithm.weights() + 1
    algorithm.set_weights(weights)
    found = {shared.key: shared for shared in algorithm.publish()}
    assert found[ACTOR].version == 0
    np.testing.assert_array_equal(found[ACTOR].arrays["params"], weights[algorithm.learner.nets.policy_rows])
    assert name != "a3c" or (found[LEARNER].arrays["params"] == weights).all()
