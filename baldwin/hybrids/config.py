"""What is configured for every hybrid, and its two gradient learners."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal, Self, get_args

from pydantic import AfterValidator, Field, PositiveInt, field_validator, model_validator

from baldwin.algorithm import ALGORITHMS, AlgorithmConfig, FailureLimits
from baldwin.learners import ActorCriticConfig, CriticConfig, SACUpdateConfig, TD3UpdateConfig
from baldwin.learners.off_policy_config import check_head
from baldwin.networks import PolicyConfig


class HybridCriticConfig(CriticConfig):
    """The network of the critics, as in AES-RL's configuration files."""

    hidden: list[PositiveInt] = Field([400, 300], description="Units of each hidden layer")
    activation: Literal["tanh", "relu", "selu", "leaky-relu"] = "leaky-relu"


def _refuse_delay(value: int) -> int:
    raise ValueError("hybrids never update critics and actor together, so that there is nothing to delay: leave policy_delay out")


def _refuse_noise(value: bool) -> bool:
    if value:
        raise ValueError(
            "noisy layers are for td3, sac and dqn alone: the individuals of a hybrid explore by their parameters. Leave noisy out"
        )
    return value


NO_PRIORITIES = (
    "prioritised replay is for td3, sac and dqn alone: critics and actors of a hybrid sample in several processes at once, "
    "which would have to share the priorities. Leave prioritized out"
)
NoDelay = Annotated[int, AfterValidator(_refuse_delay)]
NoNoise = Annotated[bool, AfterValidator(_refuse_noise)]


class HybridLearnerConfig(ActorCriticConfig):
    """Settings of a learner's update within a hybrid."""

    policy_delay: NoDelay = Field(1, exclude=True)
    noisy: NoNoise = Field(False, exclude=True)
    critic: HybridCriticConfig = HybridCriticConfig()
    threads: PositiveInt | Literal["auto"] = Field(1, description="CPU threads of a job's gradient steps: the executor brings the cores")

    def with_noise_unit(self, unit: float) -> Self:
        """A copy of the config whose target noise, if there is any, is converted from units of actions; half the action range is `unit`."""
        return self


class HybridTD3Config(HybridLearnerConfig, TD3UpdateConfig):
    """TD3 as the gradient learner. Defaults as in AES-RL's configuration files."""

    name: Literal["td3"] = "td3"
    actor_lr: float = Field(1e-3, gt=0)
    critic_lr: float = Field(1e-3, gt=0)

    def with_noise_unit(self, unit: float) -> Self:
        """A copy of the config whose target noise is converted from units of actions to units of half the action range, `unit`."""
        return self.model_copy(update={"target_noise": self.target_noise / unit, "target_noise_clip": self.target_noise_clip / unit})


class HybridSACConfig(HybridLearnerConfig, SACUpdateConfig):
    """SAC as the gradient learner; its temperature follows the entropy of the critics' target policy."""

    name: Literal["sac"] = "sac"


AnyLearnerConfig = HybridTD3Config | HybridSACConfig
LEARNERS = tuple(str(config.model_fields["name"].default) for config in get_args(AnyLearnerConfig))  # those that a hybrid takes
DEFAULT_LEARNER = HybridTD3Config()


class HybridConfig(AlgorithmConfig, FailureLimits):
    """Settings of every hybrid: its learner, its replay buffer, and how they work together."""

    plays_opponents: ClassVar[bool] = True
    policy_defaults: ClassVar[dict[str, Any]] = {"hidden": [400, 300], "activation": "tanh", "init": "torch", "normalize_obs": False}
    renamed: ClassVar[dict[str, str]] = {
        "capacity": "buffer_size",
        "surplus": "checkpoint_slack",
        "warmup_moves": "warmup_updates_distribution",
        "scaled_noise": "scale_target_noise",
    }

    behaviour: Literal["fixed", "faithful"] = Field(
        "fixed", description="What the switches below mean that are not set: see docs/algorithms.md"
    )
    learner: Annotated[AnyLearnerConfig, Field(discriminator="name")] = DEFAULT_LEARNER
    inheritance: Literal["lamarckian", "baldwinian", "darwinian"] = Field(
        "lamarckian",
        description="What the distribution is updated by, of an individual that learned: its new parameters; the parameters it was drawn with, "
        "with the fitness of the new ones; or nobody learns",
    )
    start_steps: int = Field(10_000, ge=0, description="Learning steps of random actions before anything else")
    buffer_size: PositiveInt = Field(200_000, description="Transitions in the replay buffer")
    checkpoint_slack: PositiveInt = Field(
        200_000, description="Transitions kept beyond those, for jobs that are in flight and for earlier checkpoints"
    )
    warmup_updates_distribution: bool | None = Field(None, description="Random episodes update the distribution. faithful: yes; fixed: no")
    scale_target_noise: bool | None = Field(None, description="Target noise is in units of the action range. faithful: no; fixed: yes")

    @model_validator(mode="before")
    @classmethod
    def _no_priorities(cls, section: Any) -> Any:
        parts = [section, section.get("learner")] if isinstance(section, Mapping) else []
        if any(isinstance(part, Mapping) and part.get("prioritized") for part in parts):
            raise ValueError(NO_PRIORITIES)
        return section

    @field_validator("learner", mode="before")
    @classmethod
    def _by_name(cls, value: Any) -> Any:
        value = {"name": value} if isinstance(value, str) else value
        if not isinstance(value, Mapping):
            return value
        named = {"name": DEFAULT_LEARNER.name, **value}
        if named["name"] in ALGORITHMS and named["name"] not in LEARNERS:
            raise ValueError(
                f"expected {' or '.join(LEARNERS)}, whose critics learn from the hybrid's replay buffer; "
                f"{named['name']} does not improve an actor so"
            )
        return named

    @classmethod
    def policy_defaults_for(cls, section: Mapping[str, Any]) -> dict[str, Any]:
        """Policy defaults of every hybrid, with the head that the chosen learner trains."""
        chosen = section.get("learner", DEFAULT_LEARNER.name)
        name = chosen.get("name", DEFAULT_LEARNER.name) if isinstance(chosen, Mapping) else chosen
        head = ALGORITHMS[name].config.policy_defaults.get("head") if name in LEARNERS else None
        return cls.policy_defaults | ({"head": head} if head else {})

    def check(self, policy: PolicyConfig, generations_kept: int) -> None:
        """The policy's head must fit the learner."""
        check_head(self.name, self.policy_defaults_for({"learner": self.learner.name}).get("head", "deterministic"), policy)

    def resolved(self) -> Self:
        """A copy of the config in which the learner's `auto` is replaced by its value on this machine."""
        return self.model_copy(update={"learner": self.learner.resolved()})

    def on_cpu(self) -> Self:
        """A copy of the config whose learner computes on a CPU."""
        return self.model_copy(update={"learner": self.learner.on_cpu()})

    @property
    def slack_for_checkpoints(self) -> int:
        """Half of the slack is for earlier checkpoints, the other half for jobs that are in flight."""
        return self.checkpoint_slack // 2

    @abstractmethod
    def steps_between_versions(self, episode: int) -> int:
        """Learning steps that a version may take with episodes of that length."""

    def resolve_switch(self, switch: bool | None, faithful: bool) -> bool:
        """A switch; where it is not set, `faithful` under behaviour=faithful and the opposite otherwise."""
        return switch if switch is not None else faithful == (self.behaviour == "faithful")
