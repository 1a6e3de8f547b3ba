"""Which network, and how to make it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, Protocol, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, PositiveInt, model_validator
from torch import Tensor

from baldwin.ops.noise import Noise, Shape
from baldwin.policies.mlp import MLP
from baldwin.policies.module import ModulePolicy

Forward = Callable[[Tensor], Tensor]  # [N, obs] -> [N, out]


class PolicyConfig(BaseModel):
    """The network that evolves, and what surrounds it."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    kind: Literal["mlp", "module"] = Field("mlp", description="mlp, or module for your own nn.Module")
    hidden: list[PositiveInt] = Field([64, 64], description="Units of each hidden layer; [] is a linear policy")
    activation: Literal["tanh", "relu", "selu", "leaky-relu"] = "tanh"
    init: Literal["normc", "xavier", "torch"] = Field(
        "normc", description="normc: unit-norm weights, zero bias; xavier: uniform, zero bias; torch: nn.Linear's own"
    )
    output_scale: float = Field(0.01, gt=0, description="normc: the norm of each output unit's weights")
    squash: Literal["tanh", "clip", "none"] = Field(
        "tanh", description="How outputs become continuous actions within the Box; none passes them on as they are"
    )
    head: Literal["deterministic", "gaussian"] = Field(
        "deterministic", description="gaussian: continuous actions get a learned spread, for sac; greedy is still the mean"
    )
    normalize_obs: bool = Field(True, description="Scale observations by running statistics, frozen within a generation")
    obs_clip: float = Field(5.0, gt=0, description="Normalised observations are cut at +- this")
    obs_std_floor: float = Field(0.1, gt=0, description="No observation counts as varying less than this")
    module: str | None = Field(
        None, description="package.module:Class of your own nn.Module, made as Class(obs_size, action_size, **kwargs)"
    )
    kwargs: dict[str, Any] = Field(default_factory=dict, description="Passed to your module")

    @model_validator(mode="before")
    @classmethod
    def _a_module_says_its_kind(cls, data: Any) -> Any:
        return {"kind": "module"} | data if isinstance(data, dict) and data.get("module") else data

    @model_validator(mode="after")
    def _module_goes_with_kind(self) -> Self:
        if (self.module is None) == (self.kind == "module"):
            raise ValueError("policy.module and policy.kind=module go together: set both or neither")
        return self


class Policy(Protocol):
    """A family of networks, one for each flat parameter vector."""

    shapes: tuple[Shape, ...]

    def init(self, seed: int) -> NDArray[np.float32]:
        """Fresh parameters [D]."""

    def bind(self, rows: Tensor) -> Forward:
        """The forward pass of N networks whose parameters are the rows [N, D]; it sees later changes of the rows."""

    def bind_batches(self, rows: Tensor) -> Forward:
        """The same for a batch each, [N, B, obs] -> [N, B, out], differentiable in rows and inputs."""

    def bind_low_rank(self, center: Tensor, noise: Noise, rows: Tensor) -> Forward:
        """The forward pass of N networks around one centre [D]; rows [N, size] are scaled low-rank normals."""


def make_policy(config: PolicyConfig, obs_size: int, out_size: int) -> Policy:
    """The policy that the config describes."""
    if config.module is not None:
        return ModulePolicy(config.module, obs_size, out_size, config.kwargs)
    return MLP((obs_size, *config.hidden, out_size), config.activation, config.init, config.output_scale)
