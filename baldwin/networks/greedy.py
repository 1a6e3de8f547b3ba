"""The trained policy as one object: network, normaliser and action map."""

from __future__ import annotations

from typing import Any, Self

import gymnasium as gym
import numpy as np
import torch
from gymnasium import spaces
from numpy.typing import NDArray
from torch import Tensor, nn

from baldwin.networks.actions import ActionMap
from baldwin.networks.config import PolicyConfig
from baldwin.networks.network import make_network
from baldwin.ops.moments import Moments


class Normalizer:
    """x -> clip((x - mean) / std): frozen statistics, or nothing at all."""

    def __init__(self, config: PolicyConfig, moments: Moments) -> None:
        self._active = config.normalize_obs
        self._clip = config.obs_clip
        self.mean = torch.from_numpy(moments.mean.astype(np.float32))
        self.std = torch.from_numpy(moments.std(config.obs_std_floor).astype(np.float32))

    def to(self, device: torch.device) -> Self:
        """Move the statistics to a device; returns itself."""
        self.mean, self.std = self.mean.to(device), self.std.to(device)
        return self

    def __call__(self, obs: Tensor) -> Tensor:
        """Normalised observations [..., obs]."""
        return ((obs - self.mean) / self.std).clamp_(-self._clip, self._clip) if self._active else obs


class GreedyPolicy(nn.Module):
    """One trained individual: `act(obs)` gives the action for one raw observation."""

    def __init__(
        self, config: PolicyConfig, obs_space: gym.Space[Any], action_space: gym.Space[Any], params: NDArray[np.float32], moments: Moments
    ) -> None:
        super().__init__()
        self._space, self._normalize = obs_space, Normalizer(config, moments)
        self.action_map = ActionMap(action_space, config.squash, config.head)
        self._network = make_network(config, len(moments.mean), self.action_map.outputs)
        self.params = nn.Parameter(torch.from_numpy(np.array(params, np.float32)), requires_grad=False)

    def forward(self, obs: Tensor) -> Tensor:
        """Network outputs [k, out] for raw flat observations [k, obs]."""
        return self._network.bind(self.params.expand(len(obs), -1))(self._normalize(obs))

    @torch.inference_mode()
    def act(self, obs: Any) -> Any:
        """The greedy action for one observation of the environment."""
        flat = np.asarray(spaces.flatten(self._space, obs), np.float32).reshape(1, -1)
        action = self.action_map(self(torch.from_numpy(flat)))[0]
        return action.item() if isinstance(action, np.generic) else action
