"""DQN (Mnih et al. 2015): double (arXiv 1509.06461), dueling (1511.06581), n-step and noisy (1706.10295) where asked for.

The network that acts is the Q-network. A dueling one gives advantages and then the value of the state: since the value does
not change which action is best, workers get the network without it.
"""

from __future__ import annotations

from typing import Any, ClassVar, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field, PositiveFloat, PositiveInt
from torch import Tensor

from baldwin.algorithm import AlgorithmEntry, register
from baldwin.errors import ConfigError
from baldwin.learners.actor_critic import first_outputs
from baldwin.learners.off_policy import build_off_policy
from baldwin.learners.off_policy_config import OffPolicyConfig
from baldwin.learners.replay_learner import (
    TD_ERROR,
    BatchSampler,
    TargetValues,
    TensorBatch,
    TransitionLearner,
    check_trainable,
    mean_error,
    mean_loss,
)
from baldwin.networks import Obs, PolicyConfig, StackedNetwork, make_network, mask_logits
from baldwin.networks.noisy import NoisyNetwork
from baldwin.observations import ACTION_MASK, Observation, ObservationSpec
from baldwin.ops import seeds
from baldwin.ops.schedules import scheduled
from baldwin.types import Metrics, State


class DQNConfig(OffPolicyConfig):
    """DQN: Q-learning with a replay buffer and a target network; double, dueling and noisy as options. Defaults as in Stable-Baselines3."""

    mutable: ClassVar[tuple[str, ...]] = (
        "lr",
        "target_update_interval",
        "double",
        "epsilon_start",
        "epsilon_end",
        "epsilon_steps",
        "max_grad_norm",
    )
    policy_defaults: ClassVar[dict[str, Any]] = {"hidden": [64, 64], "activation": "relu", "init": "torch", "normalize_obs": False}

    name: Literal["dqn"] = "dqn"
    lr: PositiveFloat = 1e-4
    batch_size: PositiveInt = Field(32, description="Transitions per update")
    start_steps: int = Field(100, ge=0, description="Random actions and no updates until then")
    rollout_length: PositiveInt = Field(4, description="Steps of each environment between updates")
    updates_per_step: PositiveFloat = Field(0.25, description="Updates for each environment step")
    tau: float = Field(1.0, gt=0, le=1, description="How far the target network moves at each of its updates")
    target_update_interval: PositiveInt = Field(2500, description="Updates between those of the target network")
    double: bool = Field(True, description="The online network chooses the next action, the target network values it")
    dueling: bool = Field(False, description="Q = V + A - mean A, from two heads of one network")
    noisy: bool = Field(False, description="Explore by learned noise in linear layers instead of epsilon")
    epsilon_start: float = Field(1.0, ge=0, le=1, description="Share of random actions at the start")
    epsilon_end: float = Field(0.05, ge=0, le=1, description="And in the end")
    epsilon_steps: PositiveInt = Field(100_000, description="Environment steps until then")
    max_grad_norm: PositiveFloat | None = Field(10.0, description="Gradients are scaled down to this norm; null: never")

    @property
    def exploration_kind(self) -> Literal["noise", "sample", "epsilon", "greedy"]:
        """epsilon-greedy, or greedy with noise in the network."""
        return "greedy" if self.noisy else "epsilon"

    def exploration_at(self, env_steps: int) -> float:
        """The share of random actions."""
        return 0.0 if self.noisy else scheduled("linear", self.epsilon_start, self.epsilon_end, self.epsilon_steps, env_steps)

    def make_learner(self, policy: PolicyConfig, *, obs: ObservationSpec, n_actions: int, discrete: bool, seed: int) -> DQN:
        """A new learner, for discrete actions."""
        return DQN(policy, self, obs=obs, n_actions=n_actions, seed=seed)


