"""The rollout against a plain loop: one environment, one policy, one step after the other."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from baldwin.envs import EnvConfig, check_env
from baldwin.envs.envpool import make_pool
from baldwin.errors import StaleShare
from baldwin.networks import ActionMap, GreedyPolicy, PolicyConfig, make_network
from baldwin.ops.moments import Moments
from baldwin.ops.noise import Noise
from baldwin.rollout import RolloutSpec, RolloutWorker, WorkerSpec
from baldwin.types import CENTER, Outcome, Perturbation, Shared, Trial

POLICY = PolicyConfig(hidden=[8], init="torch")


def worker_for(env: EnvConfig, policy: PolicyConfig = POLICY, seed: int = 0) -> tuple[RolloutWorker, Any, np.ndarray, Moments]:
    env_spec = check_env(env)
    worker = RolloutWorker(WorkerSpec(env, env_spec, policy))
    actions = ActionMap(env_spec.action_space, policy.squash)
    center = make_network(policy, env_spec.obs, actions.size).init(seed)
    moments = Moments.of(np.random.default_rng(0).normal(0.1, 0.5, (50, env_spec.obs.vector_size)))
    worker.receive(Shared(CENTER, 0, {"params": center, "obs_moments": moments.pack()}, 0))
    return worker, env_spec, center, moments


def own(center: np.ndarray, n: int) -> list[Trial]:
    rng = np.random.default_rng(1)
    return [Trial(k, 0, center + 0.2 * rng.normal(size=len(center)).astype(np.float32)) for k in range(n)]


def spec(width: int, **kwargs: Any) -> RolloutSpec:
    return RolloutSpec(
        **({"purpose": "train", "version": 0, "seeds": np.repeat(np.arange(width // 2), 2), "first_episode": 0, "max_steps": 60} | kwargs)
    )


def plain_gymnasium(name: str, policy: GreedyPolicy, seed: int, episode: int, limit: int) -> tuple[float, int, bool, list[np.ndarray]]:
    env = gym.make(name)
    obs, _ = env.reset(seed=int(np.random.SeedSequence((seed, episode)).generate_state(1)[0] >> 1))
    total, seen = 0.0, []
    for step in range(1, limit + 1):
        seen.append(obs)
        obs, reward, terminated, truncated, _ = env.step(policy.act(obs))
        total += float(reward)
        if terminated or truncated:
            return total, step, not terminated, seen
    return total, limit, True, seen


@pytest.mark.parametrize(("name", "limit"), [("CartPole-v1", 60), ("Hopper-v5", 40)])
@pytest.mark.parametrize("n_envs", [8, 4])  # as many n_envs as members, and half as many: refilled
def test_gymnasium_rollouts_are_plain_loops(name: str, limit: int, n_envs: int) -> None:
    worker, env_spec, center, moments = worker_for(EnvConfig(id=name, backend="gymnasium"))
    trials = own(center, 8)
    outcomes = worker.evaluate(trials, spec(n_envs, max_steps=limit, first_episode=5, collect_moments=True))
    total = Moments.empty(env_spec.obs.vector_size)
    for trial, outcome in zip(trials, outcomes, strict=True):
        policy = GreedyPolicy(POLICY, env_spec.obs, env_spec.action_space, {"params": trial.params, "obs_moments": moments.pack()})
        env, number = trial.id % n_envs, trial.id // n_envs
        expected, steps, cut, seen = plain_gymnasium(name, policy, env // 2, 5 + number, limit)
        assert outcome.fitness == pytest.approx(expected, rel=1e-4)
        assert (outcome.env_steps, outcome.truncated) == (steps, float(cut))
        total = total.merge(Moments.of(np.stack(seen)))
    found = Moments.unpack(np.asarray(outcomes[0].arrays["obs_moments"]))
    assert found.count == total.count == sum(o.env_steps for o in outcomes)
    assert found.mean == pytest.approx(total.mean, rel=1e-3, abs=1e-3)
    assert found.std(0) == pytest.approx(total.std(0), rel=1e-3, abs=1e-3)


@pytest.mark.parametrize("n_envs", [8, 4])
def test_envpool_rollouts_are_plain_loops(n_envs: int) -> None:
    worker, env_spec, center, moments = worker_for(EnvConfig(id="Hopper-v5", backend="envpool"))
    trials = own(center, 8)
    outcomes = worker.evaluate(trials, spec(n_envs, max_steps=40, first_episode=3))
    for trial, outcome in zip(trials, outcomes, strict=True):
        policy = GreedyPolicy(POLICY, env_spec.obs, env_spec.action_space, {"params": trial.params, "obs_moments": moments.pack()})
        pool = make_pool(EnvConfig(id="Hopper-v5"), np.array([trial.id % n_envs // 2]))
        for _ in range(3 + trial.id // n_envs + 1):
            obs, _ = pool.reset()
        total, steps, over = 0.0, 0, False
        while not over and steps < 40:
            obs, reward, terminated, truncated, _ = pool.step(policy.act(obs[0])[None])
            total, steps, over = total + float(reward[0]), steps + 1, bool(terminated[0] or truncated[0])
        assert outcome.fitness == pytest.approx(total, rel=1e-4)
        assert outcome.env_steps == steps


@pytest.mark.parametrize("backend", ["gymnasium", "envpool"])
def test_the_two_of_a_pair_meet_the_same_worlds(backend: str) -> None:
    worker, _, center, _ = worker_for(EnvConfig(id="Pendulum-v1", backend=backend))
    same = [Trial(k, 0, center) for k in range(8)]
    fitness = [o.fitness for o in worker.evaluate(same, spec(8, seeds=np.repeat([11, 22, 33, 44], 2), max_steps=50, action_noise=0.3))]
    assert fitness[0::2] == fitness[1::2]
    assert len(set(fitness)) == 4


def test_action_noise_outlives_its_chunks() -> None:
    worker, _, center, _ = worker_for(EnvConfig(id="Pendulum-v1", backend="gymnasium", max_episode_steps=600))
    same = [Trial(k, 0, center) for k in range(2)]
    outcomes = worker.evaluate(same, spec(2, max_steps=600, action_noise=0.3))
    assert outcomes[0].fitness == outcomes[1].fitness
    assert outcomes[0].env_steps == 600
    assert outcomes[0].fitness != worker.evaluate(same, spec(2, max_steps=600))[0].fitness


@pytest.mark.parametrize("backend", ["gymnasium", "envpool", "mujoco"])
def test_a_job_is_a_pure_function_whoever_ran_what_before(backend: str) -> None:
    env = EnvConfig(id="Hopper-v5", backend=backend)
    fresh, _, center, _ = worker_for(env)
    used, _, _, _ = worker_for(env)
    used.evaluate(own(center, 6), spec(4, first_episode=2, episodes=2))
    job = (own(center, 8), spec(4, first_episode=9, episodes=2, collect_moments=True))
    first, second, third = fresh.evaluate(*job), used.evaluate(*job), used.evaluate(*job)
    assert [o.fitness for o in first] == [o.fitness for o in second] == [o.fitness for o in third]
    assert (first[0].arrays["obs_moments"] == second[0].arrays["obs_moments"]).all()


def test_several_episodes_are_averaged_and_all_their_steps_counted() -> None:
    worker, _, center, _ = worker_for(EnvConfig(id="tests.toys.worlds:Chase"))
    (thrice,) = worker.evaluate(own(center, 1), spec(2, episodes=3, max_steps=None))
    single = [worker.evaluate(own(center, 1), spec(2, first_episode=k, max_steps=None))[0].fitness for k in range(3)]
    assert thrice.fitness == pytest.approx(np.mean(single))
    assert thrice.env_steps == 30
    assert thrice.truncated == 1.0


def broken(how: str) -> list[Outcome]:
    worker, _, center, _ = worker_for(EnvConfig(id="tests.toys.worlds:Broken", kwargs={"how": how}))
    seeds = np.arange(16)
    return worker.evaluate(own(center, 16), spec(16, seeds=seeds, collect_moments=True))


@pytest.mark.parametrize(
    ("how", "reason"),
    [
        ("raise", "failed in step.*the wheel came off"),
        ("nan", "not finite"),
        ("nan-reward", "not finite"),
        ("shape", r"expected an observation of shape \(4,\)"),
    ],
)
def test_a_broken_environment_fails_its_trial_and_no_other(how: str, reason: str) -> None:
    outcomes = broken(how)
    bad = [o for o in outcomes if o.failed]
    good = [o for o in outcomes if not o.failed]
    assert bad
    assert good
    for o in bad:
        assert __import__("re").search(reason, o.reason)
    assert all(o.env_steps == 10 and not o.reason for o in good)
    assert np.isfinite(np.asarray(outcomes[0].arrays["obs_moments"])).all()


def test_members_may_be_any_number_of_lanes() -> None:
    worker, _, center, _ = worker_for(EnvConfig(id="CartPole-v1"))
    for members in (1, 3, 8, 13):
        outcomes = worker.evaluate(own(center, members), spec(8))
        assert [o.ticket for o in outcomes] == list(range(members))
        assert all(o.env_steps > 0 and not o.failed for o in outcomes)


def test_no_step_is_played_in_vain() -> None:
    steps = 0
    worker, _, center, _ = worker_for(EnvConfig(id="CartPole-v1"))
    worker.evaluate(own(center, 8), spec(8))
    env = worker._vector_envs["train"]
    original = env.step

    def count(actions: np.ndarray, ids: np.ndarray) -> Any:
        nonlocal steps
        steps += len(ids)
        return original(actions, ids)

    env.step = count  # type: ignore[method-assign]
    outcomes = worker.evaluate(own(center, 13), spec(8))
    assert steps == sum(o.env_steps for o in outcomes)


def test_a_stale_center_is_refused() -> None:
    worker, _, center, _ = worker_for(EnvConfig(id="CartPole-v1"))
    with pytest.raises(StaleShare, match="made for version 4 of 'center'; this worker holds \\[0\\]"):
        worker.evaluate([Trial(0, 4, Perturbation(Noise((1, 2), ((len(center),),)), 0, 0, 0.1))], spec(2, version=4))


def test_low_rank_trials_play_as_their_dense_selves() -> None:
    worker, env_spec, center, _ = worker_for(EnvConfig(id="Pendulum-v1", backend="gymnasium"))
    policy = make_network(POLICY, env_spec.obs, 1)
    noise = Noise((1, 2), policy.shapes, rank=2)
    thin = [Trial(n, 0, Perturbation(noise, 0, n // 2, 0.1 * (-1) ** n)) for n in range(4)]
    dense = [Trial(n, 0, center + 0.1 * (-1) ** n * noise.expand(noise.draw(0, n // 2)[None])[0]) for n in range(4)]
    a = [o.fitness for o in worker.evaluate(thin, spec(4, max_steps=20))]
    b = [o.fitness for o in worker.evaluate(dense, spec(4, max_steps=20))]
    assert a == pytest.approx(b, rel=1e-3)
