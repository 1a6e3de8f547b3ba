"""The shape of a run's configuration. The model of each part lives with the part."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Self, Union

from pydantic import Discriminator, Field, SerializeAsAny, create_model, field_validator, model_validator

from baldwin import hybrids, learners, strategies  # noqa: F401 - their algorithms register themselves
from baldwin.algorithm import ALGORITHMS, AlgorithmConfig
from baldwin.config.preset import MAX_NAME
from baldwin.config_base import ConfigModel
from baldwin.envs import EnvConfig
from baldwin.executors import ExecutorConfig
from baldwin.networks import PolicyConfig
from baldwin.opponents import OpponentsConfig
from baldwin.populations import POPULATIONS, PopulationConfig
from baldwin.trackers import TRACKERS, MlflowConfig, WandbConfig


class RunSection(ConfigModel):
    """How a run is saved and evaluated."""

    name: str = Field("", description="What compare groups by; default: the preset")
    seed: int = Field(1, ge=0, description="Of everything random")
    evaluate_every: int = Field(10, ge=1, description="Generations between evaluations of the greedy policy")
    episodes: int = Field(16, ge=1, description="Held-out episodes of each evaluation")
    checkpoint_every: int = Field(10, ge=1, description="Generations between checkpoints")
    keep: int = Field(3, ge=2, description="Checkpoints to keep; the journal can rebuild any generation")
    out: Path = Field(Path("runs"), description="Where run directories are made")
    trackers: list[str] = Field(["tensorboard"], description="Where metrics go besides metrics.jsonl: tensorboard, wandb, mlflow")
    wandb: WandbConfig = WandbConfig()
    mlflow: MlflowConfig = MlflowConfig()

    @field_validator("name")
    @classmethod
    def _name_is_a_folder(cls, value: str) -> str:
        if len(value) > MAX_NAME or not value.isprintable() or "/" in value or "\\" in value or value.strip(" .") != value:
            raise ValueError(
                f"expected the name of a folder: at most {MAX_NAME} characters, no / or control characters, no dot or blank at its ends"
            )
        return value

    @field_validator("trackers")
    @classmethod
    def _trackers_are_registered(cls, value: list[str]) -> list[str]:
        return list(dict.fromkeys(TRACKERS.check(name) for name in value))

    @property
    def generations_kept(self) -> int:
        """Generations between the oldest checkpoint that is kept and the newest."""
        return self.keep * self.checkpoint_every

    def tracker_options(self, name: str) -> ConfigModel | None:
        """The section of a tracker; those of plugins have none."""
        return {"wandb": self.wandb, "mlflow": self.mlflow}.get(name)


class StopSection(ConfigModel):
    """When to stop: whichever comes first."""

    env_steps: int | None = Field(None, gt=0, description="Training steps of the environment")
    learning_steps: int | None = Field(
        None, gt=0, description="Those of them that were learned from: without what hybrids play only to evaluate"
    )
    wall_seconds: float | None = Field(None, gt=0)
    score: float | None = Field(None, description="Mean greedy return on held-out seeds")
    generations: int | None = Field(None, gt=0)


class RunConfig(ConfigModel):
    """Everything that defines a run: the keys of a config file."""

    env: EnvConfig
    policy: PolicyConfig = PolicyConfig()
    algorithm: SerializeAsAny[AlgorithmConfig]
    opponents: OpponentsConfig | None = Field(None, description="Whom the learning player meets; null: the world's own script")
    population: SerializeAsAny[PopulationConfig] | None = Field(
        None, description="Many members of this run with hyper-parameters of their own (baldwin evolve); null: one run (baldwin train)"
    )
    executor: ExecutorConfig = ExecutorConfig()
    run: RunSection = RunSection()
    stop: StopSection = StopSection()

    @model_validator(mode="after")
    def _algorithm_fits(self) -> Self:
        self.algorithm.check(self.policy, self.run.generations_kept)
        return self


def config_schema() -> dict[str, Any]:
    """The JSON schema of a config file, with every algorithm of the registry."""
    configs, populations = (tuple(entry.config for entry in registry.values()) for registry in (ALGORITHMS, POPULATIONS))
    any_algorithm: Any = Annotated[Union[configs], Discriminator("name")]  # noqa: UP007 - known only now
    any_population: Any = Annotated[Union[populations], Discriminator("name")]  # noqa: UP007
    own = create_model("RunConfig", __base__=RunConfig, algorithm=(any_algorithm, ...), population=(any_population | None, None))
    return own.model_json_schema()
