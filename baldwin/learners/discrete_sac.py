"""SAC for discrete actions (Christodoulou 2019, arXiv 1910.07207): expectations over all actions instead of samples."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from baldwin.errors import ConfigError
from baldwin.learners.replay_learner import TensorBatch, mean_loss
from baldwin.learners.sac import SACBase, SACUpdateConfig, minimum
from baldwin.networks import Obs, PolicyConfig, mask_logits
from baldwin.observations import ACTION_MASK, ObservationSpec
from baldwin.ops.targets import expected_soft_value


class DiscreteSAC(SACBase):
    """Critics give a value for every action; the target entropy is a fraction of log |A|."""

    def __init__(self, policy: PolicyConfig, config: SACUpdateConfig, *, obs: ObservationSpec, n_actions: int, seed: int) -> None:
        """Raises ConfigError for a target entropy that no policy over so many actions has."""
        if config.target_entropy != "auto" and not 0 < config.target_entropy < math.log(n_actions):
            raise ConfigError(
                f"algorithm.target_entropy={config.target_entropy:g}: expected more than 0 and less than log({n_actions}) = "
                f"{math.log(n_actions):.3f}, the largest entropy of {n_actions} actions; with another target the temperature falls to 0, "
                "or grows, for ever. Leave it at auto, and set target_entropy_scale"
            )
        self.config = config
        super().__init__(
            policy,
            config,
            obs=obs,
            n_actions=n_actions,
            n_outputs=n_actions,
            critics=(config.n_critics, 0, n_actions),
            auto_target_entropy=config.target_entropy_scale * math.log(n_actions),
            seed=seed,
        )
        self.branches = (n_actions,)

    def soft_values(self, obs: Obs, out: Tensor, alpha: Tensor, members: Callable[[], Tensor | None]) -> tuple[Tensor, Tensor]:
        """V(s) = sum_a pi(a|s) (min Q'(s, a) - alpha log pi(a|s))."""
        log_probs = _log_probs(out, obs)
        q = minimum(self.critic.target_forward(obs), members())
        return expected_soft_value(log_probs.exp(), log_probs, q, alpha), _entropy(log_probs)

    def critic_loss(self, batch: TensorBatch, y: Tensor) -> tuple[Tensor, Tensor]:
        """Sum over critics of mean (Q(s, a) - y)^2 / 2."""
        q = self.critic_values(batch.obs, batch.action)
        return 0.5 * len(q) * mean_loss("mse", q, y.expand_as(q), batch.weights), q

    def actor_loss(self, obs: Obs, critic_obs: Obs, alpha: Tensor) -> tuple[Tensor, Tensor]:
        """Mean of sum_a pi(a|s) (alpha log pi(a|s) - Q(s, a)); the critics are constants."""
        log_probs = _log_probs(self.actor.each(obs), obs)  # [P, B, actions]
        with torch.no_grad():
            q = self._actor_q(self.critic.frozen(critic_obs).float())
        return -expected_soft_value(log_probs.exp(), log_probs, q, alpha).mean() * len(self.actor.params), _entropy(log_probs)

    def critic_values(self, obs: Obs, action: Tensor, *, target: bool = False) -> Tensor:
        """Values [N, B] of actions [B] by each critic, or by their slow copies."""
        q = (self.critic.target_forward if target else self.critic)(obs)
        return q.gather(-1, action.expand(len(q), -1).unsqueeze(-1)).squeeze(-1)

    def _log_prob(self, out: Tensor, obs: Obs, action: Tensor) -> Tensor:
        return _log_probs(out, obs).gather(-1, action.unsqueeze(-1)).squeeze(-1)

    def _target_entropy_of(self, obs: Obs) -> Tensor | float:
        """A fraction of the largest entropy of the legal actions, where there is a mask."""
        if ACTION_MASK not in obs or self.config.target_entropy != "auto":
            return self._target_entropy
        legal = obs[ACTION_MASK].sum(-1).clamp(min=1)
        return self.config.target_entropy_scale * legal.float().log().mean()

    def _greedy(self, out: Tensor, obs: Obs) -> Tensor:
        return _legal(out, obs).argmax(-1)

    def _min_q(self, obs: Obs, action: Tensor) -> Tensor:
        return self.critic(obs).amin(0).gather(1, action[:, None]).squeeze(1)


def _legal(out: Tensor, obs: Obs) -> Tensor:
    """Logits, illegal actions masked where the environment says which they are."""
    return mask_logits(out.float(), obs[ACTION_MASK]) if ACTION_MASK in obs else out.float()


def _log_probs(out: Tensor, obs: Obs) -> Tensor:
    return torch.log_softmax(_legal(out, obs), -1)


def _entropy(log_probs: Tensor) -> Tensor:
    return -(log_probs.exp() * log_probs).sum(-1).mean()
