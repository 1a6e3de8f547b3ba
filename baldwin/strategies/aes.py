"""Asynchronous evolution strategies: AES (Lee et al. 2020, arXiv 2012.05417), (1+1)-ES with the 1/5 rule, and asynchronous CEM."""

from __future__ import annotations

from collections import deque
from typing import Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, PositiveFloat, PositiveInt, model_validator

from baldwin.ops.gaussians import decayed, elite_moments, pull_absolute, pull_linear, pull_relative, pull_sigmoid, pulled
from baldwin.ops.shaping import Vector
from baldwin.strategies.gaussian import Gaussian, GaussianRule
from baldwin.strategies.steady import SteadyConfig
from baldwin.types import State

SMOOTH = 0.95  # of the running spread of gains


class AESRule(GaussianRule):
    """Of the mean and of the variance."""

    mean_rule: Literal["fixed-linear", "fixed-sigmoid", "baseline-absolute", "baseline-relative"] = "baseline-relative"
    variance_rule: Literal["fixed", "adaptive"] = "adaptive"
    scale: float | Literal["auto"] = Field(
        "auto",
        description="c, the gain that counts as large, or b, the floor of baseline-absolute; auto: twice the running spread of gains",
    )
    negative: float = Field(0.0, ge=0, le=1, description="fixed-linear: how far a worse individual pushes the mean away")
    memory: PositiveFloat = Field(10.0, description="fixed: individuals that the variance remembers")

    @model_validator(mode="after")
    def _a_scale_that_can_be(self) -> Self:
        if self.mean_rule == "baseline-absolute" and self.scale == "auto":
            raise ValueError("baseline-absolute needs a scale: a return below every one that will be seen, such as -2000")
        if self.mean_rule != "baseline-absolute" and self.scale != "auto" and self.scale <= 0:
            raise ValueError(f"{self.mean_rule} needs a scale > 0 or auto; got {self.scale:g}")
        return self


class AESConfig(SteadyConfig, AESRule):
    """Asynchronous ES: each individual pulls the mean by its gain over it, and the variance with it."""

    name: Literal["aes"] = "aes"


class AES(Gaussian):
    """The four rules of the mean and the two of the variance."""

    def __init__(self, center: NDArray[np.float32], config: AESRule, *, seed: int) -> None:
        super().__init__(center, config, seed=seed)
        self.config = config
        self._gains = 0.0  # running mean square

    def move(self, x: Vector, fitness: float, baseline: float) -> float:
        """By one individual."""
        p = self._pull(fitness, baseline)
        memory = self.config.memory if self.config.variance_rule == "fixed" else None
        self.mean, self.spread = pulled(self.mean, self.spread, x, p, memory, self.config.variance_floor)
        return p

    def _pull(self, fitness: float, baseline: float) -> float:
        gain, rule = fitness - baseline, self.config.mean_rule
        if self.config.scale != "auto":
            scale = self.config.scale
        else:
            self._gains = SMOOTH * self._gains + (1 - SMOOTH) * gain**2 if self._gains else gain**2
            scale = 2 * self._gains**0.5 or 1.0
        if rule == "baseline-absolute":
            return pull_absolute(fitness, baseline, scale)
        if rule == "fixed-linear":
            return pull_linear(gain, scale, self.config.negative)
        return pull_sigmoid(gain, scale) if rule == "fixed-sigmoid" else pull_relative(gain, scale)

    def state_dict(self) -> State:
        """All that changes."""
        return super().state_dict() | {"gains": self._gains}

    def load_state_dict(self, state: State) -> None:
        """Be the strategy that wrote `state`."""
        super().load_state_dict(state)
        self._gains = state["gains"]


class OnePlusOneRule(GaussianRule):
    """Of the mean and of the variance."""

    success: float = Field(0.2, gt=0, lt=1, description="Wanted share of individuals that beat the mean")
    factor: float = Field(0.99, gt=0, lt=1, description="The variance is divided by this above that share, multiplied with it below")
    window: PositiveInt = Field(10, description="Individuals that the share is taken of")
    frozen_window: bool | None = Field(
        None,
        description="Never forget the first ones, as AES-RL's code: the share is then decided for ever. "
        "Unset: no, but for one-plus-one-rl that is faithful",
    )


