"""Learners with an actor and critics: their networks, and the calls that hybrids make."""

from __future__ import annotations

from abc import abstractmethod
from itertools import pairwise
from typing import Any, ClassVar, Literal, Self

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field, PositiveFloat, PositiveInt
from torch import Tensor

from baldwin.errors import ConfigError
from baldwin.learners.replay_learner import (
    BatchSampler,
    LearnerConfig,
    TensorBatch,
    TransitionLearner,
    check_trainable,
    clipped_loss,
    mean_loss,
)
from baldwin.networks import EncoderConfig, NetworkConfig, Obs, PolicyConfig, StackedNetwork, make_network
from baldwin.networks.noisy import NoisyNetwork
from baldwin.observations import Observation, ObservationSpec, map_arrays
from baldwin.ops import seeds
from baldwin.ops.threads import MAX_AUTO_THREADS, cores
from baldwin.types import Arrays, Metrics, State

MIN_PRODUCTS_FOR_THREADS = 9_000_000  # in a critic's hidden layers for one batch; below, two threads were slower than one


class CriticConfig(NetworkConfig):
    """The network of the critics."""

    hidden: list[PositiveInt] = Field([256, 256], description="Units of each hidden layer")
    activation: Literal["tanh", "relu", "selu", "leaky-relu"] = "relu"
    init: Literal["normc", "xavier", "torch", "orthogonal"] = "torch"
    images: EncoderConfig | None = Field(None, description="The encoder of images; default: as in the policy")  # type: ignore[assignment]
    encoders: dict[str, EncoderConfig] | None = Field(None, description="Encoders of single sensors; default: as in the policy")  # type: ignore[assignment]

    def like(self, policy: PolicyConfig) -> CriticConfig:
        """The same with the policy's encoders, where none are set."""
        images = policy.images if self.images is None else self.images
        encoders = policy.encoders if self.encoders is None else self.encoders
        return self.model_copy(update={"images": images, "encoders": encoders})


class ActorCriticConfig(LearnerConfig):
    """One update of an actor and its critics."""

    mutable: ClassVar[tuple[str, ...]] = ("actor_lr", "critic_lr", "clip_epsilon")

    critic: CriticConfig = CriticConfig()
    actor_lr: PositiveFloat = 3e-4
    critic_lr: PositiveFloat = 3e-4
    noisy: bool = Field(
        False, description="Explore by learned noise in the actor's linear layers, new for every segment; td3: instead of noise on actions"
    )
    clip_epsilon: PositiveFloat | None = Field(
        None,
        description="Continuous actions: how far Q may be from its slow copy before the loss stops pulling it away. It then moves by "
        "at most tau x clip_epsilon an update: 0.001 with tau=0.005 and 0.2. null: no clip",
    )

    def resolved(self) -> Self:
        """The same with `auto` replaced by what it means on this machine."""
        count = self._auto_threads() if self.threads == "auto" else self.threads
        return super().resolved().model_copy(update={"threads": count})

    def _auto_threads(self) -> int:
        """By size alone, so that a busy machine gives the same run as a quiet one."""
        widths = self.critic.hidden
        products = self.batch_size * sum(a * b for a, b in pairwise([*widths, *widths[-1:]]))
        return min(cores(), MAX_AUTO_THREADS) if self.critic.module or products >= MIN_PRODUCTS_FOR_THREADS else 1


