"""PPO (Schulman et al. 2017, arXiv 1707.06347): several epochs of minibatches on the clipped surrogate objective."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any, ClassVar, Literal

import torch
from pydantic import Field, PositiveFloat, PositiveInt
from torch import Tensor

from baldwin.algorithm import AlgorithmEntry, register
from baldwin.learners.actor_critic_loss import REPORTED, Array, LossParts
from baldwin.learners.experience import Experience
from baldwin.learners.gae import GAELearner, SynchronousConfig
from baldwin.learners.on_policy import build_on_policy
from baldwin.learners.policy_gradient import PolicyGradientBatch, report
from baldwin.learners.schedule import StepSchedule, value_at
from baldwin.networks import PolicyConfig
from baldwin.ops.policy_loss import LossAndGradient, approx_kl, clip_fraction, clipped_value_loss, surrogate_loss
from baldwin.ops.returns import explained_variance
from baldwin.types import Metrics


class PPOConfig(SynchronousConfig):
    """PPO: epochs of minibatches on the clipped objective. Defaults as in Stable-Baselines3."""

    mutable: ClassVar[tuple[str, ...]] = ("batch_size", "epochs", "clip_range", "value_clip_range", "target_kl", "recompute_advantages")
    name: Literal["ppo"] = "ppo"
    rollout_length: PositiveInt = Field(256, description="Steps of each environment in a segment")
    batch_size: PositiveInt = Field(
        64, description="Steps of a minibatch; of a policy with memory, as many whole segments as fit, at least one"
    )
    epochs: PositiveInt = Field(10, description="Passes over the segments")
    clip_range: PositiveFloat | StepSchedule = Field(0.2, description="How far the probability ratio may move before its gradient stops")
    value_clip_range: PositiveFloat | None = Field(
        None, description="The same for values, around those before the update; null: not at all"
    )
    target_kl: PositiveFloat | None = Field(None, description="Stop an update when the policy has moved 1.5 times as far; null: never")
    recompute_advantages: bool = Field(False, description="Estimate advantages anew for every epoch (arXiv 2006.05990)")

    def check(self, policy: PolicyConfig, generations_kept: int) -> None:
        """The distance from the acting policy must begin at zero for `target_kl` to mean anything."""
        super().check(policy, generations_kept)
        if self.target_kl and self.actor_lag:
            raise ValueError(
                "target_kl measures how far an update moves from the acting policy, which actor_lag=1 begins behind: leave one out"
            )

    def make_learner(self, policy: PolicyConfig, **parts: Any) -> PPO:
        """A new learner with this config; `parts` are the other arguments of its class."""
        return PPO(policy, self, **parts)


class PPO(GAELearner):
    """Several epochs of minibatches over each batch, with a clipped probability ratio."""

    config: PPOConfig

    def update(self, experience: Experience, env_steps: int) -> Metrics:
        """Algorithm 1: `epochs` passes over the segments in minibatches, unless the policy moves too far."""
        clip = value_at(self.config.clip_range, env_steps)
        found: dict[str, list[Any]] = {}
        log_ratios: list[list[Array]] = []  # of the epochs' minibatches
        with self._updating(env_steps):
            steps = first = self.estimate(experience)
            for epoch in range(self.config.epochs):
                if epoch and self.config.recompute_advantages:
                    steps = self.estimate(experience)
                log_ratios.append([])
                if not self._epoch(steps, clip, found, log_ratios[-1]):
                    break
            return report(found) | {
                "approx_kl": approx_kl(log_ratios[-1]),
                "clip_fraction": clip_fraction([own for epoch_ratios in log_ratios for own in epoch_ratios], clip),
                "explained_variance": explained_variance(first.value.numpy(), first.target.numpy()),
            }

    def _epoch(self, steps: PolicyGradientBatch, clip: float, found: dict[str, list[Any]], log_ratios: list[Array]) -> bool:
        """One pass; false if the policy moved too far. Adds to what is reported."""
        for minibatch in self.minibatches(steps):
            gradient, parts = self.minibatch_gradient(minibatch, clip)
            log_ratios.append(parts.log_prob - minibatch.log_prob.numpy())
            for name in REPORTED:
                found.setdefault(name, []).append(getattr(parts, name))
            if self.config.target_kl and approx_kl(log_ratios[-1:]) > 1.5 * self.config.target_kl:
                return False
            norm = self.descend(gradient)
            self.updates += 1
            if norm is not None:
                found.setdefault("gradient_norm", []).append(norm)
        return True

    def minibatch_gradient(self, steps: PolicyGradientBatch, clip: float) -> tuple[Tensor, LossParts]:
        """Of - mean clipped surrogate + value_coef value loss - entropy_coef mean H."""
        old_log_prob, advantage = steps.log_prob.numpy(), steps.advantage.numpy()

        def surrogate(log_prob: Array) -> LossAndGradient:
            return surrogate_loss(log_prob - old_log_prob, advantage, clip)

        if self.config.value_clip_range is None:
            return self.gradient(steps, surrogate)
        return self.gradient(steps, surrogate, partial(clipped_value_loss, old_value=steps.value, clip=self.config.value_clip_range))

    def minibatches(self, steps: PolicyGradientBatch) -> Iterator[PolicyGradientBatch]:
        """All steps once, in random order, advantages normalised; of a policy with memory, whole segments."""
        size = self.config.batch_size
        if self.nets.state_size:
            count, length = steps.begins.shape
            order = torch.randperm(count, generator=self._generator)
            if steps.rows is not None:  # of players that take turns, a segment may have no whole step
                order = order[torch.isin(order, steps.rows // length)]
            for chosen in torch.split(order, max(1, size // length)):
                minibatch = _sequences(steps, chosen)
                yield minibatch._replace(advantage=self.normalized(minibatch.advantage))
            return
        if size >= len(steps.action):  # all of them: their order is of no account
            yield steps._replace(advantage=self.normalized(steps.advantage))
            return
        order = torch.randperm(len(steps.action), generator=self._generator)
        obs = {key: torch.split(x[order], size) for key, x in steps.obs.items()}
        advantages = self.normalized_batches(steps.advantage[order], size)
        columns = [torch.split(x[order], size) for x in (steps.action, steps.log_prob, steps.target, steps.value)]
        for n, (action, log_prob, target, value) in enumerate(zip(*columns, strict=True)):
            own = {key: x[n] for key, x in obs.items()}
            yield PolicyGradientBatch(own, action, log_prob, advantages[n], target, value, steps.memory, steps.begins, None)


def _sequences(steps: PolicyGradientBatch, chosen: Tensor) -> PolicyGradientBatch:
    """Some of the sequences, and the rows of their real steps."""
    count, length = steps.begins.shape
    if steps.rows is None:
        number = torch.arange(count * length)
    else:  # the number of each step among the real ones, or -1
        number = torch.full((count * length,), -1)
        number[steps.rows] = torch.arange(len(steps.rows))
    own = number.view(count, length)[chosen].flatten()
    real = own >= 0
    rows = own[real]
    return PolicyGradientBatch(
        {key: x[chosen] for key, x in steps.obs.items()},
        steps.action[rows],
        steps.log_prob[rows],
        steps.advantage[rows],
        steps.target[rows],
        steps.value[rows],
        steps.memory[chosen],
        steps.begins[chosen],
        None if steps.rows is None else real.nonzero().squeeze(1),
    )


register(AlgorithmEntry(PPOConfig, build_on_policy, "learner", "arXiv 1707.06347"))