class OnePlusOneConfig(SteadyConfig, OnePlusOneRule):
    """(1+1)-ES: an individual that beats the mean becomes the mean; the variance follows the share that does."""

    name: Literal["one-plus-one"] = "one-plus-one"


class OnePlusOne(Gaussian):
    """Rechenberg's rule on the variance."""

    def __init__(self, center: NDArray[np.float32], config: OnePlusOneRule, *, seed: int) -> None:
        super().__init__(center, config, seed=seed)
        self.config = config
        self._window: deque[bool] = deque(maxlen=config.window)

    def move(self, x: Vector, fitness: float, baseline: float) -> float:
        """By one individual."""
        better, config = fitness > baseline, self.config
        if not config.frozen_window or len(self._window) < config.window:
            self._window.append(better)
        if better:
            self.mean = x.copy()
        if len(self._window) == config.window:
            share = sum(self._window) / config.window
            scaled = self.spread / config.factor if share > config.success else self.spread * config.factor
            self.spread = np.maximum(scaled, config.variance_floor)
        return float(better)

    def state_dict(self) -> State:
        """All that changes."""
        return super().state_dict() | {"window": [int(b) for b in self._window]}

    def load_state_dict(self, state: State) -> None:
        """Be the strategy that wrote `state`."""
        super().load_state_dict(state)
        self._window = deque((bool(b) for b in state["window"]), maxlen=self.config.window)


class ACEMRule(GaussianRule):
    """Of the window and of the extra variance."""

    window: int = Field(10, ge=4, description="Results that are ranked; the better half are the parents")
    extra_start: float = Field(1e-3, ge=0, description="Variance added, at first")
    extra_end: float = Field(1e-5, ge=0, description="And in the end")
    extra_tau: float = Field(0.9, ge=0, lt=1, description="How slowly it goes from one to the other, for each window's worth of results")
    divide: bool = Field(False, description="Divide the elite's variance by their number once more, as AES-RL's code does")


class ACEMConfig(SteadyConfig, ACEMRule):
    """Asynchronous CEM: the cross-entropy step on a sliding window of the last results, at every one of them."""

    name: Literal["acem"] = "acem"


class ACEM(Gaussian):
    """The mean goes 1 / window of the way at each result; the variance is replaced."""

    def __init__(self, center: NDArray[np.float32], config: ACEMRule, *, seed: int) -> None:
        super().__init__(center, config, seed=seed)
        self.config = config
        self._extra = config.extra_start
        self._window: deque[tuple[Vector, float]] = deque(maxlen=config.window)

    def move(self, x: Vector, fitness: float, baseline: float) -> float:
        """By one individual."""
        config = self.config
        self._window.append((x, fitness))
        if len(self._window) < config.window:
            return 0.0
        order = np.argsort([-f for _, f in self._window], kind="stable")[: config.window // 2]
        elite = np.stack([self._window[int(i)][0] for i in order])
        self._extra = decayed(self._extra, config.extra_tau ** (1 / config.window), config.extra_end)
        wanted, spread = elite_moments(elite, self.mean, self._extra, config.divide)
        self.mean = self.mean + (wanted - self.mean) / config.window
        self.spread = np.maximum(spread, config.variance_floor)
        return 1 / config.window

    def state_dict(self) -> State:
        """All that changes."""
        window = {"rows": np.array([x for x, _ in self._window]), "fitness": [f for _, f in self._window]}
        return super().state_dict() | {"extra": self._extra, "window": window}

    def load_state_dict(self, state: State) -> None:
        """Be the strategy that wrote `state`."""
        super().load_state_dict(state)
        self._extra = state["extra"]
        self._window = deque(zip(state["window"]["rows"], state["window"]["fitness"], strict=True), maxlen=self.config.window)
