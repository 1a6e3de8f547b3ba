"""Training episodes whose transitions are stored: whole ones, or segments that continue from one job to the next.

An environment in the middle of an episode cannot be saved. But an episode is a pure function of its seed and its
actions, so a job says which episode each environment is in and which actions it has taken: a worker whose environments
are there continues them, any other one takes those actions again first. That makes a segment a pure function of its job.

An episode that fails ends with a step of which nothing came: no reward, truncated, and the observation is the one before. The next episode of that
environment begins, and the others go on.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from baldwin.errors import EnvironmentFailure
from baldwin.networks import (
    ActionMap,
    Forward,
    Inputs,
    Sampler,
    make_sampler,
)
from baldwin.observations import ACTION_MASK, Observation
from baldwin.ops import seeds
from baldwin.rollout.collect_job import (
    CUT,
    FINAL_OBS,
    MEMORIES,
    MEMORY,
    NEXT_OBS,
    OBS,
    START_MEMORY,
    START_OBS,
    CollectJob,
)
from baldwin.rollout.exploration import log_probs, policy_actions, random_actions
from baldwin.rollout.recorder import Recorder
from baldwin.rollout.running_envs import GIVE_UP, NO_EPISODE, RunningEnvs
from baldwin.types import Arrays, Outcome


@torch.inference_mode()
def collect(
    running: RunningEnvs, forward: Forward, act: ActionMap, job: CollectJob, features: Forward | None = None
) -> tuple[Arrays, int, str]:
    """Step the environments of a job. `forward`: of one network, (observations [L, ...], memory [L, S]) -> (outputs, memory).

    `features`: the same for what is behind its encoders and memory, which a job with novelty needs.

    Returns, for each key of an observation, obs/KEY [L, T + 1, ...] (newest frames; after an episode's end, the first of the
    next one) and final_obs/KEY [ends, ...] (all frames), environment by environment; action, reward and flags [L, T]; rewards
    [L, T, C] and elapsed [L, T], where the environment gives them; win [L, T], who won where an episode ended, in games against a pool; memory [L, S] after the last step, if the policy has any;
    memories [L, T, S] before each step and log_prob [L, T], where the job keeps them.
    Of actions from a distribution also log_prob [L, T], start_memory [L, S], and start_obs/KEY [L, ...], the first observation
    with all frames, of images that are stacked. Where players take turns, decided [L, T + 1] says whose actions count. Where episodes failed,
    failed, unbegun and cut. Then the number of steps that were simulated again, and why the first episode failed, if one did.

    Raises:
        EnvironmentFailure: an environment failed in all of its steps, five at least, or all did; or one in an episode that is needed whole.
    """
    rng = seeds.generator(job.seed, seeds.Stream.EXPLORE, job.ticket)
    replayed = running.fast_forward(job, act)
    memory = torch.from_numpy(np.stack([position.memory for position in job.positions]))
    log_std = None if job.log_std is None else torch.from_numpy(job.log_std)
    sample = make_sampler(act, log_std)
    numbers = np.array([position.episode for position in job.positions])
    record = Recorder(running, job.steps, None if job.steps is None else running.episode - numbers)
    start: dict[str, NDArray[Any]] = {}
    if job.explore == "distribution":
        start = {START_OBS + key: array.copy() for key, array in running.seen.arrays.items() if array.shape != running.newest[key].shape}
        start |= {START_MEMORY: memory.numpy().copy()} if memory.shape[1] else {}
    limit = job.max_episode_steps or np.iinfo(np.int64).max
    cut = False
    while record.count != job.steps:
        try:
            before, deciding = memory, record.deciding
            if job.keep_memory:
                record.memories.append(memory)
            actions, memory = choose_actions(forward, act, job, running.seen.tensors, memory, rng, record, sample, features)
            if deciding is not None and memory.shape[1]:
                memory = torch.where(torch.from_numpy(deciding)[:, None], memory, before)  # who waits has seen nothing new
            step = running.step(job.to_environment(act, actions), running.ids)
            truncated = ~step.terminated & (step.truncated | (running.elapsed >= limit))
            over = running.ids[step.terminated | truncated]
            record.add(actions, step, truncated, over, games=job.opponents is not None)
            if len(over) and memory.shape[1]:
                memory = memory.clone()  # a module may give out its state as output, too
                memory[torch.from_numpy(over).long()] = 0.0
            if job.steps is None and record.reason:
                raise EnvironmentFailure(record.reason)
            unbegun = np.zeros(len(running.ids), np.int64)
            if job.steps is None and len(over):
                running.episode[:] = NO_EPISODE
            elif len(over):
                numbers = running.episode[over] + 1
                running.begin(over, numbers, job)
                unbegun[over] = running.episode[over] - numbers
            record.add_observation(unbegun)
        except EnvironmentFailure as error:
            if job.steps is None or not record.count:
                raise
            cut, record.reason = True, record.reason or str(error)
            record.cut()
            break
        if job.steps is None and len(over):
            break
    failed = record.failed
    if failed.all() or (record.count >= GIVE_UP and failed.all(1).any()):
        raise EnvironmentFailure(record.reason)
    arrays = record.arrays() | start | record.kept() | running.latencies() | record.failures() | ({CUT: np.array(True)} if cut else {})
    if job.explore == "distribution":
        arrays["log_prob"] = record.log_prob(act, log_std)
    return arrays | ({MEMORY: memory.numpy()} if memory.shape[1] else {}), replayed, record.reason


def is_lost(outcome: Outcome) -> bool:
    """Whether all open episodes of a job's environments are given up: its segment failed, or was cut short."""
    return outcome.failed or CUT in outcome.arrays


