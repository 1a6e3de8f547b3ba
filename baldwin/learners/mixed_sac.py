"""SAC for actions with discrete and continuous parts at once: Dict, Tuple and MultiDiscrete spaces.

A critic is given the continuous part and has a value for every choice of every branch: Q(s, a) is the mean over the branches of
the values of their choices. So expectations over choices are exact, continuous actions are sampled and followed by their
gradient, as in SAC, and both see what the other does. There is one temperature for the choices and one for the rest.
A stored action is a row as networks/distributions.py has it: continuous numbers before they are squashed.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from baldwin.errors import ConfigError
from baldwin.learners.replay_learner import TensorBatch, mean_loss
from baldwin.learners.sac import SACBase, SACUpdateConfig, minimum
from baldwin.networks import ActionDistribution, ActionMap, Categorical, Gaussian, Obs, PolicyConfig
from baldwin.observations import ACTION_MASK, ObservationSpec
from baldwin.ops.targets import MAX_ACTION, tanh_gaussian


class MixedSAC(SACBase):
    """`branches`: choices of each discrete part; `boxed`: continuous numbers."""

    temperatures = 2  # of choices, of continuous numbers

    def __init__(self, policy: PolicyConfig, config: SACUpdateConfig, *, obs: ObservationSpec, actions: ActionMap, seed: int) -> None:
        """Raises ConfigError for flags (MultiBinary) and unbounded boxes, and for a target entropy as a number."""
        if config.target_entropy != "auto":
            raise ConfigError(
                "algorithm.target_entropy: choices and numbers have a target each. Leave it at auto, and set target_entropy_scale"
            )
        self.config, self._actions = config, actions
        parts = ActionDistribution(actions, torch.zeros(1, actions.outputs)).parts
        if not all(isinstance(part, Categorical | Gaussian) for part in parts):
            raise ConfigError(
                f"sac needs choices or bounded boxes, also mixed; got {actions.space}. Wrap the environment, or use algorithm.name=ppo or es"
            )
        branches = tuple(part.logits.shape[-1] for part in parts if isinstance(part, Categorical))
        self._boxed = sum(part.columns for part in parts if isinstance(part, Gaussian))
        kinds = [isinstance(part, Categorical) for part in parts for _ in range(part.columns)]
        self._chosen, self._drawn = ([at for at, is_choice in enumerate(kinds) if is_choice is wanted] for wanted in (True, False))
        super().__init__(
            policy,
            config,
            obs=obs,
            n_actions=actions.size,
            n_outputs=actions.outputs,
            critics=(config.n_critics, self._boxed, max(1, sum(branches))),
            auto_target_entropy=-float(self._boxed),
            seed=seed,
        )
        self.branches = branches

    def soft_values(self, obs: Obs, out: Tensor, alpha: Tensor, members: Callable[[], Tensor | None]) -> tuple[Tensor, Tensor]:
        """V(s) = E Q'(s, a) + alpha_d H(choices) - alpha_c log pi(numbers), numbers sampled, choices in expectation."""
        log_probs, number, log_prob = self._sample(out, obs)
        q = minimum(expected(self.critic.target_forward(obs, number), log_probs), members())
        entropy = choice_entropy(log_probs, log_prob)
        value = q + alpha[0] * entropy - alpha[1] * log_prob
        return value, torch.stack((entropy.mean(), -log_prob.mean()))

    def critic_loss(self, batch: TensorBatch, y: Tensor) -> tuple[Tensor, Tensor]:
        """Sum over critics of mean (Q(s, a) - y)^2 / 2."""
        q = self.critic_values(batch.obs, batch.action)
        return 0.5 * len(q) * mean_loss("mse", q, y.expand_as(q), batch.weights), q

    def actor_loss(self, obs: Obs, critic_obs: Obs, alpha: Tensor) -> tuple[Tensor, Tensor]:
        """Mean of alpha_c log pi(numbers) - alpha_d H(choices) - E Q(s, a); the critics are constants."""
        log_probs, number, log_prob = self._sample(self.actor.each(obs), obs)  # [P, B, ...]
        q = self._actor_q(expected(self.critic.frozen(critic_obs, number).float(), log_probs))
        entropy = choice_entropy(log_probs, log_prob)
        loss = (alpha[1] * log_prob - alpha[0] * entropy - q).mean() * len(self.actor.params)
        return loss, torch.stack((entropy.mean(), -log_prob.mean()))

    def critic_values(self, obs: Obs, action: Tensor, *, target: bool = False) -> Tensor:
        """Values [N, B] of stored actions [B, columns] by each critic, or by their slow copies."""
        number = torch.tanh(action[:, self._drawn]) if self._boxed else None
        q = (self.critic.target_forward if target else self.critic)(obs, number)
        if not self.branches:
            return q[..., 0]
        chosen = action[:, self._chosen].long().expand(len(q), -1, -1)  # [N, B, branches]
        each = [own.gather(-1, chosen[..., n : n + 1]) for n, own in enumerate(torch.split(q, list(self.branches), -1))]
        return torch.cat(each, -1).mean(-1)

    def action_numbers(self, action: Tensor) -> Tensor:
        """Choices as one-hot vectors, then numbers in [-1, 1]."""
        chosen = [one_hot(action[..., at].long(), n).float() for at, n in zip(self._chosen, self.branches, strict=True)]
        return torch.cat([*chosen, torch.tanh(action[..., self._drawn])], -1)

    def stored_action(self, numbers: Tensor) -> Tensor:
        """The inverse of `action_numbers`."""
        found = torch.zeros(*numbers.shape[:-1], len(self._chosen) + len(self._drawn), device=numbers.device)
        *chosen, drawn = torch.split(numbers, [*self.branches, self._boxed], -1)
        for at, own in zip(self._chosen, chosen, strict=True):
            found[..., at] = own.argmax(-1).float()
        found[..., self._drawn] = torch.atanh(drawn.clamp(-MAX_ACTION, MAX_ACTION))
        return found

    def _log_prob(self, out: Tensor, obs: Obs, action: Tensor) -> Tensor:
        return ActionDistribution(self._actions, out, obs.get(ACTION_MASK)).log_prob(action)

    def _target_entropy_of(self, obs: Obs) -> Tensor:
        """A fraction of the largest entropy of the legal choices, and minus the count of continuous numbers."""
        largest = torch.tensor(sum(math.log(n) for n in self.branches), device=self.device)
        if ACTION_MASK in obs and self.branches:
            legal = [own.sum(-1).clamp(min=1).float().log() for own in torch.split(obs[ACTION_MASK], list(self.branches), -1)]
            largest = torch.stack(legal).sum(0).mean()
        return torch.stack((self.config.target_entropy_scale * largest, torch.tensor(self._target_entropy, device=self.device)))

    def _step_alpha(self, entropy: Tensor, alpha: Tensor, obs: Obs) -> dict[str, Tensor]:
        super()._step_alpha(entropy, alpha, obs)
        return {"alpha": alpha[1], "alpha_discrete": alpha[0], "entropy": entropy[1].detach(), "entropy_discrete": entropy[0].detach()}

    def _greedy(self, out: Tensor, obs: Obs) -> Tensor:
        return ActionDistribution(self._actions, out, obs.get(ACTION_MASK)).mode()

    def _min_q(self, obs: Obs, action: Tensor) -> Tensor:
        return self.critic_values(obs, action).amin(0)

    def _sample(self, out: Tensor, obs: Obs) -> tuple[list[Tensor], Tensor | None, Tensor]:
        """Log-probabilities of every branch's choices, sampled numbers in [-1, 1], and their log-density."""
        parts = ActionDistribution(self._actions, out.float(), obs.get(ACTION_MASK)).parts
        log_probs = [torch.log_softmax(part.logits, -1) for part in parts if isinstance(part, Categorical)]
        if not self._boxed:
            return log_probs, None, torch.zeros(out.shape[:-1], device=out.device)
        boxes = [part for part in parts if isinstance(part, Gaussian)]
        mean, log_std = torch.cat([part.mean for part in boxes], -1), torch.cat([part.log_std for part in boxes], -1)
        noise = torch.randn(mean.shape, generator=self._generator, device=self.device)
        return log_probs, *tanh_gaussian(mean, log_std, noise)


def expected(q: Tensor, log_probs: list[Tensor]) -> Tensor:
    """Mean over the branches of sum_a pi(a) Q(a), for values [..., all choices] side by side."""
    if not log_probs:
        return q[..., 0]
    own = torch.split(q, [x.shape[-1] for x in log_probs], -1)
    return torch.stack([(x.exp() * values).sum(-1) for x, values in zip(log_probs, own, strict=True)]).mean(0)


def choice_entropy(log_probs: list[Tensor], like: Tensor) -> Tensor:
    """Entropy of all choices together, in the shape of `like`."""
    return torch.stack([-(x.exp() * x).sum(-1) for x in log_probs]).sum(0) if log_probs else torch.zeros_like(like)
