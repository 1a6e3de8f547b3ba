"""Asynchronous evolution strategies: AES (Lee et al. 2020, arXiv 2012.05417), (1+1)-ES with the 1/5 rule, and asynchronous CEM."""

from __future__ import annotations

from collections import deque
from typing import ClassVar, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, PositiveFloat, PositiveInt, model_validator

from baldwin.ops.gaussians import (
    decayed,
    elite_moments,
    step_size_absolute,
    step_size_linear,
    step_size_relative,
    step_size_sigmoid,
    updated_mean_var,
)
from baldwin.ops.shaping import Vector
from baldwin.strategies.gaussian import Gaussian, GaussianConfig
from baldwin.strategies.steady_state import BaselineConfig, SteadyStateConfig, register_steady_state
from baldwin.types import State

GAIN_SMOOTHING = 0.95  # of the running mean square of gains


class AESUpdateConfig(GaussianConfig):
    """The rules of the mean and of the variance."""

    mean_rule: Literal["fixed-linear", "fixed-sigmoid", "baseline-absolute", "baseline-relative"] = "baseline-relative"
    variance_rule: Literal["fixed", "adaptive"] = "adaptive"
    scale: float | Literal["auto"] = Field(
        "auto",
        description="c, the gain that counts as large, or b, the floor of baseline-absolute; auto: twice the running spread of gains",
    )
    negative: float = Field(0.0, ge=0, le=1, description="fixed-linear: how far a worse individual pushes the mean away")
    memory: PositiveFloat = Field(10.0, description="fixed: number of individuals that the variance averages over")

    @model_validator(mode="after")
    def _scale_fits_the_rule(self) -> Self:
        if self.mean_rule == "baseline-absolute" and self.scale == "auto":
            raise ValueError("baseline-absolute needs a scale: a return below every one that will be seen, such as -2000")
        if self.mean_rule != "baseline-absolute" and self.scale != "auto" and self.scale <= 0:
            raise ValueError(f"{self.mean_rule} needs a scale > 0 or auto; got {self.scale:g}")
        return self


class AESConfig(BaselineConfig, AESUpdateConfig):
    """Asynchronous ES: each individual moves the mean by its gain over it, and the variance with it."""

    name: Literal["aes"] = "aes"


class AES(Gaussian):
    """Four rules of the mean and two of the variance."""

    def __init__(self, center: NDArray[np.float32], config: AESUpdateConfig, *, seed: int) -> None:
        super().__init__(center, config, seed=seed)
        self.config = config
        self._mean_square_gain = 0.0

    def update(self, individuals: Vector, fitness: Vector, baseline: float) -> Vector:
        """The average of the updates that each individual alone would make."""
        scale = self._scale(fitness - baseline)
        p = np.array([self._step_size(float(f), baseline, scale) for f in fitness])
        memory = self.config.memory if self.config.variance_rule == "fixed" else None
        floor = self.config.variance_floor
        updated = [updated_mean_var(self.mean, self.variance, x, p_i, memory, floor) for x, p_i in zip(individuals, p, strict=True)]
        self.mean = np.mean([mean for mean, _ in updated], axis=0)
        self.variance = np.mean([variance for _, variance in updated], axis=0)
        return p

    def _scale(self, gains: Vector) -> float:
        if self.config.scale != "auto":
            return self.config.scale
        for gain in gains:
            smoothed = GAIN_SMOOTHING * self._mean_square_gain + (1 - GAIN_SMOOTHING) * gain**2
            self._mean_square_gain = float(smoothed if self._mean_square_gain else gain**2)
        return 2 * self._mean_square_gain**0.5 or 1.0

    def _step_size(self, fitness: float, baseline: float, scale: float) -> float:
        rule = self.config.mean_rule
        if rule == "baseline-absolute":
            return step_size_absolute(fitness, baseline, scale)
        if rule == "fixed-linear":
            return step_size_linear(fitness - baseline, scale, self.config.negative)
        return step_size_sigmoid(fitness - baseline, scale) if rule == "fixed-sigmoid" else step_size_relative(fitness - baseline, scale)

    def state_dict(self) -> State:
        """State of the distribution, and the running spread of gains."""
        return super().state_dict() | {"mean_square_gain": self._mean_square_gain}

    def load_state_dict(self, state: State) -> None:
        """Continue from a `state_dict`."""
        super().load_state_dict(state)
        self._mean_square_gain = state["mean_square_gain"]


class OnePlusOneUpdateConfig(GaussianConfig):
    """The 1/5 rule: target success rate, factor of the variance, window of results."""

    renamed: ClassVar[dict[str, str]] = {"success": "target_success"}

    target_success: float = Field(0.2, gt=0, lt=1, description="Wanted fraction of individuals that beat the mean")
    factor: float = Field(0.99, gt=0, lt=1, description="The variance is divided by this above that fraction, multiplied with it below")
    window: PositiveInt = Field(10, description="Individuals that the fraction is taken of")
    frozen_window: bool | None = Field(
        None,
        description="Never forget the first ones, as AES-RL's code: the fraction is then decided for good. "
        "Unset: no, except for one-plus-one-rl with behaviour=faithful",
    )


class OnePlusOneConfig(BaselineConfig, OnePlusOneUpdateConfig):
    """(1+1)-ES: an individual that beats the mean becomes the mean; the variance follows the fraction that does."""

    name: Literal["one-plus-one"] = "one-plus-one"


