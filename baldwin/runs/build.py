"""From a config to the parts of a run: the only place that names them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from baldwin.config import RunConfig
from baldwin.envs import World, probe
from baldwin.errors import EnvironmentFailure
from baldwin.executors.config import DeadlinePassed, deadline
from baldwin.ops import seeds
from baldwin.ops.noise import Noise
from baldwin.policies import ActionMap, make_policy
from baldwin.rollout import Evaluate, Plan, WorkerRecipe
from baldwin.strategies import OpenAIES, Search
from baldwin.types import Algorithm, Job, Perturbation, Trial

EVALUATION_LANES = 8


@dataclass(frozen=True, slots=True)
class Parts:
    """What a run is made of, before an executor brings it to life."""

    world: World
    algorithm: Search
    recipe: WorkerRecipe
    dim: int


def look(config: RunConfig) -> World:
    """A first look at the environment, with a deadline.

    Raises:
        EnvironmentFailure: it cannot be made, raises, hangs, or returns what its spaces forbid.
    """
    try:
        with deadline(config.executor.timeout, f"the first step of environment {config.env.id!r}"):
            return probe(config.env)
    except DeadlinePassed as error:
        raise EnvironmentFailure(f"{error}. Does it wait for something? Raise executor.timeout if it is only slow.") from error


def build(config: RunConfig) -> Parts:
    """All parts but the executor."""
    world = look(config)
    actions = ActionMap(world.action_space, config.policy.squash)
    policy = make_policy(config.policy, world.obs_size, actions.size)
    seed = config.run.seed
    center = policy.init(seed)
    strategy = OpenAIES(center, config.algorithm, seed=seed, shapes=policy.shapes)
    search = Search(
        strategy,
        config.algorithm,
        seed=seed,
        obs_size=world.obs_size,
        max_episode_steps=world.max_episode_steps,
        normalize=config.policy.normalize_obs,
    )
    return Parts(world, search, WorkerRecipe(config.env, world, config.policy), len(center))


def greedy_jobs(algorithm: Algorithm, world: World, dim: int, episodes: int, seed: int, *path: int) -> Sequence[Job]:
    """Jobs that play the shared centre on held-out seeds, a few lanes each."""
    lane_seeds = seeds.seeds(episodes, seed, seeds.Stream.EVALUATE, *path)
    center = Perturbation(Noise((0, 0), ((dim,),)), 0, 0, 0.0)
    jobs = []
    for first in range(0, episodes, EVALUATION_LANES):
        mine = lane_seeds[first : first + EVALUATION_LANES]
        padded = np.resize(mine, EVALUATION_LANES)  # a constant width keeps the lanes
        trials = tuple(Trial(first + n, algorithm.version, center) for n in range(len(mine)))
        jobs.append(Evaluate(trials, Plan("evaluate", algorithm.version, padded, skip=0, limit=world.max_episode_steps)))
    return jobs
