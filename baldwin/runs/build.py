"""From a config to the parts of a run."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from baldwin.algorithm import ALGORITHMS
from baldwin.config import RunConfig
from baldwin.envs import EnvSpec, check_env
from baldwin.errors import ConfigError, EnvironmentFailure
from baldwin.executors.config import DeadlinePassed, deadline
from baldwin.networks import ActionMap, make_network
from baldwin.ops import seeds
from baldwin.ops.noise import Noise
from baldwin.parts import Sections
from baldwin.populations import POPULATIONS, PopulationContext
from baldwin.populations.config import extremes
from baldwin.populations.groups import GroupsConfig, resolve_groups
from baldwin.populations.member import changed_sections, where_played
from baldwin.rollout import RolloutJob, RolloutSpec, WorkerSpec
from baldwin.runs.opponents import Policies, load_policies
from baldwin.types import Algorithm, Perturbation, Trial

EVALUATION_ENVS = 8


@dataclass(frozen=True, slots=True)
class Parts:
    """What a run is made of, besides an executor."""

    env_spec: EnvSpec
    algorithm: Algorithm
    worker_spec: WorkerSpec
    dim: int  # parameters of the policy
    opponents: Policies = ()  # that are in the pool at the start


def probe_env(config: RunConfig) -> EnvSpec:
    """Describe the environment and take one step in it, with a deadline.

    Raises:
        EnvironmentFailure: it cannot be made, raises, hangs, or returns what its spaces forbid.
    """
    try:
        with deadline(config.executor.timeout, f"the first step of environment {config.env.id!r}"):
            return check_env(config.env)
    except DeadlinePassed as error:
        raise EnvironmentFailure(f"{error}. Does it wait for something? Raise executor.timeout if it is only slow.") from error


def build(config: RunConfig, folder: Path | None = None, policy_only: bool = False, opponents: Policies | None = None) -> Parts:
    """All parts but the executor. What an algorithm keeps in files of its own goes to `folder`.

    `opponents`: those that are in the pool at the start, as the run has kept them; default: from the runs that the config names.

    `policy_only`: to rebuild an earlier policy; what it does not depend on need not be computed again.

    Raises:
        ConfigError: the algorithm cannot work in this environment.
        EnvironmentFailure: the environment cannot be used.
    """
    config = with_groups(config)
    env_spec = probe_env(config)
    if config.opponents:
        check_opponents(config, env_spec)
    if opponents is None:
        opponents = _load_opponents(config, env_spec)
    sections = Sections(config.env, env_spec, config.policy, config.algorithm, config.opponents)
    if not isinstance(config.population, GroupsConfig):  # which checks every group by itself
        sections.check_players()
    algorithm, worker_spec = sections.build(
        config.run.seed,
        generations_kept=config.run.generations_kept,
        folder=None if config.population else folder,
        shared_files=config.executor.sees_files,
        policy_only=policy_only,
        opponent_policies=opponents,
    )
    if config.population:
        algorithm = build_population(config, sections, folder)
    return Parts(env_spec, algorithm, worker_spec, len(algorithm.policy_state()["params"]), opponents)


def with_groups(config: RunConfig) -> RunConfig:
    """A copy of the config with the groups of players written out, and the environment of the first group; without groups, the config itself.

    Raises:
        ConfigError: a group that cannot be.
        EnvironmentFailure: the world cannot be made.
    """
    if not isinstance(config.population, GroupsConfig):
        return config
    for key, there in (("self_play", config.env.self_play), ("kwargs.player", "player" in config.env.kwargs)):
        if there:
            raise ConfigError(f"env.{key}: with population.name=groups every group plays its own players. Leave it out")
    groups = resolve_groups(config.population, config.env)
    first = next(iter(groups.values()))
    if config.env.players not in ([], first):
        raise ConfigError("env.players: with population.name=groups every group plays its own players. Leave it out")
    population = config.population.model_copy(update={"groups": groups})
    return config.model_copy(update={"population": population, "env": config.env.model_copy(update={"players": first})})


def build_population(config: RunConfig, sections: Sections, folder: Path | None) -> Algorithm:
    """Many members of the run that the sections describe.

    Raises:
        ConfigError: a range that cannot be searched, or an algorithm that cannot be a member.
    """
    assert config.population is not None
    config.population.check_search(sections)
    for key in where_played(config.population.search):
        if key.startswith("env."):
            for value in extremes(config.population.ranges[key]):
                probe_env(config.model_copy(update=changed_sections(config, {key: value})))
    if getattr(config.algorithm, "actor_lag", 0):
        raise ConfigError("population: a member is trained in one process, where nothing is collected meanwhile: set algorithm.actor_lag=0")
    if config.opponents or config.env.self_play:
        raise ConfigError("population: leave out opponents and env.self_play; members that play each other are population.name=league")
    if config.population.name == "league":
        check_opponents(config, sections.env_spec)
    alone = sections.algorithm.model_copy(update={"threads": 1}) if hasattr(config.algorithm, "threads") else config.algorithm
    context = PopulationContext(
        replace(sections, algorithm=alone), config.run.seed, folder, config.executor.sees_files, config.run.generations_kept
    )
    return POPULATIONS.find(config.population.name).build(config.population, context)


def _load_opponents(config: RunConfig, env_spec: EnvSpec) -> Policies:
    if not config.opponents:
        return ()
    act = ActionMap(env_spec.action_space, config.policy.squash, config.policy.head)
    size = sum(math.prod(shape) for shape in make_network(config.policy, env_spec.obs, act.outputs).shapes)
    return load_policies(config.opponents, config.policy, act, size)


def check_opponents(config: RunConfig, env_spec: EnvSpec) -> None:
    """Refuse what cannot meet opponents so far.

    Raises:
        ConfigError: with what to do.
    """
    problem = ""
    if env_spec.players < 2:
        problem = f"environment {config.env.id!r} has one player: there is nobody to play against"
    elif not env_spec.alike:
        problem = "the players see or do different things, so that members, who were learners, cannot play the others"
    elif config.env.self_play or config.env.players:
        problem = f"with env.{'self_play' if config.env.self_play else 'players'} the policy meets itself: leave one out"
    elif not config.algorithm.plays_opponents:
        able = [name for name, entry in ALGORITHMS.items() if entry.config.plays_opponents]
        problem = f"{config.algorithm.name} does not meet opponents so far; those that do: {', '.join(able)}"
    if problem:
        raise ConfigError(f"opponents: {problem}")


def on_cpu(config: RunConfig) -> RunConfig:
    """A copy of the config whose algorithm computes on a CPU: evaluating a trained policy needs no GPU."""
    return config.model_copy(update={"algorithm": config.algorithm.on_cpu()})


def evaluation_jobs(version: int, env_spec: EnvSpec, dim: int, episodes: int, seed: int, *path: int) -> Sequence[RolloutJob]:
    """Jobs that play the shared greedy policy on held-out seeds, a few environments each."""
    env_seeds = seeds.seeds(episodes, seed, seeds.Stream.EVALUATE, *path)
    center = Perturbation(Noise((0, 0), ((dim,),)), 0, 0, 0.0)
    jobs = []
    for first in range(0, episodes, EVALUATION_ENVS):
        mine = env_seeds[first : first + EVALUATION_ENVS]
        padded = np.resize(mine, EVALUATION_ENVS)  # a constant width lets workers keep their environments
        trials = tuple(Trial(first + n, version, center) for n in range(len(mine)))
        spec = RolloutSpec("evaluate", version, padded, first_episode=0, max_steps=env_spec.max_episode_steps)
        jobs.append(RolloutJob(trials, spec))
    return jobs
