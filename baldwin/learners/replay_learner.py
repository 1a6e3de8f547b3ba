"""What learners that sample a replay buffer have in common: batches, precision, threads, and what an update reports."""

from __future__ import annotations

import contextlib
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from typing import Any, ClassVar, Literal, NamedTuple, Protocol, Self

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field, PositiveInt, model_validator
from torch import Tensor
from torch.nn.functional import mse_loss, one_hot, smooth_l1_loss

from baldwin.config_base import ConfigModel
from baldwin.envs import EnvSpec
from baldwin.errors import ConfigError, Diverged
from baldwin.networks import Network, Normalizer, Obs, PolicyConfig, StackedNetwork
from baldwin.networks.noisy import NoisyNetwork
from baldwin.observations import Observation, ObservationSpec
from baldwin.ops import seeds
from baldwin.ops.moments import Moments
from baldwin.ops.targets import bootstrap_discount
from baldwin.ops.threads import auto_threads, one_numpy_thread, threads
from baldwin.replay import PrioritizedSampler
from baldwin.types import Batch, Metrics, State

TD_ERROR = "td_error"
"""What an update reports of each transition [B] of a batch that was sampled by priorities."""
FIRST_ERRORS = 1  # random numbers of `td_errors`, apart from those of updates
BATCHES_PER_SAMPLE = 64  # more in one call would only take memory
IMAGE_BATCHES_PER_SAMPLE = 2
NO_MEMORY = (
    "hybrids train policies without memory so far, and learners with a replay buffer only that of policy.memory, not of a module with a state_size: "
    "leave it out, or use algorithm.name=sac, td3 or dqn with policy.memory, or ppo or es"
)
NO_VIRTUAL_BATCH_NORM = (
    "virtual batch normalisation is for strategies: a gradient learner would have to take its statistics at every update. Use norm: none"
)


class BatchSampler(Protocol):
    """Where batches come from: a replay buffer, or a view of one."""

    def sample(self, k: int, batch_size: int, n_step: int = 1, gamma: float = 1.0) -> Batch:
        """k batches [k, B, ...] of windows of up to `n_step` steps."""


class LearnerConfig(ConfigModel):
    """One update of a learner that samples a replay buffer."""

    mutable: ClassVar[tuple[str, ...]] = ("batch_size", "gamma", "tau", "n_step")
    renamed: ClassVar[dict[str, str]] = {"batch": "batch_size"}

    @model_validator(mode="before")
    @classmethod
    def _ensemble(cls, data: Any) -> Any:
        """`ensemble` is another name of SAC's `n_critics`; the other learners have a fixed number of critics."""
        if not isinstance(data, Mapping) or "ensemble" not in data:
            return data
        if "n_critics" not in cls.model_fields:
            raise ValueError("ensemble is a key of sac: other learners have a fixed number of critics. Leave it out, or use sac")
        if "n_critics" in data:
            raise ValueError("ensemble and n_critics are two names of the same number; got both. Leave one out")
        return {"n_critics" if key == "ensemble" else key: value for key, value in data.items()}

    batch_size: PositiveInt = Field(256, description="Transitions per update")
    gamma: float = Field(0.99, gt=0, le=1, description="Discount")
    tau: float = Field(0.005, gt=0, le=1, description="Polyak coefficient of the target networks")
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
        return self.model_copy(update={"device": device})

    def resolved_for(self, env: EnvSpec) -> Self:
        """The same with the threads that images call for."""
        return self.model_copy(update={"threads": auto_threads(bool(env.obs.images))}) if self.threads == "auto" else self

    def on_cpu(self) -> Self:
        """The same computed on a CPU."""
        return self.model_copy(update={"device": "cpu"})


