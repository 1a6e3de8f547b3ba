"""SAC whose discrete choices are those of double DQN (arXiv 1509.06461): no policy and no temperature for them.

The outputs for choices of the network that acts are Q-values of its own, Q_0; those for numbers are a policy, as in SAC. Choices are
greedy by Q_0, and valued by the slow critics:

    y = r + discount (min Q'(s', numbers', argmax Q_0(s', .)) - alpha log pi(numbers'))

Q_0 and the critics all learn y.
"""

from __future__ import annotations

import torch
from gymnasium import spaces
from torch import Tensor

from baldwin.learners.mixed_sac import MixedSAC
from baldwin.learners.replay_learner import TensorBatch, mean_loss
from baldwin.learners.sac import SACUpdateConfig
from baldwin.networks import ActionDistribution, ActionMap, Categorical, Obs, PolicyConfig, detached, only
from baldwin.networks.actions import ILLEGAL
from baldwin.observations import ACTION_MASK, ObservationSpec


class GreedySAC(MixedSAC):
    """For Discrete actions, too: a stored action is then a number instead of a row."""

    def __init__(self, policy: PolicyConfig, config: SACUpdateConfig, *, obs: ObservationSpec, actions: ActionMap, seed: int) -> None:
        self._is_index = isinstance(actions.space, spaces.Discrete)
        super().__init__(policy, config, obs=obs, actions=actions, seed=seed)

    def update(self, batch: TensorBatch) -> dict[str, Tensor]:
        """Critics and Q_0 always, policy and temperature of the numbers every `policy_delay` updates, targets always."""
        alpha = self._alpha()
        if batch.target is None:
            batch = batch._replace(target=self.targets(batch, alpha)[0])
        report = self._step_critic(batch, alpha)
        self._draw_noise(1)
        loss = choice_loss = self.choice_loss(batch)
        if self._boxed and self.updates % self.config.policy_delay == 0:
            own, entropy = self.actor_loss(only(batch.actor_obs or batch.obs), only(detached(batch.obs)), alpha)
            loss = loss + own
            report |= {"actor_loss": own.detach()} | self._step_alpha(entropy.detach(), alpha, batch.obs)
        self.actor.minimize(loss)
        self.critic.soft_update(self.config.tau)
        return report | {"choice_loss": choice_loss.detach()}

    def choice_loss(self, batch: TensorBatch) -> Tensor:
        """Mean of (Q_0(s, choices) - y)^2 / 2, Q_0 of several branches being their mean."""
        obs = batch.actor_obs or batch.obs
        parts = ActionDistribution(self._actions, self.actor(obs)[0].float(), obs.get(ACTION_MASK)).parts
        logits = [part.logits for part in parts if isinstance(part, Categorical)]
        chosen = self._as_rows(batch.action)[:, self._chosen].long()
        q = torch.stack([own.gather(-1, chosen[:, n : n + 1]).squeeze(-1) for n, own in enumerate(logits)]).mean(0)
        assert batch.target is not None
        return 0.5 * mean_loss("mse", q, batch.target, batch.weights)

    def critic_values(self, obs: Obs, action: Tensor, *, target: bool = False) -> Tensor:
        """Values [N, B] of stored actions by each critic, or by their slow copies."""
        return super().critic_values(obs, self._as_rows(action), target=target)

    def action_numbers(self, action: Tensor) -> Tensor:
        """Choices as one-hot vectors, then numbers in [-1, 1]."""
        return super().action_numbers(self._as_rows(action))

    def stored_action(self, numbers: Tensor) -> Tensor:
        """The inverse of `action_numbers`."""
        found = super().stored_action(numbers)
        return found[..., 0].long() if self._is_index else found

    def _as_rows(self, action: Tensor) -> Tensor:
        return action.unsqueeze(-1) if self._is_index else action

    def _greedy(self, out: Tensor, obs: Obs) -> Tensor:
        found = super()._greedy(out, obs)
        return found[..., 0].long() if self._is_index else found

    def _sample(self, out: Tensor, obs: Obs) -> tuple[list[Tensor], Tensor | None, Tensor]:
        """The greedy choices as probabilities of 1 or 0; of illegal ones nothing is left."""
        q, number, log_prob = super()._sample(out, obs)
        greedy = [torch.full_like(own, ILLEGAL).scatter(-1, own.argmax(-1, keepdim=True), 0.0).detach() for own in q]
        return greedy, number, log_prob

    def _target_entropy_of(self, obs: Obs) -> Tensor:
        """The choices have no entropy, and no temperature that would move."""
        return super()._target_entropy_of(obs) * torch.tensor([0.0, 1.0], device=self.device)

    def _step_alpha(self, entropy: Tensor, alpha: Tensor, obs: Obs) -> dict[str, Tensor]:
        report = super()._step_alpha(entropy, alpha, obs)
        return {"alpha": report["alpha"], "entropy": report["entropy"]}
