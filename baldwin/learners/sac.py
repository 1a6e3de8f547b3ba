"""SAC (Haarnoja et al. 2018, arXiv 1812.05905): a squashed Gaussian actor with an entropy bonus of learned weight.

With `n_critics` above `target_subset` it is REDQ (Chen et al. 2021, arXiv 2101.05982): targets take the minimum over a
random subset of the critics, the actor maximises the mean of all of them.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar, Literal, Self

import numpy as np
import torch
from gymnasium import spaces
from numpy.typing import NDArray
from pydantic import Field, PositiveFloat, PositiveInt, model_validator
from torch import Tensor

from baldwin.algorithm import AlgorithmEntry, register
from baldwin.errors import ConfigError
from baldwin.learners.learner import ActorCriticConfig, Learner
from baldwin.learners.off_policy import build_off_policy
from baldwin.learners.off_policy_config import OffPolicyConfig
from baldwin.learners.replay_learner import TD_ERROR, BatchSampler, TargetValues, TensorBatch, mean_error
from baldwin.networks import ActionMap, Adam, Obs, PolicyConfig, detached, only
from baldwin.observations import ObservationSpec
from baldwin.ops.targets import soft_value, split_gaussian, tanh_gaussian, tanh_gaussian_log_prob
from baldwin.types import Arrays, Metrics, State


class SACUpdateConfig(ActorCriticConfig):
    """Hyper-parameters of one update of SAC."""

    mutable: ClassVar[tuple[str, ...]] = ("alpha", "alpha_lr", "target_entropy", "target_entropy_scale", "target_subset", "policy_delay")
    renamed: ClassVar[dict[str, str]] = {
        "subset": "target_subset",
        "alpha_start": "init_alpha",
        "entropy_share": "target_entropy_scale",
    }

    alpha: PositiveFloat | Literal["auto"] = Field("auto", description="Weight of the entropy bonus: learned, or a fixed number")
    init_alpha: PositiveFloat = Field(1.0, description="auto: initial value")
    alpha_lr: PositiveFloat = 3e-4
    target_entropy: float | Literal["auto"] = Field(
        "auto",
        description="auto: minus the number of continuous actions, or target_entropy_scale x log of the number of discrete ones; "
        "a number for discrete ones lies between 0 and that log",
    )
    target_entropy_scale: float = Field(0.5, gt=0, lt=1, description="Discrete actions: target as a fraction of the largest entropy")
    n_critics: int = Field(2, ge=1, description="Size of the ensemble; `ensemble` is another name of it")
    target_subset: int = Field(2, ge=1, description="Number of critics, chosen at random, that a target takes the minimum of")
    policy_delay: PositiveInt = Field(1, description="Critic updates for each update of actor and temperature")

    @model_validator(mode="after")
    def _subset_is_not_larger(self) -> Self:
        if self.target_subset > self.n_critics:
            raise ValueError(f"expected target_subset <= n_critics; got {self.target_subset} > {self.n_critics}")
        return self

    def make_learner(self, policy: PolicyConfig, *, obs: ObservationSpec, n_actions: int, discrete: bool, seed: int) -> SACBase:
        """A new learner for continuous, discrete or mixed actions.

        Raises:
            ConfigError: clip_epsilon, and there are discrete choices.
        """
        from baldwin.learners.discrete_sac import DiscreteSAC  # they are subclasses of what is below
        from baldwin.learners.mixed_sac import MixedSAC

        if self.clip_epsilon is not None and discrete:
            raise ConfigError(f"algorithm.clip_epsilon is for continuous actions; got {obs.action_space or 'discrete ones'}. Leave it out")
        if isinstance(obs.action_space, spaces.Dict | spaces.Tuple | spaces.MultiDiscrete | spaces.MultiBinary):
            return MixedSAC(policy, self, obs=obs, actions=ActionMap(obs.action_space, policy.squash, policy.head), seed=seed)
        return (DiscreteSAC if discrete else SAC)(policy, self, obs=obs, n_actions=n_actions, seed=seed)


class SACConfig(OffPolicyConfig, SACUpdateConfig):
    """SAC: a stochastic actor with an entropy bonus of learned weight; discrete actions and REDQ ensembles too."""

    policy_defaults: ClassVar[dict[str, Any]] = OffPolicyConfig.policy_defaults | {"head": "gaussian"}

    mutable: ClassVar[tuple[str, ...]] = ("trace_lambda",)
    rescalable: ClassVar[bool] = False

    name: Literal["sac"] = "sac"
    action_noise: float = Field(
        0.0,
        ge=0,
        description="Continuous actions: standard deviation of noise on what the policy samples while collecting; not with corrected targets",
    )
    start_steps: int = Field(10_000, ge=0, description="Random actions and no updates until then")
    discrete_dqn_like: bool = Field(
        False, description="Discrete choices are greedy by Q-values, with the targets of double DQN, and have no policy and no temperature"
    )
    discrete_dqn_epsilon: float = Field(0.2, ge=0, le=1, description="discrete_dqn_like: share of random choices while collecting")

    @property
    def exploration_kind(self) -> Literal["noise", "sample", "epsilon", "greedy"]:
        """By the policy itself; choices without one are epsilon-greedy."""
        return "epsilon" if self.discrete_dqn_like else "sample"

    def exploration_at(self, env_steps: int) -> float:
        """The standard deviation of noise on sampled actions, or the share of random choices."""
        return self.discrete_dqn_epsilon if self.discrete_dqn_like else self.action_noise

    def make_learner(self, policy: PolicyConfig, *, obs: ObservationSpec, n_actions: int, discrete: bool, seed: int) -> SACBase:
        """A new learner for continuous, discrete or mixed actions.

        Raises:
            ConfigError: discrete_dqn_like without choices.
        """
        if not self.discrete_dqn_like:
            return super().make_learner(policy, obs=obs, n_actions=n_actions, discrete=discrete, seed=seed)
        from baldwin.learners.greedy_sac import GreedySAC

        assert obs.action_space is not None
        made = GreedySAC(policy, self, obs=obs, actions=ActionMap(obs.action_space, policy.squash, policy.head), seed=seed)
        if not made.branches:
            raise ConfigError(f"algorithm.discrete_dqn_like is for discrete choices, and {obs.action_space} has none. Leave it out")
        return made

    def check_windows(self, name: str, policy: PolicyConfig) -> None:
        """Refuse what no replay learner can do, and noise on actions with targets that need their probabilities."""
        super().check_windows(name, policy)
        if self.action_noise and self.target != "nstep":
            raise ValueError(
                f"algorithm.target={self.target} needs the probabilities of actions, which action_noise changes. Leave one out"
            )
        if self.discrete_dqn_like and self.target != "nstep":
            raise ValueError(
                f"algorithm.target={self.target} needs the probabilities of a policy, and choices have none with discrete_dqn_like. Use target=nstep"
            )
        if self.discrete_dqn_like and (self.action_noise or self.noisy):
            name = "noisy" if self.noisy else "action_noise"
            raise ValueError(f"algorithm.{name}: with discrete_dqn_like, choices are explored by discrete_dqn_epsilon. Leave one out")
        if self.discrete_dqn_like and self.clip_epsilon is not None:
            raise ValueError("algorithm.clip_epsilon is for continuous actions, and discrete_dqn_like for choices. Leave one out")
        if self.discrete_dqn_like and self.policy_delay > 1:
            raise ValueError("algorithm.policy_delay: with discrete_dqn_like, choices are learned at every update. Leave policy_delay out")
        if not self.discrete_dqn_like and self.is_changed("discrete_dqn_epsilon"):
            raise ValueError("algorithm.discrete_dqn_epsilon has no effect without algorithm.discrete_dqn_like. Set both, or neither")


class SACBase(Learner):
    """What continuous and discrete SAC share: the temperature, ensembles, and the order of an update."""

    config: SACUpdateConfig
    temperatures: ClassVar[int] = 1

    def __init__(
        self,
        policy: PolicyConfig,
        config: SACUpdateConfig,
        *,
        obs: ObservationSpec,
        n_actions: int,
        n_outputs: int,
        critics: tuple[int, int, int],
        auto_target_entropy: float,
        seed: int,
    ) -> None:
        super().__init__(policy, config, obs=obs, n_actions=n_actions, n_outputs=n_outputs, critics=critics, seed=seed)
        self._target_entropy = auto_target_entropy if config.target_entropy == "auto" else config.target_entropy
        start = config.init_alpha if config.alpha == "auto" else config.alpha
        self._set_log_alpha(np.full(self.temperatures, math.log(start)))

    def update(self, batch: TensorBatch) -> dict[str, Tensor]:
        """Critics always, actor and temperature every `policy_delay` updates, targets always."""
        alpha = self._alpha()
        report = self._step_critic(batch, alpha)
        if self.updates % self.config.policy_delay == 0:
            report |= self._step_actor(only(batch.actor_obs or batch.obs), only(detached(batch.obs)), alpha)
            report |= self._step_alpha(report["entropy"], alpha, batch.obs)
        self.critic.soft_update(self.config.tau)
        return report

    def update_critic(self, batch: TensorBatch) -> dict[str, Tensor]:
        """Critics, their targets, and the temperature, which follows the entropy of the policy that gives the next actions."""
        alpha = self._alpha()
        report = self._step_critic(batch, alpha, by_target_policy=True)
        self.critic.soft_update(self.config.tau)
        return report | self._step_alpha(report["entropy"], alpha, batch.next_obs)

    def update_actor(self, obs: Obs) -> dict[str, Tensor]:
        """Actors alone, each with a batch of its own [P, B, ...]."""
        report = self._step_actor(obs, obs, self._alpha())
        return {"actor_loss": report["actor_loss"]}

    def targets(self, batch: TensorBatch, alpha: Tensor, by_target_policy: bool = False) -> tuple[Tensor, Tensor]:
        """y = r + discount V(s') [B], and the entropy of the policy there."""
        self._draw_noise(0)
        with torch.no_grad():
            next_out = self.actor.split(batch.next_obs, target=True) if by_target_policy else self.actor.each(only(batch.next_obs))[0]
            value, entropy = self.soft_values(batch.next_obs, next_out, alpha, self._subset)
            return batch.reward + batch.discount * value, entropy

    def _q_and_target(self, batch: TensorBatch) -> tuple[Tensor, Tensor]:
        return self.critic_values(batch.obs, batch.action), self.targets(batch, self._alpha())[0]

    @torch.no_grad()
    def target_values(self, obs: Obs, actor_obs: Obs, action: Tensor, *, of_actions: bool) -> TargetValues:
        """Soft values of states and, by the same critics of the ensemble, of actions."""
        self._draw_noise(0)
        out, alpha = self.actor.each(only(actor_obs))[0], self._alpha()
        members = self._subset()
        value, _ = self.soft_values(obs, out, alpha, lambda: members)
        if not of_actions:
            return TargetValues(value, value[:0], value[:0])
        return TargetValues(value, minimum(self.critic_values(obs, action, target=True), members), self._log_prob(out, actor_obs, action))

    @abstractmethod
    def soft_values(self, obs: Obs, out: Tensor, alpha: Tensor, members: Callable[[], Tensor | None]) -> tuple[Tensor, Tensor]:
        """V(s) [B] by the slow critics that `members` chooses, and the policy's entropy; `out` [B, out]: the actor's outputs."""

    @abstractmethod
    def critic_loss(self, batch: TensorBatch, y: Tensor) -> tuple[Tensor, Tensor]:
        """Loss, and Q [N, B]."""

    @abstractmethod
    def actor_loss(self, obs: Obs, critic_obs: Obs, alpha: Tensor) -> tuple[Tensor, Tensor]:
        """Loss, summed over the actors, and the policy's entropy; what actors and critics see may differ."""

    @abstractmethod
    def _log_prob(self, out: Tensor, obs: Obs, action: Tensor) -> Tensor:
        """Log-probabilities [B] of actions, given the actor's outputs [B, out]."""

    def alpha_loss(self, entropy: Tensor, obs: Obs) -> Tensor:
        """log alpha (H - target H): the weight falls while there is more entropy than the target."""
        return (self.log_alpha * (entropy - self._target_entropy_of(obs))).sum()

    def _target_entropy_of(self, obs: Obs) -> Tensor | float:
        return self._target_entropy

    def train_critic(self, sampler: BatchSampler, k: int, target_policy: NDArray[np.float32] | None = None) -> Metrics:
        """As for every learner; SAC has no target actor, so by default the actor itself gives the next actions."""
        return super().train_critic(sampler, k, self.actor_vectors() if target_policy is None else target_policy)

    def critic_state(self) -> State:
        """The critics' state and the temperature, with its optimiser."""
        log_alpha = self.log_alpha.detach().cpu().numpy().copy()
        return super().critic_state() | {"log_alpha": log_alpha, "alpha_adam": self._alpha_adam.state_dict()}

    def load_critic_state(self, state: State) -> None:
        """Continue from a `critic_state`."""
        super().load_critic_state(state)
        alpha = self.config.alpha  # a fixed one may have changed since the state was saved
        self._set_log_alpha(np.asarray(state["log_alpha"]) if alpha == "auto" else np.full(self.temperatures, math.log(alpha)))
        self._alpha_adam.load_state_dict(state["alpha_adam"])

    def frozen_critic(self, state: State) -> dict[str, NDArray[Any]]:
        """The critics and the temperature, as updates of an actor read them."""
        return super().frozen_critic(state) | {"log_alpha": state["log_alpha"]}

    def load_frozen_critic(self, arrays: Arrays) -> None:
        """Prepare for `train_actor`: critics and temperature from `frozen_critic`."""
        super().load_frozen_critic(arrays)
        self._set_log_alpha(np.asarray(arrays["log_alpha"]))

    def _set_log_alpha(self, values: NDArray[np.floating[Any]]) -> None:
        """One number, or one for each kind of action."""
        found = values if self.temperatures > 1 else values.reshape(())
        self.log_alpha = torch.tensor(found, dtype=torch.float32, device=self.device, requires_grad=True)
        self._alpha_adam = Adam(self.log_alpha, self.config.alpha_lr)

    def reset_optimizer(self) -> None:
        """Set the moments of all optimisers to zero, that of the temperature included."""
        super().reset_optimizer()
        self._alpha_adam = Adam(self.log_alpha, self.config.alpha_lr)

    def _alpha(self) -> Tensor:
        return self.log_alpha.detach().exp()

    def _step_critic(self, batch: TensorBatch, alpha: Tensor, by_target_policy: bool = False) -> dict[str, Tensor]:
        report = {}
        if batch.target is None:
            y, report["entropy"] = self.targets(batch, alpha, by_target_policy)
        else:
            y = batch.target
        loss, q = self.critic_loss(batch, y)
        self.critic.minimize(loss)
        self.updates += 1
        if batch.indices is not None:
            report[TD_ERROR] = mean_error(q, y)
        return {"critic_loss": loss.detach(), "q_mean": q.detach()} | report

    def _step_actor(self, obs: Obs, critic_obs: Obs, alpha: Tensor) -> dict[str, Tensor]:
        self._draw_noise(1)
        loss, entropy = self.actor_loss(obs, critic_obs, alpha)
        self.actor.minimize(loss)
        return {"actor_loss": loss.detach() / len(self.actor.params), "entropy": entropy.detach()}

    def _step_alpha(self, entropy: Tensor, alpha: Tensor, obs: Obs) -> dict[str, Tensor]:
        if self.config.alpha == "auto":
            self._alpha_adam.minimize(self.alpha_loss(entropy, obs))
        return {"alpha": alpha}

    def _subset(self) -> Tensor | None:
        """A random subset of the critics, of which a target takes the minimum; None: all of them."""
        count, subset = self.config.n_critics, self.config.target_subset
        return torch.randperm(count, generator=self._generator, device=self.device)[:subset] if subset < count else None

    def _actor_q(self, q: Tensor) -> Tensor:
        """What the actor maximises: the minimum of a pair of critics [N, ...], the mean of a larger ensemble."""
        return q.mean(0) if self.config.target_subset < self.config.n_critics else q.amin(0)


def minimum(q: Tensor, members: Tensor | None) -> Tensor:
    """The minimum of some critics [N, ...]."""
    return (q if members is None else q[members]).amin(0)


class SAC(SACBase):
    """Continuous actions, in [-1, 1]."""

    def __init__(self, policy: PolicyConfig, config: SACUpdateConfig, *, obs: ObservationSpec, n_actions: int, seed: int) -> None:
        self.config = config
        super().__init__(
            policy,
            config,
            obs=obs,
            n_actions=n_actions,
            n_outputs=2 * n_actions,
            critics=(config.n_critics, n_actions, 1),
            auto_target_entropy=-float(n_actions),
            seed=seed,
        )

    def soft_values(self, obs: Obs, out: Tensor, alpha: Tensor, members: Callable[[], Tensor | None]) -> tuple[Tensor, Tensor]:
        """V(s) = min Q'(s, a) - alpha log pi(a|s), a sampled."""
        action, log_prob = self._sample(out)
        q = self.critic_values(obs, action, target=True)
        return soft_value(minimum(q, members()), log_prob, alpha), -log_prob.mean()

    def critic_loss(self, batch: TensorBatch, y: Tensor) -> tuple[Tensor, Tensor]:
        """Sum over critics of mean (Q(s, a) - y)^2 / 2."""
        loss, q = self._continuous_critic_loss(batch, y)
        return 0.5 * loss, q

    def actor_loss(self, obs: Obs, critic_obs: Obs, alpha: Tensor) -> tuple[Tensor, Tensor]:
        """Mean of alpha log pi(a|s) - Q(s, a), a sampled; the critics are constants."""
        action, log_prob = self._sample(self.actor.each(obs))  # [P, B, A], [P, B]
        q = self._actor_q(self.critic.frozen(critic_obs, action).squeeze(-1))
        return (alpha * log_prob - q).mean() * len(self.actor.params), -log_prob.mean()

    def _log_prob(self, out: Tensor, obs: Obs, action: Tensor) -> Tensor:
        return tanh_gaussian_log_prob(*split_gaussian(out), action)

    def _sample(self, out: Tensor) -> tuple[Tensor, Tensor]:
        mean, log_std = split_gaussian(out)
        return tanh_gaussian(mean, log_std, torch.randn(mean.shape, generator=self._generator, device=self.device))


register(AlgorithmEntry(SACConfig, build_off_policy, "learner", "arXiv 1812.05905, 1910.07207, 2101.05982"))