class TensorBatch(NamedTuple):
    """One batch as the losses need it; observations are normalised."""

    obs: Obs  # [B, ...]
    action: Tensor  # [B, A], or [B] indices
    reward: Tensor  # [B]
    next_obs: Obs  # [B, ...]
    discount: Tensor  # [B], gamma^n, zero after a termination
    indices: NDArray[np.int64] | None = None  # [B], of the rows, where priorities are kept
    weights: Tensor | None = None  # [B], of the losses; none: all alike
    target: Tensor | None = None  # [B], of the critics, where it is known already: then next_obs and discount are not read
    actor_obs: Obs | None = None  # [B, ...], what the actor sees, where that is not what the critics see


class TargetValues(NamedTuple):
    """What targets over several steps are made of, by the slow critics, for a batch of states and actions."""

    value: Tensor  # [B], of the state under the policy of now
    action_value: Tensor  # [B], of the action; empty if it was not asked for
    log_prob: Tensor  # [B], of the action under the policy of now; empty if it was not asked for


class ReplayLearner(ABC):
    """Owns networks, optimisers and targets; never an environment, a buffer or a logger."""

    config: LearnerConfig

    def __init__(self, policy: PolicyConfig, config: LearnerConfig, *, obs: ObservationSpec, seed: int) -> None:
        self._has_images = bool(obs.images)
        resolved = config.resolved()
        self._threads = auto_threads(self._has_images) if resolved.threads == "auto" else resolved.threads
        self.device = torch.device(resolved.device)
        if self.device.type == "cuda" and not torch.cuda.is_available():
            raise ConfigError("algorithm.device=cuda, but this machine has no usable GPU. Use algorithm.device=cpu or auto")
        self._seed, self._policy_config = seed, policy
        self.updates = 0  # of the critics
        self._calls = 0  # each call that trains has random numbers of its own
        self._generator = torch.Generator(self.device)
        self.normalize(Moments.empty(obs.vector_size))

    def normalize(self, moments: Moments) -> None:
        """Use these observation statistics from now on."""
        self._normalizer = Normalizer(self._policy_config, moments).to(self.device)

    @abstractmethod
    def networks(self) -> dict[str, StackedNetwork]:
        """The networks that are trained, by the names that metrics have."""

    def main_networks(self) -> dict[str, StackedNetwork]:
        """Those of them that choose and value actions: what populations recombine."""
        return self.networks()

    def reset_optimizer(self) -> None:
        """Set the moments of all optimisers to zero."""
        for network in self.networks().values():
            network.reset_optimizer()

    @abstractmethod
    def train(self, sampler: BatchSampler, k: int) -> Metrics:
        """k updates as in the paper; the means of what they report."""

    @abstractmethod
    def set_actor(self, vectors: NDArray[np.float32]) -> None:
        """Replace the greedy policy by this one [D], or, of a learner with several actors, by these [P, D]."""

    @abstractmethod
    def actor_vectors(self) -> NDArray[np.float32]:
        """The greedy policies' parameters [P, D]."""

    def acting_vector(self, number: int) -> NDArray[np.float32]:
        """The parameters [D] that collect segment `number`."""
        vectors = self.actor_vectors()
        return np.asarray(vectors[0], np.float32)

    @abstractmethod
    def q_values(self, obs: Observation, action: NDArray[Any] | None = None, actor_obs: Observation | None = None) -> NDArray[np.float32]:
        """Values [B] for raw observations [B, ...] and these actions, or the greedy ones; the actor may see something else."""

    @abstractmethod
    def state_dict(self) -> State:
        """Networks, optimisers and counters; observation statistics belong to whoever calls `normalize`."""

    @abstractmethod
    def load_state_dict(self, state: State) -> None:
        """Continue from a `state_dict`."""

    def _run_updates(self, sampler: Any, k: int, update: Callable[[Any], dict[str, Tensor]], rows: int = 1) -> Metrics:
        """Make k updates, a batch each. What they report is averaged at the end: a mean costs as much as a small layer."""
        if not k:
            return {}
        with self._compute_context():
            self._generator.manual_seed(seeds.mix(self._seed, seeds.Stream.LEARN, self._calls))
            self._calls += 1
            reports: dict[str, list[Tensor]] = {}
            for network in self.networks().values():
                network.params.grad = None  # report only gradients of these updates
            before = self.updates
            for batch in self._sample_batches(sampler, k, rows):
                report = update(batch)
                if isinstance(sampler, PrioritizedSampler) and batch.indices is not None and TD_ERROR in report:
                    sampler.update_priorities(batch.indices, report[TD_ERROR].cpu().numpy())
                for name, value in report.items():
                    reports.setdefault(name, []).append(value)
        means = {}
        for name, values in reports.items():
            each = torch.stack(values).float().view(len(values), -1).mean(1)
            numbers = each.tolist()
            for n, number in enumerate(numbers):
                if not math.isfinite(number):
                    where = f"batch {n + 1} of {k}, drawn after {before} updates"
                    raise Diverged(f"{name} is {number} in {where}: the learner has diverged. Lower the learning rates")
            means[name] = float(each.mean()) if len(numbers) > 1 else numbers[0]
        for name, network in self.networks().items():
            if network.params.grad is not None:
                means[f"{name}_gradient_norm"] = float(network.params.grad.norm())
        return means

    def _sample_batches(self, sampler: Any, k: int, rows: int) -> Iterator[Any]:
        """k batches, `rows` times as large; a few dozen are sampled in one call, unless each depends on the update before it."""
        config = self.config
        at_once = IMAGE_BATCHES_PER_SAMPLE if self._has_images else BATCHES_PER_SAMPLE
        if isinstance(sampler, PrioritizedSampler):
            at_once = 1
        for first in range(0, k, at_once):
            sampled = sampler.sample(min(at_once, k - first), rows * config.batch_size, config.n_step, config.gamma)
            yield from self._tensor_batches(sampled)

    def _tensor_batches(self, sampled: Batch) -> Iterator[TensorBatch]:
        """Batches [k, B, ...] one by one, as the losses need them."""
        obs, next_obs = self._prepare(sampled.obs), self._prepare(sampled.next_obs)
        action, reward, terminated, steps = (
            torch.from_numpy(np.ascontiguousarray(a)).to(self.device)
            for a in (sampled.action, sampled.reward, sampled.terminated, sampled.steps)
        )
        discount = bootstrap_discount(self.config.gamma, steps, terminated)
        for n in range(len(reward)):
            pick = {key: x[n] for key, x in obs.items()}, {key: x[n] for key, x in next_obs.items()}
            batch = TensorBatch(pick[0], action[n], reward[n], pick[1], discount[n])
            if sampled.indices is not None and sampled.weights is not None:
                batch = batch._replace(indices=sampled.indices[n], weights=torch.from_numpy(sampled.weights[n]).to(self.device))
            yield batch

    def _prepare(self, obs: Observation) -> Obs:
        """Raw observations as normalised tensors; images and masks stay as they are."""
        writable = {key: np.require(a, requirements=["C", "W"]) for key, a in obs.items()}  # torch warns of those from Ray's store
        return self._normalizer({key: torch.from_numpy(a).to(self.device) for key, a in writable.items()})

    @contextlib.contextmanager
    def _compute_context(self) -> Iterator[None]:
        """Threads and precision of the config inside; what was set before again afterwards."""
        half = self.config.precision == "bfloat16"
        precision = torch.autocast(self.device.type, torch.bfloat16) if half else contextlib.nullcontext()
        quiet = np.errstate(over="ignore", invalid="ignore")  # of a learner that diverges, which is told once the updates are made
        with threads(self._threads), one_numpy_thread(), quiet, precision:
            yield


