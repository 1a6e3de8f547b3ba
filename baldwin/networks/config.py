"""Which network, of which parts, and what surrounds it."""

from __future__ import annotations

from typing import Any, ClassVar, Literal, Self

from pydantic import Field, PositiveInt, field_validator, model_validator

from baldwin.config_base import ConfigModel
from baldwin.networks.encoders import CONV_STACKS, ENCODERS
from baldwin.networks.memory import MEMORIES
from baldwin.networks.network import NETWORKS

Activation = Literal["tanh", "relu", "selu", "leaky-relu"]
AUTO, NONE = "auto", "none"


class ModuleConfig(ConfigModel):
    """A part that may be a user's own nn.Module."""

    kind: str
    module: str | None = Field(None, description="package.module:Class of your own nn.Module (docs/policies.md)")
    kwargs: dict[str, Any] = Field(default_factory=dict, description="Passed to your module")

    def foreign_code(self) -> list[str]:
        """The class of `module`, if it is set, and those of nested parts."""
        return ([f"module={self.module}"] if self.module else []) + super().foreign_code()

    @model_validator(mode="before")
    @classmethod
    def _module_implies_kind(cls, data: Any) -> Any:
        return {"kind": "module"} | data if isinstance(data, dict) and data.get("module") else data

    @model_validator(mode="after")
    def _module_goes_with_kind(self) -> Self:
        if (self.module is None) == (self.kind == "module"):
            raise ValueError("module and kind=module go together: set both or neither")
        return self


class EncoderConfig(ModuleConfig):
    """How one sensor is read."""

    kind: str = Field(
        AUTO, description="flat: as it is; mlp; conv; none: not seen; module for your own nn.Module; auto: conv for images, else flat"
    )
    conv: Literal["auto", "small", "nature", "impala", "strided"] = Field(
        "auto",
        description="small: 3x3 of 16 and 32; nature: DQN's; impala: residual; strided: four 3x3 of 32 with stride 2; auto: nature from 36 pixels on, "
        "else small",
    )
    hidden: list[PositiveInt] | None = Field(
        None, description="Layers of mlp (default 64), or behind the convolutions (default 128, 512, 256, none)"
    )
    size: PositiveInt = Field(64, description="module: features that it gives")
    activation: Activation | None = Field(None, description="Default: relu for conv, the network's own for mlp")
    norm: Literal["none", "virtual-batch"] = Field(
        "none", description="virtual-batch: normalise each channel by the statistics of a fixed batch (arXiv 1606.03498); for strategies"
    )
    center: bool = Field(
        False, description="With norm: virtual-batch, subtract from every pixel its mean over that batch: what never moves is not seen"
    )

    @model_validator(mode="before")
    @classmethod
    def _by_name(cls, data: Any) -> Any:
        """`camera: nature` is short for `camera: {kind: conv, conv: nature}`; `conv: nature` implies the kind."""
        if isinstance(data, str):
            data = {"conv": data} if data in CONV_STACKS else {"kind": data}
        return {"kind": "conv"} | data if isinstance(data, dict) and data.get("conv") else data

    @field_validator("kind")
    @classmethod
    def _kind_is_registered(cls, value: str) -> str:
        return value if value == AUTO else ENCODERS.check(value)

    @model_validator(mode="after")
    def _convolutions_are_for_conv(self) -> Self:
        if self.kind not in (AUTO, "conv") and (self.conv != AUTO or self.norm != NONE):
            raise ValueError(f"conv and norm are for kind=conv; got kind={self.kind}. Leave them out")
        if self.center and self.norm == NONE:
            raise ValueError("center needs the fixed batch of norm: virtual-batch. Set both")
        return self


class MemoryConfig(ModuleConfig):
    """What is carried from step to step of an episode."""

    kind: str = Field(NONE, description="none, lstm, gru, attention, module for your own nn.Module, or a plugin's")
    size: PositiveInt = Field(64, description="Units")
    keep_bias: float = Field(
        0.0,
        description="lstm, gru: added at the start to the gate that keeps the memory; about log T remembers for T steps (arXiv 1804.11188)",
    )
    window: PositiveInt = Field(16, description="attention: steps that it looks at")
    heads: PositiveInt = Field(4, description="attention: heads")

    @model_validator(mode="before")
    @classmethod
    def _by_name(cls, data: Any) -> Any:
        return {"kind": data} if isinstance(data, str) else data

    @field_validator("kind")
    @classmethod
    def _kind_is_registered(cls, value: str) -> str:
        return value if value == NONE else MEMORIES.check(value)


