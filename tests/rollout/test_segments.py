from __future__ import annotations

from dataclasses import replace
from itertools import count
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from baldwin.envs import EnvConfig, check_env
from baldwin.errors import EnvironmentFailure
from baldwin.learners.episode_tracker import EpisodeTracker
from baldwin.networks import ActionMap, PolicyConfig, make_network
from baldwin.opponents import OPPONENTS, Mixture
from baldwin.ops import seeds
from baldwin.ops.moments import Moments
from baldwin.ops.seeds import mix
from baldwin.rollout import CollectJob, EpisodePosition, RolloutWorker, WorkerSpec, env_seed
from baldwin.types import Shared
from tests.toys import worlds


def worker_spec(env: str, backend: str = "auto", head: str = "deterministic", limit: int | None = None) -> WorkerSpec:
    config = EnvConfig(id=env, backend=backend, max_episode_steps=limit)  # type: ignore[arg-type]
    return WorkerSpec(config, check_env(config), PolicyConfig(hidden=[4], normalize_obs=False, head=head))  # type: ignore[arg-type]


def job_for(worker_spec: WorkerSpec, steps: int = 25, explore: str = "noise", n_envs: int = 1) -> CollectJob:
    act = ActionMap(worker_spec.env_spec.action_space, "tanh", worker_spec.policy.head)
    nothing = np.empty((0, act.size), np.float32) if act.continuous else np.empty(0, np.int64)
    return CollectJob(
        ticket=0,
        seed=5,
        params=make_network(worker_spec.policy, worker_spec.env_spec.obs, act.outputs).init(0),
        obs_moments=Moments.empty(worker_spec.env_spec.obs.vector_size).pack(),
        positions=tuple(EpisodePosition(n, 0, nothing) for n in range(n_envs)),
        steps=steps,
        explore=explore,  # type: ignore[arg-type]
        noise=0.3,
        max_episode_steps=worker_spec.env_spec.max_episode_steps,
    )


def same(one: Any, two: Any) -> bool:
    return all(np.array_equal(one.arrays[name], two.arrays[name]) for name in one.arrays)


def after(job: CollectJob, outcome: Any) -> CollectJob:
    """The job that goes on where this one stopped."""
    positions = []
    for row, where in enumerate(job.positions):
        ends = np.flatnonzero(outcome.arrays["terminated"][row] | outcome.arrays["truncated"][row])
        actions = outcome.arrays["action"][row]
        kept = actions[ends[-1] + 1 :] if len(ends) else np.concatenate([where.actions, actions])
        positions.append(EpisodePosition(where.env, where.episode + len(ends), kept))
    return replace(job, ticket=job.ticket + 1, positions=tuple(positions))


@pytest.mark.parametrize(
    ("env", "backend", "explore", "head"),
    [
        ("Hopper-v5", "mujoco", "noise", "deterministic"),
        ("Hopper-v5", "gymnasium", "sample", "gaussian"),
        ("Hopper-v5", "envpool", "random", "deterministic"),
        ("CartPole-v1", "gymnasium", "sample", "deterministic"),
        ("CartPole-v1", "envpool", "random", "deterministic"),
    ],
)
def test_any_worker_goes_on_where_another_stopped(env: str, backend: str, explore: str, head: str) -> None:
    made = worker_spec(env, backend, head)
    here, fresh = RolloutWorker(made), RolloutWorker(made)
    job = job_for(made, 25, explore, n_envs=2)
    for _ in range(4):
        outcome = here.collect(job)
        job = after(job, outcome)
        elsewhere = RolloutWorker(made)
        continued, replayed = here.collect(job), elsewhere.collect(job)
        assert same(continued, replayed)
        assert continued.replayed_steps == 0
        assert replayed.replayed_steps == sum(len(p.actions) for p in job.positions)
        here = elsewhere
        fresh.close()


