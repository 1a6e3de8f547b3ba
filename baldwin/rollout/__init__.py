"""The only place where environments are stepped: whole episodes, and segments that continue from job to job."""

from baldwin.rollout.collect_job import (
    ACTOR,
    CUT,
    DECIDED,
    FAILED,
    FINAL_OBS,
    INITIAL_ERROR,
    LATENCIES,
    MEMORY,
    NEXT_OBS,
    OBS,
    REPLACED,
    START_MEMORY,
    START_OBS,
    UNBEGUN,
    CollectJob,
    EpisodePosition,
    Lookahead,
    env_seed,
    episode_seed,
)
from baldwin.rollout.episodes import RolloutSpec
from baldwin.rollout.exploration import Amount, Exploration
from baldwin.rollout.jobs import OwnWorkerJob, RolloutJob
from baldwin.rollout.opponent_policies import FrozenPlayers
from baldwin.rollout.reference import reference_batch
from baldwin.rollout.results import RESULT, RETURN, mean_results, weigh_objectives
from baldwin.rollout.segments import final_observations, is_lost, transitions
from baldwin.rollout.worker import RolloutWorker, WorkerSpec

__all__ = [
    "ACTOR",
    "CUT",
    "DECIDED",
    "FAILED",
    "FINAL_OBS",
    "INITIAL_ERROR",
    "LATENCIES",
    "MEMORY",
    "NEXT_OBS",
    "OBS",
    "REPLACED",
    "RESULT",
    "RETURN",
    "START_MEMORY",
    "START_OBS",
    "UNBEGUN",
    "Amount",
    "CollectJob",
    "EpisodePosition",
    "Exploration",
    "FrozenPlayers",
    "Lookahead",
    "OwnWorkerJob",
    "RolloutJob",
    "RolloutSpec",
    "RolloutWorker",
    "WorkerSpec",
    "env_seed",
    "episode_seed",
    "final_observations",
    "is_lost",
    "mean_results",
    "reference_batch",
    "transitions",
    "weigh_objectives",
]
