"""Curiosity: a bonus for steps that a model of the environment explains badly.

icm (Pathak et al. 2017, arXiv 1705.05363) predicts the next features of a network of its own, which an inverse model trains: they keep what
actions influence. forward and inverse are the variants of github.com/BlueFisher/Advanced-Soft-Actor-Critic: the errors of a forward and of
an inverse model of the encoder's features.
"""

from __future__ import annotations

from typing import Any, ClassVar, Literal

import torch
from pydantic import Field, PositiveFloat, PositiveInt, model_validator
from torch import Tensor

from baldwin.config_base import ConfigModel
from baldwin.learners.auxiliary import Bonus, WindowSteps, apply, make_mlp, section_by_kind
from baldwin.ops.exploration import action_error, half_squared_error


class CuriosityConfig(ConfigModel):
    """A bonus for what a model of the environment explains badly."""

    mutable: ClassVar[tuple[str, ...]] = ("strength", "lr")

    kind: Literal["none", "icm", "forward", "inverse"] = Field(
        "none",
        description="icm: error of predicting features that an inverse model trains; forward: of predicting the encoder's features; "
        "inverse: of the inverse model itself",
    )
    strength: PositiveFloat = Field(1.0, description="The bonus is this many times the error over its running standard deviation")
    lr: PositiveFloat = Field(3e-4, description="Learning rate of its networks")
    hidden: list[PositiveInt] = Field([256], description="Units of each hidden layer of its networks; 256 in ICM")
    feature_size: PositiveInt = Field(64, description="icm: numbers that its own features have")

    @model_validator(mode="before")
    @classmethod
    def _by_name(cls, data: Any) -> Any:
        return section_by_kind(data)


class ForwardCuriosity(Bonus):
    """|f(s, a) - s'|^2 / 2, for the encoder's features s."""

    bonus_error = "curiosity_forward"

    def __init__(
        self, config: CuriosityConfig, n_features: int, n_actions: int, discrete: tuple[int, ...], seed: int, device: torch.device
    ) -> None:
        self._forward = make_mlp(self.bonus_error, n_features + n_actions, n_features, config.hidden, config.lr, seed, device)
        super().__init__(config.strength, {self.bonus_error: self._forward})

    def errors(self, steps: WindowSteps) -> dict[str, Tensor]:
        """Half the squared error of the predicted next features [M]."""
        return {self.bonus_error: half_squared_error(apply(self._forward, steps.features, steps.action), steps.next_features)}


class InverseCuriosity(Bonus):
    """How badly g(s, s') explains the action: -log p of discrete ones, |g(s, s') - a|^2 / 2 of continuous ones."""

    bonus_error = "curiosity_inverse"

    def __init__(
        self, config: CuriosityConfig, n_features: int, n_actions: int, discrete: tuple[int, ...], seed: int, device: torch.device
    ) -> None:
        self._discrete = discrete
        self._inverse = make_mlp(self.bonus_error, 2 * n_features, n_actions, config.hidden, config.lr, seed, device)
        super().__init__(config.strength, {self.bonus_error: self._inverse})

    def errors(self, steps: WindowSteps) -> dict[str, Tensor]:
        """How badly the action is explained by the features before and after it [M]."""
        return {self.bonus_error: action_error(apply(self._inverse, steps.features, steps.next_features), steps.action, self._discrete)}


class ICM(Bonus):
    """|f(phi(s), a) - phi(s')|^2 / 2, where the inverse model g(phi(s), phi(s')) of the action alone trains the features phi."""

    bonus_error = "icm_forward"

    def __init__(
        self, config: CuriosityConfig, n_features: int, n_actions: int, discrete: tuple[int, ...], seed: int, device: torch.device
    ) -> None:
        self._discrete = discrete
        size, hidden, lr = config.feature_size, config.hidden, config.lr
        self._features = make_mlp("icm_features", n_features, size, hidden, lr, seed, device)
        self._inverse = make_mlp("icm_inverse", 2 * size, n_actions, hidden, lr, seed, device)
        self._forward = make_mlp("icm_forward", size + n_actions, size, hidden, lr, seed, device)
        super().__init__(config.strength, {"icm_features": self._features, "icm_inverse": self._inverse, "icm_forward": self._forward})

    def errors(self, steps: WindowSteps) -> dict[str, Tensor]:
        """Those of the inverse model, which reaches the features, and of the forward model, which does not."""
        phi, next_phi = apply(self._features, torch.cat((steps.features, steps.next_features))).chunk(2)
        predicted = apply(self._forward, phi.detach(), steps.action)
        return {
            "icm_inverse": action_error(apply(self._inverse, phi, next_phi), steps.action, self._discrete),
            "icm_forward": half_squared_error(predicted, next_phi.detach()),
        }


CURIOSITIES: dict[str, type[ICM] | type[ForwardCuriosity] | type[InverseCuriosity]] = {
    "icm": ICM,
    "forward": ForwardCuriosity,
    "inverse": InverseCuriosity,
}


def make_curiosity(
    config: CuriosityConfig, n_features: int, n_actions: int, discrete: tuple[int, ...], seed: int, device: torch.device
) -> Bonus | None:
    """The bonus that the config asks for, if any. `n_actions`: numbers of an action, one-hot branches included."""
    if config.kind == "none":
        return None
    return CURIOSITIES[config.kind](config, n_features, n_actions, discrete, seed, device)
