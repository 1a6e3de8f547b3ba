"""What gradient learners have in common: networks, batches, precision, threads, and the calls that hybrids make."""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any, ClassVar, Literal, NamedTuple, Protocol, Self

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field, PositiveFloat, PositiveInt
from torch import Tensor

from baldwin.config_base import ConfigModel
from baldwin.errors import ConfigError, Diverged
from baldwin.networks import EncoderConfig, NetworkConfig, Normalizer, Obs, PolicyConfig, StackedNetwork, make_network
from baldwin.observations import Observation, ObservationSpec, map_arrays
from baldwin.ops import seeds
from baldwin.ops.moments import Moments
from baldwin.ops.targets import bootstrap_discount
from baldwin.ops.threads import cores, threads
from baldwin.types import Arrays, Batch, Metrics, State

MAX_AUTO_THREADS = 4  # a guess: measured on two cores only
MIN_PRODUCTS_FOR_THREADS = 9_000_000  # in a critic's hidden layers for one batch; below, two threads were slower than one
BATCHES_PER_SAMPLE = 64  # more in one call would only take memory
IMAGE_BATCHES_PER_SAMPLE = 2
NO_MEMORY = "gradient learners train policies without memory so far: leave it out, or use a strategy such as algorithm.name=es"
NO_VIRTUAL_BATCH_NORM = (
    "virtual batch normalisation is for strategies: a gradient learner would have to take its statistics at every update. Use norm: none"
)


class BatchSampler(Protocol):
    """Where batches come from: a replay buffer, or a view of one."""

    def sample(self, k: int, batch_size: int, n_step: int = 1, gamma: float = 1.0) -> Batch:
        """k batches [k, B, ...] of windows of up to `n_step` steps."""


class CriticConfig(NetworkConfig):
    """The network of the critics."""

    hidden: list[PositiveInt] = Field([256, 256], description="Units of each hidden layer")
    activation: Literal["tanh", "relu", "selu", "leaky-relu"] = "relu"
    init: Literal["normc", "xavier", "torch"] = "torch"
    images: EncoderConfig | None = Field(None, description="The encoder of images; default: as in the policy")  # type: ignore[assignment]
    encoders: dict[str, EncoderConfig] | None = Field(None, description="Encoders of single sensors; default: as in the policy")  # type: ignore[assignment]

    def like(self, policy: PolicyConfig) -> CriticConfig:
        """The same with the policy's encoders, where none are set."""
        images = policy.images if self.images is None else self.images
        encoders = policy.encoders if self.encoders is None else self.encoders
        return self.model_copy(update={"images": images, "encoders": encoders})


class LearnerConfig(ConfigModel):
    """One update of a gradient learner."""

    renamed: ClassVar[dict[str, str]] = {"batch": "batch_size"}

    critic: CriticConfig = CriticConfig()
    batch_size: PositiveInt = Field(256, description="Transitions per update")
    gamma: float = Field(0.99, gt=0, le=1, description="Discount")
    tau: float = Field(0.005, gt=0, le=1, description="Polyak coefficient of the target networks")
    actor_lr: PositiveFloat = 3e-4
    critic_lr: PositiveFloat = 3e-4
    n_step: PositiveInt = Field(1, description="Rewards that are summed before the bootstrap; windows stop at episode ends")
    threads: PositiveInt | Literal["auto"] = Field(
        "auto",
        description="CPU threads of an update; auto: one for small networks, else the cores, but at most four. Part of the run's identity",
    )
    device: Literal["cpu", "cuda", "auto"] = Field("cpu", description="Where updates are computed")
    precision: Literal["float32", "bfloat16"] = Field(
        "float32", description="Of matrix products; bfloat16 pays only on processors that have it (see docs/benchmarks.md)"
    )

    def resolved(self) -> Self:
        """The same with `auto` replaced by what it means on this machine."""
        device = ("cuda" if torch.cuda.is_available() else "cpu") if self.device == "auto" else self.device
        count = self._auto_threads() if self.threads == "auto" else self.threads
        return self.model_copy(update={"threads": count, "device": device})

    def on_cpu(self) -> Self:
        """The same computed on a CPU."""
        return self.model_copy(update={"device": "cpu"})

    def _auto_threads(self) -> int:
        """By size alone, so that a busy machine gives the same run as a quiet one."""
        widths = self.critic.hidden
        products = self.batch_size * sum(a * b for a, b in pairwise([*widths, *widths[-1:]]))
        return min(cores(), MAX_AUTO_THREADS) if self.critic.module or products >= MIN_PRODUCTS_FOR_THREADS else 1


