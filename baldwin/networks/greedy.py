"""The trained policy as one object: network, normaliser, frame stack, memory and action map."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

import gymnasium as gym
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from baldwin.networks.actions import ActionMap
from baldwin.networks.config import PolicyConfig
from baldwin.networks.network import Inputs, initial_state, make_network
from baldwin.observations import (
    ACTION_MASK,
    PREVIOUS_ACTION,
    VECTOR,
    Observation,
    ObservationSpec,
    flat_action,
    no_action,
    with_previous_action,
)
from baldwin.ops.moments import Moments

REFERENCE = "reference/"
"""Prefix of a policy's arrays: the fixed observations of virtual batch normalisation."""


def reference_of(arrays: Mapping[str, NDArray[Any]]) -> Observation:
    """The fixed observations that a policy was saved with; empty if its network needs none."""
    return {name.removeprefix(REFERENCE): array for name, array in arrays.items() if name.startswith(REFERENCE)}


class Normalizer:
    """x -> clip((x - mean) / std) for the vector sensors: frozen statistics, or nothing at all."""

    def __init__(self, config: PolicyConfig, moments: Moments) -> None:
        self._active = config.normalize_obs and len(moments.mean) > 0
        self._clip = config.obs_clip
        if not self._active:  # every job makes one
            self.mean = self.std = torch.empty(0)
            return
        self.mean = torch.from_numpy(moments.mean.astype(np.float32))
        self.std = torch.from_numpy(moments.std(config.obs_std_floor).astype(np.float32))

    def to(self, device: torch.device) -> Self:
        """Move the statistics to a device; returns itself."""
        self.mean, self.std = self.mean.to(device), self.std.to(device)
        return self

    def __call__(self, obs: Inputs) -> Inputs:
        """The observation with normalised vectors [..., V]."""
        if not self._active:
            return obs
        return {**obs, VECTOR: ((obs[VECTOR] - self.mean) / self.std).clamp_(-self._clip, self._clip)}

    def array(self, x: NDArray[np.float32]) -> NDArray[np.float32]:
        """Normalised vectors [..., V], as arrays."""
        if not self._active:
            return x
        found = x - self.mean.numpy()
        found /= self.std.numpy()
        return np.asarray(np.clip(found, -self._clip, self._clip, out=found))


class ObservationBuffer:
    """The newest observation of some environments side by side, as the network takes it: all frames of each image, float32 vectors.

    An episode begins with its first frame, repeated.
    """

    def __init__(self, spec: ObservationSpec, width: int) -> None:
        self._channels = {s.key: s.shape[0] for s in spec.images}
        self._frames = spec.frames
        self.arrays: Observation = {}
        for key, (dtype, shape) in spec.columns.items():
            shape = (shape[0] * spec.frames, *shape[1:]) if key in self._channels else shape
            self.arrays[key] = np.zeros((width, *shape), dtype)
        self._share()

    def begin(self, rows: Any, obs: Observation) -> None:
        """Episodes begin in these rows with the observations [k, ...]."""
        for key, array in self.arrays.items():
            array[rows] = np.tile(obs[key], (1, self._frames, 1, 1)) if self._frames > 1 and key in self._channels else obs[key]

    def advance(self, rows: Any, obs: Observation) -> None:
        """Episodes go on in these rows to the observations [k, ...]."""
        for key, array in self.arrays.items():
            if self._frames > 1 and key in self._channels:
                array[rows] = np.concatenate((array[rows][:, self._channels[key] :], obs[key]), 1)
            else:
                array[rows] = obs[key]

    def keep(self, rows: NDArray[np.intp]) -> None:
        """Go on with these rows only."""
        self.arrays = {key: array[rows] for key, array in self.arrays.items()}
        self._share()

    def _share(self) -> None:
        self.tensors = {key: torch.from_numpy(array) for key, array in self.arrays.items()}  # the same memory


class GreedyPolicy(nn.Module):
    """One trained individual: `act(obs)` gives the action for one raw observation; `reset()` when an episode begins."""

    def __init__(
        self, config: PolicyConfig, spec: ObservationSpec, action_space: gym.Space[Any], arrays: Mapping[str, NDArray[Any]]
    ) -> None:
        """`arrays`: `params` [D], `obs_moments`, and what else the policy was saved with."""
        super().__init__()
        self._spec, self._normalize = spec, Normalizer(config, Moments.unpack(arrays["obs_moments"]))
        self._action_space = action_space
        self._sees_actions = isinstance(spec.space, gym.spaces.Dict) and PREVIOUS_ACTION in spec.space.spaces
        self.action_map = ActionMap(action_space, config.squash, config.head)
        self._network = make_network(config, spec, self.action_map.outputs)
        if reference := reference_of(arrays):
            self._network.set_reference(reference)
        self.params = nn.Parameter(torch.from_numpy(np.array(arrays["params"], np.float32)), requires_grad=False)
        self.reset()

    def reset(self) -> None:
        """Forget the episode: memory and earlier frames."""
        self._forward = self._network.bind(self.params[None], fixed=True)
        self._state = initial_state(self._network, 1, 1)
        self._seen = ObservationBuffer(self._spec, 1)
        self._begun = False
        self._previous_action = no_action(self._action_space) if self._sees_actions else np.empty(0)

    def forward(self, obs: Inputs, state: Tensor) -> tuple[Tensor, Tensor]:
        """Network outputs [B, out] and the next state for raw observations [B, ...] and states [B, S]."""
        inputs = self._normalize(obs)
        out, state = self._forward({key: x.unsqueeze(0) for key, x in inputs.items()}, state.unsqueeze(0))
        return out[0], state[0]

    @torch.inference_mode()
    def act(self, obs: Any, info: Mapping[str, Any] | None = None) -> Any:
        """The greedy action for the next observation of an episode. `info` is only read for its `action_mask`.

        A `previous_action` that the observation does not have is the action that was returned before.
        """
        if self._sees_actions and not (isinstance(obs, Mapping) and PREVIOUS_ACTION in obs):
            obs = with_previous_action(obs, self._previous_action)
        (self._seen.advance if self._begun else self._seen.begin)(slice(None), self._spec.read(obs, info))
        self._begun = True
        out, state = self(self._seen.tensors, self._state[0])
        self._state = state[None]
        action = self.action_map(out, mask=self._seen.tensors.get(ACTION_MASK))[0]
        if self._sees_actions:
            self._previous_action = flat_action(self._action_space, action)
        return action.item() if isinstance(action, np.generic) else action
