"""Who starts from the same states: those who are compared."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from baldwin.config.load import validate
from baldwin.rollout import RolloutJob
from baldwin.runs.build import build


def returns(algorithm: dict[str, Any], env: str = "Pendulum-v1", jobs: int = 3) -> list[list[float]]:
    """The returns of each block's trials."""
    parts = build(validate({"env": {"id": env, "max_episode_steps": 50}, "algorithm": algorithm, "policy": {"hidden": [4]}}))
    worker = parts.worker_spec()
    for shared in parts.algorithm.publish():
        worker.receive(shared)
    return [[o.scalar for o in job.run(worker)] for job in parts.algorithm.ask(jobs)]


SAME_POLICY = {"variance": 1e-14, "variance_floor": 1e-15}


@pytest.mark.parametrize("name", ["one-plus-one", "aes"])
@pytest.mark.parametrize("env", ["Pendulum-v1", "Swimmer-v5"])
def test_an_individual_and_the_mean_start_from_the_same_states(name: str, env: str) -> None:
    """At variance 1e-14 they are the same policy; from different starts their returns differ by hundreds on Pendulum."""
    for block in returns({"name": name, **SAME_POLICY}, env):
        *individuals, mean = block
        assert len(individuals) == 4
        np.testing.assert_allclose(individuals, mean, rtol=1e-3)
    apart = returns({"name": name, "common_random_numbers": "none", **SAME_POLICY}, env)
    assert np.std([x - block[-1] for block in apart for x in block[:-1]]) > 0.1


@pytest.mark.parametrize("settings", [{"name": "cem", "variance": 1e-14, "block": 4}, {"name": "sep-cma-es", "sigma": 1e-7, "block": 8}])
def test_a_population_that_is_ranked_starts_from_the_same_states(settings: dict[str, Any]) -> None:
    blocks = returns(settings)
    assert len(blocks) >= 3
    np.testing.assert_allclose([x for block in blocks for x in block], blocks[0][0], rtol=1e-3)


@pytest.mark.parametrize("name", ["es", "cem"])
def test_mirrored_pairs_are_neighbours_with_the_same_start(name: str) -> None:
    algorithm = {"name": name, "common_random_numbers": "pair", "population": 8, "block": 8}
    parts = build(validate({"env": {"id": "Pendulum-v1"}, "algorithm": algorithm, "policy": {"hidden": [4]}}))
    (job,) = parts.algorithm.ask(1)
    assert isinstance(job, RolloutJob)
    seeds = job.spec.seeds[:8]
    assert (seeds[0::2] == seeds[1::2]).all()
    assert len(set(seeds.tolist())) == 4
    if name == "cem":
        rows = np.stack([np.asarray(t.params) for t in job.trials])
        np.testing.assert_allclose(rows[0::2] + rows[1::2], np.tile(2 * parts.algorithm.policy_state()["params"], (4, 1)), atol=1e-5)


def test_starts_change_from_block_to_block_and_from_generation_to_generation() -> None:
    blocks = returns({"name": "aes", **SAME_POLICY})
    assert len({round(block[-1], 2) for block in blocks}) == 3


def test_acem_plays_no_mean() -> None:
    assert [len(block) for block in returns({"name": "acem"})] == [4, 4, 4]


def test_too_few_environments_for_a_shared_start_are_refused() -> None:
    with pytest.raises(Exception, match="common_random_numbers=population needs n_envs >= 10"):
        returns({"name": "cem", "n_envs": 4})
