"""CEM-RL and P-CEM-RL: when the critic trains, who learns, who inherits what."""

from __future__ import annotations

from itertools import groupby
from typing import Any

import numpy as np
import pytest

from baldwin.errors import Diverged, EnvironmentFailure
from baldwin.hybrids.jobs import TrainCritic
from baldwin.ops.gaussians import log_weights
from baldwin.types import Outcome
from tests.hybrids.tools import generations, next_job, results


def after_warm_up(algorithm: Any, spec: Any, **executor: Any) -> list[Any]:
    """The results of the first generation that learns; one generation of Chase is 100 steps."""
    list(results(algorithm, spec, 1))
    return list(results(algorithm, spec, 2, **executor))


def test_cem_rl_trains_the_critic_before_each_individual_that_learns() -> None:
    found = after_warm_up(*generations())
    assert [r.job.kind for r in found] == ["critic", "rl"] * 5 + ["es"] * 5
    assert [o.critic_steps for r in found for o in r.outcomes] == [20, 0] * 5 + [0] * 5  # S / 5 each, S = 100
    assert [o.actor_steps for r in found for o in r.outcomes] == [0, 100] * 5 + [0] * 5


def test_each_critic_job_has_the_individual_as_its_target_policy_and_sees_all_that_was_played() -> None:
    algorithm, spec = generations()
    critic_jobs = [r.job for r in after_warm_up(algorithm, spec) if isinstance(r.job, TrainCritic)]
    strategy, _ = generations()
    for index, (job, trial) in enumerate(zip(critic_jobs, strategy.strategy.ask(10)[::2], strict=True)):
        np.testing.assert_array_equal(job.target_policies, np.asarray(trial.params)[None])
        assert job.view.total == 100 + 10 * index


@pytest.mark.parametrize("critic", ["serial", "parallel"])
def test_p_cem_rl_trains_the_critic_once_before_all_or_beside_them(critic: str) -> None:
    algorithm, spec = generations("p-cem-rl", critic_schedule=critic)
    list(results(algorithm, spec, 1))
    first = algorithm.ask(100)
    assert [job.kind for job in first] == (["critic"] if critic == "serial" else ["critic", *["rl"] * 5, *["es"] * 5])
    critic_job = first[0]
    assert isinstance(critic_job, TrainCritic)
    assert (len(critic_job.target_policies), critic_job.steps) == ((5, 20) if critic == "serial" else (1, 100))
    if critic == "parallel":
        np.testing.assert_array_equal(critic_job.target_policies[0], algorithm.center)


@pytest.mark.parametrize("name", ["cem-rl", "p-cem-rl"])
def test_a_warm_up_moves_nothing_unless_it_is_wanted(name: str) -> None:
    algorithm, spec = generations(name)
    found = list(results(algorithm, spec, 1))
    assert {r.job.kind for r in found} == {"random"}
    assert algorithm.strategy.version == 0
    faithful, spec = generations(name, behaviour="faithful")
    list(results(faithful, spec, 1))
    assert faithful.strategy.version == 1


def test_the_reference_implementation_checks_the_warm_up_inside_a_generation() -> None:
    """Trap 16: at exactly the limit, the first individual of the second generation is still random."""
    algorithm, spec = generations(behaviour="faithful")
    assert [k for k, _ in groupby(r.job.kind for r in after_warm_up(algorithm, spec))][:3] == ["random", "critic", "rl"]


@pytest.mark.parametrize("inheritance", ["lamarckian", "baldwinian"])
def test_evolution_gets_what_was_learned_or_what_was_drawn(inheritance: str) -> None:
    algorithm, spec = generations(inheritance=inheritance)
    list(results(algorithm, spec, 1))
    trials = generations()[0].strategy.ask(10)
    drawn = [np.asarray(t.params) for t in trials[::2] + trials[1::2]]
    episodes = [r for r in results(algorithm, spec, 2) if r.job.kind != "critic"]
    improved = [r.outcomes[0].arrays.get("params", x) for r, x in zip(episodes, drawn, strict=True)]
    assert not np.array_equal(improved[0], drawn[0])
    order = np.argsort([-r.outcomes[0].fitness for r in episodes], kind="stable")[:5]
    rows = np.stack([(improved if inheritance == "lamarckian" else drawn)[i] for i in order])
    np.testing.assert_allclose(algorithm.strategy.mean, log_weights(5) @ rows, rtol=1e-6)


def test_nobody_learns_in_a_darwinian_world() -> None:
    algorithm, spec = generations(inheritance="darwinian")
    assert {r.job.kind for r in after_warm_up(algorithm, spec)} == {"es"}
    assert algorithm.gradient_steps == 0


def test_what_is_known_of_an_individual() -> None:
    algorithm, spec = generations()
    after_warm_up(algorithm, spec)
    people = algorithm.individuals()
    assert [p["kind"] for p in people] == ["random"] * 10 + ["rl"] * 5 + ["es"] * 5
    assert set(people[-1]) == {
        "kind",
        "index",
        "return",
        "length",
        "actor_steps",
        "step_size",
        "staleness",
        "distance",
        "variance_floor_fraction",
    }
    assert sum(float(p["step_size"]) for p in people[10:]) == pytest.approx(1.0)
    assert algorithm.individuals() == []


