"""Representation losses of two views: what an encoder makes of one augmented observation should tell what its slow copy makes of another.

atc (Stooke et al. 2020, arXiv 2009.08319) contrasts an observation with the one `steps` later, byol (Grill et al. 2020, arXiv 2006.07733)
predicts another view of the same observation, contrastive Q lets critics agree on two views (Siamese-Q of
github.com/BlueFisher/Advanced-Soft-Actor-Critic). Each takes one observation of every window.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, Literal, Protocol

import torch
from pydantic import Field, PositiveFloat, PositiveInt, model_validator
from torch import Tensor

from baldwin.config_base import ConfigModel
from baldwin.errors import ConfigError
from baldwin.learners.auxiliary import Window, apply, load_networks, make_mlp, save_networks, section_by_kind
from baldwin.networks import Obs, StackedNetwork
from baldwin.observations import ACTION_MASK, VECTOR, map_arrays
from baldwin.ops.augment import SHIFT_PIXELS, add_noise, random_crop, random_shift
from baldwin.ops.representation import cosine_distance, info_nce
from baldwin.types import State


class Encode(Protocol):
    """An encoder without memory."""

    def __call__(self, obs: Obs, target: bool) -> Tensor:
        """Features [N, F] of observations [N, ...]; of the slow encoder, without gradient, if `target`."""


class QValues(Protocol):
    """Critics of features."""

    def __call__(self, features: Tensor, action: Tensor, target: bool) -> Tensor:
        """Values [critics, N] of actions [N, A] for features [N, F]; of the slow critics, if `target`."""


class SiameseConfig(ConfigModel):
    """Representation losses of two views of observations. Sizes are those of ATC's authors for the DeepMind control suite."""

    mutable: ClassVar[tuple[str, ...]] = ("lr", "weight", "images", "pixels", "noise")

    kind: Literal["none", "atc", "byol"] = Field(
        "none",
        description="atc: tell the observation `steps` later from those of other windows; byol: predict another view of the same one",
    )
    contrastive_q: bool = Field(False, description="Critics should give two views the same value (Siamese-Q)")
    adaptive: bool = Field(False, description="The encoder follows these losses only where they do not oppose that of the critics")
    weight: PositiveFloat = Field(1.0, description="Of these losses, beside that of the critics")
    lr: PositiveFloat = Field(3e-4, description="Learning rate of projection and prediction")
    steps: PositiveInt = Field(1, description="atc: how much later; at most the steps of a window. 3 for Atari in the paper")
    hidden: list[PositiveInt] = Field([512], description="Units of each hidden layer of the prediction, and of byol's projection")
    size: PositiveInt = Field(128, description="Numbers that are compared")
    images: Literal["shift", "crop", "none"] = Field(
        "shift", description="How images are augmented: moved (DrQ), cut out and enlarged again, or not at all"
    )
    pixels: PositiveInt = Field(SHIFT_PIXELS, description="By how much they are moved, or cut at each side")
    noise: float = Field(0.1, ge=0, description="Standard deviation of noise on vectors, which are normalised")

    @model_validator(mode="before")
    @classmethod
    def _by_name(cls, data: Any) -> Any:
        return {"kind": "none"} | dict(data) if isinstance(data, Mapping) and data.get("contrastive_q") else section_by_kind(data)