class NetworkConfig(ModuleConfig):
    """A network: an encoder for each sensor, memory, and a perceptron; or a module of your own."""

    kind: str = Field("mlp", description="mlp: made of the parts below; module for your own nn.Module; or a plugin's")
    hidden: list[PositiveInt] = Field([64, 64], description="Units of each hidden layer behind encoders and memory; [] is linear")
    activation: Activation = "tanh"
    init: Literal["normc", "xavier", "torch", "orthogonal"] = Field(
        "normc",
        description="normc: unit-norm weights, zero bias; xavier: uniform, zero bias; torch: nn.Linear's own; orthogonal: as in PPO",
    )
    output_scale: float = Field(0.01, gt=0, description="normc and orthogonal: the norm of each output unit's weights")
    images: EncoderConfig = Field(EncoderConfig(), description="The encoder of every image that `encoders` does not name")
    encoders: dict[str, EncoderConfig] = Field(default_factory=dict, description="Encoders of single sensors, by name")

    def foreign_code(self) -> list[str]:
        """Classes of modules, also of encoders."""
        return super().foreign_code() + [f"encoders.{name}.{f}" for name, e in (self.encoders or {}).items() for f in e.foreign_code()]

    @field_validator("kind")
    @classmethod
    def _kind_is_registered(cls, value: str) -> str:
        return NETWORKS.check(value)

    @property
    def has_virtual_batch_norm(self) -> bool:
        """Whether some encoder needs a reference batch."""
        return any(e.norm != NONE for e in (self.images, *self.encoders.values()))


class PolicyConfig(NetworkConfig):
    """The policy: its network, its memory, its head, and the normalisation of observations."""

    presets: ClassVar[dict[str, dict[str, Any]]] = {
        "convnet-lstm": {
            "images": {"conv": "strided", "activation": "selu"},
            "memory": {"kind": "lstm", "size": 256},
            "hidden": [],
            "init": "torch",
        },
        "nature": {"images": {"conv": "nature"}, "hidden": [], "activation": "relu", "init": "torch"},
    }

    network: Literal["convnet-lstm", "nature"] | None = Field(
        None,
        description="Defaults of the other keys: convnet-lstm (four convolutions, LSTM 256, as in pytorch-es) or nature (DQN's convolutions, 512 units)",
    )
    memory: MemoryConfig = MemoryConfig()
    squash: Literal["tanh", "clip", "none"] = Field(
        "tanh", description="How outputs become continuous actions within the Box; none passes them on as they are"
    )
    head: Literal["deterministic", "gaussian"] = Field(
        "deterministic", description="gaussian: continuous actions get a learned standard deviation, for sac; greedy is still the mean"
    )
    normalize_obs: bool = Field(True, description="Scale vector sensors by running statistics, frozen within a generation")
    obs_clip: float = Field(5.0, gt=0, allow_inf_nan=True, description="Normalised observations are clipped to +- this; .inf: not at all")
    obs_std_floor: float = Field(0.1, gt=0, description="Smallest standard deviation that observations are divided by")

    @model_validator(mode="before")
    @classmethod
    def _preset_fills_gaps(cls, data: Any) -> Any:
        chosen = data.get("network") if isinstance(data, dict) else None
        if not isinstance(chosen, str) or chosen not in cls.presets:
            return data
        preset = cls.presets[chosen]
        nested = {key: preset[key] | data[key] for key in preset if isinstance(preset[key], dict) and isinstance(data.get(key), dict)}
        return preset | data | nested

    @model_validator(mode="after")
    def _a_module_is_the_whole_network(self) -> Self:
        if self.kind == "module" and (self.has_memory or self.encoders or self.has_virtual_batch_norm):
            raise ValueError("policy.module is the whole network: leave memory, encoders and images out, or use their own `module`")
        return self

    @property
    def has_memory(self) -> bool:
        """Whether the config asks for memory; a module of your own may have some, too."""
        return self.memory.kind != NONE
