"""REINFORCE (Williams 1992): whole episodes, Monte-Carlo returns, with or without a learned baseline."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, PositiveFloat, PositiveInt
from torch import Tensor

from baldwin.algorithm import AlgorithmEntry, register
from baldwin.learners.experience import Experience
from baldwin.learners.on_policy import build_on_policy
from baldwin.learners.policy_gradient import PolicyGradientBatch, PolicyGradientLearner, report
from baldwin.learners.policy_gradient_algorithm import OnPolicyConfig
from baldwin.learners.schedule import StepSchedule
from baldwin.networks import PolicyConfig
from baldwin.ops.policy_loss import squared_error
from baldwin.ops.returns import backward_sum, explained_variance
from baldwin.types import Metrics


class REINFORCEConfig(OnPolicyConfig):
    """REINFORCE: one policy-gradient step from whole episodes."""

    name: Literal["reinforce"] = "reinforce"
    episodes_per_update: PositiveInt = Field(8, description="Episodes of an update, each in an environment of its own")
    baseline: bool = Field(True, description="Subtract a learned value from the returns; a time limit is then bootstrapped")
    normalize_returns: bool = Field(
        True, description="Returns, or their differences from the baseline, get mean 0 and standard deviation 1"
    )
    lr: PositiveFloat | StepSchedule = Field(1e-3, description="Step size: a number, or {kind, start, end, env_steps}")

    @property
    def env_count(self) -> int:
        """One environment for each episode of an update."""
        return self.episodes_per_update

    def make_learner(self, policy: PolicyConfig, **parts: Any) -> REINFORCE:
        """A new learner with this config; `parts` are the other arguments of its class."""
        return REINFORCE(policy, self, n_values=None if self.baseline else 0, **parts)


class REINFORCE(PolicyGradientLearner):
    """One gradient step per batch of episodes."""

    config: REINFORCEConfig

    def update(self, experience: Experience, env_steps: int) -> Metrics:
        """One step down the loss of all episodes."""
        with self._updating(env_steps):
            value, following = self.values(experience)
            discount, ended = self.discounts(experience), experience.ended[..., None]
            reward = (experience.reward + discount * following * ended) * experience.valid[..., None]
            returns = backward_sum(reward, discount * ~ended)
            steps = self.steps(experience, returns - value, returns, value)
            loss, parts = self.loss(steps)
            norm = self.minimize(loss)
            self.updates += 1
        found = report({name: [x] for name, x in parts.items()} | ({} if norm is None else {"gradient_norm": [norm]}))
        if not self.config.baseline:
            return found
        return found | {"explained_variance": explained_variance(steps.value.numpy(), steps.target.numpy())}

    def loss(self, steps: PolicyGradientBatch) -> tuple[Tensor, dict[str, Tensor]]:
        """- mean (G - b) log pi(a|s) + value_coef sum_c mean (b_c - G_c)^2 - entropy_coef mean H; and its parts."""
        now = self.evaluate(steps)
        advantage = steps.advantage
        if self.config.normalize_returns and len(advantage) > 1:
            advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
        policy_loss, entropy = -(advantage * now.log_prob).mean(), now.entropy()
        loss = policy_loss - self.config.entropy_coef * entropy
        parts = {"policy_loss": policy_loss, "entropy": entropy}
        if self.config.baseline:
            parts["value_loss"] = squared_error(now.values, steps.target)
            loss = loss + self.config.value_coef * parts["value_loss"]
        return loss, parts


register(AlgorithmEntry(REINFORCEConfig, build_on_policy, "learner", "Williams 1992"))
