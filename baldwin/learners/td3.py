"""TD3 (Fujimoto et al. 2018, arXiv 1802.09477): twin critics, smoothed targets, a delayed deterministic actor."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field, PositiveInt
from torch import Tensor

from baldwin.learners.learner import Learner, LearnerConfig, Tensors, shared_out, together
from baldwin.learners.off_policy import OffPolicyConfig
from baldwin.ops.targets import smoothed
from baldwin.policies import PolicyConfig


class TD3Rule(LearnerConfig):
    """What one update of TD3 does."""

    target_noise: float = Field(0.2, ge=0, description="Std of the noise on target actions, in units of half the action range")
    target_noise_clip: float = Field(0.5, ge=0, description="Where that noise is cut")
    policy_delay: PositiveInt = Field(2, description="Critic updates for each update of actor and targets")


class TD3Config(OffPolicyConfig, TD3Rule):
    """TD3: twin critics, smoothed targets, a delayed deterministic actor. Defaults as in the authors' code."""

    name: Literal["td3"] = "td3"
    start_steps: int = Field(25_000, ge=0, description="Random actions and no updates until then")
    explore_noise: float = Field(0.1, ge=0, description="Std of the noise on actions while collecting, in units of half the action range")


class TD3(Learner):
    """Actions are in units of half the action range, [-1, 1], everywhere in here."""

    config: TD3Rule

    def __init__(self, policy: PolicyConfig, config: TD3Rule, *, obs_size: int, actions: int, seed: int) -> None:
        self.config = config
        super().__init__(policy, config, obs_size=obs_size, outputs=actions, critics=(2, obs_size + actions, 1), seed=seed)

    @torch.no_grad()
    def values(self, obs: NDArray[np.float32], action: NDArray[Any] | None = None) -> NDArray[np.float32]:
        """The smaller of both critics."""
        x = self._prepared(obs)
        a = torch.tanh(self._of_actor(x)) if action is None else torch.from_numpy(np.array(action)).to(self.device)
        return np.asarray(self.critic(together(x, a, 2)).squeeze(-1).amin(0).cpu().numpy())

    def _joint_step(self, batch: Tensors) -> dict[str, Tensor]:
        seen = self._fit_critics(batch)
        if self.updates % self.config.policy_delay == 0:
            seen |= self._actor_step(batch.obs[None])
            self.actor.follow(self.config.tau)
            self.critic.follow(self.config.tau)
        return seen

    def _critic_step(self, batch: Tensors) -> dict[str, Tensor]:
        seen = self._fit_critics(batch)
        self.critic.follow(self.config.tau)
        return seen

    def _fit_critics(self, batch: Tensors) -> dict[str, Tensor]:
        """Down the sum over critics of mean (Q(s, a) - y)^2, y = r + discount min Q'(s', smoothed pi'(s'))."""
        with torch.inference_mode():
            greedy = torch.tanh(shared_out(self.actor.slow, len(self.actor.target), batch.next_obs))
            action = smoothed(greedy, self._noise(greedy), self.config.target_noise, self.config.target_noise_clip)
            y = batch.reward + batch.discount * self.critic.slow(together(batch.next_obs, action, 2)).squeeze(-1).amin(0)
        q, loss = self.critic.fit(together(batch.obs, batch.action, 2), y, 1.0)
        self.updates += 1
        return {"critic_loss": loss, "q_mean": q}

    def _actor_step(self, obs: Tensor) -> dict[str, Tensor]:
        """Down - mean Q1(s, pi(s)), for each row of actors with a batch of its own."""
        action = torch.tanh(self.actor(obs))
        inputs = torch.cat([obs, action.detach()], -1).flatten(0, 1)
        q, slope = self.critic.slope(inputs[None], lambda q: torch.full_like(q, -1 / obs.shape[1]))
        self.actor.pull([action], [slope[:, obs.shape[-1] :].view_as(action)])
        return {"actor_loss": -q}
