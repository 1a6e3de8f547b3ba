"""OpenAI-ES (Salimans et al. 2017, arXiv 1703.03864): mirrored perturbations, shaped returns, one ascent step a generation."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import ClassVar, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, PositiveFloat, model_validator

from baldwin.config_base import ConfigModel
from baldwin.errors import EnvironmentFailure, TicketError
from baldwin.networks import PolicyConfig
from baldwin.ops import seeds
from baldwin.ops.noise import Noise, Shape, split_half_gradient
from baldwin.ops.optimizers import OPTIMIZERS, OptimizerConfig, OptimizerState, norm
from baldwin.ops.schedules import scheduled
from baldwin.ops.shaping import SHAPINGS, percentile, strict_rank, tie_fraction
from baldwin.ops.statistics import correlation, cosine, return_stats
from baldwin.strategies.evolution import EvolutionConfig, register_strategy
from baldwin.types import Metrics, Outcome, Perturbation, State, Trial


class Schedule(ConfigModel):
    """A value that moves from `start` to `end` within so many generations and stays there."""

    kind: Literal["constant", "linear", "cosine", "exponential"]
    start: PositiveFloat
    end: PositiveFloat | None = None
    generations: int = Field(1, ge=1)

    @model_validator(mode="after")
    def _moving_needs_an_end(self) -> Self:
        if self.kind != "constant" and self.end is None:
            raise ValueError(f"a {self.kind} schedule needs end and generations")
        return self

    def at(self, generation: int) -> float:
        """The value in this generation."""
        return scheduled(self.kind, self.start, self.end or self.start, self.generations, generation)


class ESConfig(EvolutionConfig):
    """OpenAI-ES. Defaults follow the paper's starter code where it has a value."""

    mutable: ClassVar[tuple[str, ...]] = ("sigma", "lr", "momentum", "beta1", "beta2", "epsilon", "max_speed", "weight_decay", "shaping")
    renamed: ClassVar[dict[str, str]] = {"probe": "evaluate_center", "convention": "lr_convention"}

    name: Literal["es"] = "es"
    common_random_numbers: Literal["pair", "population", "none"] = Field(
        "pair", description="Who starts from the same states: mirrored pairs, whose difference is the gradient, everybody, or nobody"
    )
    population: int = Field(
        128, ge=2, multiple_of=2, description="Individuals per generation: mirrored (antithetic) pairs, so an even number"
    )
    sigma: PositiveFloat | Schedule = Field(0.02, description="Standard deviation of the perturbations: a number or a schedule")
    lr: PositiveFloat | Schedule = Field(0.01, description="Step size: a number or a schedule")
    optimizer: Literal["adam", "sgd", "clipup"] = "adam"
    momentum: float = Field(0.9, ge=0, lt=1, description="sgd and clipup")
    beta1: float = Field(0.9, ge=0, lt=1, description="adam")
    beta2: float = Field(0.999, ge=0, lt=1, description="adam")
    epsilon: PositiveFloat = Field(1e-8, description="adam")
    max_speed: PositiveFloat | None = Field(None, description="clipup; default 2 x lr")
    weight_decay: float = Field(0.005, ge=0, lt=1, description="Decoupled: parameters shrink by lr x this, once an update")
    shaping: Literal["ranks", "zscore", "raw", "log-ranks"] | None = Field(
        None, description="Default: ranks; log-ranks under lr_convention pytorch-es"
    )
    lr_convention: Literal["paper", "es-torch", "pytorch-es"] = Field(
        "paper", description="Whose learning rates these are: see docs/algorithms.md"
    )
    rank: int = Field(0, ge=0, description="Low-rank perturbations A B^T / sqrt(rank) of each matrix; 0 is full rank")
    evaluate_center: bool = Field(True, description="Also play the center each generation, to rank it among the population")

    @property
    def extra_trials(self) -> int:
        """The center accompanies the last block."""
        return int(self.evaluate_center)

    def check(self, policy: PolicyConfig, generations_kept: int) -> None:
        """Low-rank perturbations must know the layers."""
        if self.rank and policy.kind != "mlp":
            raise ValueError("algorithm.rank > 0 needs policy.kind=mlp: low-rank perturbations must know the layers. Set algorithm.rank=0")


def gradient_factor(config: ESConfig, n: int, sigma: float) -> float:
    """Factor on the gradient of the paper's rule with which a learning rate of another code base gives the same step."""
    if config.lr_convention == "es-torch":
        return sigma  # its rule has no 1/sigma
    if config.lr_convention == "pytorch-es" and config.optimizer == "adam":
        return (n * sigma) ** 2  # it multiplies by n sigma where the rule divides
    return 1.0