def test_transitions_are_those_of_a_plain_loop() -> None:
    """Two episodes of Pendulum, which only the clock ends, step by step."""
    made = worker_spec("Pendulum-v1", "gymnasium", limit=20)
    outcome = RolloutWorker(made).collect(job_for(made, 50, "random"))
    a = outcome.arrays
    env = gym.make("Pendulum-v1").unwrapped
    assert outcome.env_steps == 50
    assert a["truncated"][0].nonzero()[0].tolist() == [19, 39]
    assert not a["terminated"].any()
    assert a["final_obs/vector"].shape == (2, 3)
    ends = 0
    for t in range(50):
        if t % 20 == 0:
            obs, _ = env.reset(seed=seeds.mix(int(env_seed(5, 0)[0]), t // 20))
        np.testing.assert_allclose(a["obs/vector"][0, t], obs, rtol=1e-6)
        obs, reward, *_ = env.step(2.0 * a["action"][0, t])
        assert a["reward"][0, t] == pytest.approx(reward, rel=1e-6)
        if a["truncated"][0, t]:
            np.testing.assert_allclose(a["final_obs/vector"][ends], obs, rtol=1e-6)
            ends += 1
        else:
            np.testing.assert_allclose(a["obs/vector"][0, t + 1], obs, rtol=1e-6)


def test_a_termination_at_the_last_step_is_no_truncation() -> None:
    made = worker_spec("CartPole-v1", "gymnasium")
    a = RolloutWorker(made).collect(job_for(made, 200, "random")).arrays
    assert a["terminated"].sum() > 3
    assert not (a["terminated"] & a["truncated"]).any()


@pytest.mark.parametrize("how", ["raise", "nan", "nan-reward", "shape", "nothing legal"])
def test_an_episode_that_fails_ends_alone(how: str) -> None:
    """With a step of which nothing came; the next one begins, and the environments beside it do what they would have done anyway."""
    name = "Stuck" if how == "nothing legal" else "Broken"
    config, whole = (EnvConfig(id=f"tests.toys.worlds:{name}", kwargs={"how": what}, max_episode_steps=10) for what in (how, ""))
    policy = PolicyConfig(hidden=[4], normalize_obs=False)
    made, plain = (WorkerSpec(c, check_env(c), policy) for c in (config, whole))
    worker, job = RolloutWorker(made), job_for(made, 30, "random", n_envs=6)
    outcome, expected = worker.collect(job), RolloutWorker(plain).collect(job)
    a, failed = outcome.arrays, outcome.arrays["failed"]
    assert outcome.reason
    assert not a["unbegun"].any()
    assert 0 < failed.sum() < 10
    assert (a["truncated"][failed].all(), a["terminated"].any(), a["reward"][failed].any()) == (True, False, False)
    for row, at in np.argwhere(failed).tolist():
        start = max(0, *(n + 1 for n in np.flatnonzero(a["truncated"][row]).tolist() if n < at), 0)
        assert at == start + 4  # it breaks in the fifth step
        end = int((a["truncated"][:row].sum()) + a["truncated"][row, :at].sum())
        np.testing.assert_array_equal(a["final_obs/vector"][end], a["obs/vector"][row, at])
    sound = [row for row in range(6) if not failed[row].any()]
    assert len(sound) > 1
    for name in ("obs/vector", "action", "reward", "truncated"):
        np.testing.assert_array_equal(a[name][sound], expected.arrays[name][sound])
    following = after(job, outcome)
    assert same(worker.collect(following), RolloutWorker(made).collect(following))


DUELS = {
    "pool": {"id": "tests.toys.duels:TornDuel"},
    "self-play": {"id": "tests.toys.duels:TornDuel", "self_play": True},
}


@pytest.mark.parametrize("kind", DUELS)
def test_matches_that_fail_or_do_not_begin_end_alone(kind: str) -> None:
    """Eight matches side by side, of eight rounds each: one of three breaks in its third round, and one of seven does not begin."""
    config, players = EnvConfig(**DUELS[kind]), 2 if kind == "self-play" else 1
    made = WorkerSpec(config, check_env(config), PolicyConfig(hidden=[4], normalize_obs=False))
    job = job_for(made, 30, "random", n_envs=8 * players)
    if kind == "pool":
        job = replace(job, opponents=Mixture(np.array([0, 1]), np.array([0.5, 0.5])))
    member = {"params": job.params, "obs_moments": job.obs_moments}
    workers = [RolloutWorker(made) for _ in range(3)]
    for worker in workers:
        worker.receive(Shared(OPPONENTS, 1, member, 1))  # type: ignore[arg-type]
    outcome = workers[0].collect(job)
    a = outcome.arrays
    assert "cut" not in a
    for row, where in enumerate(job.positions):
        seed, episode, at = int(env_seed(5, where.env - where.env % players)[0]), 0, 0
        failed, unbegun, ended = np.zeros(30, np.bool_), np.zeros(31, np.int64), np.zeros(30, np.bool_)
        while at <= 30:
            while mix(seed, episode) % 7 == 0:
                episode, unbegun[at] = episode + 1, unbegun[at] + 1
            breaks = mix(seed, episode) % 3 == 0
            at += 3 if breaks else 8
            if at <= 30:
                failed[at - 1], ended[at - 1] = breaks, True
            episode += 1
        np.testing.assert_array_equal(a["failed"][row], failed)
        np.testing.assert_array_equal(a["unbegun"][row], unbegun)
        np.testing.assert_array_equal(a["truncated"][row] | a["terminated"][row], ended)
        np.testing.assert_array_equal(a["truncated"][row], failed)
    tracker = EpisodeTracker(8 * players, np.empty(0, np.int64), made.env_spec.obs)
    tracker.add_segments(range(8 * players), a)
    assert tracker.pop_stats()["failed_episodes"] == a["failed"].sum() + a["unbegun"].sum() > 0
    following = replace(job, ticket=1, positions=tracker.positions(range(8 * players), [0] * 8 * players))
    following = replace(following, positions=tuple(replace(p, opponent=opponent(job, p.env, p.episode)) for p in following.positions))
    went_on, caught_up = workers[0].collect(following), workers[1].collect(following)
    assert (went_on.replayed_steps, caught_up.replayed_steps) == (0, sum(len(p.actions) for p in following.positions))
    assert same(went_on, caught_up)
    for worker in workers:
        worker.close()


def opponent(job: CollectJob, env: int, episode: int) -> int:
    return job.opponents.choose(job.seed, env, episode) if job.opponents else 0


def test_in_segments_of_one_step_an_episode_that_fails_ends_alone_too() -> None:
    config = EnvConfig(id="tests.toys.worlds:Broken", kwargs={"how": "raise"}, max_episode_steps=10)
    made = WorkerSpec(config, check_env(config), PolicyConfig(hidden=[4], normalize_obs=False))
    worker, job, failed = RolloutWorker(made), job_for(made, 1, "random", n_envs=6), 0
    for _ in range(30):
        outcome = worker.collect(job)
        assert outcome.replayed_steps == 0
        failed += int(outcome.arrays["failed"].sum()) if "failed" in outcome.arrays else 0
        job = after(job, outcome)
    assert 0 < failed < 10


def test_a_worker_that_takes_over_goes_on_where_another_environment_does_not_begin(monkeypatch: pytest.MonkeyPatch) -> None:
    """One is in the middle of its episode, which is done again meanwhile; the other's next one begins after a failure."""
    made = worker_spec("tests.toys.worlds:Chase")
    first = job_for(made, 5, "random", n_envs=2)
    actions = RolloutWorker(made).collect(first).arrays["action"][1]
    reset, tries = worlds.Chase.reset, count()

    def sometimes(self: worlds.Chase, **kwargs: Any) -> Any:
        if next(tries) == 0:
            raise RuntimeError("no server for a moment")
        return reset(self, **kwargs)

    monkeypatch.setattr(worlds.Chase, "reset", sometimes)
    position = replace(first.positions[0], episode=1), replace(first.positions[1], actions=actions)
    outcome = RolloutWorker(made).collect(replace(first, ticket=1, positions=position))
    assert not outcome.failed
    assert outcome.arrays["unbegun"][:, 0].tolist() == [1, 0]
    assert "did not begin" in outcome.reason


def test_an_environment_that_fails_in_every_step_fails_its_segment() -> None:
    config = EnvConfig(id="tests.toys.worlds:Broken", kwargs={"how": "raise"})
    made = WorkerSpec(config, check_env(config), PolicyConfig(hidden=[4], normalize_obs=False))
    always = replace(made, env=EnvConfig(id="tests.toys.worlds:Broken", kwargs={"how": "raise", "always": True}))
    with pytest.raises(EnvironmentFailure, match="the wheel came off"):
        RolloutWorker(always).collect(job_for(made, 10, n_envs=3))


def test_a_whole_episode_is_not_cut_short() -> None:
    config = EnvConfig(id="tests.toys.worlds:Broken", kwargs={"how": "raise"}, max_episode_steps=10)
    made = WorkerSpec(config, check_env(config), PolicyConfig(hidden=[4], normalize_obs=False))
    worker, job = RolloutWorker(made), replace(job_for(made, 10), steps=None)
    jobs = [replace(job, ticket=n, positions=(replace(job.positions[0], episode=n),)) for n in range(12)]
    with pytest.raises(EnvironmentFailure, match="the wheel came off"):
        _ = [worker.collect(j) for j in jobs]


def test_an_environment_may_write_into_the_action_it_is_given() -> None:
    made = worker_spec("tests.toys.worlds:Scribbler", limit=10)
    here, job = RolloutWorker(made), job_for(made, 7)
    job = after(job, here.collect(job))
    assert same(here.collect(job), RolloutWorker(made).collect(job))


def test_memory_ends_with_a_whole_episode() -> None:
    config = EnvConfig(id="tests.toys.delayed:Recall")
    policy = PolicyConfig(hidden=[], memory={"kind": "lstm", "size": 4}, normalize_obs=False)  # type: ignore[arg-type]
    made = WorkerSpec(config, check_env(config), policy)
    act = ActionMap(made.env_spec.action_space, "tanh")
    network = make_network(policy, made.env_spec.obs, act.outputs)
    start = EpisodePosition(0, 0, np.empty((0, 1), np.float32), np.zeros(network.state_size, np.float32))
    job = CollectJob(0, 5, network.init(0), Moments.empty(2).pack(), (start,), None, "distribution")
    arrays = RolloutWorker(made).collect(job).arrays
    assert arrays["terminated"][0, -1]
    assert not arrays["memory"].any()