class RepresentationLoss(ABC):
    """A loss that trains the encoder, by views that it encodes anew.

    Without `encode` (an encoder with memory, which single observations cannot be given to) it compares the features of the window as they
    are, without augmentation; then it is differentiable in `window.features`.
    """

    def __init__(self, config: SiameseConfig, encode: Encode | None, networks: dict[str, StackedNetwork]) -> None:
        self._config, self._encode, self._networks = config, encode, networks

    @abstractmethod
    def loss(self, window: Window, generator: torch.Generator) -> Tensor:
        """The loss, times its weight; zero where the window has no real step."""

    def networks(self) -> dict[str, StackedNetwork]:
        """The networks that are trained: `descend` makes their Adam step after a backward pass; their slow copies follow with the slow encoder."""
        return self._networks

    def state_dict(self) -> State:
        """Networks, slow copies and optimisers; empty for a loss without networks of its own."""
        return save_networks(self._networks)

    def load_state_dict(self, state: State) -> None:
        """Continue from a `state_dict`."""
        load_networks(self._networks, state)

    def _view(self, window: Window, at: tuple[Tensor, Tensor], generator: torch.Generator) -> Obs | None:
        """Augmented observations [M, ...] at these rows and times; none without an encoder to give them to."""
        return augment(map_arrays(lambda x: x[at], window.obs), self._config, generator) if self._encode else None

    def _features(self, window: Window, at: tuple[Tensor, Tensor], view: Obs | None, target: bool) -> Tensor:
        """Features [M, F] of a view, or of the window at these rows and times."""
        if self._encode is not None and view is not None:
            found = self._encode(view, target).float()
        else:
            found = (window.target_features if target else window.features)[at]
        return found.detach() if target else found


class ATC(RepresentationLoss):
    """InfoNCE: p W c' for the prediction p = c + h(c) of the projection c of an observation, and the slow projection c' of the one `steps`
    later, against those of all other windows."""

    def __init__(self, config: SiameseConfig, n_features: int, encode: Encode | None, seed: int, device: torch.device) -> None:
        size, lr = config.size, config.lr
        self._projection = make_mlp("siamese_projection", n_features, size, [], lr, seed, device)
        self._prediction = make_mlp("siamese_prediction", size, size, config.hidden, lr, seed, device)
        self._similarity = make_mlp("siamese_similarity", size, size, [], lr, seed, device)
        networks = {
            "siamese_projection": self._projection,
            "siamese_prediction": self._prediction,
            "siamese_similarity": self._similarity,
        }
        super().__init__(config, encode, networks)

    def loss(self, window: Window, generator: torch.Generator) -> Tensor:
        """InfoNCE of the windows that have so many real steps.

        Raises:
            ConfigError: windows are shorter than `steps`.
        """
        steps, length = self._config.steps, window.valid.shape[1]
        if steps > length:
            raise ConfigError(f"siamese.steps={steps} is more than the {length} steps of a window. Set at most {length}, or longer windows")
        rows, times = pick_times(window.valid.unfold(1, steps, 1).all(-1), generator)
        if not len(rows):
            return no_loss(window)
        return self._config.weight * info_nce(self.logits(window, rows, times, generator))

    def logits(self, window: Window, rows: Tensor, times: Tensor, generator: torch.Generator) -> Tensor:
        """Similarities [M, M] of the anchors, observations at these rows and times, with what follows each of them."""
        now, later = (rows, times), (rows, times + self._config.steps)
        anchor_view, later_view = self._view(window, now, generator), self._view(window, later, generator)
        projected = apply(self._projection, self._features(window, now, anchor_view, target=False))
        predicted = projected + apply(self._prediction, projected)
        with torch.no_grad():
            positive = apply(self._projection, self._features(window, later, later_view, target=True), target=True)
        return apply(self._similarity, predicted) @ positive.T


class BYOL(RepresentationLoss):
    """2 - 2 cos of the prediction q(g(view)) and the slow projection g'(other view), plus the same with the views exchanged."""

    def __init__(self, config: SiameseConfig, n_features: int, encode: Encode | None, seed: int, device: torch.device) -> None:
        size, hidden, lr = config.size, config.hidden, config.lr
        self._projection = make_mlp("siamese_projection", n_features, size, hidden, lr, seed, device)
        self._prediction = make_mlp("siamese_prediction", size, size, hidden, lr, seed, device)
        super().__init__(config, encode, {"siamese_projection": self._projection, "siamese_prediction": self._prediction})

    def loss(self, window: Window, generator: torch.Generator) -> Tensor:
        """The symmetric loss, of a real observation of each window."""
        at = pick_times(window.real_obs(), generator)
        if not len(at[0]):
            return no_loss(window)
        one, other = (self._view(window, at, generator) for _ in range(2))
        there, back = self._distance(window, at, one, other), self._distance(window, at, other, one)
        return self._config.weight * (there + back)

    def _distance(self, window: Window, at: tuple[Tensor, Tensor], view: Obs | None, other: Obs | None) -> Tensor:
        projected = apply(self._projection, self._features(window, at, view, target=False))
        with torch.no_grad():
            slow = apply(self._projection, self._features(window, at, other, target=True), target=True)
        return cosine_distance(apply(self._prediction, projected), slow).mean()


