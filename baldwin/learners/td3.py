"""TD3 (Fujimoto et al. 2018, arXiv 1802.09477): twin critics, smoothed targets, a delayed deterministic actor."""

from __future__ import annotations

from typing import ClassVar, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field, PositiveInt
from torch import Tensor
from torch.nn.functional import mse_loss

from baldwin.algorithm import AlgorithmEntry, register
from baldwin.learners.learner import ActorCriticConfig, Learner
from baldwin.learners.off_policy import build_off_policy
from baldwin.learners.off_policy_config import OffPolicyConfig
from baldwin.learners.replay_learner import TD_ERROR, TargetValues, TensorBatch, mean_error
from baldwin.networks import Obs, PolicyConfig, detached, only
from baldwin.observations import ObservationSpec
from baldwin.types import State


class TD3UpdateConfig(ActorCriticConfig):
    """Hyper-parameters of one update of TD3. Noise is in units of half the action range."""

    mutable: ClassVar[tuple[str, ...]] = ("target_noise", "target_noise_clip", "policy_delay")
    target_noise: float = Field(0.2, ge=0, description="Standard deviation of the noise on target actions")
    target_noise_clip: float = Field(0.5, ge=0, description="Bound of that noise")
    policy_delay: PositiveInt = Field(2, description="Critic updates for each update of actor and targets")

    def make_learner(self, policy: PolicyConfig, *, obs: ObservationSpec, n_actions: int, discrete: bool, seed: int) -> TD3:
        """A new learner; TD3 has no discrete actions."""
        return TD3(policy, self, obs=obs, n_actions=n_actions, seed=seed)


class TD3Config(OffPolicyConfig, TD3UpdateConfig):
    """TD3: twin critics, smoothed targets, a delayed deterministic actor. Defaults as in the authors' code."""

    mutable: ClassVar[tuple[str, ...]] = ("exploration_noise",)
    renamed: ClassVar[dict[str, str]] = {"explore_noise": "exploration_noise"}

    off_policy_targets: ClassVar[bool] = False

    name: Literal["td3"] = "td3"
    start_steps: int = Field(25_000, ge=0, description="Random actions and no updates until then")
    exploration_noise: float = Field(0.1, ge=0, description="Standard deviation of the noise on actions while collecting")

    @property
    def exploration_kind(self) -> Literal["noise", "sample", "epsilon", "greedy"]:
        """By noise on actions, or in the layers of the actor."""
        return "greedy" if self.noisy else "noise"

    def check_windows(self, name: str, policy: PolicyConfig) -> None:
        """Refuse what no replay learner can do, and noise on actions beside noise in the layers."""
        super().check_windows(name, policy)
        if self.noisy and self.is_changed("exploration_noise"):
            raise ValueError("algorithm.exploration_noise has no effect with algorithm.noisy. Leave one out")

    def exploration_at(self, env_steps: int) -> float:
        """The standard deviation of the noise on actions, the same at all times."""
        return 0.0 if self.noisy else self.exploration_noise


class TD3(Learner):
    """Actions are in units of half the action range, [-1, 1]."""

    config: TD3UpdateConfig
    acts_by_target = True

    def __init__(self, policy: PolicyConfig, config: TD3UpdateConfig, *, obs: ObservationSpec, n_actions: int, seed: int) -> None:
        self.config = config
        critics = (2, n_actions, 1)
        super().__init__(policy, config, obs=obs, n_actions=n_actions, n_outputs=n_actions, critics=critics, seed=seed)

    def update(self, batch: TensorBatch) -> dict[str, Tensor]:
        """Algorithm 1: critics always, actor and targets every `policy_delay` updates."""
        report = self._step_critic(batch)
        if self.updates % self.config.policy_delay == 0:
            report |= self.update_actor(only(batch.actor_obs or batch.obs), only(detached(batch.obs)))
            self.actor.soft_update(self.config.tau)
            self.critic.soft_update(self.config.tau)
        return report

    def update_critic(self, batch: TensorBatch) -> dict[str, Tensor]:
        """Critics and their targets alone."""
        report = self._step_critic(batch)
        self.critic.soft_update(self.config.tau)
        return report

    def _step_critic(self, batch: TensorBatch) -> dict[str, Tensor]:
        y = self.targets(batch) if batch.target is None else batch.target
        loss, q = self.critic_loss(batch, y)
        self.critic.minimize(loss)
        self.updates += 1
        report = {"critic_loss": loss.detach(), "q_mean": q.detach()}
        return report if batch.indices is None else report | {TD_ERROR: mean_error(q, y)}

    def update_actor(self, obs: Obs, critic_obs: Obs | None = None) -> dict[str, Tensor]:
        """Actors alone, each with a batch of its own [P, B, ...]; `critic_obs` is what the critics see of it, if that is something else."""
        if self._noisy:
            self._draw_noise(1)
        loss = self.actor_loss(obs, obs if critic_obs is None else critic_obs)
        self.actor.minimize(loss)
        return {"actor_loss": loss.detach() / len(self.actor.params)}

    def targets(self, batch: TensorBatch) -> Tensor:
        """y = r + discount min Q'(s', smoothed pi'(s')) [B]."""
        return batch.reward + batch.discount * self.target_values(batch.next_obs, batch.next_obs, batch.action, of_actions=False).value

    def _q_and_target(self, batch: TensorBatch) -> tuple[Tensor, Tensor]:
        return self.critic_values(batch.obs, batch.action), self.targets(batch)

    @torch.no_grad()
    def target_values(self, obs: Obs, actor_obs: Obs, action: Tensor, *, of_actions: bool) -> TargetValues:
        """V(s) = min Q'(s, smoothed pi'(s)). A deterministic policy has no probabilities, so that there are no others."""
        if self._noisy:
            self._draw_noise(0)
        chosen = torch.tanh(self.actor.split(actor_obs, target=True))
        noise = torch.randn(chosen.shape, generator=self._generator, device=self.device)
        chosen = smooth_target_action(chosen, noise, self.config.target_noise, self.config.target_noise_clip)
        value = self.critic.target_forward(obs, chosen).squeeze(-1).amin(0)  # of [2, B]
        return TargetValues(value, value[:0], value[:0])

    def critic_loss(self, batch: TensorBatch, y: Tensor) -> tuple[Tensor, Tensor]:
        """Sum over both critics of mean (Q(s, a) - y)^2; Q [2, B]."""
        if batch.weights is not None or self.config.clip_epsilon is not None:
            return self._continuous_critic_loss(batch, y)
        q = self.critic(batch.obs, batch.action).squeeze(-1)
        return 2 * mse_loss(q, y.expand_as(q)), q

    def actor_loss(self, obs: Obs, critic_obs: Obs) -> Tensor:
        """- mean Q1(s, pi(s)), summed over the actors; the critics are constants."""
        action = torch.tanh(self.actor.each(obs))  # [P, B, A]
        return -self.critic.frozen(critic_obs, action, first=1).mean() * len(self.actor.params)

    def frozen_critic(self, state: State) -> dict[str, NDArray[np.float32]]:
        """The actor's loss reads only the first critic."""
        return {"params": state["critic"]["params"][:1]}


def smooth_target_action(action: Tensor, noise: Tensor, std: float, clip: float) -> Tensor:
    """clip(a + clip(std noise, -c, c), -1, 1): target policy smoothing, in units of half the action range."""
    return (action + (noise * std).clamp(-clip, clip)).clamp(-1, 1)


register(AlgorithmEntry(TD3Config, build_off_policy, "learner", "arXiv 1802.09477"))
