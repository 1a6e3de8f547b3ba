"""Weights & Biases: one W&B run for each run of Baldwin, online or in offline files."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field

from baldwin.config_base import ConfigModel
from baldwin.trackers.tracker import TrackedRun, TrackerEntry, register_tracker
from baldwin.types import Metrics


class WandbConfig(ConfigModel):
    """Tracker wandb: where the run appears."""

    project: str = Field("baldwin", min_length=1, max_length=128, description="The W&B project")
    entity: str | None = Field(None, description="The W&B user or team; null: your default one")
    mode: Literal["online", "offline"] | None = Field(
        None, description="offline: files in the run directory, for wandb sync; null: as $WANDB_MODE says, or online"
    )

    def foreign_code(self) -> list[str]:
        """An account that was chosen by whoever wrote the config: metrics would go there."""
        return [f"entity={self.entity}"] if self.entity else []


class WandbTracker:
    """The W&B run has the id of Baldwin's run, so that a resumed run finds it again without asking anyone."""

    def __init__(self, config: WandbConfig, run: TrackedRun) -> None:
        import wandb

        self.destination = f"{config.entity or ''}/{config.project}/{run.id}"
        self._writes = run.writes
        self._run = wandb.init(
            project=config.project,
            entity=config.entity,
            mode=config.mode,
            id=run.id,
            resume="allow",
            name=run.name,
            group=run.group,
            dir=run.folder,
            settings=wandb.Settings(console="off", silent=True),
        )
        self._run.define_metric("*", step_metric="env_steps")

    def log_config(self, config: Mapping[str, Any]) -> None:
        """Store the config; a resumed run may have other values of some keys."""
        self._run.config.update(dict(config), allow_val_change=True)

    def write(self, metrics: Metrics, step: int) -> None:
        """Add a row. Rows are numbered, as W&B ignores one whose number it has already."""
        self._run.log({**metrics, "env_steps": step}, step=self._writes)
        self._writes += 1

    def close(self) -> None:
        """Finish the W&B run; waits for its upload."""
        self._run.finish()


register_tracker(TrackerEntry("wandb", WandbTracker, WandbConfig, module="wandb", extra="wandb"))