class TransitionLearner(ReplayLearner):
    """A learner whose updates take transitions one by one; another one may work out their targets, and what is seen of observations."""

    acts_by_target: ClassVar[bool] = False  # values of states are those of the actor's slow copy

    def __init__(self, policy: PolicyConfig, config: LearnerConfig, *, obs: ObservationSpec, seed: int) -> None:
        super().__init__(policy, config, obs=obs, seed=seed)
        self.branches: tuple[int, ...] = ()  # choices of each discrete part of an action
        self._noisy: NoisyNetwork | None = None  # what acts, if its layers have learned noise
        self.acts_by_values = False  # the network that acts gives the values of actions

    @abstractmethod
    def update(self, batch: TensorBatch) -> dict[str, Tensor]:
        """One update of all networks as in the paper; what is worth reporting."""

    @abstractmethod
    def target_values(self, obs: Obs, actor_obs: Obs, action: Tensor, *, of_actions: bool) -> TargetValues:
        """Values of states [B, ...], as critics and actor see them; with `of_actions`, also of these actions, and their log-probabilities."""

    @abstractmethod
    def _q_and_target(self, batch: TensorBatch) -> tuple[Tensor, Tensor]:
        """Values [N, B], or [B], of the batch's actions, and what they should be, [B]."""

    @torch.no_grad()
    def td_errors(self, batches: Batch) -> NDArray[np.float32]:
        """|Q - y| [k B] of batches [k, B, ...], the mean over the critics as they are now."""
        with self._compute_context():
            self._generator.manual_seed(seeds.mix(self._seed, seeds.Stream.LEARN, self._calls, FIRST_ERRORS))
            found = [mean_error(*self._q_and_target(batch)) for batch in self._tensor_batches(batches)]
        return np.asarray(torch.cat(found).cpu().numpy())

    def action_numbers(self, action: Tensor) -> Tensor:
        """Stored actions as numbers [..., A]: choices as one-hot vectors, then what is continuous."""
        return one_hot(action, self.branches[0]).float() if self.branches else action

    def stored_action(self, numbers: Tensor) -> Tensor:
        """The inverse of `action_numbers`."""
        return numbers.argmax(-1) if self.branches else numbers

    @abstractmethod
    def critic_values(self, obs: Obs, action: Tensor, *, target: bool = False) -> Tensor:
        """Values [N, B] of actions by each critic, or by their slow copies."""

    def _draw_noise(self, which: int) -> None:
        """Noise of its own for each pass of an update through noisy layers."""
        if self._noisy:
            self._noisy.draw_noise(seeds.generator(self._seed, seeds.Stream.LEARN, self.updates, which))


