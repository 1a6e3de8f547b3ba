from __future__ import annotations

from dataclasses import replace
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from baldwin.envs import EnvConfig, check_env
from baldwin.errors import EnvironmentFailure
from baldwin.networks import ActionMap, PolicyConfig, make_network
from baldwin.ops import seeds
from baldwin.ops.moments import Moments
from baldwin.rollout import CollectJob, EpisodePosition, RolloutWorker, WorkerSpec, env_seed


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


@pytest.mark.parametrize("how", ["raise", "nan", "nan-reward", "shape"])
def test_a_broken_environment_cuts_the_segment_short_and_not_the_next_one(how: str) -> None:
    config = EnvConfig(id="tests.toys.worlds:Broken", kwargs={"how": how}, max_episode_steps=10)
    made = WorkerSpec(config, check_env(config), PolicyConfig(hidden=[4], normalize_obs=False))
    worker, job = RolloutWorker(made), job_for(made, 10)
    jobs = [replace(job, ticket=n, positions=(replace(job.positions[0], episode=n),)) for n in range(12)]
    results = [worker.collect(j) for j in jobs]
    cut = [r for r in results if r.reason]
    assert 0 < len(cut) < 12
    assert {r.env_steps for r in cut} == {4}  # it breaks in the fifth step
    assert {r.env_steps for r in results if not r.reason} == {10}
    assert not any(r.failed for r in results)


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
