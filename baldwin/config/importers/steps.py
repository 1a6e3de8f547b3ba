"""How often a learner with a replay buffer can be saved."""

from __future__ import annotations

from typing import Any

from baldwin.config.model import RunSection
from baldwin.learners.off_policy_config import OffPolicyConfig


def checkpoints_for(n_envs: int, rollout_length: int | None = None) -> dict[str, Any]:
    """Keys that let the replay buffer hold what the kept checkpoints could sample, where the defaults would not do."""
    fields = OffPolicyConfig.model_fields
    segment = n_envs * (rollout_length or fields["rollout_length"].default)
    epoch = -(-fields["steps_per_epoch"].default // segment) * segment
    run, slack = RunSection(), fields["checkpoint_slack"].default
    every = slack // (run.keep * epoch)
    if every >= run.checkpoint_every:
        return {}
    return {"run.checkpoint_every": max(1, every)} | ({} if every else {"algorithm.checkpoint_slack": run.keep * epoch})
