"""SAC (Haarnoja et al. 2018, arXiv 1812.05905): a squashed Gaussian that earns entropy at a learned price.

With `ensemble` above `subset` it is REDQ (Chen et al. 2021, arXiv 2101.05982): targets take the minimum over a random
subset of critics, the actor climbs the mean of all of them.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from typing import Any, ClassVar, Literal, Self

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field, PositiveFloat, PositiveInt, model_validator
from torch import Tensor

from baldwin.learners.learner import Learner, LearnerConfig, Source, Tensors, shared_out, together
from baldwin.learners.networks import Forward, Rows
from baldwin.learners.off_policy import OffPolicyConfig
from baldwin.ops.targets import soft_value, split_gaussian, tanh_gaussian
from baldwin.policies import PolicyConfig
from baldwin.types import Metrics, State


class SACRule(LearnerConfig):
    """What one update of SAC does."""

    alpha: PositiveFloat | Literal["auto"] = Field("auto", description="Price of entropy: learned, or a fixed number")
    alpha_start: PositiveFloat = Field(1.0, description="auto: where it starts")
    alpha_lr: PositiveFloat = 3e-4
    target_entropy: float | Literal["auto"] = Field(
        "auto", description="auto: minus the number of continuous actions, or entropy_share x log of the number of discrete ones"
    )
    entropy_share: float = Field(0.5, gt=0, lt=1, description="Discrete actions: wanted share of the largest possible entropy")
    ensemble: int = Field(2, ge=1, description="Critics")
    subset: int = Field(2, ge=1, description="How many of them, at random, a target takes the minimum of")
    policy_delay: PositiveInt = Field(1, description="Critic updates for each update of actor and temperature")

    @model_validator(mode="after")
    def _a_subset_is_not_larger(self) -> Self:
        if self.subset > self.ensemble:
            raise ValueError(f"expected subset <= ensemble; got {self.subset} > {self.ensemble}")
        return self


class SACConfig(OffPolicyConfig, SACRule):
    """SAC: a stochastic actor that earns entropy at a learned price; discrete actions and REDQ ensembles too."""

    policy_defaults: ClassVar[dict[str, Any]] = OffPolicyConfig.policy_defaults | {"head": "gaussian"}

    name: Literal["sac"] = "sac"
    start_steps: int = Field(10_000, ge=0, description="Random actions and no updates until then")


class EntropyLearner(Learner):
    """A learner whose actor is stochastic, and pays for being too certain."""

    config: SACRule

    def __init__(
        self, policy: PolicyConfig, config: SACRule, *, obs_size: int, outputs: int, critics: tuple[int, int, int], target: float, seed: int
    ) -> None:
        super().__init__(policy, config, obs_size=obs_size, outputs=outputs, critics=critics, seed=seed)
        self._target_entropy = target if config.target_entropy == "auto" else config.target_entropy
        start = config.alpha_start if config.alpha == "auto" else config.alpha
        self._log_alpha = Rows(np.full((1, 1), math.log(start), np.float32), config.alpha_lr, self.device)

    def state_dict(self) -> State:
        """All that changes."""
        return super().state_dict() | {"log_alpha": self._log_alpha.state_dict()}

    def load_state_dict(self, state: State) -> None:
        """Be the learner that wrote `state`."""
        super().load_state_dict(state)
        self._log_alpha.load_state_dict(state["log_alpha"])

    def critic_state(self) -> State:
        """With the price of entropy."""
        return super().critic_state() | {"log_alpha": self._log_alpha.state_dict()}

    def load_critic_state(self, state: State) -> None:
        """Judge as the learner did that wrote `state`."""
        super().load_critic_state(state)
        self._log_alpha.load_state_dict(state["log_alpha"])

    def _alpha(self) -> Tensor:
        return self._log_alpha.online.exp().squeeze()

    def _price(self, entropy: Tensor) -> dict[str, Tensor]:
        """Down log alpha (H - wanted H), whose slope is H - wanted H: the price falls while there is more entropy than wanted."""
        if self.config.alpha == "auto":
            self._log_alpha.descend((entropy - self._target_entropy).view(1, 1))
        return {"entropy": entropy.view(1)}

    def _joint_step(self, batch: Tensors) -> dict[str, Tensor]:
        alpha = self._alpha()
        seen = self._fit_critics(batch, self._now, alpha)
        if self.updates % self.config.policy_delay == 0:
            moved, entropy = self._fit_actor(batch.obs[None], alpha)
            seen |= moved | self._price(entropy) | {"alpha": alpha.view(1)}
        self.critic.follow(self.config.tau)
        return seen

    def _critic_step(self, batch: Tensors) -> dict[str, Tensor]:
        alpha = self._alpha()
        seen = self._fit_critics(batch, self._fixed, alpha)
        self.critic.follow(self.config.tau)
        return (
            seen | self._price(seen["entropy"]) | {"alpha": alpha.view(1)}
        )  # with no actor to train, it is the fixed policy's that counts

    def critic_steps(self, replay: Source, k: int, target_policy: NDArray[np.float32] | None = None) -> Metrics:
        """As for every learner; there is no slow actor here, so by default it is the actor itself that gives the next actions."""
        return super().critic_steps(replay, k, self.actor_vectors() if target_policy is None else target_policy)

    def _now(self, obs: Tensor) -> Tensor:
        return self.actor(obs[None])[0]

    def _fixed(self, obs: Tensor) -> Tensor:
        return shared_out(self.actor.slow, len(self.actor.target), obs)

    def _actor_step(self, obs: Tensor) -> dict[str, Tensor]:
        return self._fit_actor(obs, self._alpha())[0]

    def _regress(self, inputs: Tensor, y: Tensor, chosen: Tensor | None = None) -> dict[str, Tensor]:
        """Down the sum over critics of mean (Q - y)^2 / 2."""
        q, loss = self.critic.fit(inputs, y, 0.5, chosen)
        self.updates += 1
        return {"critic_loss": loss, "q_mean": q}

    def _pessimist(self, q: Tensor) -> Tensor:
        """The minimum over a random subset of the critics [C, ...]."""
        count, subset = self.config.ensemble, self.config.subset
        if subset < count:
            chosen = torch.randperm(count, generator=self._generator, device=self.device)[:subset]
            q = q[chosen]
        return q.amin(0)

    def _credit(self, q: Tensor) -> Tensor:
        """How much each critic [C, ...] counts in what the actor climbs: the minimum of a pair, the mean of an ensemble."""
        if self.config.subset < self.config.ensemble:
            return torch.full_like(q, 1 / len(q))
        smallest = (q == q.amin(0)).float()
        return smallest / smallest.sum(0)  # critics that tie share it

    @abstractmethod
    def _fit_critics(self, batch: Tensors, actor: Forward, alpha: Tensor) -> dict[str, Tensor]: ...

    @abstractmethod
    def _fit_actor(self, obs: Tensor, alpha: Tensor) -> tuple[dict[str, Tensor], Tensor]: ...  # and the entropy on these observations


class SAC(EntropyLearner):
    """Continuous actions, in [-1, 1]."""

    def __init__(self, policy: PolicyConfig, config: SACRule, *, obs_size: int, actions: int, seed: int) -> None:
        self.config = config
        critics = (config.ensemble, obs_size + actions, 1)
        super().__init__(policy, config, obs_size=obs_size, outputs=2 * actions, critics=critics, target=-float(actions), seed=seed)

    @torch.no_grad()
    def values(self, obs: NDArray[np.float32], action: NDArray[Any] | None = None) -> NDArray[np.float32]:
        """The smallest of the critics; for the actor's own action, its mean."""
        x = self._prepared(obs)
        a = torch.tanh(split_gaussian(self._of_actor(x))[0]) if action is None else torch.from_numpy(np.array(action)).to(self.device)
        return np.asarray(self.critic(together(x, a, self.config.ensemble)).squeeze(-1).amin(0).cpu().numpy())

    def _sample(self, out: Tensor) -> tuple[Tensor, Tensor]:
        mean, log_std = split_gaussian(out)
        return tanh_gaussian(mean, log_std, self._noise(mean))

    def _fit_critics(self, batch: Tensors, actor: Forward, alpha: Tensor) -> dict[str, Tensor]:
        """y = r + discount (min Q'(s', a') - alpha log pi(a'|s')), a' sampled."""
        count = self.config.ensemble
        with torch.inference_mode():
            action, log_prob = self._sample(actor(batch.next_obs))
            q_next = self.critic.slow(together(batch.next_obs, action, count)).squeeze(-1)
            y = batch.reward + batch.discount * soft_value(self._pessimist(q_next), log_prob, alpha)
        return self._regress(together(batch.obs, batch.action, count), y) | {"entropy": -log_prob.mean().view(1)}

    def _fit_actor(self, obs: Tensor, alpha: Tensor) -> tuple[dict[str, Tensor], Tensor]:
        """Down mean (alpha log pi(a|s) - Q(s, a)), a sampled, for each row of actors."""
        action, log_prob = self._sample(self.actor(obs))
        inputs = together(obs.flatten(0, 1), action.detach().flatten(0, 1), self.config.ensemble)
        q, slope = self.critic.slope(inputs, lambda q: self._credit(q) * (-1 / obs.shape[1]))
        self.actor.pull([action, log_prob], [slope[:, obs.shape[-1] :].view_as(action), (alpha / obs.shape[1]).expand_as(log_prob)])
        entropy = -log_prob.detach().mean()
        return {"actor_loss": alpha * log_prob.detach() - (self._credit(q) * q).sum(0).view_as(log_prob)}, entropy
