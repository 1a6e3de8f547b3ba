"""Episodes are played here, and nowhere else."""

from baldwin.rollout.collect import Collect, Where, transitions
from baldwin.rollout.jobs import Evaluate
from baldwin.rollout.play import Plan
from baldwin.rollout.worker import RolloutWorker, WorkerRecipe

__all__ = ["Collect", "Evaluate", "Plan", "RolloutWorker", "Where", "WorkerRecipe", "transitions"]