class OnePlusOne(Gaussian):
    """Rechenberg's rule on the variance."""

    def __init__(self, center: NDArray[np.float32], config: OnePlusOneUpdateConfig, *, seed: int) -> None:
        super().__init__(center, config, seed=seed)
        self.config = config
        self._window: deque[bool] = deque(maxlen=config.window)

    def update(self, individuals: Vector, fitness: Vector, baseline: float) -> Vector:
        """The best individual replaces the mean if it is better; the variance moves one factor per individual."""
        config, better = self.config, fitness > baseline
        for success in better:
            if not config.frozen_window or len(self._window) < config.window:
                self._window.append(bool(success))
        moved = np.zeros(len(fitness))
        if better.any():
            moved[fitness.argmax()] = 1.0
            self.mean = individuals[fitness.argmax()].copy()
        if len(self._window) == config.window:
            factor = config.factor ** len(fitness)
            success_rate = sum(self._window) / config.window
            scaled = self.variance / factor if success_rate > config.target_success else self.variance * factor
            self.variance = np.maximum(scaled, config.variance_floor)
        return moved

    def state_dict(self) -> State:
        """State of the distribution, and the window of successes."""
        return super().state_dict() | {"window": [int(b) for b in self._window]}

    def load_state_dict(self, state: State) -> None:
        """Continue from a `state_dict`."""
        super().load_state_dict(state)
        self._window = deque((bool(b) for b in state["window"]), maxlen=self.config.window)


class ACEMUpdateConfig(GaussianConfig):
    """The window of asynchronous CEM and the noise on its variance."""

    renamed: ClassVar[dict[str, str]] = {
        "extra_start": "noise_start",
        "extra_end": "noise_end",
        "extra_tau": "noise_tau",
        "divide": "divide_variance_by_k",
    }

    window: int = Field(10, ge=4, description="Results that are ranked; the better half are the parents")
    noise_start: float = Field(1e-3, ge=0, description="Variance that is added, initially")
    noise_end: float = Field(1e-5, ge=0, description="And in the end")
    noise_tau: float = Field(0.9, ge=0, lt=1, description="How slowly it goes from one to the other, for each window's worth of results")
    divide_variance_by_k: bool = Field(False, description="Divide the parents' variance by their number once more, as AES-RL's code does")


class ACEMConfig(SteadyStateConfig, ACEMUpdateConfig):
    """Asynchronous CEM: the cross-entropy step on a sliding window of the last results, with every one of them."""

    removed: ClassVar[dict[str, str]] = {"mean_trials": "its update reads no baseline, so the mean is not played"}

    name: Literal["acem"] = "acem"

    @model_validator(mode="after")
    def _block_fits_the_window(self) -> Self:
        if self.block > self.window:
            raise ValueError(
                f"expected block <= window, since the window ranks all individuals of a block; got {self.block} > {self.window}"
            )
        return self


class ACEM(Gaussian):
    """The mean goes 1 / window of the way with each result; the variance is replaced."""

    needs_baseline: ClassVar[bool] = False

    def __init__(self, center: NDArray[np.float32], config: ACEMUpdateConfig, *, seed: int) -> None:
        super().__init__(center, config, seed=seed)
        self.config = config
        self._noise = config.noise_start
        self._window: deque[tuple[Vector, float]] = deque(maxlen=config.window)

    def set_center(self, center: NDArray[np.float32]) -> None:
        """Go on from there; results from around another mean would pull it back."""
        super().set_center(center)
        self._window.clear()

    def update(self, individuals: Vector, fitness: Vector, baseline: float) -> Vector:
        """One cross-entropy step on the window, n / window of the way for n individuals."""
        config, n = self.config, len(fitness)
        self._window.extend(zip(individuals, fitness.tolist(), strict=True))
        if len(self._window) < config.window:
            return np.zeros(n)
        best = np.argsort([-f for _, f in self._window], kind="stable")[: config.window // 2]
        elite = np.stack([self._window[int(i)][0] for i in best])
        self._noise = decayed(self._noise, config.noise_tau ** (n / config.window), config.noise_end)
        target, variance = elite_moments(elite, self.mean, self._noise, config.divide_variance_by_k)
        self.mean = self.mean + (target - self.mean) * min(1.0, n / config.window)
        self.variance = np.maximum(variance, config.variance_floor)
        return np.full(n, 1 / config.window)

    def state_dict(self) -> State:
        """State of the distribution, and the window of results."""
        window = {"individuals": np.array([x for x, _ in self._window]), "fitness": [f for _, f in self._window]}
        return super().state_dict() | {"noise": self._noise, "window": window}

    def load_state_dict(self, state: State) -> None:
        """Continue from a `state_dict`."""
        super().load_state_dict(state)
        self._noise = state["noise"]
        self._window = deque(zip(state["window"]["individuals"], state["window"]["fitness"], strict=True), maxlen=self.config.window)


register_steady_state(AESConfig, AES, "arXiv 2012.05417")
register_steady_state(OnePlusOneConfig, OnePlusOne, "Rechenberg 1973; arXiv 2012.05417")
register_steady_state(ACEMConfig, ACEM, "arXiv 2012.05417")
