"""Segments of policies that remember and see: a pure function of their job, whoever collects them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from baldwin.envs import EnvConfig, check_env
from baldwin.networks import ActionMap, GreedyPolicy, PolicyConfig, make_network
from baldwin.ops.moments import Moments
from baldwin.rollout import CollectJob, EpisodePosition, RolloutJob, RolloutSpec, RolloutWorker, WorkerSpec, final_observations, transitions
from baldwin.types import Trial
from tests.rollout.test_segments import after, same


def spec_of(env: str, policy: dict[str, Any], **config: Any) -> WorkerSpec:
    env_config = EnvConfig(id=f"tests.toys.sensors:{env}", **config)
    return WorkerSpec(env_config, check_env(env_config), PolicyConfig(**({"hidden": [8], "output_scale": 1.0} | policy)))


def first_job(spec: WorkerSpec, steps: int, explore: str, n_envs: int = 2) -> CollectJob:
    act = ActionMap(spec.env_spec.action_space, "tanh")
    network = make_network(spec.policy, spec.env_spec.obs, act.outputs)
    memory = np.zeros(network.state_size, np.float32)
    return CollectJob(
        ticket=0,
        seed=5,
        params=network.init(0),
        obs_moments=Moments.empty(spec.env_spec.obs.vector_size).pack(),
        positions=tuple(EpisodePosition(n, 0, act.empty_actions(), memory) for n in range(n_envs)),
        steps=steps,
        explore=explore,  # type: ignore[arg-type]
    )


def go_on(job: CollectJob, outcome: Any) -> CollectJob:
    """The next job, by another policy, which continues with the memory of this one."""
    following = after(job, outcome)
    memories = outcome.arrays.get("memory", np.zeros((len(job.positions), 0), np.float32))
    positions = tuple(replace(p, memory=m) for p, m in zip(following.positions, memories, strict=True))
    return replace(following, positions=positions, params=(job.params * np.float32(1.3)))


CASES = [
    ("Recall", {"memory": {"kind": "lstm", "size": 6}}, {}, "sample"),
    ("Recall", {"memory": {"kind": "attention", "size": 8, "window": 3}}, {}, "random"),
    ("LookAndListen", {"memory": {"kind": "gru", "size": 6}}, {"frame_stack": 3}, "sample"),
    ("Catch", {}, {"frame_stack": 4}, "sample"),
    ("OnlyLegal", {}, {}, "random"),
]


@pytest.mark.parametrize(("env", "policy", "config", "explore"), CASES)
def test_any_worker_goes_on_where_another_died(env: str, policy: dict[str, Any], config: dict[str, Any], explore: str) -> None:
    made = spec_of(env, policy, **config)
    here, job = RolloutWorker(made), first_job(made, 4, explore)
    for _ in range(6):
        outcome = here.collect(job)
        job = go_on(job, outcome)
        elsewhere = RolloutWorker(made)  # one that has seen nothing of these episodes
        continued, replayed = here.collect(job), elsewhere.collect(job)
        assert continued.replayed_steps == 0
        assert same(continued, replayed)
        here, job = elsewhere, go_on(job, replayed)


def test_without_its_memory_a_segment_would_be_another() -> None:
    made = spec_of("Recall", {"memory": {"kind": "lstm", "size": 6}})
    job = first_job(made, 2, "sample", n_envs=1)
    job = go_on(job, RolloutWorker(made).collect(job))
    assert job.positions[0].memory.any()
    forgot = replace(job, positions=tuple(replace(p, memory=np.zeros_like(p.memory)) for p in job.positions))
    kept, lost = (RolloutWorker(made).collect(j).arrays["memory"] for j in (job, forgot))
    assert not np.array_equal(kept, lost)


def test_memory_is_empty_after_an_episodes_end() -> None:
    made = spec_of("Recall", {"memory": {"kind": "lstm", "size": 6}}, kwargs={"delay": 2})
    outcome = RolloutWorker(made).collect(first_job(made, 3, "greedy"))  # an episode has 3 steps
    assert outcome.arrays["terminated"][:, -1].all()
    assert not outcome.arrays["memory"].any()


def test_transitions_carry_newest_frames_and_final_observations_all() -> None:
    made = spec_of("Catch", {}, frame_stack=4)
    outcome = RolloutWorker(made).collect(first_job(made, 12, "random", n_envs=1))
    (rows,) = transitions(outcome.arrays)
    assert rows["obs/obs"].shape == (12, 1, 10, 10)
    assert rows["obs/obs"].dtype == np.uint8
    (last,) = final_observations(outcome.arrays)
    assert last["obs"].shape == (1, 4, 10, 10)
    end = int(np.flatnonzero(rows["terminated"])[0])
    np.testing.assert_array_equal(rows["next_obs/obs"][end], last["obs"][0, -1:])
    np.testing.assert_array_equal(rows["obs/obs"][end - 2 : end + 1, 0], last["obs"][0, :3])


@pytest.mark.parametrize(("env", "policy", "config", "explore"), CASES)
def test_whole_episodes_are_those_of_the_exported_policy(env: str, policy: dict[str, Any], config: dict[str, Any], explore: str) -> None:
    """Trials that share environments, one after the other, against a plain loop of load_policy's object."""
    made = spec_of(env, policy, **config)
    act = ActionMap(made.env_spec.action_space, "tanh")
    network, moments = make_network(made.policy, made.env_spec.obs, act.outputs), Moments.empty(made.env_spec.obs.vector_size)
    trials = tuple(Trial(n, 0, network.init(n)) for n in range(5))
    seeds = np.array([3, 4], np.int64)
    spec = RolloutSpec("train", 0, seeds, first_episode=0, episodes=2, obs_moments=moments.pack())
    outcomes = RolloutJob(trials, spec).run(RolloutWorker(made))
    from baldwin.envs.gymnasium import make_env
    from baldwin.ops.seeds import mix

    for n, trial in enumerate(trials):
        player = GreedyPolicy(
            made.policy, made.env_spec.obs, made.env_spec.action_space, {"params": trial.params, "obs_moments": moments.pack()}
        )
        total, env_object = 0.0, make_env(made.env)
        for episode in range(2):
            obs, info = env_object.reset(seed=mix(int(seeds[n % 2]), n // 2 * 2 + episode))
            player.reset()
            over = False
            while not over:
                obs, reward, terminated, truncated, info = env_object.step(player.act(obs, info))
                total, over = total + float(reward), terminated or truncated
        assert outcomes[n].fitness == pytest.approx(total / 2)
    assert torch.is_grad_enabled()
