"""Children of two members: whose state they begin with, how weights are recombined and mutated, and how hyper-parameters are."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, PositiveFloat

from baldwin.config_base import ConfigModel
from baldwin.networks import ActionMap, make_network
from baldwin.ops import variation
from baldwin.ops.noise import Shape
from baldwin.ops.ranges import Choice, Int, Log, Range, Uniform, Value
from baldwin.parts import Sections
from baldwin.populations.member import Hyperparameters, Member


class VariationConfig(ConfigModel):
    """How a child is made."""

    crossover: Literal["best", "layers", "units", "uniform"] = Field(
        "best",
        description="The policy's weights: all of the fitter parent, or each layer, unit or weight from either. The rest is the fitter parent's",
    )
    share: float = Field(0.5, gt=0, le=1, description="Probability that a layer, unit or weight is the fitter parent's")
    weight_sigma: float = Field(0.0, ge=0, description="Standard deviation of Gaussian noise on the policy's weights; 0: none")
    weight_probability: float = Field(1.0, gt=0, le=1, description="Share of the weights that get it")
    sbx_eta: PositiveFloat = Field(15.0, description="Simulated binary crossover of real hyper-parameters: larger is closer to the parents")
    sbx_probability: float = Field(0.9, ge=0, le=1, description="Of the crossover of hyper-parameters")
    mutation_eta: PositiveFloat = Field(20.0, description="Polynomial mutation of real hyper-parameters: larger is smaller steps")
    mutation_probability: float | None = Field(None, gt=0, le=1, description="Of each hyper-parameter; default: 1 / their number")

    @property
    def changes_weights(self) -> bool:
        """Whether a child's policy is not simply the fitter parent's."""
        return self.crossover != "best" or self.weight_sigma > 0


def policy_shapes(sections: Sections) -> tuple[Shape, ...]:
    """Of the tensors of the policy's parameters."""
    actions = ActionMap(sections.env_spec.action_space, sections.policy.squash, sections.policy.head)
    return make_network(sections.policy, sections.env_spec.obs, actions.outputs).shapes


def vary_weights(
    first: NDArray[np.float32], second: NDArray[np.float32], shapes: tuple[Shape, ...], config: VariationConfig, rng: np.random.Generator
) -> NDArray[np.float32] | None:
    """The child's parameters [D] of the policy; `first` are the fitter parent's. None: those, unchanged."""
    if not config.changes_weights:
        return None
    child: NDArray[Any] = first
    if config.crossover == "uniform":
        child = variation.uniform_crossover(first, second, rng, config.share)
    elif config.crossover == "layers":
        child = variation.layer_crossover(first, second, shapes, rng, config.share)
    elif config.crossover == "units":
        child = variation.unit_crossover(first, second, shapes, rng, config.share)
    if config.weight_sigma:
        child = variation.gaussian_mutation(child, config.weight_sigma, rng, config.weight_probability)
    return np.asarray(child, np.float32)


def vary_hyperparameters(
    first: Member, second: Member, ranges: dict[str, Range], config: VariationConfig, rng: np.random.Generator
) -> Hyperparameters:
    """SBX and polynomial mutation of numbers (of their logarithms, if the range is logarithmic); choices from either parent, or drawn anew."""
    child: Hyperparameters = {}
    probability = config.mutation_probability or 1 / max(1, len(ranges))
    for key in sorted(ranges):
        found, values = ranges[key], (first.hyperparameters[key], second.hyperparameters[key])
        if isinstance(found, Choice):
            child[key] = values[int(rng.integers(2))]
            if rng.random() < probability:
                child[key] = found.perturb(child[key], rng)
        else:
            child[key] = _vary_number(values, found, probability, config, rng)
    return {key: child[key] for key in first.hyperparameters}


def _vary_number(
    values: tuple[Value, Value], found: Uniform | Log | Int, probability: float, config: VariationConfig, rng: np.random.Generator
) -> Value:
    scale, back = (np.log, np.exp) if isinstance(found, Log) else (np.float64, np.float64)
    low, high = float(scale(found.low)), float(scale(found.high))
    a, b = (np.clip(scale(np.array([value], np.float64)), low, high) for value in values)
    if rng.random() < config.sbx_probability and high > low:
        a = variation.sbx(a, b, low, high, rng, config.sbx_eta, 1.0)[int(rng.integers(2))]
    if high > low:
        a = variation.polynomial_mutation(a, low, high, rng, config.mutation_eta, probability)
    value = float(np.clip(back(a[0]), found.low, found.high))
    return round(value) if isinstance(found, Int) else value
