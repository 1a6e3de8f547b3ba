"""AES-RL and kin: the order of things, the accounting, what waits for what."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from baldwin.config.load import validate
from baldwin.errors import Diverged, EnvironmentFailure
from baldwin.hybrids.jobs import ImproveAndEvaluate, TrainCritic, judging, must_be_finite
from baldwin.learners import TD3UpdateConfig
from baldwin.rollout import RolloutJob
from baldwin.runs.build import build
from baldwin.strategies import AES, OnePlusOne
from tests.hybrids.tools import asynchronous, results


def test_an_individual_is_judged_by_the_mean_as_it_is_when_it_comes_back() -> None:
    algorithm, recipe = asynchronous()
    found = list(results(algorithm, recipe, 6))
    kinds = [r.job.kind for r in found]
    assert kinds[:10] == ["random"] * 10
    assert all(following == "mean" for kind, following in pairwise(kinds) if kind in ("es", "rl"))
    mean = next(r.job for r in found if r.job.kind == "mean")
    assert isinstance(mean, RolloutJob)
    assert mean.plan.episodes == 5


def test_actor_steps_are_the_last_ten_lengths_and_the_optimiser_is_fresh() -> None:
    algorithm, recipe = asynchronous(env_spec="Uneven")
    lengths: list[int] = []
    learned = 0
    for result in results(algorithm, recipe, 12):
        outcome = result.outcomes[0]
        if result.job.kind == "rl":
            learned += 1
            assert outcome.actor_steps == sum(lengths[-10:])
        if isinstance(result.job, ImproveAndEvaluate):
            lengths.append(outcome.env_steps)
    assert learned > 3
    assert len(set(lengths)) > 5


def test_every_step_is_counted_once_and_those_that_only_judge_apart() -> None:
    algorithm, recipe = asynchronous()
    found = list(results(algorithm, recipe, 8))
    learned = sum(o.env_steps for r in found if isinstance(r.job, ImproveAndEvaluate) for o in r.outcomes)
    judged = sum(o.env_steps for r in found if r.job.kind == "mean" for o in r.outcomes)
    assert (algorithm.learning_steps, algorithm.judged_steps) == (learned, judged)
    assert algorithm.replay.total == learned
    assert algorithm.env_steps == learned + judged
    faithful, recipe = asynchronous(behaviour="faithful")
    list(results(faithful, recipe, 8))
    assert faithful.env_steps == faithful.learning_steps < faithful.simulator_steps


def test_a_warm_up_moves_nothing_unless_it_is_wanted() -> None:
    for behaviour, moves in (("fixed", False), ("faithful", True)):
        algorithm, recipe = asynchronous(behaviour=behaviour)
        list(results(algorithm, recipe, 2))
        assert (algorithm._moves > 0) == moves
        assert algorithm._dispatched == [1, 1]  # nobody chose yet


@pytest.mark.parametrize(("inheritance", "moves_to"), [("lamarckian", "grown"), ("baldwinian", "born")])
def test_the_mean_is_pulled_to_what_was_learned_or_what_was_born(inheritance: str, moves_to: str) -> None:
    algorithm, recipe = asynchronous("one-plus-one-rl", inheritance=inheritance)
    grown: dict[str, Any] = {}
    for result in results(algorithm, recipe, 40):
        job = result.job
        if isinstance(job, ImproveAndEvaluate):
            grown = {"born": job.episode.params, "grown": result.outcomes[0].arrays.get("params"), "fitness": result.outcomes[0].fitness}
        elif result.job.kind == "mean" and grown["grown"] is not None and grown["fitness"] > result.outcomes[0].fitness:
            np.testing.assert_array_equal(algorithm.center, grown[moves_to])
            return
    pytest.fail("nobody who learned beat the mean")


def test_nobody_learns_in_a_darwinian_world() -> None:
    algorithm, recipe = asynchronous(inheritance="darwinian")
    assert {r.job.kind for r in results(algorithm, recipe, 6)} == {"random", "es", "mean"}
    assert algorithm.gradient_steps == 0


def test_the_share_that_learns_is_held_though_learning_takes_longer() -> None:
    algorithm, recipe = asynchronous(rl_ratio=0.3, mean_episodes=1, window=1)
    kinds = [r.job.kind for r in results(algorithm, recipe, 30, name="virtual", workers=6, actor_seconds=1.0)]
    assert kinds.count("rl") / (kinds.count("rl") + kinds.count("es")) == pytest.approx(0.3, abs=0.05)


@pytest.mark.parametrize(("behaviour", "held"), [("fixed", True), ("faithful", False)])
def test_a_slow_critic_holds_the_others_up_unless_it_is_the_seeds(behaviour: str, held: bool) -> None:
    algorithm, recipe = asynchronous(behaviour=behaviour, mean_episodes=1, window=1)
    list(results(algorithm, recipe, 30, name="virtual", workers=5, critic_seconds=1.0, actor_seconds=1e-3))
    behind = algorithm.learning_steps - algorithm.critic_steps
    assert (behind <= 5 * 20 + 5 * 10) == held  # five chunks, and what was under way
    assert algorithm.critic_steps <= algorithm.learning_steps + 20


def test_the_critic_studies_with_the_mean_as_its_policy() -> None:
    algorithm, recipe = asynchronous()
    list(results(algorithm, recipe, 2))
    (job,) = algorithm.ask(1)
    assert isinstance(job, TrainCritic)
    np.testing.assert_array_equal(job.policies, algorithm.center[None])
    assert job.steps == 20


def test_what_is_drawn_from_is_not_overwritten_meanwhile() -> None:
    """While an individual learns, others play on only as far as the ring keeps what it draws from."""
    algorithm, recipe = asynchronous(capacity=100, surplus=200, back_pressure=False)
    furthest = 0
    for result in results(algorithm, recipe, 30, name="virtual", workers=8, actor_seconds=10.0, critic_seconds=1e-4):
        drawing = [t.rows[1] for t in algorithm._open.values() if t.draws]
        furthest = max([furthest, *(algorithm.replay.total - rows for rows in drawing)])
        del result
    assert 100 < furthest <= 200


def test_what_was_overwritten_all_the_same_does_not_count() -> None:
    """Without a step limit nobody knows how long episodes will be: the result is refused, live and from the journal."""
    algorithm, recipe = asynchronous()
    list(results(algorithm, recipe, 2))
    (job,) = algorithm.ask(1)
    (outcome,) = job.run(recipe())
    before = algorithm.critic
    algorithm.replay.total += algorithm.replay.length
    algorithm.tell([outcome])
    assert algorithm.critic is before
    assert algorithm._failed == 1


def test_an_individual_is_not_lost_with_an_episode_of_the_mean() -> None:
    algorithm, recipe = asynchronous()
    worker = recipe()
    while not algorithm._grown:
        (job,) = algorithm.ask(1)
        algorithm.tell(job.run(worker))
    (mean,) = algorithm.ask(1)
    algorithm.tell([type(job.run(worker)[0])(mean.tickets[0], float("nan"), reason="lost")])
    assert algorithm._grown
    assert algorithm.ask(1)[0].kind == "mean"


def test_parameters_that_are_not_numbers_never_leave_a_job() -> None:
    with pytest.raises(Diverged, match="the individual came out of the gradient steps with parameters that are not numbers"):
        must_be_finite(np.array([0.0, np.nan], np.float32), "the individual")


def test_staleness_is_the_moves_between_birth_and_judgement() -> None:
    algorithm, recipe = asynchronous()
    list(results(algorithm, recipe, 10, name="virtual", workers=6))
    people = [p for p in algorithm.individuals() if "staleness" in p]
    assert max(int(p["staleness"]) for p in people) >= 2
    assert {"kind", "place", "return", "length", "actor_steps", "baseline", "pull", "staleness", "distance"} <= set(people[0])
    one, recipe = asynchronous()
    list(results(one, recipe, 10))
    assert {p["staleness"] for p in one.individuals() if "staleness" in p} == {0}


def test_switches_of_the_faithful_behaviour() -> None:
    """Trap 4: the window of (1+1)-ES; trap 11: target noise that does not know the action range."""
    for behaviour, frozen, noise in (("faithful", True, 0.1), ("fixed", False, 0.2)):
        for chosen, found in ((None, frozen), (True, True), (False, False)):
            algorithm, _ = asynchronous("one-plus-one-rl", behaviour=behaviour, strategy={"frozen_window": chosen})
            assert isinstance(algorithm.gaussian, OnePlusOne)
            assert algorithm.gaussian.config.frozen_window == found
        own = {"algorithm": {"name": "aes-rl", "behaviour": behaviour}, "env": {"id": "Pendulum-v1"}}  # actions within +-2
        rule = build(validate(own)).algorithm._recipe.rule  # type: ignore[attr-defined]
        assert isinstance(rule, TD3UpdateConfig)
        assert (rule.target_noise, rule.target_noise_clip) == pytest.approx((noise, noise * 2.5))


def test_a_study_from_the_journal_is_done_again() -> None:
    algorithm, recipe = asynchronous()
    list(results(algorithm, recipe, 2))
    (job,) = algorithm.ask(1)
    (outcome,) = job.run(recipe())
    again, _ = asynchronous()
    again.load_state_dict(algorithm.state_dict())
    algorithm.tell([outcome])
    assert outcome.derived
    again.tell([type(outcome)(outcome.ticket, 0.0)])
    assert all(np.array_equal(algorithm.critic[name], again.critic[name]) for name in algorithm.critic)


def test_growing_is_what_the_learner_does() -> None:
    algorithm, recipe = asynchronous()
    while True:
        jobs = algorithm.ask(1)
        job = jobs[0]
        if isinstance(job, ImproveAndEvaluate) and job.steps:
            break
        algorithm.tell(job.run(recipe()))
    (outcome,) = job.run(recipe())
    assert job.critic is not None
    assert job.view is not None
    learner = judging(job.recipe, job.episode.ticket, job.critic, job.episode.obs_moments)
    learner.set_actor(job.episode.params)
    before = learner.critic.vectors()
    learner.train_actor(job.view.source(job.recipe.seed, job.episode.ticket), job.steps)
    np.testing.assert_array_equal(learner.actor_vectors()[0], outcome.arrays["params"])
    np.testing.assert_array_equal(learner.critic.vectors(), before)


def test_failed_jobs_are_counted_and_not_for_ever() -> None:
    algorithm, recipe = asynchronous(env_spec="Broken", kwargs={"how": "raise"})
    seen = 0
    for _ in results(algorithm, recipe, 10):
        seen += algorithm._failed
    assert seen > 0
    algorithm, recipe = asynchronous(env_spec="BreaksLater")
    with pytest.raises(EnvironmentFailure, match=r"10 jobs \(playing\) failed one after the other; the last reason: .*the wheel came off"):
        list(results(algorithm, recipe, 1))


def test_a_scale_is_found_where_none_is_given() -> None:
    algorithm, _ = asynchronous()
    assert isinstance(algorithm.gaussian, AES)
    assert algorithm.gaussian.config.scale == "auto"


def test_without_a_warm_up_the_first_ones_cannot_learn() -> None:
    algorithm, recipe = asynchronous(start_steps=0)
    kinds = [r.job.kind for r in results(algorithm, recipe, 4)]
    assert kinds[0] == "es"
    assert "random" not in kinds
    assert "rl" in kinds
