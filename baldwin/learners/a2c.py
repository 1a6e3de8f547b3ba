"""A2C: the synchronous form of A3C (Mnih et al. 2016, arXiv 1602.01783)."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, PositiveFloat, PositiveInt
from torch import Tensor

from baldwin.algorithm import AlgorithmEntry, register
from baldwin.learners.actor_critic_loss import REPORTED, LossParts
from baldwin.learners.experience import Experience
from baldwin.learners.gae import GAEConfig, GAELearner, SynchronousConfig
from baldwin.learners.on_policy import build_on_policy
from baldwin.learners.policy_gradient import PolicyGradientBatch, report
from baldwin.learners.schedule import StepSchedule
from baldwin.networks import PolicyConfig
from baldwin.ops.policy_loss import score_loss
from baldwin.ops.returns import explained_variance
from baldwin.types import Metrics


class OneStepConfig(GAEConfig):
    """Defaults of A2C and A3C, as in Stable-Baselines3."""

    lr: PositiveFloat | StepSchedule = Field(7e-4, description="Step size: a number, or {kind, start, end, env_steps}")
    gae_lambda: float = Field(1.0, ge=0, le=1, description="1: returns; 0: one-step temporal differences")
    normalize_advantage: bool = Field(False, description="Advantages of a batch get mean 0 and standard deviation 1")
    optimizer: Literal["adam", "rmsprop"] = "rmsprop"


class A2CConfig(OneStepConfig, SynchronousConfig):
    """A2C: one policy-gradient step from short segments of many environments. Defaults as in Stable-Baselines3."""

    name: Literal["a2c"] = "a2c"
    rollout_length: PositiveInt = Field(5, description="Steps of each environment in a segment")

    def make_learner(self, policy: PolicyConfig, **parts: Any) -> A2C:
        """A new learner with this config; `parts` are the other arguments of its class."""
        return A2C(policy, self, **parts)


class A2C(GAELearner):
    """One gradient step per batch."""

    config: GAEConfig

    def update(self, experience: Experience, env_steps: int) -> Metrics:
        """One step down the loss of all segments."""
        with self._updating(env_steps):
            steps = self.estimate(experience)
            gradient, parts = self.loss_gradient(steps)
            norm = self.descend(gradient)
            self.updates += 1
        found = report({name: [getattr(parts, name)] for name in REPORTED} | ({} if norm is None else {"gradient_norm": [norm]}))
        return found | {"explained_variance": explained_variance(steps.value.numpy(), steps.target.numpy())}

    def loss_gradient(self, steps: PolicyGradientBatch) -> tuple[Tensor, LossParts]:
        """Of - mean A log pi(a|s) + value_coef sum_c mean (V_c - target_c)^2 - entropy_coef mean H."""
        advantage = self.normalized(steps.advantage).numpy()
        return self.gradient(steps, lambda log_prob: score_loss(log_prob, advantage))


register(AlgorithmEntry(A2CConfig, build_on_policy, "learner", "arXiv 1602.01783"))