class ContrastiveQ(RepresentationLoss):
    """(Q(view, a) - Q'(other view, a))^2, of the critics and their slow copies; it trains critics and encoder."""

    def __init__(self, config: SiameseConfig, encode: Encode | None, q_values: QValues) -> None:
        self._q_values = q_values
        super().__init__(config, encode, {})

    def loss(self, window: Window, generator: torch.Generator) -> Tensor:
        """The mean over a real step of each window, summed over the critics."""
        at = pick_times(window.valid, generator)
        if not len(at[0]):
            return no_loss(window)
        one, other = (self._view(window, at, generator) for _ in range(2))
        action = window.action[at]
        with torch.no_grad():
            slow = self._q_values(self._features(window, at, other, target=True), action, target=True)
        q = self._q_values(self._features(window, at, one, target=False), action, target=False)
        return self._config.weight * (q.float() - slow.float()).square().mean(-1).sum()


def make_siamese(
    config: SiameseConfig, n_features: int, encode: Encode | None, q_values: QValues | None, seed: int, device: torch.device
) -> dict[str, RepresentationLoss]:
    """The losses that the config asks for, by name.

    Raises:
        ConfigError: contrastive Q, but there are no critics of features.
    """
    losses: dict[str, RepresentationLoss] = {}
    if config.kind == "atc":
        losses["atc"] = ATC(config, n_features, encode, seed, device)
    elif config.kind == "byol":
        losses["byol"] = BYOL(config, n_features, encode, seed, device)
    if config.contrastive_q:
        if q_values is None:
            raise ConfigError(
                "siamese.contrastive_q needs critics of the encoder's features, which this algorithm has not. Set it to false"
            )
        losses["contrastive_q"] = ContrastiveQ(config, encode, q_values)
    return losses


def augment(obs: Obs, config: SiameseConfig, generator: torch.Generator) -> Obs:
    """Observations [N, ...] with augmented images and noise on vectors; masks stay as they are."""
    return {key: _augmented(key, x, config, generator) for key, x in obs.items()}


def _augmented(key: str, x: Tensor, config: SiameseConfig, generator: torch.Generator) -> Tensor:
    if key == VECTOR:
        return add_noise(x, config.noise, generator)
    if key == ACTION_MASK or config.images == "none":
        return x
    if config.images == "shift":
        return random_shift(x, config.pixels, generator)
    height, width = (side - 2 * config.pixels for side in x.shape[-2:])
    if min(height, width) < 1:
        raise ConfigError(
            f"siamese.pixels={config.pixels} cuts nothing out of {key!r}, an image of {x.shape[-2]} x {x.shape[-1]} pixels. Set fewer"
        )
    return random_crop(x, height, width, generator, enlarge=True)


def pick_times(allowed: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """One allowed time of every row [B, T] that has any, uniformly: rows [M] and times [M]."""
    count = allowed.sum(1)
    draw = torch.rand(len(allowed), generator=generator, device=generator.device).to(allowed.device)
    number = torch.minimum((draw * count).long(), count - 1)  # of the chosen one among those allowed: padding does not change it
    times = (allowed.cumsum(1) == number[:, None] + 1).int().argmax(1)
    (rows,) = torch.where(count > 0)
    return rows, times[rows]


def no_loss(window: Window) -> Tensor:
    """Zero, of no observation at all: a backward pass through it is allowed and changes nothing."""
    return window.features[:0].sum()