class TensorBatch(NamedTuple):
    """One batch as the losses need it; observations are normalised."""

    obs: Obs  # [B, ...]
    action: Tensor  # [B, A], or [B] indices
    reward: Tensor  # [B]
    next_obs: Obs  # [B, ...]
    discount: Tensor  # [B], gamma^n, zero after a termination


class Learner(ABC):
    """Owns networks, optimisers and targets; never an environment, a buffer or a logger.

    Actors are rows [P, D] of one matrix: one when it trains alone, several when a hybrid improves several at once.
    """

    config: LearnerConfig

    def __init__(
        self,
        policy: PolicyConfig,
        config: LearnerConfig,
        *,
        obs: ObservationSpec,
        n_actions: int,
        n_outputs: int,
        critics: tuple[int, int, int],
        seed: int,
    ) -> None:
        """`n_outputs` of the actor; `critics`: how many, and their numbers of inputs besides the observation and of outputs."""
        self._n_actions, self._has_images = n_actions, bool(obs.images)
        self._resolved = config.resolved()
        self.device = torch.device(self._resolved.device)
        if self.device.type == "cuda" and not torch.cuda.is_available():
            raise ConfigError("algorithm.device=cuda, but this machine has no usable GPU. Use algorithm.device=cpu or auto")
        self._seed, self._policy_config = seed, policy
        self.updates = 0  # of the critics
        self._calls = 0  # each call that trains has random numbers of its own
        actor_net = make_network(policy, obs, n_outputs)
        if actor_net.state_size or policy.has_virtual_batch_norm:
            raise ConfigError(NO_MEMORY if actor_net.state_size else NO_VIRTUAL_BATCH_NORM)
        self.actor = StackedNetwork(actor_net, actor_net.init(seed)[None], config.actor_lr, self.device)
        count, n_inputs, n_values = critics
        critic_net = make_network(config.critic.like(policy), obs, n_values, n_inputs)
        if critic_net.state_size:
            raise ConfigError(f"algorithm.critic.module={config.critic.module} has a state_size: critics have no memory so far")
        params = np.stack([critic_net.init(seeds.mix(seed, n), seeds.Stream.CRITIC) for n in range(count)])
        self.critic = StackedNetwork(critic_net, params, config.critic_lr, self.device)
        self._generator = torch.Generator(self.device)
        self.normalize(Moments.empty(obs.vector_size))

    def normalize(self, moments: Moments) -> None:
        """Use these observation statistics from now on."""
        self._normalizer = Normalizer(self._policy_config, moments).to(self.device)

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
        """Replace the actor by this policy [D], or these [P, D]: parameters and targets, with a fresh optimiser."""
        self.actor.reset(np.atleast_2d(vectors))

    def actor_vectors(self) -> NDArray[np.float32]:
        """The actors' parameters [P, D]."""
        return self.actor.vectors()

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
    def q_values(self, obs: Observation, action: NDArray[Any] | None = None) -> NDArray[np.float32]:
        """Smallest value of the critics [B] for raw observations [B, ...] and these actions, or the actor's own greedy ones."""
        x = self._prepare(obs)
        chosen = self._greedy(self.actor.split(x), x) if action is None else torch.from_numpy(np.array(action)).to(self.device)
        return np.asarray(self._min_q(x, chosen).cpu().numpy())

    @abstractmethod
    def update(self, batch: TensorBatch) -> dict[str, Tensor]:
        """One update of critics, actor and targets as in the paper; what is worth reporting."""

    @abstractmethod
    def update_critic(self, batch: TensorBatch) -> dict[str, Tensor]:
        """One update of the critics and their targets alone."""

    @abstractmethod
    def update_actor(self, obs: Obs) -> dict[str, Tensor]:
        """One update of the actors alone, with a batch of observations [P, B, ...] for each."""

    def _run_updates(self, sampler: BatchSampler, k: int, update: Callable[[TensorBatch], dict[str, Tensor]], rows: int = 1) -> Metrics:
        """Make k updates, a batch each. What they report is averaged at the end: a mean costs as much as a small layer."""
        if not k:
            return {}
        with self._compute_context():
            self._generator.manual_seed(seeds.mix(self._seed, seeds.Stream.LEARN, self._calls))
            self._calls += 1
            reports: dict[str, list[Tensor]] = {}
            self.critic.params.grad = self.actor.params.grad = None  # report only gradients of these updates
            before = self.updates
            for batch in self._sample_batches(sampler, k, rows):
                for name, value in update(batch).items():
                    reports.setdefault(name, []).append(value)
        means = {}
        for name, values in reports.items():
            each = torch.stack(values).float().view(len(values), -1).mean(1)
            bad = (~torch.isfinite(each)).nonzero()
            if len(bad):
                where = f"batch {int(bad[0]) + 1} of {k}, drawn after {before} updates"
                raise Diverged(f"{name} is {float(each[bad[0]])} in {where}: the learner has diverged. Lower the learning rates")
            means[name] = float(each.mean())
        for name, network in (("critic", self.critic), ("actor", self.actor)):
            if network.params.grad is not None:
                means[f"{name}_gradient_norm"] = float(network.params.grad.norm())
        return means

    def _sample_batches(self, sampler: BatchSampler, k: int, rows: int) -> Iterator[TensorBatch]:
        """k batches, `rows` times as large; a few dozen are sampled in one call."""
        config = self.config
        at_once = IMAGE_BATCHES_PER_SAMPLE if self._has_images else BATCHES_PER_SAMPLE
        for first in range(0, k, at_once):
            sampled = sampler.sample(min(at_once, k - first), rows * config.batch_size, config.n_step, config.gamma)
            obs, next_obs = self._prepare(sampled.obs), self._prepare(sampled.next_obs)
            action, reward, terminated, steps = (
                torch.from_numpy(np.ascontiguousarray(a)).to(self.device)
                for a in (sampled.action, sampled.reward, sampled.terminated, sampled.steps)
            )
            discount = bootstrap_discount(config.gamma, steps, terminated)
            for n in range(len(reward)):
                pick = {key: x[n] for key, x in obs.items()}, {key: x[n] for key, x in next_obs.items()}
                yield TensorBatch(pick[0], action[n], reward[n], pick[1], discount[n])

    def _prepare(self, obs: Observation) -> Obs:
        """Raw observations as normalised tensors; images and masks stay as they are."""
        writable = {key: np.require(a, requirements=["C", "W"]) for key, a in obs.items()}  # torch warns of those from Ray's store
        return self._normalizer({key: torch.from_numpy(a).to(self.device) for key, a in writable.items()})

    def _greedy(self, out: Tensor, obs: Obs) -> Tensor:
        """Greedy actions for the actor's outputs: of a Gaussian head, the first half is the mean."""
        return torch.tanh(out[..., : self._n_actions])

    def _min_q(self, obs: Obs, action: Tensor) -> Tensor:
        return self.critic(obs, action).squeeze(-1).amin(0)

    @contextlib.contextmanager
    def _compute_context(self) -> Iterator[None]:
        """Threads and precision of the config inside; what was set before again afterwards."""
        half = self.config.precision == "bfloat16"
        with threads(int(self._resolved.threads)), torch.autocast(self.device.type, torch.bfloat16, enabled=half):
            yield


def only(obs: Obs) -> Obs:
    """A batch [B, ...] as that of a single actor, [1, B, ...]."""
    return {key: x[None] for key, x in obs.items()}
