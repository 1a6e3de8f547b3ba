"""A model that predicts: the next features, the reward, and what the features were made of. Training it shapes the encoder.

As in github.com/BlueFisher/Advanced-Soft-Actor-Critic, whose recurrent prediction model it follows; with memory in the encoder, features
tell the past.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar

import torch
from pydantic import BeforeValidator, Field, PositiveFloat, PositiveInt
from torch import Tensor
from torch.nn.functional import gaussian_nll_loss, mse_loss

from baldwin.config_base import ConfigModel
from baldwin.learners.auxiliary import Window, apply, load_networks, make_mlp, save_networks
from baldwin.networks import Obs, StackedNetwork
from baldwin.observations import VECTOR, ObservationSpec
from baldwin.ops.representation import kl_to_standard_normal, split_latent
from baldwin.types import State


class PredictionConfig(ConfigModel):
    """A model of next features, rewards and observations, which trains the encoder."""

    mutable: ClassVar[tuple[str, ...]] = ("lr", "weight", "transition_kl")

    weight: PositiveFloat = Field(1.0, description="Of its losses, beside that of the critics")
    adaptive: bool = Field(True, description="The encoder follows these losses only where they do not oppose that of the critics")
    transition_kl: float = Field(
        0.8, ge=0, description="Weight of the divergence of predicted features from a standard normal distribution"
    )
    lr: PositiveFloat = Field(3e-4, description="Learning rate of its networks")
    hidden: list[PositiveInt] = Field([64, 64, 64], description="Units of each hidden layer of its networks")
    images: bool = Field(False, description="Decode images too, by a perceptron: for small ones. Vectors are always decoded")
    extra: bool = Field(
        True, description="Vectors that are hidden from the policy (policy.encoders={SENSOR: none}) feed the transition, too"
    )


def _switch(value: Any) -> Any:
    if value is not None and not isinstance(value, bool | Mapping | PredictionConfig):
        raise ValueError("expected true, false, or settings such as {transition_kl: 0.8}")
    return ({} if value else None) if isinstance(value, bool) else value


PredictionSwitch = Annotated[PredictionConfig | None, BeforeValidator(_switch)]
"""The type of a config's `prediction`: true, false, or settings; false and null are None."""


class Prediction:
    """Three perceptrons: the transition of features, the reward of a step, and a decoder of observations."""

    def __init__(
        self,
        config: PredictionConfig,
        obs: ObservationSpec,
        n_features: int,
        n_actions: int,
        seed: int,
        device: torch.device,
        hidden: Sequence[str] = (),
    ) -> None:
        """`obs`: all sensors of the observations in a window; `hidden`: the vectors that the encoder does not see."""
        self._config, self.adaptive = config, config.adaptive
        self._images = {s.key: s.scale for s in obs.images} if config.images else {}
        decoded = obs.vector_size + (sum(obs.frames * math.prod(s.shape) for s in obs.images) if config.images else 0)
        self._extra = [obs.vectors[name] for name in hidden] if config.extra else []
        n_extra = sum(at.stop - at.start for at in self._extra)
        sizes = {"transition": (n_features + n_actions + n_extra, 2 * n_features), "reward": (n_features + n_actions, 1)}
        if decoded:
            sizes["decoder"] = (n_features, decoded)
        self._networks = {
            f"prediction_{name}": make_mlp(f"prediction_{name}", *size, config.hidden, config.lr, seed, device)
            for name, size in sizes.items()
        }

    def losses(self, window: Window) -> dict[str, Tensor]:
        """Each loss by name, times the weight; differentiable in `window.features`. An `adaptive` gate is for each of them."""
        steps = window.steps()
        extra = [window.obs[VECTOR][:, :-1][window.valid][:, at] for at in self._extra]
        mean, std = split_latent(apply(self._networks["prediction_transition"], steps.features, steps.action, *extra))
        nll = gaussian_nll_loss(mean, steps.next_target_features.detach(), std.square(), full=True, reduction="none")
        transition = nll + self._config.transition_kl * kl_to_standard_normal(mean, std)
        reward = apply(self._networks["prediction_reward"], steps.features, steps.action).squeeze(-1)
        found = {"prediction_transition": transition, "prediction_reward": mse_loss(reward, steps.reward, reduction="none")}
        if "prediction_decoder" in self._networks:
            real = window.real_obs()
            decoded = apply(self._networks["prediction_decoder"], window.features[real])
            found["prediction_decoder"] = mse_loss(decoded, self._decoder_target(window.obs, real), reduction="none")
        return {name: self._config.weight * each.sum() / max(each.numel(), 1) for name, each in found.items()}

    def loss(self, window: Window) -> Tensor:
        """The sum of the losses."""
        return torch.stack(list(self.losses(window).values())).sum()

    def networks(self) -> dict[str, StackedNetwork]:
        """The networks that are trained; after a backward pass of the loss, `descend` makes their Adam step."""
        return self._networks

    def state_dict(self) -> State:
        """Parameters and optimisers of transition, reward and decoder."""
        return save_networks(self._networks)

    def load_state_dict(self, state: State) -> None:
        """Continue from a `state_dict`."""
        load_networks(self._networks, state)

    def _decoder_target(self, obs: Obs, real: Tensor) -> Tensor:
        """Vectors, and images scaled and flat, side by side, [M, decoded]."""
        parts = [obs[VECTOR][real]] if VECTOR in obs else []
        parts += [obs[key][real].flatten(1) * scale for key, scale in self._images.items()]
        return torch.cat(parts, -1)
