"""Policy and value function of the on-policy learners, as one flat vector of parameters.

| layout | networks | when |
|---|---|---|
| shared | one, whose last layer gives the policy's outputs and then the values | it sees images or has memory, or is asked for |
| twin | two of one shape, as rows of one matrix and in one call; the shorter output is padded | both are perceptrons of the same hidden layers |
| separate | two | otherwise |

The log standard deviations of continuous actions lie behind the networks. Workers get the policy network alone.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import torch
from gymnasium import spaces
from numpy.typing import NDArray
from torch import Tensor

from baldwin.errors import ConfigError
from baldwin.learners.actor_critic_loss import Pair
from baldwin.learners.learner import CriticConfig
from baldwin.networks import ActionMap, Forward, Network, NumpyMLP, Obs, PolicyConfig, make_network, spread_size
from baldwin.observations import ObservationSpec, map_arrays
from baldwin.ops import seeds

SCALED_INITS = ("normc", "orthogonal")  # in which `output_scale` makes the policy's first outputs small


class Outputs(NamedTuple):
    """What the networks say of a batch."""

    policy: Tensor  # [..., outputs]
    values: Tensor  # [..., C]


class ActorCritic:
    """The networks. Observations are normalised tensors."""

    def __init__(
        self,
        policy: PolicyConfig,
        critic: CriticConfig,
        *,
        shared: bool,
        obs: ObservationSpec,
        actions: ActionMap,
        n_values: int,
        log_std_init: float,
        seed: int,
        device: torch.device,
        params: NDArray[np.float32] | None = None,
    ) -> None:
        """`n_values`: components of the reward; 0 for no value function. `params` [D]: instead of fresh ones.

        Raises:
            ConfigError: the networks cannot be trained so.
        """
        self.n_values, self.n_outputs, self.device = n_values, actions.outputs, device
        self._activation = policy.activation
        one_gaussian = isinstance(actions.space, spaces.Box) and not actions.gaussian and not actions.squashed
        self._simple = one_gaussian or isinstance(actions.space, spaces.Discrete)
        self._shared = shared and n_values > 0
        if self._shared and policy.kind != "mlp":
            raise ConfigError(f"a value function cannot share policy.kind={policy.kind}: set algorithm.shared_critic=false")
        if policy.has_virtual_batch_norm:
            raise ConfigError("virtual batch normalisation is for strategies: use norm: none")
        critic = critic.like(policy)
        self._twin = n_values > 0 and not self._shared and _same_perceptron(policy, critic, obs)
        width = max(self.n_outputs, n_values) if self._twin else self.n_outputs + (n_values if self._shared else 0)
        self._policy_net = make_network(policy, obs, width)
        self._value_net = make_network(critic, obs, width if self._twin else n_values) if n_values and not self._shared else None
        if self._value_net and self._value_net.state_size:
            raise ConfigError(f"algorithm.critic.module={critic.module} has a state_size: a critic of its own has no memory")
        self.state_size = self._policy_net.state_size
        sizes = [n_params(self._policy_net), n_params(self._value_net) if self._value_net else 0]
        self._sizes = [sum(sizes), spread_size(actions)] if self._twin else [*sizes, spread_size(actions)]
        padded = self._shared or self._twin
        self.policy_rows = first_outputs(self._policy_net, self.n_outputs) if padded else np.arange(sizes[0])
        self.value_rows = sizes[0] + (first_outputs(self._value_net, n_values) if self._twin and self._value_net else np.arange(sizes[1]))
        self.set_params(self._fresh(policy, critic, obs, log_std_init, seed) if params is None else params)

    def _fresh(
        self, policy: PolicyConfig, critic: CriticConfig, obs: ObservationSpec, log_std_init: float, seed: int
    ) -> NDArray[np.float32]:
        """Parameters at the start [D]; what pads is zero."""
        params = np.zeros(sum(self._sizes), np.float32)
        params[len(params) - self._sizes[-1] :] = log_std_init
        if self._shared:
            drawn = self._policy_net.init(seed)
            if policy.init in SCALED_INITS:  # values begin at their own scale
                of_values = np.ones(len(drawn), np.bool_)
                of_values[self.policy_rows] = False
                drawn[of_values] /= policy.output_scale
            params[: len(drawn)] = drawn
            return params
        params[self.policy_rows] = make_network(policy, obs, self.n_outputs).init(seed)
        if self._value_net:
            params[self.value_rows] = make_network(critic, obs, self.n_values).init(seed, seeds.Stream.CRITIC)
        return params

    def set_params(self, params: NDArray[np.float32]) -> None:
        """Replace all parameters [D]."""
        self.params = torch.from_numpy(np.array(params, np.float32)).to(self.device)
        self.leaves = [part.detach().requires_grad_() for part in torch.split(self.params[None], self._sizes, 1)]  # the same memory
        if self._twin:
            self.leaves[0] = self.leaves[0].detach().view(2, -1).requires_grad_()
        self.pair = self._make_pair() if self._twin and self._simple else None
        self._policy: Forward = self._policy_net.bind(self.leaves[0])
        self._value = self._value_net.bind(self.leaves[1]) if self._value_net and not self._twin else None
        self._no_state = torch.empty(0, device=self.device)

    def _make_pair(self) -> Pair:
        """Both networks as arrays, for the gradient in closed form."""
        rows, shapes = self.leaves[0].detach().numpy(), self._policy_net.shapes
        log_std = self.params[self._sizes[0] :].numpy()
        both, values = (NumpyMLP(own, shapes, self._activation) for own in (rows, rows[1:]))
        return Pair(both, values, rows.size, log_std, self.n_outputs, max(shape[0] for shape in shapes))

    @property
    def log_std(self) -> Tensor | None:
        """Of continuous actions [A], where the network gives only means."""
        return self.leaves[-1][0] if self._sizes[-1] else None

    def actor(self) -> dict[str, NDArray[np.float32]]:
        """What workers act with: `params` of the policy network, and `log_std`, if there is one."""
        params = self.params.cpu().numpy()
        found = {"params": params[self.policy_rows]}
        if self._sizes[-1]:
            found["log_std"] = params[-self._sizes[-1] :].copy()
        return found

    def __call__(self, obs: Obs) -> Outputs:
        """Outputs for observations [B, ...], without memory."""
        if self._twin:
            out, _ = self._policy({key: x.expand(2, *x.shape) for key, x in obs.items()}, self._no_state)
            return Outputs(out[0, :, : self.n_outputs], out[1, :, : self.n_values])
        batch = {key: x[None] for key, x in obs.items()}
        out, _ = self._policy(batch, self._no_state)
        return self._split(out[0], self._values_of(batch))

    def unroll(self, obs: Obs, state: Tensor, begins: Tensor) -> tuple[Outputs, Tensor]:
        """Outputs [L, T, ...] for sequences [L, T, ...] from the states [L, S], and the states [L, T, S] after each step.

        `begins` [L, T] is true where an episode begins, so that the memory before it is forgotten.
        """
        outs, states = [], []
        keep = (~begins).float().unsqueeze(-1)
        for t in range(begins.shape[1]):
            out, after = self._policy({key: x[None, :, t] for key, x in obs.items()}, (state * keep[:, t])[None])
            state = after[0]
            outs.append(out[0])
            states.append(state)
        values = self._values_of({key: x.flatten(0, 1)[None] for key, x in obs.items()})
        own = None if values is None else values.view(*begins.shape, -1)
        return self._split(torch.stack(outs, 1), own), torch.stack(states, 1)

    def values_at(self, obs: Obs, state: Tensor) -> Tensor:
        """Values [B, C] of observations [B, ...] with the memory [B, S] before them."""
        batch = map_arrays(lambda x: x[None], obs)
        values = self._values_of(batch)
        return self._split(self._policy(batch, state[None])[0][0], None).values if values is None else values

    def _values_of(self, batch: Any) -> Tensor | None:
        """Of a network of its own, [B, C]."""
        return self._value(batch, self._no_state)[0][0] if self._value else None

    def _split(self, out: Tensor, values: Tensor | None) -> Outputs:
        if not self._shared:
            return Outputs(out, out[..., :0] if values is None else values)
        return Outputs(out[..., : self.n_outputs], out[..., self.n_outputs :])


def _same_perceptron(policy: PolicyConfig, critic: CriticConfig, obs: ObservationSpec) -> bool:
    """Whether both are plain perceptrons of vectors with the same hidden layers."""
    plain = policy.kind == critic.kind == "mlp" and not policy.has_memory and not obs.images and not policy.encoders and not critic.encoders
    return plain and (policy.hidden, policy.activation) == (critic.hidden, critic.activation)


def n_params(network: Network) -> int:
    """How many parameters a network has."""
    return sum(math.prod(shape) for shape in network.shapes)


def first_outputs(network: Network, count: int) -> NDArray[np.int64]:
    """Where the parameters lie without the rows of the last layer behind the first `count` outputs."""
    *_, weight, bias = network.shapes
    n_outputs, width = weight
    before = n_params(network) - math.prod(weight) - math.prod(bias)
    rows = np.arange(before + count * width)
    return np.concatenate([rows, before + n_outputs * width + np.arange(count)])
