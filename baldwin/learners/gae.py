"""What A2C and PPO share: advantages by generalised advantage estimation."""

from __future__ import annotations

from typing import ClassVar, Literal

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from baldwin.learners.experience import Experience
from baldwin.learners.policy_gradient import PolicyGradientBatch, PolicyGradientLearner, Share
from baldwin.learners.policy_gradient_algorithm import SegmentConfig
from baldwin.ops.returns import gae, gae_v


class GAEConfig(SegmentConfig):
    """Generalised advantage estimation: lambda, and the correction of GAE-V."""

    mutable: ClassVar[tuple[str, ...]] = ("gae_lambda", "gae_lambdas", "normalize_advantage")
    gae_lambda: float = Field(0.95, ge=0, le=1, description="1: returns; 0: one-step temporal differences")
    gae_lambdas: dict[str, Share] = Field(default_factory=dict, description="Lambdas of single reward components, by name")
    normalize_advantage: bool = Field(True, description="Advantages of a batch get mean 0 and standard deviation 1")
    advantage: Literal["gae", "gae-v"] = Field(
        "gae",
        description="gae-v: steps that the current policy would hardly take count less (arXiv 1905.02363); equal where it has not changed",
    )


class SynchronousConfig(GAEConfig):
    """Rounds of segments, one update each."""

    actor_lag: int = Field(
        0, ge=0, le=1, description="1: the next round is collected while this one is learned from, by the policy before it"
    )

    @property
    def lag(self) -> int:
        """How many updates old the collecting policy may be: `actor_lag`."""
        return self.actor_lag


class GAELearner(PolicyGradientLearner):
    """Estimates advantages and value targets."""

    config: GAEConfig

    def estimate(self, experience: Experience) -> PolicyGradientBatch:
        """All steps with advantage A and value target V + A; of gae-v, V + min(1, rho) A."""
        value, following = self.values(experience)
        discount, ended = self.discounts(experience), experience.ended[..., None]
        delta = self.deltas(experience, value, following, discount)
        lam = np.array([self._lambdas().get(name, self.config.gae_lambda) for name in self._reward_names], np.float32)
        if self.config.advantage == "gae":
            advantage = gae(delta, discount, ended, lam)
            return self.steps(experience, advantage, value + advantage, value)
        rho = self.ratios(experience)
        advantage = gae_v(delta, discount, ended, lam, rho)
        return self.steps(experience, advantage, value + np.minimum(rho, 1) * advantage, value)

    def _lambdas(self) -> dict[str, float]:
        return self.config.gae_lambdas

    def normalized(self, advantage: Tensor) -> Tensor:
        """(A - mean) / std, where that is asked for."""
        if not self.config.normalize_advantage or len(advantage) < 2:
            return advantage
        std, mean = torch.std_mean(advantage)
        return (advantage - mean) / (std + 1e-8)

    def normalized_batches(self, advantage: Tensor, size: int) -> list[Tensor]:
        """Minibatches of so many advantages, each normalised by itself."""
        if not self.config.normalize_advantage or size < 2 or len(advantage) % size:
            return [self.normalized(own) for own in torch.split(advantage, size)]
        rows = advantage.view(-1, size)
        std, mean = torch.std_mean(rows, 1, keepdim=True)
        return list((rows - mean).div_(std + 1e-8).unbind())
