"""What learners with a replay buffer have in common in the `algorithm:` section: how experience is collected and stored."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal, Self

from pydantic import Field, PositiveFloat, PositiveInt, field_validator

from baldwin.algorithm import AlgorithmConfig, FailureLimits
from baldwin.config_base import MAX_INT
from baldwin.learners.replay_learner import LearnerConfig
from baldwin.learners.window_config import WindowConfig
from baldwin.networks import PolicyConfig
from baldwin.replay import PrioritizedConfig


class OffPolicyConfig(LearnerConfig, WindowConfig, AlgorithmConfig, FailureLimits):
    """How experience is collected and stored."""

    mutable: ClassVar[tuple[str, ...]] = ("updates_per_step",)
    policy_defaults: ClassVar[dict[str, Any]] = {"hidden": [256, 256], "activation": "relu", "init": "torch", "normalize_obs": False}
    renamed: ClassVar[dict[str, str]] = {
        "lanes": "n_envs",
        "collect": "rollout_length",
        "overlap": "actor_lag",
        "capacity": "buffer_size",
        "surplus": "checkpoint_slack",
        "round": "steps_per_epoch",
    }

    plays_opponents: ClassVar[bool] = True

    start_steps: int = Field(10_000, ge=0, description="Random actions and no updates until then")
    updates_per_step: PositiveFloat = Field(1.0, description="Updates for each environment step (update-to-data ratio)")
    n_envs: PositiveInt = Field(1, description="Environments of a stream, stepped side by side")
    rollout_length: PositiveInt = Field(50, description="Steps of each environment between updates")
    actor_lag: int = Field(0, ge=0, description="Segments that are collected while others are learned from. off is 0, on is 1")
    exploration_spread: PositiveFloat = Field(
        1.0,
        description="The last environment explores by so many times the noise, or the random actions, of the first; those between in geometric steps",
    )
    buffer_size: PositiveInt = Field(1_000_000, description="Transitions in the replay buffer")
    checkpoint_slack: int = Field(
        100_000, ge=0, description="Transitions kept beyond those, so that an earlier checkpoint finds what it could sample"
    )
    prioritized: PrioritizedConfig | None = Field(
        None, description="Sample transitions by their TD errors: true, or other values than the defaults; null or false: uniformly"
    )
    steps_per_epoch: PositiveInt = Field(1000, description="Environment steps per line of metrics: the generation of this algorithm")

    @property
    def exploration_kind(self) -> Literal["noise", "sample", "epsilon", "greedy"]:
        """How actions are explored while collecting."""
        return "noise"

    def exploration_at(self, env_steps: int) -> float:
        """How much is explored after so many steps: the standard deviation of noise on actions, or the share of random ones."""
        return 0.0

    @property
    def resolved_steps_per_epoch(self) -> int:
        """An epoch ends with a segment."""
        segment = self.n_envs * self.rollout_length
        return -(-self.steps_per_epoch // segment) * segment

    def resolved_for_steps(self, env_steps: int | None) -> Self:
        """`prioritized.beta_updates: auto` becomes the number of updates in so many steps."""
        if not self.prioritized or self.prioritized.beta_updates != "auto" or env_steps is None:
            return self
        updates = max(1, round(max(0, env_steps - self.start_steps) * self.updates_per_step))
        return self.model_copy(update={"prioritized": self.prioritized.model_copy(update={"beta_updates": updates})})

    @field_validator("actor_lag", mode="before")
    @classmethod
    def _words(cls, value: Any) -> Any:
        return {"off": 0, "on": 1, False: 0, True: 1}.get(value, value) if isinstance(value, bool | str) else value

    @field_validator("prioritized", mode="before")
    @classmethod
    def _switch(cls, value: Any) -> Any:
        if value is not None and not isinstance(value, bool | Mapping | PrioritizedConfig):
            raise ValueError("expected true, false, or settings such as {alpha: 0.6}")
        return ({} if value else None) if isinstance(value, bool) else value

    def check(self, policy: PolicyConfig, generations_kept: int) -> None:
        """The policy's head must fit, and the buffer must hold what the kept checkpoints could sample."""
        check_head(self.name, self.policy_defaults.get("head", "deterministic"), policy)
        self.check_windows(self.name, policy)
        if self.rnd.kind == "action" and self.exploration_kind == "greedy":
            raise ValueError("algorithm.rnd=action chooses among several draws, which are all alike with algorithm.noisy. Leave one out")
        if self.exploration_spread != 1 and not any(self.exploration_at(steps) for steps in (0, MAX_INT)):
            raise ValueError(
                "algorithm.exploration_spread multiplies noise on actions or random ones, and there are none. "
                "Set algorithm.action_noise (sac), exploration_noise (td3) or epsilon_end (dqn), or leave it out"
            )
        if self.prioritized and self.prioritized.initial == "td-error" and self.trains_on_windows(policy):
            raise ValueError(
                "algorithm.prioritized.initial=td-error is for single transitions: the steps that a window's error needs come later. Use max"
            )
        if self.prioritized and self.prioritized.is_changed("eta") and not self.trains_on_windows(policy):
            raise ValueError(
                "algorithm.prioritized.eta is for windows of steps, which nothing here asks for. Set algorithm.sequence=8, or leave it out"
            )
        span = generations_kept * self.resolved_steps_per_epoch
        if span > self.checkpoint_slack:
            raise ValueError(
                f"run.keep x run.checkpoint_every x an epoch of {self.resolved_steps_per_epoch} steps is {span}, more than the "
                f"algorithm.checkpoint_slack={self.checkpoint_slack} that the replay keeps for going back to a checkpoint: "
                f"lower run.checkpoint_every"
            )


def check_head(name: str, head: str, policy: PolicyConfig) -> None:
    """Refuse a policy that the learner cannot train.

    Raises:
        ValueError: with what it needs.
    """
    if (policy.squash, policy.head) != ("tanh", head):
        raise ValueError(
            f"algorithm.name={name} needs policy.squash=tanh and policy.head={head}; got {policy.squash} and {policy.head}. Leave both out"
        )