def test_individuals_that_stay_are_remembered_again() -> None:
    """Importance mixing: their rows are doubled, and count for how long others learn; nobody plays them."""
    mixing = {"population": 10, "variance": 0.01, "noise_start": 0.01, "importance_mixing": True}
    algorithm, spec = generations(strategy=mixing, rl_individuals=0, learner={"critic": {"hidden": [4]}})
    for version in range(2, 12):
        list(results(algorithm, spec, version))
        kept = algorithm.strategy.n_reused
        if kept:
            break
    assert kept
    assert len(algorithm._trials) == 10 - kept
    assert algorithm._steps == 10 * kept
    assert algorithm.replay.total == algorithm.learning_steps + 10 * kept
    first, total = algorithm._kept_ranges[0]
    again, original = algorithm.replay.read(first, total), algorithm.replay.read(0, first)
    index = np.flatnonzero((original["obs/vector"] == again["obs/vector"][0]).all(1))[0]
    np.testing.assert_array_equal(original["reward"][index : index + 10], again["reward"])


def test_the_free_running_critic_of_the_reference_implementation_never_waits() -> None:
    algorithm, spec = generations("p-cem-rl", critic_schedule="parallel", behaviour="faithful", critic_steps_per_job=10)
    kinds = [r.job.kind for r in results(algorithm, spec, 3, name="virtual", workers=3)]
    assert kinds.count("critic") > 2
    assert algorithm.critic_steps == 10 * kinds.count("critic")


def test_some_may_fail_but_not_all() -> None:
    algorithm, spec = generations("p-cem-rl", env_name="Broken", kwargs={"how": "raise"})
    list(results(algorithm, spec, 4))
    assert algorithm.version == 4
    algorithm, spec = generations("p-cem-rl", env_name="BreaksLater")
    with pytest.raises(EnvironmentFailure, match="the wheel came off"):
        list(results(algorithm, spec, 2))


def test_alone_the_free_running_critic_takes_turns() -> None:
    algorithm, spec = generations("p-cem-rl", critic_schedule="parallel", behaviour="faithful", critic_steps_per_job=10)
    kinds = [r.job.kind for r in results(algorithm, spec, 3)]
    assert algorithm.version == 3
    assert kinds.count("critic") >= 10


@pytest.mark.parametrize("name", ["cem-rl", "p-cem-rl"])
def test_who_stays_need_not_leave_enough_to_learn(name: str) -> None:
    """Importance mixing may leave fewer new individuals than are to learn; the critic still takes all its steps."""
    mixing = {
        "population": 10,
        "variance": 0.05,
        "noise_start": 0.05,
        "noise_tau": 0.99,
        "importance_mixing": True,
        "divide_variance_by_k": False,
    }
    algorithm, spec = generations(name, strategy=mixing, rl_individuals=9)
    few = 0
    for version in range(2, 14):
        steps, before = algorithm._last_steps, algorithm.critic_steps
        learners = min(9, len(algorithm._trials)) if algorithm._trials else 0
        few += 0 < learners < 9
        list(results(algorithm, spec, version))
        if learners and version > 2:
            assert algorithm.critic_steps - before == steps // learners * learners
    assert few


def test_a_warm_up_that_ends_inside_a_generation_harms_nobody() -> None:
    algorithm, spec = generations(behaviour="faithful", warmup_updates_distribution=False, start_steps=120)
    list(results(algorithm, spec, 4))
    assert algorithm.strategy.version == 2


def test_how_many_fail_matters_and_not_who_comes_back_first() -> None:
    algorithm, spec = generations("p-cem-rl", strategy={"population": 24})
    jobs = algorithm.ask(100)
    worker = spec()
    failed = [Outcome(t, float("nan"), reason="lost") for job in jobs[::2] for t in job.tickets]
    algorithm.tell(failed)
    algorithm.tell([o for job in jobs[1::2] for o in job.run(worker)])
    assert algorithm.version == 1


def test_critics_that_never_learn_are_noticed() -> None:
    algorithm, spec = generations()
    worker = spec()

    def go_on() -> None:
        while True:
            job = next_job(algorithm, worker)
            algorithm.tell([Outcome(job.tickets[0], float("nan"), reason="no luck")] if job.kind == "critic" else job.run(worker))

    with pytest.raises(Diverged, match=r"critic failed 10 times in a row, .*; the last reason: no luck"):
        go_on()


def test_where_files_cannot_be_seen_the_result_is_the_same() -> None:
    """A replay in memory travels with the jobs, as it does to other machines."""
    here, there = (generations("p-cem-rl") for _ in range(2))
    list(results(*here, 3))
    list(results(*there, 3, name="process", workers=2))
    np.testing.assert_array_equal(here[0].center, there[0].center)


def test_a_generation_may_share_its_start() -> None:
    for shared, expected in ((False, 10), (True, 1)):
        algorithm, spec = generations("p-cem-rl", common_random_numbers=shared)
        list(results(algorithm, spec, 1))
        starts = {r.outcomes[0].arrays["obs/vector"][0, 0].tobytes() for r in results(algorithm, spec, 2) if r.job.kind in ("es", "rl")}
        assert len(starts) == expected
