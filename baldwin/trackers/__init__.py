"""Where metrics go besides the files of a run: TensorBoard, Weights & Biases, MLflow, and those of plugins."""

from __future__ import annotations

from baldwin.trackers import tensorboard  # noqa: F401 - registers itself
from baldwin.trackers.mlflow import MlflowConfig
from baldwin.trackers.tracker import TRACKERS, TrackedRun, Tracker, TrackerEntry, check_trackers, register_tracker
from baldwin.trackers.wandb import WandbConfig

__all__ = ["TRACKERS", "MlflowConfig", "TrackedRun", "Tracker", "TrackerEntry", "WandbConfig", "check_trackers", "register_tracker"]
