"""The shape of a run's configuration. Each part's own model lives with the part."""

from __future__ import annotations

from pathlib import Path
from typing import Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from baldwin.envs import EnvConfig
from baldwin.executors import ExecutorConfig
from baldwin.hybrids import ACEMRLConfig, AESRLConfig, CEMRLConfig, HybridConfig, OnePlusOneRLConfig, PCEMRLConfig
from baldwin.learners import OffPolicyConfig, SACConfig, TD3Config
from baldwin.policies import PolicyConfig
from baldwin.strategies import ACEMConfig, AESConfig, CEMConfig, ESConfig, OnePlusOneConfig, SepCMAConfig

ALGORITHM_CONFIGS: dict[str, type[BaseModel]] = {
    "es": ESConfig,
    "cem": CEMConfig,
    "sep-cma-es": SepCMAConfig,
    "acem": ACEMConfig,
    "one-plus-one": OnePlusOneConfig,
    "aes": AESConfig,
    "td3": TD3Config,
    "sac": SACConfig,
    "cem-rl": CEMRLConfig,
    "p-cem-rl": PCEMRLConfig,
    "acem-rl": ACEMRLConfig,
    "one-plus-one-rl": OnePlusOneRLConfig,
    "aes-rl": AESRLConfig,
}
AnyAlgorithm = (
    ESConfig
    | CEMConfig
    | SepCMAConfig
    | ACEMConfig
    | OnePlusOneConfig
    | AESConfig
    | TD3Config
    | SACConfig
    | CEMRLConfig
    | PCEMRLConfig
    | ACEMRLConfig
    | OnePlusOneRLConfig
    | AESRLConfig
)


class RunSection(BaseModel):
    """How a run is kept and watched."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str = Field("", description="What compare groups by; default: the preset")
    seed: int = Field(1, ge=0, description="Of everything random")
    evaluate_every: int = Field(10, ge=1, description="Generations between evaluations of the greedy policy")
    episodes: int = Field(16, ge=1, description="Held-out episodes of each evaluation")
    checkpoint_every: int = Field(10, ge=1, description="Generations between checkpoints")
    keep: int = Field(3, ge=2, description="Checkpoints to keep; the journal can rebuild any generation")
    out: Path = Field(Path("runs"), description="Where run directories are made")


class StopSection(BaseModel):
    """When to stop: whichever comes first."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    env_steps: int | None = Field(None, gt=0, description="Training steps of the environment")
    learning_steps: int | None = Field(
        None, gt=0, description="Those of them that were learned from: without what hybrids play only to judge"
    )
    wall_seconds: float | None = Field(None, gt=0)
    score: float | None = Field(None, description="Mean greedy return on held-out seeds")
    generations: int | None = Field(None, gt=0)


class RunConfig(BaseModel):
    """All that was chosen for a run."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    env: EnvConfig
    policy: PolicyConfig = PolicyConfig()
    algorithm: AnyAlgorithm = Field(ESConfig(), discriminator="name")
    executor: ExecutorConfig = ExecutorConfig()
    run: RunSection = RunSection()
    stop: StopSection = StopSection()

    @model_validator(mode="after")
    def _low_rank_must_know_the_layers(self) -> Self:
        if isinstance(self.algorithm, ESConfig) and self.algorithm.rank and self.policy.kind != "mlp":
            raise ValueError("algorithm.rank > 0 needs policy.kind=mlp: low-rank perturbations must know the layers. Set algorithm.rank=0")
        return self

    @model_validator(mode="after")
    def _learners_need_a_smooth_policy(self) -> Self:
        if not isinstance(self.algorithm, OffPolicyConfig | HybridConfig):
            return self
        learner = self.algorithm.learner if isinstance(self.algorithm, HybridConfig) else self.algorithm
        head = "gaussian" if learner.name == "sac" else "deterministic"
        if (self.policy.squash, self.policy.head) != ("tanh", head):
            raise ValueError(
                f"algorithm.name={self.algorithm.name} needs policy.squash=tanh and policy.head={head}; "
                f"got {self.policy.squash} and {self.policy.head}. Leave both out"
            )
        if not isinstance(self.algorithm, OffPolicyConfig):
            return self
        between = self.run.keep * self.run.checkpoint_every * self.algorithm.real_round
        if between > self.algorithm.surplus:
            raise ValueError(
                f"run.keep x run.checkpoint_every x a round of {self.algorithm.real_round} steps is {between}, more than the "
                f"algorithm.surplus={self.algorithm.surplus} that the replay keeps for going back to a checkpoint: lower run.checkpoint_every"
            )
        return self
