"""The only place where environments are stepped: whole episodes, and segments that continue from job to job."""

from baldwin.rollout.episodes import RolloutSpec
from baldwin.rollout.jobs import RolloutJob
from baldwin.rollout.segments import CollectJob, EpisodePosition, episode_seed, transitions
from baldwin.rollout.worker import RolloutWorker, WorkerSpec

__all__ = [
    "CollectJob",
    "EpisodePosition",
    "RolloutJob",
    "RolloutSpec",
    "RolloutWorker",
    "WorkerSpec",
    "episode_seed",
    "transitions",
]
