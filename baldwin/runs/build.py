"""From a config to the parts of a run: the only place that names them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from baldwin.config import RunConfig
from baldwin.envs import World, probe
from baldwin.errors import ConfigError, EnvironmentFailure
from baldwin.executors.config import DeadlinePassed, deadline
from baldwin.hybrids import (
    ACEMRLConfig,
    AESRLConfig,
    Asynchronous,
    Body,
    CEMRLConfig,
    Generations,
    Hybrid,
    HybridConfig,
    OnePlusOneRLConfig,
    PCEMRLConfig,
    TD3Half,
)
from baldwin.learners import (
    LearnerConfig,
    OffPolicy,
    OffPolicyConfig,
    Recipe,
    SACConfig,
    SACRule,
    TD3Config,
    TD3Rule,
    replay_columns,
)
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
    SepCMA,
    SepCMAConfig,
    Steady,
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


def build(config: RunConfig, folder: Path | None = None, policy_only: bool = False) -> Parts:
    """All parts but the executor; what an algorithm keeps in files of its own goes to `folder`.

    `policy_only`: for a look at the policy's past; what it does not depend on need not be computed again.
    """
    world = look(config)
    actions = ActionMap(world.action_space, config.policy.squash, config.policy.head)
    recipe = WorkerRecipe(config.env, world, config.policy)
    if isinstance(config.algorithm, TD3Config | SACConfig):
        algorithm: Algorithm = _off_policy(config, config.algorithm, world, actions, folder)
    elif isinstance(config.algorithm, HybridConfig):
        algorithm = _hybrid(config, config.algorithm, world, actions, folder)
        algorithm.policy_only = policy_only
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
    if isinstance(chosen, SepCMAConfig):
        return SepCMA(center, chosen, seed=seed)
    if isinstance(chosen, ACEMConfig):
        return Steady(ACEM(center, chosen, seed=seed), chosen)
    if isinstance(chosen, OnePlusOneConfig):
        return Steady(OnePlusOne(center, chosen, seed=seed), chosen)
    if isinstance(chosen, AESConfig):
        return Steady(AES(center, chosen, seed=seed), chosen)
    assert isinstance(chosen, ESConfig)
    return OpenAIES(center, chosen, seed=seed, shapes=shapes)


def _off_policy(config: RunConfig, chosen: TD3Config | SACConfig, world: World, actions: ActionMap, folder: Path | None) -> OffPolicy:
    _must_be_smooth(chosen.name, chosen.name, world, actions)
    return OffPolicy(
        _recipe(config, chosen, world, actions).learner(),
        _replay(config, chosen, world, actions, folder),
        chosen,
        seed=config.run.seed,
        explore="noise" if isinstance(chosen, TD3Config) else "sample",
        noise=chosen.explore_noise if isinstance(chosen, TD3Config) else 0.0,
        obs_size=world.obs_size,
        max_episode_steps=world.max_episode_steps,
        normalize=config.policy.normalize_obs,
        no_action=_no_action(actions),
    )


def _hybrid(config: RunConfig, chosen: HybridConfig, world: World, actions: ActionMap, folder: Path | None) -> Hybrid:
    _must_be_smooth(chosen.name, chosen.learner.name, world, actions)
    _must_keep_enough(config, chosen, world)
    seed, rule = config.run.seed, chosen.learner
    if isinstance(rule, TD3Half) and not chosen.is_on(chosen.scaled_noise, faithful=False):
        unit = actions.half_range
        rule = rule.model_copy(update={"target_noise": rule.target_noise / unit, "target_noise_clip": rule.target_noise_clip / unit})
    center = make_policy(config.policy, world.obs_size, actions.outputs).init(seed)
    recipe, replay = _recipe(config, rule, world, actions), _replay(config, chosen, world, actions, folder)
    body = Body(recipe, replay, world.max_episode_steps, config.policy.normalize_obs, _no_action(actions))
    if isinstance(chosen, CEMRLConfig | PCEMRLConfig):
        return Generations(CEM(center, chosen.strategy, seed=seed), chosen, body)
    if isinstance(chosen, AESRLConfig):
        return Asynchronous(AES(center, chosen.strategy, seed=seed), chosen, body)
    if isinstance(chosen, ACEMRLConfig):
        return Asynchronous(ACEM(center, chosen.strategy, seed=seed), chosen, body)
    assert isinstance(chosen, OnePlusOneRLConfig)
    return Asynchronous(OnePlusOne(center, chosen.real_strategy, seed=seed), chosen, body)


def _must_keep_enough(config: RunConfig, chosen: HybridConfig, world: World) -> None:
    """The replay is longer than what may be drawn from, so that earlier checkpoints find their rows."""
    if world.max_episode_steps is None:
        return
    between = config.run.keep * config.run.checkpoint_every * chosen.steps_between_versions(world.max_episode_steps)
    if between > chosen.for_checkpoints:
        raise ConfigError(
            f"up to {between} steps lie between run.keep x run.checkpoint_every generations with episodes of {world.max_episode_steps} "
            f"steps, and algorithm.surplus={chosen.surplus} keeps {chosen.for_checkpoints} for going back to a checkpoint: "
            f"lower run.checkpoint_every or raise algorithm.surplus"
        )


def _must_be_smooth(name: str, learner: str, world: World, actions: ActionMap) -> None:
    box, discrete = (isinstance(world.action_space, kind) for kind in (spaces.Box, spaces.Discrete))
    if not (box and actions.bounded) and not (learner == "sac" and discrete):
        needed = "a bounded Box or Discrete actions" if learner == "sac" else "actions in a bounded Box"
        sac = "algorithm.name=sac" if name == learner else "algorithm.learner=sac"
        other = f"{sac} or algorithm.name=es" if discrete else "algorithm.name=es"
        raise ConfigError(f"{name} needs {needed}; got {world.action_space}. Wrap the environment, or use {other}")


def _recipe(config: RunConfig, rule: TD3Rule | SACRule, world: World, actions: ActionMap) -> Recipe:
    return Recipe(config.policy, rule, world.obs_size, actions.size, not actions.continuous, config.run.seed)


def _no_action(actions: ActionMap) -> NDArray[Any]:
    return np.empty((0, actions.size), np.float32) if actions.continuous else np.empty(0, np.int64)


def _replay(config: RunConfig, chosen: OffPolicyConfig | HybridConfig, world: World, actions: ActionMap, folder: Path | None) -> Replay:
    here = config.executor.name != "ray" or config.executor.address == "local"  # workers on other machines do not see our files
    columns = replay_columns(world.obs_size, _no_action(actions))
    try:
        return Replay(columns, chosen.capacity, seed=config.run.seed, folder=folder, surplus=chosen.surplus, shared=here)
    except (MemoryError, ValueError, OverflowError) as error:
        raise ConfigError(f"a replay of algorithm.capacity={chosen.capacity} transitions does not fit: {error}. Lower it") from error


def portable(config: RunConfig) -> RunConfig:
    """The same run, computed on a CPU: to look at it needs no GPU."""
    chosen, cpu = config.algorithm, {"device": "cpu"}
    if isinstance(chosen, HybridConfig):
        chosen = chosen.model_copy(update={"learner": chosen.learner.model_copy(update=cpu)})
    elif isinstance(chosen, LearnerConfig):
        chosen = chosen.model_copy(update=cpu)
    return config.model_copy(update={"algorithm": chosen})


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
