"""What is chosen for every hybrid, and the two gradient halves."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, PositiveInt, field_validator

from baldwin.learners import SACRule, TD3Rule
from baldwin.learners.learner import CriticConfig


class HybridCriticConfig(CriticConfig):
    """The networks that judge, as in AES-RL's configuration files."""

    hidden: list[PositiveInt] = Field([400, 300], description="Units of each hidden layer")
    activation: Literal["tanh", "relu", "selu", "leaky-relu"] = "leaky-relu"


def no_delay(value: int) -> int:
    """Critics and actors learn apart here."""
    raise ValueError("hybrids never update critics and actor together, so that there is nothing to delay: leave policy_delay out")


NoDelay = Annotated[int, AfterValidator(no_delay)]


class TD3Half(TD3Rule):
    """TD3 as the gradient half. Defaults as in AES-RL's configuration files."""

    name: Literal["td3"] = "td3"
    policy_delay: NoDelay = Field(1, exclude=True)
    critic: HybridCriticConfig = HybridCriticConfig()
    actor_lr: float = Field(1e-3, gt=0)
    critic_lr: float = Field(1e-3, gt=0)
    threads: PositiveInt | Literal["auto"] = Field(1, description="CPU threads of a job's gradient steps: the executor brings the cores")


class SACHalf(SACRule):
    """SAC as the gradient half; its temperature follows the entropy of the critics' target policy."""

    name: Literal["sac"] = "sac"
    policy_delay: NoDelay = Field(1, exclude=True)
    critic: HybridCriticConfig = HybridCriticConfig()
    threads: PositiveInt | Literal["auto"] = Field(1, description="CPU threads of a job's gradient steps: the executor brings the cores")


HALVES: dict[str, type[BaseModel]] = {"td3": TD3Half, "sac": SACHalf}


class HybridConfig(BaseModel, ABC):
    """Evolution and gradient together."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    policy_defaults: ClassVar[dict[str, Any]] = {"hidden": [400, 300], "activation": "tanh", "init": "torch", "normalize_obs": False}

    name: str
    behaviour: Literal["fixed", "faithful"] = Field(
        "fixed", description="What the switches below mean that are not set: see docs/algorithms.md"
    )
    learner: Annotated[TD3Half | SACHalf, Field(discriminator="name")] = TD3Half()
    inheritance: Literal["lamarckian", "baldwinian", "darwinian"] = Field(
        "lamarckian",
        description="What evolution gets of an individual that learned: what it became; what it was born as, with the fitness of what it became; "
        "or nobody learns",
    )
    start_steps: int = Field(10_000, ge=0, description="Learning steps of random actions before anything else")
    capacity: PositiveInt = Field(200_000, description="Transitions that are remembered")
    surplus: PositiveInt = Field(
        200_000, description="Transitions kept beyond those, for work that is under way and for earlier checkpoints"
    )
    warmup_moves: bool | None = Field(None, description="Random episodes move the distribution. faithful: yes; fixed: no")
    scaled_noise: bool | None = Field(None, description="Target noise is in units of the action range. faithful: no; fixed: yes")

    @field_validator("learner", mode="before")
    @classmethod
    def _by_name(cls, value: Any) -> Any:
        value = {"name": value} if isinstance(value, str) else value
        return {"name": "td3", **value} if isinstance(value, Mapping) else value

    @classmethod
    def policy_for(cls, section: Mapping[str, Any]) -> dict[str, Any]:
        """What the policy is, unless said otherwise, for an algorithm section as it was written."""
        chosen = section.get("learner", "td3")
        name = chosen.get("name", "td3") if isinstance(chosen, Mapping) else chosen
        return cls.policy_defaults | ({"head": "gaussian"} if name == "sac" else {})

    @property
    def for_checkpoints(self) -> int:
        """How much of the surplus is for earlier checkpoints: the other half is for work that is under way."""
        return self.surplus // 2

    @abstractmethod
    def steps_between_versions(self, episode: int) -> int:
        """Learning steps that a version may take with episodes of so many."""

    def settled(self) -> Self:
        """With nothing left to the machine."""
        return self.model_copy(update={"learner": self.learner.settled()})

    def is_on(self, switch: bool | None, faithful: bool) -> bool:
        """A switch, or what `behaviour` makes of it."""
        return switch if switch is not None else faithful == (self.behaviour == "faithful")