def check_trainable(network: Network, policy: PolicyConfig) -> Network:
    """The network, if batches of single transitions can train it.

    Raises:
        ConfigError: it has memory, or virtual batch normalisation.
    """
    if network.state_size or policy.has_virtual_batch_norm:
        raise ConfigError(NO_MEMORY if network.state_size else NO_VIRTUAL_BATCH_NORM)
    return network


def mean_loss(kind: Literal["mse", "huber"], q: Tensor, y: Tensor, weights: Tensor | None) -> Tensor:
    """Mean of the losses of q against y, both [..., B], each times its weight [B] where there are weights."""
    loss = mse_loss if kind == "mse" else smooth_l1_loss
    return loss(q, y) if weights is None else (weights * loss(q, y, reduction="none")).mean()


def clipped_loss(q: Tensor, slow: Tensor, y: Tensor, epsilon: float, weights: Tensor | None) -> Tensor:
    """Mean of max((Q' + clip(Q - Q', -epsilon, epsilon) - y)^2, (Q - y)^2), Q' of the slow critics: at most tau epsilon an update."""
    near = slow + (q - slow).clamp(-epsilon, epsilon)
    loss = torch.maximum((near - y).square(), (q - y).square())
    return loss.mean() if weights is None else (weights * loss).mean()


def mean_error(q: Tensor, y: Tensor) -> Tensor:
    """|Q - y| [B], the mean over the critics [N, B]."""
    return (q - y).detach().float().abs().view(-1, len(y)).mean(0)
