"""From a config to the parts of a run: the only place that names them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from baldwin.config import RunConfig
from baldwin.envs import World, probe
from baldwin.errors import ConfigError, EnvironmentFailure
from baldwin.executors.config import DeadlinePassed, deadline
from baldwin.learners import SAC, TD3, DiscreteSAC, Learner, LearnerConfig, OffPolicy, SACConfig, TD3Config, replay_columns
from baldwin.ops import seeds
from baldwin.ops.noise import Noise, Shape
from baldwin.policies import ActionMap, make_policy
from baldwin.replay import Replay
from baldwin.rollout import Evaluate, Plan, WorkerRecipe
from baldwin.strategies import (
    ACEM,
    AES,
    CEM,
    ACEMConfig,
    AESConfig,
    CEMConfig,
    ESConfig,
    OnePlusOne,
    OnePlusOneConfig,
    OpenAIES,
    Search,
    SearchConfig,
    Strategy,
)
from baldwin.types import Algorithm, Job, Perturbation, Trial

EVALUATION_LANES = 8


@dataclass(frozen=True, slots=True)
class Parts:
    """What a run is made of, before an executor brings it to life."""

    world: World
    algorithm: Algorithm
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


def build(config: RunConfig, folder: Path | None = None) -> Parts:
    """All parts but the executor; what an algorithm keeps in files of its own goes to `folder`."""
    world = look(config)
    actions = ActionMap(world.action_space, config.policy.squash, config.policy.head)
    recipe = WorkerRecipe(config.env, world, config.policy)
    if isinstance(config.algorithm, TD3Config | SACConfig):
        algorithm: Algorithm = _off_policy(config, config.algorithm, world, actions, folder)
    else:
        algorithm = _search(config, config.algorithm, world, actions)
    return Parts(world, algorithm, recipe, len(algorithm.policy_state()["params"]))


def _search(config: RunConfig, chosen: SearchConfig, world: World, actions: ActionMap) -> Search:
    policy = make_policy(config.policy, world.obs_size, actions.outputs)
    seed = config.run.seed
    return Search(
        strategy_of(chosen, policy.init(seed), policy.shapes, seed),
        chosen,
        seed=seed,
        obs_size=world.obs_size,
        max_episode_steps=world.max_episode_steps,
        normalize=config.policy.normalize_obs,
    )


def strategy_of(chosen: SearchConfig, center: NDArray[np.float32], shapes: tuple[Shape, ...], seed: int) -> Strategy:
    """The strategy that a config describes, about this centre."""
    if isinstance(chosen, CEMConfig):
        return CEM(center, chosen, seed=seed)
    if isinstance(chosen, ACEMConfig):
        return ACEM(center, chosen, seed=seed)
    if isinstance(chosen, OnePlusOneConfig):
        return OnePlusOne(center, chosen, seed=seed)
    if isinstance(chosen, AESConfig):
        return AES(center, chosen, seed=seed)
    assert isinstance(chosen, ESConfig)
    return OpenAIES(center, chosen, seed=seed, shapes=shapes)


def _off_policy(config: RunConfig, chosen: TD3Config | SACConfig, world: World, actions: ActionMap, folder: Path | None) -> OffPolicy:
    box = isinstance(world.action_space, spaces.Box)
    if not (box and actions.bounded) and not (chosen.name == "sac" and isinstance(world.action_space, spaces.Discrete)):
        raise ConfigError(
            f"{chosen.name} needs {'a bounded Box or Discrete actions' if chosen.name == 'sac' else 'actions in a bounded Box'}; "
            f"got {world.action_space}. Wrap the environment, or use algorithm.name=es"
        )
    seed, sizes = config.run.seed, {"obs_size": world.obs_size, "actions": actions.size}
    learner: Learner
    if isinstance(chosen, TD3Config):
        learner = TD3(config.policy, chosen, **sizes, seed=seed)
    else:
        learner = (SAC if box else DiscreteSAC)(config.policy, chosen, **sizes, seed=seed)
    no_action = np.empty((0, actions.size), np.float32) if box else np.empty(0, np.int64)
    try:
        replay = Replay(replay_columns(world.obs_size, no_action), chosen.capacity, seed=seed, folder=folder, surplus=chosen.surplus)
    except (MemoryError, ValueError, OverflowError) as error:
        raise ConfigError(f"a replay of algorithm.capacity={chosen.capacity} transitions does not fit: {error}. Lower it") from error
    return OffPolicy(
        learner,
        replay,
        chosen,
        seed=seed,
        explore="noise" if isinstance(chosen, TD3Config) else "sample",
        noise=chosen.explore_noise if isinstance(chosen, TD3Config) else 0.0,
        obs_size=world.obs_size,
        max_episode_steps=world.max_episode_steps,
        normalize=config.policy.normalize_obs,
        no_action=no_action,
    )


def portable(config: RunConfig) -> RunConfig:
    """The same run, computed on a CPU: to look at it needs no GPU."""
    if not isinstance(config.algorithm, LearnerConfig):
        return config
    return config.model_copy(update={"algorithm": config.algorithm.model_copy(update={"device": "cpu"})})


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