def transitions(arrays: Arrays) -> Iterator[dict[str, NDArray[Any]]]:
    """The steps of each environment as rows for a replay buffer: obs/KEY and next_obs/KEY (newest frames), action, reward, flags.

    Also the memory before each step and the log-probability of its action, where the job kept them, and its frames, where the environment says them.
    Of players that take turns, rows are steps of the game, whoever decides.
    """
    used = 0
    keys = [name.removeprefix(OBS) for name in arrays if name.startswith(OBS)]
    for n in range(len(arrays["reward"])):
        rows = {name: arrays[name][n] for name in ("action", "reward", "terminated", "truncated")}
        rows |= {own: arrays[name][n] for name, own in ((MEMORIES, MEMORY), ("log_prob", "log_prob")) if name in arrays}
        rows |= {"elapsed": arrays["elapsed"][n]} if "elapsed" in arrays else {}
        ended = rows["terminated"] | rows["truncated"]
        ends = slice(used, used + int(ended.sum()))
        used = ends.stop
        for key in keys:
            obs = arrays[OBS + key][n]
            next_obs = obs[1:].copy()
            next_obs[ended] = arrays[FINAL_OBS + key][ends][:, -obs.shape[1] :]
            rows |= {OBS + key: obs[:-1], NEXT_OBS + key: next_obs}
        yield rows


def final_observations(arrays: Arrays) -> Iterator[Observation]:
    """The last observation [1, ...] of every episode that ended, with all frames, in the order of `transitions`."""
    names = [name for name in arrays if name.startswith(FINAL_OBS)]
    for n in range(len(arrays[names[0]])):
        yield {name.removeprefix(FINAL_OBS): arrays[name][n : n + 1] for name in names}


def choose_actions(
    forward: Forward,
    act: ActionMap,
    job: CollectJob,
    obs: Inputs,
    memory: Tensor,
    rng: np.random.Generator,
    record: Recorder,
    sample: Sampler,
    features: Forward | None = None,
) -> tuple[NDArray[Any], Tensor]:
    """Actions as the learner knows them, and the memory after this step."""
    count, mask = memory.shape[0], obs.get(ACTION_MASK)
    if job.explore == "distribution":
        out, memory = forward(obs, memory)
        record.outputs.append(out)
        if mask is not None:
            record.masks.append(mask.clone())
        return sample(out, mask, rng), memory
    out, before = torch.empty(count, 0), memory
    if job.explore != "random" or memory.shape[1]:
        out, memory = forward(obs, memory)
    if job.novelty and features and job.explore != "random":
        score = job.novelty.score(features(obs, before)[0])
        actions, log_prob = job.novelty.choose(act, job.explore, job.noise, out, mask, rng, score, with_log_prob=job.keep_log_prob)
        if job.keep_log_prob:
            record.log_probs.append(log_prob)
        return actions, memory
    if job.explore == "random":
        actions = random_actions(act, count, mask, rng)
    else:
        actions = policy_actions(act, job.explore, job.noise, out, mask, rng)
    if job.keep_log_prob:
        record.log_probs.append(log_probs(act, job.explore, job.noise, out, mask, actions))
    return actions, memory