class Learner(TransitionLearner):
    """An actor and critics: TD3, SAC and kin.

    Actors are rows [P, D] of one matrix: one when it trains alone, several when a hybrid improves several at once.
    """

    config: ActorCriticConfig

    def __init__(
        self,
        policy: PolicyConfig,
        config: ActorCriticConfig,
        *,
        obs: ObservationSpec,
        n_actions: int,
        n_outputs: int,
        critics: tuple[int, int, int],
        seed: int,
    ) -> None:
        """`n_outputs` of the actor; `critics`: how many, and their numbers of inputs besides the observation and of outputs."""
        self._n_actions = n_actions
        super().__init__(policy, config, obs=obs, seed=seed)
        actor_net = check_trainable(make_network(policy, obs, n_outputs), policy)
        self._noisy = NoisyNetwork(actor_net) if config.noisy else None
        trained = self._noisy or actor_net
        self.actor = StackedNetwork(trained, trained.init(seed)[None], config.actor_lr, self.device)
        count, n_inputs, n_values = critics
        critic_net = make_network(config.critic.like(policy), obs, n_values, n_inputs)
        if critic_net.state_size:
            raise ConfigError(f"algorithm.critic.module={config.critic.module} has a state_size: critics have no memory so far")
        params = np.stack([critic_net.init(seeds.mix(seed, n), seeds.Stream.CRITIC) for n in range(count)])
        self.critic = StackedNetwork(critic_net, params, config.critic_lr, self.device)

    def networks(self) -> dict[str, StackedNetwork]:
        """The stacked critics and the stacked actors, as `critic` and `actor`."""
        return {"critic": self.critic, "actor": self.actor}

    def train(self, sampler: BatchSampler, k: int) -> Metrics:
        """k updates of critics and actor as in the paper; the means of what they report. For a single actor."""
        if len(self.actor.params) > 1:
            raise ConfigError(f"train updates one actor; there are {len(self.actor.params)}. Use train_critic and train_actor")
        return self._run_updates(sampler, k, self.update)

    def train_critic(self, sampler: BatchSampler, k: int, target_policy: NDArray[np.float32] | None = None) -> Metrics:
        """k updates of the critics and their targets; the actor stays as it is.

        Next actions are those of `target_policy` [D] (of several [P, D], each for its share of a batch), or of the actor's own target.
        """
        own = self.actor.target.cpu().numpy()
        self.actor.set_target(own if target_policy is None else np.atleast_2d(target_policy))
        try:
            return self._run_updates(sampler, k, self.update_critic)
        finally:
            self.actor.set_target(own)

    def train_actor(self, sampler: BatchSampler, k: int, reset_optimizer: bool = True) -> Metrics:
        """k updates of all actors, a batch each; the critics stay as they are."""
        if reset_optimizer:
            self.actor.reset_optimizer()
        rows = len(self.actor.params)
        return self._run_updates(
            sampler, k, lambda batch: self.update_actor(map_arrays(lambda x: x.view(rows, -1, *x.shape[1:]), batch.obs)), rows
        )

    def set_actor(self, vectors: NDArray[np.float32]) -> None:
        """Replace the actor by this policy [D], or these [P, D]: parameters and targets, with a fresh optimiser. Learned noise stays."""
        rows = np.atleast_2d(vectors)
        sigma = self.actor.vectors()[:, rows.shape[1] :]  # of noisy layers, else nothing
        self.actor.reset(np.concatenate([rows, np.repeat(sigma[:1], len(rows), 0)], 1))

    def actor_vectors(self) -> NDArray[np.float32]:
        """The actors' parameters [P, D], without noise."""
        vectors = self.actor.vectors()
        return np.split(vectors, 2, 1)[0] if self._noisy else vectors

    def acting_vector(self, number: int) -> NDArray[np.float32]:
        """The parameters that collect a segment: those of noisy layers with noise of their own."""
        if not self._noisy:
            return super().acting_vector(number)
        return self._noisy.noisy_vector(self.actor.vectors()[0], seeds.generator(self._seed, seeds.Stream.EXPLORE, number, 1))

    def state_dict(self) -> State:
        """Networks, optimisers and counters; observation statistics belong to whoever calls `normalize`."""
        return {"actor": self.actor.state_dict(), "calls": self._calls} | self.critic_state()

    def load_state_dict(self, state: State) -> None:
        """Continue from a `state_dict`."""
        self.actor.load_state_dict(state["actor"])
        self._calls = int(state["calls"])
        self.load_critic_state(state)

    def critic_state(self) -> State:
        """All that training the critics continues from."""
        return {"critic": self.critic.state_dict(), "updates": self.updates}

    def load_critic_state(self, state: State) -> None:
        """Continue from a `critic_state`."""
        self.critic.load_state_dict(state["critic"])
        self.updates = int(state["updates"])

    def frozen_critic(self, state: State) -> dict[str, NDArray[Any]]:
        """The part of a `critic_state` that updates of an actor read."""
        return {"params": state["critic"]["params"]}

    def load_frozen_critic(self, arrays: Arrays) -> None:
        """Prepare for `train_actor` against critics from `frozen_critic`."""
        self.critic.reset(arrays["params"])

    @torch.no_grad()
    def q_values(self, obs: Observation, action: NDArray[Any] | None = None, actor_obs: Observation | None = None) -> NDArray[np.float32]:
        """Smallest value of the critics [B] for raw observations [B, ...] and these actions, or the actor's own greedy ones.

        `actor_obs`: what the actor sees, if that is something else.
        """
        if self._noisy:
            self._noisy.clear_noise()
        x = self._prepare(obs)
        seen = x if actor_obs is None else self._prepare(actor_obs)
        chosen = self._greedy(self.actor.split(seen), x) if action is None else torch.from_numpy(np.array(action)).to(self.device)
        return np.asarray(self._min_q(x, chosen).cpu().numpy())

    @abstractmethod
    def update_critic(self, batch: TensorBatch) -> dict[str, Tensor]:
        """One update of the critics and their targets alone."""

    @abstractmethod
    def update_actor(self, obs: Obs) -> dict[str, Tensor]:
        """One update of the actors alone, with a batch of observations [P, B, ...] for each."""

    def critic_values(self, obs: Obs, action: Tensor, *, target: bool = False) -> Tensor:
        """Values [N, B] of actions by each critic, or by their slow copies."""
        return (self.critic.target_forward if target else self.critic)(obs, action).squeeze(-1)

    def _continuous_critic_loss(self, batch: TensorBatch, y: Tensor) -> tuple[Tensor, Tensor]:
        """Sum over the critics of mean (Q(s, a) - y)^2, clipped where asked for; Q [N, B]."""
        q = self.critic(batch.obs, batch.action).squeeze(-1)
        if self.config.clip_epsilon is None:
            return q.shape[0] * mean_loss("mse", q, y.expand_as(q), batch.weights), q
        with torch.no_grad():
            slow = self.critic_values(batch.obs, batch.action, target=True)
        return q.shape[0] * clipped_loss(q, slow, y, self.config.clip_epsilon, batch.weights), q

    def _greedy(self, out: Tensor, obs: Obs) -> Tensor:
        """Greedy actions for the actor's outputs: of a Gaussian head, the first half is the mean."""
        return torch.tanh(out[..., : self._n_actions])

    def _min_q(self, obs: Obs, action: Tensor) -> Tensor:
        return self.critic(obs, action).squeeze(-1).amin(0)
