"""AES-RL and kin: the order of things, the accounting, what waits for what."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from baldwin.config.load import validate
from baldwin.errors import ConfigError, Diverged, EnvironmentFailure
from baldwin.hybrids.jobs import CRITIC, ImproveAndEvaluate, TrainCritic, check_finite, make_learner
from baldwin.learners import TD3UpdateConfig
from baldwin.rollout import RolloutJob
from baldwin.runs.build import build
from baldwin.strategies import AES, OnePlusOne
from tests.hybrids.tools import asynchronous, next_job, results


def test_an_individual_is_compared_with_the_mean_as_it_is_when_it_comes_back() -> None:
    algorithm, spec = asynchronous()
    found = list(results(algorithm, spec, 6))
    kinds = [r.job.kind for r in found]
    assert kinds[:10] == ["random"] * 10
    assert all(following == "mean" for kind, following in pairwise(kinds) if kind in ("es", "rl"))
    mean = next(r.job for r in found if r.job.kind == "mean")
    assert isinstance(mean, RolloutJob)
    assert mean.spec.episodes == 5


def test_actor_steps_are_the_last_ten_lengths_and_the_optimiser_is_fresh() -> None:
    algorithm, spec = asynchronous(env_name="Uneven")
    lengths: list[int] = []
    learned = 0
    for result in results(algorithm, spec, 12):
        outcome = result.outcomes[0]
        if result.job.kind == "rl":
            learned += 1
            assert outcome.actor_steps == sum(lengths[-10:])
        if isinstance(result.job, ImproveAndEvaluate):
            lengths.append(outcome.env_steps)
    assert learned > 3
    assert len(set(lengths)) > 5


def test_every_step_is_counted_once_and_those_that_only_evaluate_apart() -> None:
    algorithm, spec = asynchronous()
    found = list(results(algorithm, spec, 8))
    learned = sum(o.env_steps for r in found if isinstance(r.job, ImproveAndEvaluate) for o in r.outcomes)
    evaluated = sum(o.env_steps for r in found if r.job.kind == "mean" for o in r.outcomes)
    assert (algorithm.learning_steps, algorithm.eval_steps) == (learned, evaluated)
    assert algorithm.replay.total == learned
    assert algorithm.env_steps == learned + evaluated
    faithful, spec = asynchronous(behaviour="faithful")
    list(results(faithful, spec, 8))
    assert faithful.env_steps == faithful.learning_steps < faithful.simulator_steps


def test_a_warm_up_moves_nothing_unless_it_is_wanted() -> None:
    for behaviour, moves in (("fixed", False), ("faithful", True)):
        algorithm, spec = asynchronous(behaviour=behaviour)
        list(results(algorithm, spec, 2))
        assert (algorithm._distribution_version > 0) == moves
        assert (algorithm._n_rl, algorithm._n_es) == (1, 1)  # nobody chose yet


@pytest.mark.parametrize(("inheritance", "moves_to"), [("lamarckian", "improved"), ("baldwinian", "drawn")])
def test_the_mean_moves_to_what_was_learned_or_what_was_drawn(inheritance: str, moves_to: str) -> None:
    algorithm, spec = asynchronous("one-plus-one-rl", inheritance=inheritance)
    improved: dict[str, Any] = {}
    for result in results(algorithm, spec, 40):
        job = result.job
        if isinstance(job, ImproveAndEvaluate):
            improved = {
                "drawn": job.episode.params,
                "improved": result.outcomes[0].arrays.get("params"),
                "fitness": result.outcomes[0].fitness,
            }
        elif result.job.kind == "mean" and improved["improved"] is not None and improved["fitness"] > result.outcomes[0].fitness:
            np.testing.assert_array_equal(algorithm.center, improved[moves_to])
            return
    pytest.fail("nobody who learned beat the mean")


def test_nobody_learns_in_a_darwinian_world() -> None:
    algorithm, spec = asynchronous(inheritance="darwinian")
    assert {r.job.kind for r in results(algorithm, spec, 6)} == {"random", "es", "mean"}
    assert algorithm.gradient_steps == 0


def test_the_share_that_learns_is_held_though_learning_takes_longer() -> None:
    algorithm, spec = asynchronous(rl_ratio=0.3, mean_episodes=1, actor_steps_window=1)
    kinds = [r.job.kind for r in results(algorithm, spec, 30, name="virtual", workers=6, actor_seconds=1.0)]
    assert kinds.count("rl") / (kinds.count("rl") + kinds.count("es")) == pytest.approx(0.3, abs=0.05)


@pytest.mark.parametrize(("behaviour", "held"), [("fixed", True), ("faithful", False)])
def test_individuals_wait_for_a_slow_critic_unless_faithful(behaviour: str, held: bool) -> None:
    algorithm, spec = asynchronous(behaviour=behaviour, mean_episodes=1, actor_steps_window=1)
    list(results(algorithm, spec, 30, name="virtual", workers=5, critic_seconds=1.0, actor_seconds=1e-3))
    behind = algorithm.learning_steps - algorithm.critic_steps
    assert (behind <= 5 * 20 + 5 * 10) == held  # five chunks, and what was under way
    assert algorithm.critic_steps <= algorithm.learning_steps + 20


def test_the_critic_trains_with_the_mean_as_its_target_policy() -> None:
    algorithm, spec = asynchronous()
    list(results(algorithm, spec, 2))
    (job,) = algorithm.ask(1)
    assert isinstance(job, TrainCritic)
    np.testing.assert_array_equal(job.target_policies, algorithm.center[None])
    assert job.steps == 20


def test_what_is_drawn_from_is_not_overwritten_meanwhile() -> None:
    """While an individual learns, others play on only as far as the ring keeps what it draws from."""
    algorithm, spec = asynchronous(buffer_size=100, checkpoint_slack=200, back_pressure=False)
    furthest = 0
    for result in results(algorithm, spec, 30, name="virtual", workers=8, actor_seconds=10.0, critic_seconds=1e-4):
        drawing = [p.replay_total for p in algorithm._pending.values() if p.reads_replay]
        furthest = max([furthest, *(algorithm.replay.total - rows for rows in drawing)])
        del result
    assert 100 < furthest <= 200


def test_what_was_overwritten_all_the_same_does_not_count() -> None:
    """Without a step limit nobody knows how long episodes will be: the result is refused, live and from the journal."""
    algorithm, spec = asynchronous()
    list(results(algorithm, spec, 2))
    (job,) = algorithm.ask(1)
    (outcome,) = job.run(spec())
    before = algorithm.critic
    algorithm.replay.total += algorithm.replay.length
    algorithm.tell([outcome])
    assert algorithm.critic is before
    assert algorithm._failed_jobs == 1


def test_an_individual_is_not_lost_with_an_episode_of_the_mean() -> None:
    algorithm, spec = asynchronous()
    worker = spec()
    while not algorithm._awaiting_baseline:
        job = next_job(algorithm, worker)
        algorithm.tell(job.run(worker))
    (mean,) = algorithm.ask(1)
    algorithm.tell([type(job.run(worker)[0])(mean.tickets[0], float("nan"), reason="lost")])
    assert algorithm._awaiting_baseline
    assert algorithm.ask(1)[0].kind == "mean"


def test_parameters_that_are_not_numbers_never_leave_a_job() -> None:
    with pytest.raises(Diverged, match="the individual came out of the gradient steps with parameters that are not numbers"):
        check_finite(np.array([0.0, np.nan], np.float32), "the individual")


def test_staleness_is_the_updates_between_draw_and_update() -> None:
    algorithm, spec = asynchronous()
    list(results(algorithm, spec, 10, name="virtual", workers=6))
    people = [p for p in algorithm.individuals() if "staleness" in p]
    assert max(int(p["staleness"]) for p in people) >= 2
    assert {"kind", "index", "return", "length", "actor_steps", "baseline", "step_size", "staleness", "distance"} <= set(people[0])
    one, spec = asynchronous()
    list(results(one, spec, 10))
    assert {p["staleness"] for p in one.individuals() if "staleness" in p} == {0}


def test_switches_of_the_faithful_behaviour() -> None:
    """Trap 4: the window of (1+1)-ES; trap 11: target noise that does not know the action range."""
    for behaviour, frozen, noise in (("faithful", True, 0.1), ("fixed", False, 0.2)):
        for chosen, found in ((None, frozen), (True, True), (False, False)):
            algorithm, _ = asynchronous("one-plus-one-rl", behaviour=behaviour, strategy={"frozen_window": chosen})
            assert isinstance(algorithm.gaussian, OnePlusOne)
            assert algorithm.gaussian.config.frozen_window == found
        own = {"algorithm": {"name": "aes-rl", "behaviour": behaviour}, "env": {"id": "Pendulum-v1"}}  # actions within +-2
        rule = build(validate(own)).algorithm._learner_spec.config  # type: ignore[attr-defined]
        assert isinstance(rule, TD3UpdateConfig)
        assert (rule.target_noise, rule.target_noise_clip) == pytest.approx((noise, noise * 2.5))


def test_critic_training_from_the_journal_is_done_again() -> None:
    algorithm, spec = asynchronous()
    list(results(algorithm, spec, 2))
    (job,) = algorithm.ask(1)
    (outcome,) = job.run(spec())
    again, _ = asynchronous()
    again.load_state_dict(algorithm.state_dict())
    algorithm.tell([outcome])
    assert outcome.derived
    again.tell([type(outcome)(outcome.ticket, 0.0)])
    assert all(np.array_equal(algorithm.critic[name], again.critic[name]) for name in algorithm.critic)


def test_improving_an_individual_is_what_the_learner_does() -> None:
    algorithm, spec = asynchronous()
    worker = spec()
    while True:
        job = next_job(algorithm, worker)
        if isinstance(job, ImproveAndEvaluate) and job.steps:
            break
        algorithm.tell(job.run(worker))
    (outcome,) = job.run(worker)
    assert job.view is not None
    learner = make_learner(job.learner, job.episode.ticket, job.episode.obs_moments)
    learner.load_frozen_critic(worker.shared(CRITIC, job.critic_version))
    learner.set_actor(job.episode.params)
    before = learner.critic.vectors()
    learner.train_actor(job.view.sampler(job.learner.seed, job.episode.ticket), job.steps)
    np.testing.assert_array_equal(learner.actor_vectors()[0], outcome.arrays["params"])
    np.testing.assert_array_equal(learner.critic.vectors(), before)


def test_failed_jobs_are_counted_and_not_for_ever() -> None:
    algorithm, spec = asynchronous(env_name="Broken", kwargs={"how": "raise"})
    seen = 0
    for _ in results(algorithm, spec, 10):
        seen += algorithm._failed_jobs
    assert seen > 0
    algorithm, spec = asynchronous(env_name="BreaksLater")
    with pytest.raises(EnvironmentFailure, match=r"playing failed 10 times in a row, .*; the last reason: .*the wheel came off"):
        list(results(algorithm, spec, 1))


def test_a_scale_is_found_where_none_is_given() -> None:
    algorithm, _ = asynchronous()
    assert isinstance(algorithm.gaussian, AES)
    assert algorithm.gaussian.config.scale == "auto"


def test_without_a_warm_up_the_first_ones_cannot_learn() -> None:
    algorithm, spec = asynchronous(start_steps=0)
    kinds = [r.job.kind for r in results(algorithm, spec, 4)]
    assert kinds[0] == "es"
    assert "random" not in kinds
    assert "rl" in kinds


def test_a_rule_that_reads_no_baseline_plays_none() -> None:
    algorithm, spec = asynchronous("acem-rl")
    assert {r.job.kind for r in results(algorithm, spec, 8)} == {"random", "es", "rl", "critic"}
    assert algorithm.eval_steps == 0
    assert algorithm._distribution_version > 10


def test_an_individual_and_the_mean_may_share_their_start() -> None:
    """With a tiny variance they are the same policy: from the same start they have the same return, from others they do not."""
    tiny = {"variance": 1e-14, "variance_floor": 1e-15}
    spread = {}
    for shared in (False, True):
        algorithm, spec = asynchronous("one-plus-one-rl", strategy=tiny, rl_ratio=0.0, common_random_numbers=shared)
        list(results(algorithm, spec, 8))
        drawn = [p for p in algorithm.individuals() if p["kind"] == "es"]
        spread[shared] = float(np.std([float(p["return"]) - float(p["baseline"]) for p in drawn]))
    assert spread[False] > 0.5
    assert spread[True] < 1e-3
    with pytest.raises(ConfigError, match="common_random_numbers plays the mean once"):
        asynchronous(common_random_numbers=True, mean_episodes=5)


def test_jobs_name_the_critic_and_checkpoints_hold_it_once() -> None:
    """The whole critic with optimiser and targets is many times what an actor update reads."""
    algorithm, spec = asynchronous()
    for _ in results(algorithm, spec, 12, name="virtual", workers=6, actor_seconds=1.0):
        pass
    open_rl = [p for p in algorithm._pending.values() if p.kind == "rl"]
    assert open_rl
    assert algorithm.critic_version > 3
    job = next(algorithm._make_job(ticket) for ticket, p in algorithm._pending.items() if p.kind == "rl")
    critic = sum(a.nbytes for a in algorithm.critic.values())
    frozen = sum(a.nbytes for a in algorithm._frozen_critics[algorithm.critic_version].values())
    assert frozen * 7 < critic
    assert isinstance(job, ImproveAndEvaluate)
    assert not any(isinstance(getattr(job, name), dict) for name in ("learner", "episode", "steps", "critic_version"))
    state = algorithm.state_dict()
    assert set(state["frozen_critics"]) == {str(p.critic_version) for p in open_rl} - {str(algorithm.critic_version)}
    again, _ = asynchronous()
    again.load_state_dict(state)
    needed = {p.critic_version for p in open_rl} | {algorithm.critic_version}
    assert {s.version for s in again.publish() if s.key == CRITIC} == needed
