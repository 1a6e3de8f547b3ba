"""Which network, and what surrounds it."""

from __future__ import annotations

from typing import Any, Literal, Self

from pydantic import Field, PositiveInt, field_validator, model_validator

from baldwin.config_base import ConfigModel
from baldwin.networks.network import NETWORKS


class NetworkConfig(ConfigModel):
    """A network from vectors to vectors."""

    kind: str = Field("mlp", description="mlp, module for your own nn.Module, or a plugin's")
    hidden: list[PositiveInt] = Field([64, 64], description="Units of each hidden layer; [] is linear")
    activation: Literal["tanh", "relu", "selu", "leaky-relu"] = "tanh"
    init: Literal["normc", "xavier", "torch"] = Field(
        "normc", description="normc: unit-norm weights, zero bias; xavier: uniform, zero bias; torch: nn.Linear's own"
    )
    output_scale: float = Field(0.01, gt=0, description="normc: the norm of each output unit's weights")
    module: str | None = Field(None, description="package.module:Class of your own nn.Module, made as Class(n_inputs, n_outputs, **kwargs)")
    kwargs: dict[str, Any] = Field(default_factory=dict, description="Passed to your module")

    def foreign_code(self) -> list[str]:
        """The class of `module`, if it is set."""
        return [f"module={self.module}"] if self.module else []

    @field_validator("kind")
    @classmethod
    def _kind_is_registered(cls, value: str) -> str:
        return NETWORKS.check(value)

    @model_validator(mode="before")
    @classmethod
    def _module_implies_kind(cls, data: Any) -> Any:
        return {"kind": "module"} | data if isinstance(data, dict) and data.get("module") else data

    @model_validator(mode="after")
    def _module_goes_with_kind(self) -> Self:
        if (self.module is None) == (self.kind == "module"):
            raise ValueError("module and kind=module go together: set both or neither")
        return self


class PolicyConfig(NetworkConfig):
    """The policy: its network, its head, and the normalisation of observations."""

    squash: Literal["tanh", "clip", "none"] = Field(
        "tanh", description="How outputs become continuous actions within the Box; none passes them on as they are"
    )
    head: Literal["deterministic", "gaussian"] = Field(
        "deterministic", description="gaussian: continuous actions get a learned standard deviation, for sac; greedy is still the mean"
    )
    normalize_obs: bool = Field(True, description="Scale observations by running statistics, frozen within a generation")
    obs_clip: float = Field(5.0, gt=0, allow_inf_nan=True, description="Normalised observations are clipped to +- this; .inf: not at all")
    obs_std_floor: float = Field(0.1, gt=0, description="Smallest standard deviation that observations are divided by")
