"""Hyper-parameters that change while a learner trains."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, PositiveFloat, PositiveInt

from baldwin.config_base import ConfigModel
from baldwin.ops.schedules import scheduled


class StepSchedule(ConfigModel):
    """A value that moves from `start` to `end` within so many environment steps and stays there."""

    kind: Literal["linear", "cosine"] = "linear"
    start: PositiveFloat
    end: float = Field(0.0, ge=0)
    env_steps: PositiveInt

    def at(self, env_steps: int) -> float:
        """The value after so many steps."""
        return scheduled(self.kind, self.start, self.end, self.env_steps, env_steps)


def value_at(value: float | StepSchedule, env_steps: int) -> float:
    """A number, or a schedule's value after so many environment steps."""
    return value.at(env_steps) if isinstance(value, StepSchedule) else value