class OpenAIES:
    """Ticket = generation x (population + 1) + index; pair = index // 2; even indices add the noise, odd ones subtract it.

    The last index of a generation is the center itself: it is ranked, but does not move anything.
    """

    def __init__(self, center: NDArray[np.float32], config: ESConfig, *, seed: int, shapes: tuple[Shape, ...] | None = None) -> None:
        self.config = config
        self.center = np.array(center, np.float32)
        self.noise = Noise(seeds.key(seed, seeds.Stream.NOISE), shapes or ((len(center),),), config.rank)
        self.version = 0
        self._optimizer_config = OptimizerConfig(config.momentum, config.beta1, config.beta2, config.epsilon, config.max_speed)
        self._optimizer_state: OptimizerState = {}
        self._asked, self._reason = 0, ""
        self._start_generation()

    @property
    def sigma(self) -> float:
        """Standard deviation of the open generation's perturbations."""
        return self._scheduled(self.config.sigma)

    @property
    def lr(self) -> float:
        """Learning rate of the update that closes the open generation."""
        return self._scheduled(self.config.lr)

    def ask(self, n: int) -> list[Trial]:
        """The next n of this generation, none when all are out; the center accompanies the last ones."""
        first = self._asked
        self._asked = min(first + n, self.config.population)
        if self._asked == self.config.population:
            self._asked = len(self._fitness)
        return [self._trial(index) for index in range(first, self._asked)]

    def reopen(self, ticket: int) -> Trial:
        """The trial of an open ticket again."""
        return self._trial(self._index(ticket))

    def tell(self, outcomes: Sequence[Outcome]) -> Metrics | None:
        """Assign results by ticket; the last one of the generation makes the update."""
        for outcome in outcomes:
            index = self._index(outcome.ticket)
            self._told[index] = True
            self._fitness[index] = outcome.scalar if not outcome.failed else np.nan
            if outcome.failed:
                self._reason = self._reason or outcome.reason
        return self._update() if self._told.all() else None

    def set_center(self, center: NDArray[np.float32]) -> None:
        """Go on from there, with a fresh optimiser; between generations."""
        self.center = np.array(center, np.float32)
        self.reset_optimizer()

    def reset_optimizer(self) -> None:
        """Forget velocity and moments."""
        self._optimizer_state = {}

    def state_dict(self) -> State:
        """Center, optimiser, and this generation's results so far."""
        return {
            "center": self.center,
            "version": self.version,
            "optimizer": self._optimizer_state,
            "fitness": self._fitness,
            "told": self._told,
            "asked": self._asked,
            "reason": self._reason,
        }

    def load_state_dict(self, state: State) -> None:
        """Continue from a `state_dict`."""
        self.center, self.version, self._optimizer_state = np.array(state["center"]), state["version"], dict(state["optimizer"])
        self._fitness, self._told = np.array(state["fitness"]), np.array(state["told"])
        self._asked, self._reason = state["asked"], state["reason"]

    def _start_generation(self) -> None:
        size = self.config.population + self.config.evaluate_center
        self._fitness, self._told = np.full(size, np.nan), np.zeros(size, np.bool_)
        self._asked, self._reason = 0, ""

    def _scheduled(self, value: float | Schedule) -> float:
        return value.at(self.version) if isinstance(value, Schedule) else value

    def _trial(self, index: int) -> Trial:
        sign = 0.0 if index == self.config.population else 1.0 - 2.0 * (index % 2)
        perturbation = Perturbation(self.noise, self.version, index // 2, sign * self.sigma)
        return Trial(self.version * (self.config.population + 1) + index, self.version, perturbation)

    def _index(self, ticket: int) -> int:
        generation, index = divmod(ticket, self.config.population + 1)
        if generation != self.version or index >= self._asked:
            raise TicketError(f"ticket {ticket} was never given out, or its generation is closed (open: generation {self.version})")
        if self._told[index]:
            raise TicketError(f"ticket {ticket} came back twice")
        return index

    def _update(self) -> Metrics:
        """g = 1/(n sigma) sum over pairs of (u+ - u-) noise, then ascend; weight decay once, decoupled."""
        config, sigma, lr = self.config, self.sigma, self.lr
        pairs = self._fitness[: config.population].reshape(-1, 2)
        usable = np.isfinite(pairs).all(1)  # a failed individual costs its pair
        if not usable.any():
            raise EnvironmentFailure(f"every pair of generation {self.version} failed; the first reason: {self._reason or 'unknown'}")
        returns = pairs[usable].ravel()
        shaping = config.shaping or ("log-ranks" if config.lr_convention == "pytorch-es" else "ranks")
        utilities = SHAPINGS[shaping](returns).reshape(-1, 2)
        weights = np.zeros(len(pairs))
        weights[usable] = utilities[:, 0] - utilities[:, 1]
        n = len(returns)
        split = split_half_gradient(self.noise, self.version, weights)
        gradient = (split[0] + split[1]) * (gradient_factor(config, n, sigma) / (n * sigma))
        step, self._optimizer_state = OPTIMIZERS[config.optimizer](gradient, self._optimizer_state, lr, self._optimizer_config)
        old = self.center.astype(np.float64)
        self.center = (old + step - lr * config.weight_decay * old).astype(np.float32)
        length = norm(old)
        metrics = return_stats(returns) | {
            "gradient_norm": norm(gradient),
            "param_norm": length,
            "update_ratio": norm(self.center - old) / length if length else math.inf,
            "split_half_cosine": cosine(split[0], split[1]),
            "tie_fraction": tie_fraction(returns),
            "effective_pairs": float(np.square(np.abs(weights).sum()) / np.square(weights).sum()) if weights.any() else 0.0,
            "pair_correlation": correlation(pairs[usable, 0], pairs[usable, 1]),
            "sigma_to_weights": sigma / rms if (rms := length / math.sqrt(len(old))) else math.inf,
            "failed_pairs": float((~usable).sum()),
            "sigma": sigma,
            "lr": lr,
        }
        if config.evaluate_center and np.isfinite(self._fitness[-1]):
            own = float(self._fitness[-1])
            metrics |= {
                "center_return": own,
                "center_rank": float(strict_rank(own, returns)),
                "center_percentile": percentile(own, returns),
            }
        self.version += 1
        self._start_generation()
        return metrics


register_strategy(
    ESConfig, lambda center, config, shapes, seed: OpenAIES(center, config, seed=seed, shapes=shapes), "arXiv 1703.03864, 2511.16652"
)
