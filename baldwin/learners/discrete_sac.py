"""SAC for discrete actions (Christodoulou 2019, arXiv 1910.07207): expectations over all actions instead of samples."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from baldwin.learners.learner import Tensors
from baldwin.learners.networks import Forward
from baldwin.learners.sac import EntropyLearner, SACRule
from baldwin.ops.targets import expected_soft_value
from baldwin.policies import PolicyConfig


class DiscreteSAC(EntropyLearner):
    """Critics give a value for every action; the wanted entropy is a share c of log |A|, c in (0, 1)."""

    def __init__(self, policy: PolicyConfig, config: SACRule, *, obs_size: int, actions: int, seed: int) -> None:
        self.config = config
        wanted = config.entropy_share * math.log(actions)
        critics = (config.ensemble, obs_size, actions)
        super().__init__(policy, config, obs_size=obs_size, outputs=actions, critics=critics, target=wanted, seed=seed)

    @torch.no_grad()
    def values(self, obs: NDArray[np.float32], action: NDArray[Any] | None = None) -> NDArray[np.float32]:
        """The smallest of the critics; for the actor's own action, its likeliest."""
        x = self._prepared(obs)
        index = self._of_actor(x).argmax(-1) if action is None else torch.from_numpy(np.array(action)).to(self.device)
        q = self.critic(x.expand(self.config.ensemble, -1, -1)).amin(0)
        return np.asarray(q.gather(1, index[:, None]).squeeze(1).cpu().numpy())

    def _fit_critics(self, batch: Tensors, actor: Forward, alpha: Tensor) -> dict[str, Tensor]:
        """y = r + discount sum_a pi(a|s') (min Q'(s', a) - alpha log pi(a|s'))."""
        count = self.config.ensemble
        with torch.inference_mode():
            log_probs = torch.log_softmax(actor(batch.next_obs).float(), -1)
            q_next = self._pessimist(self.critic.slow(batch.next_obs.expand(count, -1, -1)))
            y = batch.reward + batch.discount * expected_soft_value(log_probs.exp(), log_probs, q_next, alpha)
        entropy = -(log_probs.exp() * log_probs).sum(-1).mean().view(1)
        return self._regress(batch.obs.expand(count, -1, -1), y, batch.action) | {"entropy": entropy}

    def _fit_actor(self, obs: Tensor, alpha: Tensor) -> tuple[dict[str, Tensor], Tensor]:
        """Down mean sum_a pi(a|s) (alpha log pi(a|s) - Q(s, a)), for each row of actors."""
        log_probs = torch.log_softmax(self.actor(obs).float(), -1)
        with torch.no_grad():  # Q does not depend on the actor here
            flat = obs.flatten(0, 1)
            q = self.critic(flat.expand(self.config.ensemble, -1, -1)).float()
            q = (self._credit(q) * q).sum(0).view_as(log_probs)
        probs = log_probs.exp()
        loss = -expected_soft_value(probs, log_probs, q, alpha).mean() * len(obs)
        self.actor.pull([loss], [torch.ones_like(loss)])
        entropy = -(probs * log_probs).sum(-1).detach().mean()
        return {"actor_loss": loss.detach().view(1) / len(obs)}, entropy
