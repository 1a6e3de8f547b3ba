"""Episodes are played here, and nowhere else."""

from baldwin.rollout.jobs import Evaluate
from baldwin.rollout.play import Plan
from baldwin.rollout.worker import RolloutWorker, WorkerRecipe

__all__ = ["Evaluate", "Plan", "RolloutWorker", "WorkerRecipe"]
