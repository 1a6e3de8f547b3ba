"""Random network distillation (Burda et al. 2018, arXiv 1810.12894): what was seen often, a predictor of a fixed random network knows.

The error is a bonus, or chooses among several actions of the policy, as in github.com/BlueFisher/Advanced-Soft-Actor-Critic.
"""

from __future__ import annotations

from typing import Any, ClassVar, Literal, Self

import numpy as np
import torch
from pydantic import Field, PositiveFloat, PositiveInt, model_validator
from torch import Tensor

from baldwin.config_base import ConfigModel
from baldwin.learners.auxiliary import Bonus, Window, WindowSteps, apply, make_mlp, section_by_kind
from baldwin.ops.moments import Moments
from baldwin.rollout.novelty import Novelty
from baldwin.types import State

MAX_INPUT = 5.0  # standard deviations: Section 2.4
INPUT_STD_FLOOR = 0.01
INIT: dict[str, Any] = {"init": "orthogonal", "output_scale": 1.0}  # outputs of the random network must differ from state to state


class RNDConfig(ConfigModel):
    """Random network distillation: a bonus for, or a choice of, what was seldom seen."""

    mutable: ClassVar[tuple[str, ...]] = ("strength", "lr", "n_samples")

    kind: Literal["none", "reward", "action"] = Field(
        "none",
        description="reward: the error is a bonus; action: of several actions of the policy, the one with the largest error is executed",
    )
    input: Literal["state", "state-action"] = Field(
        "state-action", description="What is to be known: a step's state and action, or the state that it leads to, as in the paper"
    )
    strength: PositiveFloat = Field(1.0, description="reward: the bonus is this many times the error over its running standard deviation")
    n_samples: PositiveInt = Field(10, description="action: draws from the policy")
    lr: PositiveFloat = Field(3e-4, description="Learning rate of the predictor")
    hidden: list[PositiveInt] = Field([256], description="Units of each hidden layer of both networks")
    output_size: PositiveInt = Field(128, description="Outputs of both networks; 512 in the paper, for images")

    @model_validator(mode="before")
    @classmethod
    def _by_name(cls, data: Any) -> Any:
        return section_by_kind(data)

    @model_validator(mode="after")
    def _a_choice_needs_actions(self) -> Self:
        if self.kind == "action" and self.input == "state":
            raise ValueError("kind: action chooses among actions, which all have the same error with input: state. Use input: state-action")
        return self


class RND(Bonus):
    """|f(x) - f_random(x)|^2, for inputs x that are scaled by their running statistics. The random network is the predictor's slow copy,
    which never follows: so it is saved with the predictor."""

    bonus_error = "rnd"

    def __init__(
        self, config: RNDConfig, n_features: int, n_actions: int, discrete: tuple[int, ...], seed: int, device: torch.device
    ) -> None:
        self._with_action = config.input == "state-action"
        self._device = device
        n_inputs = n_features + (n_actions if self._with_action else 0)
        self._predictor, random = (
            make_mlp(name, n_inputs, config.output_size, config.hidden, config.lr, seed, device, **INIT) for name in ("rnd", "rnd_random")
        )
        self._predictor.set_target(random.vectors())
        super().__init__(config.strength, {self.bonus_error: self._predictor})
        self._set_inputs(Moments.empty(n_inputs))

    def errors(self, steps: WindowSteps) -> dict[str, Tensor]:
        """The squared error of the predictor against the random network [M]."""
        return {self.bonus_error: self._error(self._input_of(steps))}

    @torch.no_grad()
    def score(self, features: Tensor, action: Tensor) -> Tensor:
        """The error [K] for features [K, F] and actions [K, A]: the larger, the less is known about taking this action there."""
        return self._error(torch.cat((features, action), -1) if self._with_action else features)

    def novelty(self, n_samples: int) -> Novelty:
        """What workers choose actions by."""
        params = np.concatenate([self._predictor.vectors(), self._predictor.target.cpu().numpy()])
        mean, std = (x.cpu().numpy() for x in (self._mean, self._std))
        return Novelty(params, self._predictor.shapes, mean, std, MAX_INPUT, n_samples)

    def update(self, window: Window) -> dict[str, Tensor]:
        """Newer statistics of inputs, then as every bonus."""
        steps = window.detach().steps()
        if len(steps.reward):
            self._set_inputs(self._inputs.merge(Moments.of(self._input_of(steps).cpu().numpy())))
        return super().update(window)

    def state_dict(self) -> State:
        """Both networks, and the statistics of errors and inputs."""
        return super().state_dict() | {"inputs": self._inputs.pack()}

    def load_state_dict(self, state: State) -> None:
        """Continue from a `state_dict`."""
        super().load_state_dict(state)
        self._set_inputs(Moments.unpack(state["inputs"]))

    def _input_of(self, steps: WindowSteps) -> Tensor:
        return torch.cat((steps.features, steps.action), -1) if self._with_action else steps.next_features

    def _error(self, inputs: Tensor) -> Tensor:
        x = ((inputs - self._mean) / self._std).clamp(-MAX_INPUT, MAX_INPUT)
        with torch.no_grad():
            target = apply(self._predictor, x, target=True)
        return (apply(self._predictor, x) - target).square().sum(-1)

    def _set_inputs(self, moments: Moments) -> None:
        self._inputs = moments
        self._mean, self._std = (
            torch.tensor(x, dtype=torch.float32, device=self._device) for x in (moments.mean, moments.std(INPUT_STD_FLOOR))
        )


def make_rnd(config: RNDConfig, n_features: int, n_actions: int, discrete: tuple[int, ...], seed: int, device: torch.device) -> RND | None:
    """The networks that the config asks for, if any. `n_actions`: numbers of an action, one-hot branches included."""
    return None if config.kind == "none" else RND(config, n_features, n_actions, discrete, seed, device)