class DQN(TransitionLearner):
    """One network of Q-values, and its slow copy."""

    config: DQNConfig

    def __init__(self, policy: PolicyConfig, config: DQNConfig, *, obs: ObservationSpec, n_actions: int, seed: int) -> None:
        super().__init__(policy, config, obs=obs, seed=seed)
        self.config, self._n_actions, self.branches = config, n_actions, (n_actions,)
        if config.dueling and policy.kind != "mlp":
            raise ConfigError(f"algorithm.dueling needs the heads of policy.kind=mlp; got {policy.kind}. Set algorithm.dueling=false")
        network = check_trainable(make_network(policy, obs, n_actions + config.dueling), policy)
        size = len(network.init(seed))
        self._actor_rows = first_outputs(network, n_actions) if config.dueling else np.arange(size)
        self.acts_by_values = not (config.dueling or self._has_images)
        self._noisy = NoisyNetwork(network) if config.noisy else None
        trained = self._noisy or network
        self.q_network = StackedNetwork(trained, trained.init(seed)[None], config.lr, self.device)

    def networks(self) -> dict[str, StackedNetwork]:
        """The Q-network, by the name that critics have in metrics and checkpoints."""
        return {"critic": self.q_network}

    def train(self, sampler: BatchSampler, k: int) -> Metrics:
        """k updates; the means of what they report."""
        return self._run_updates(sampler, k, self.update)

    def update(self, batch: TensorBatch) -> dict[str, Tensor]:
        """One step down the loss; the target network follows every `target_update_interval` updates."""
        loss, q, y = self.loss(batch)
        self.q_network.minimize(loss, self.config.max_grad_norm)
        self.updates += 1
        if self.updates % self.config.target_update_interval == 0:
            self.q_network.soft_update(self.config.tau)
        report = {"critic_loss": loss.detach(), "q_mean": q.detach()}
        return report if batch.indices is None else report | {TD_ERROR: mean_error(q, y)}

    def loss(self, batch: TensorBatch) -> tuple[Tensor, Tensor, Tensor]:
        """Mean Huber loss of Q(s, a) - y, y = r + discount Q'(s', argmax Q(s', .)), or max Q'(s', .) if not double; Q(s, a) and y [B]."""
        y = batch.target
        if y is None:
            following = self.target_values(batch.next_obs, batch.next_obs, batch.action, of_actions=False)
            y = batch.reward + batch.discount * following.value
        self._draw_noise(2)
        q = self._q(batch.obs).gather(-1, batch.action[:, None]).squeeze(-1)
        return mean_loss("huber", q, y, batch.weights), q, y

    def _q_and_target(self, batch: TensorBatch) -> tuple[Tensor, Tensor]:
        return self.loss(batch)[1:]

    @torch.no_grad()
    def target_values(self, obs: Obs, actor_obs: Obs, action: Tensor, *, of_actions: bool) -> TargetValues:
        """Q' of the greedy action, and of these; the greedy policy takes an action with probability 1 or 0."""
        self._draw_noise(0)
        q = self._q(obs, target=True)
        online = q
        if self.config.double:
            self._draw_noise(1)
            online = self._q(actor_obs)
        best = _legal(online, obs).argmax(-1, keepdim=True)
        value = q.gather(-1, best).squeeze(-1)
        if not of_actions:
            return TargetValues(value, value[:0], value[:0])
        greedy = best.squeeze(-1) == action
        return TargetValues(value, q.gather(-1, action[:, None]).squeeze(-1), torch.where(greedy, 0.0, -torch.inf))

    def critic_values(self, obs: Obs, action: Tensor, *, target: bool = False) -> Tensor:
        """Values [1, B] of actions [B]."""
        return self._q(obs, target).gather(-1, action[:, None]).T

    def actor_vectors(self) -> NDArray[np.float32]:
        """The greedy policy's parameters [1, D]: without noise, and without the value of the state."""
        vectors = self.q_network.vectors()
        return vectors if len(self._actor_rows) == vectors.shape[1] else vectors[:, self._actor_rows]

    def set_actor(self, vectors: NDArray[np.float32]) -> None:
        """Replace the Q-network by this policy [D], targets included, with a fresh optimiser; values of states and learned noise stay."""
        rows = self.q_network.vectors().copy()
        rows[:, self._actor_rows] = vectors
        self.q_network.reset(rows)

    def acting_vector(self, number: int) -> NDArray[np.float32]:
        """The parameters that collect a segment: noisy ones with noise of their own."""
        if not self._noisy:
            return super().acting_vector(number)
        rng = seeds.generator(self._seed, seeds.Stream.EXPLORE, number, 1)
        return self._noisy.noisy_vector(self.q_network.vectors()[0], rng)[self._actor_rows]

    @torch.no_grad()
    def q_values(self, obs: Observation, action: NDArray[Any] | None = None, actor_obs: Observation | None = None) -> NDArray[np.float32]:
        """Values [B] of these actions, or of the best ones."""
        if self._noisy:
            self._noisy.clear_noise()
        x = self._prepare(obs)
        q = self._q(x)
        chosen = _legal(q, x).argmax(-1) if action is None else torch.from_numpy(np.array(action)).to(self.device)
        return np.asarray(q.gather(-1, chosen[:, None]).squeeze(-1).cpu().numpy())

    def state_dict(self) -> State:
        """The network, its target and optimiser, and counters."""
        return {"q_network": self.q_network.state_dict(), "calls": self._calls, "updates": self.updates}

    def load_state_dict(self, state: State) -> None:
        """Continue from a `state_dict`."""
        self.q_network.load_state_dict(state["q_network"])
        self._calls, self.updates = int(state["calls"]), int(state["updates"])

    def _q(self, obs: Obs, target: bool = False) -> Tensor:
        """Q-values [B, actions]."""
        out = (self.q_network.target_forward if target else self.q_network)(obs)[0].float()
        if not self.config.dueling:
            return out
        advantage, value = out[..., : self._n_actions], out[..., self._n_actions :]
        return value + advantage - advantage.mean(-1, keepdim=True)


def _legal(q: Tensor, obs: Obs) -> Tensor:
    return mask_logits(q, obs[ACTION_MASK]) if ACTION_MASK in obs else q


register(AlgorithmEntry(DQNConfig, build_off_policy, "learner", "Mnih et al. 2015, arXiv 1509.06461, 1511.06581, 1706.10295"))
