"""What TD3 and SAC have in common: batches, precision, threads, and the verbs that evolution calls."""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from typing import Any, Literal, NamedTuple, Protocol, Self

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, PositiveFloat, PositiveInt
from torch import Tensor

from baldwin.errors import ConfigError, Diverged
from baldwin.learners.networks import Actors, Critics
from baldwin.ops import seeds
from baldwin.ops.moments import Moments
from baldwin.ops.targets import bootstrap_discount
from baldwin.ops.threads import cores, threads
from baldwin.policies import Normalizer, PolicyConfig, make_policy
from baldwin.policies.mlp import MLP
from baldwin.types import Batch, Metrics, State

MOST_THREADS = 4  # a guess: measured on two cores only
DRAWN_AT_ONCE = 64  # batches; more would only take memory


class Source(Protocol):
    """Where batches come from: a replay, or the source of a view of one."""

    def draw(self, k: int, batch: int, steps: int = 1, gamma: float = 1.0) -> Batch:
        """k batches [k, B, ...] of windows of up to `steps` steps."""


class CriticConfig(BaseModel):
    """The networks that judge."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    hidden: list[PositiveInt] = Field([256, 256], description="Units of each hidden layer")
    activation: Literal["tanh", "relu", "selu", "leaky-relu"] = "relu"


class LearnerConfig(BaseModel):
    """How a gradient learner updates."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    critic: CriticConfig = CriticConfig()
    batch: PositiveInt = Field(256, description="Transitions of one update")
    gamma: float = Field(0.99, gt=0, le=1, description="Discount")
    tau: float = Field(0.005, gt=0, le=1, description="How far targets move towards the networks at each step")
    actor_lr: PositiveFloat = 3e-4
    critic_lr: PositiveFloat = 3e-4
    n_step: PositiveInt = Field(1, description="Rewards that are summed before the bootstrap; windows stop at episode ends")
    threads: PositiveInt | Literal["auto"] = Field(
        "auto", description="CPU threads of an update; auto: the cores, but at most four. Part of the run's identity"
    )
    device: Literal["cpu", "cuda", "auto"] = Field("cpu", description="Where updates are computed")
    precision: Literal["float32", "bfloat16"] = Field(
        "float32", description="Of matrix products; bfloat16 pays only on processors that have it (see docs/benchmarks.md)"
    )

    def settled(self) -> Self:
        """With nothing left to the machine: what `auto` means here and now."""
        device = ("cuda" if torch.cuda.is_available() else "cpu") if self.device == "auto" else self.device
        return self.model_copy(update={"threads": min(cores(), MOST_THREADS) if self.threads == "auto" else self.threads, "device": device})


class Tensors(NamedTuple):
    """One batch as the equations need it; observations are normalised."""

    obs: Tensor  # [B, D]
    action: Tensor
    reward: Tensor  # [B]
    next_obs: Tensor  # [B, D]
    discount: Tensor  # [B], zero after a termination


class Learner(ABC):
    """Owns networks, optimisers and targets; never an environment, a buffer or a logger.

    Actors are rows [P, D] of one matrix: one while training alone, several when evolution has several improved at once.
    """

    config: LearnerConfig

    def __init__(
        self, policy: PolicyConfig, config: LearnerConfig, *, obs_size: int, outputs: int, critics: tuple[int, int, int], seed: int
    ) -> None:
        """`outputs` of the actor; `critics`: how many, with how many inputs and outputs."""
        self._settled = config.settled()
        self.device = torch.device(self._settled.device)
        if self.device.type == "cuda" and not torch.cuda.is_available():
            raise ConfigError("algorithm.device=cuda, but this machine has no usable GPU. Use algorithm.device=cpu or auto")
        self._seed, self._policy_config = seed, policy
        self.updates = 0  # critic steps ever made
        self._calls = 0  # each has random numbers of its own
        network = make_policy(policy, obs_size, outputs)
        self.actor = Actors(network, network.init(seed)[None], config.actor_lr, self.device)
        count, inputs, outs = critics
        judge = MLP((inputs, *config.critic.hidden, outs), config.critic.activation, "torch", 1.0)
        rows = np.stack([judge.init(seeds.mix(seed, n), seeds.Stream.CRITIC) for n in range(count)])
        self.critic = Critics(judge, rows, config.critic_lr, self.device)
        self._generator = torch.Generator(self.device)
        self.normalize(Moments.empty(obs_size))

    def normalize(self, moments: Moments) -> None:
        """Use these observation statistics from now on."""
        self._normalizer = Normalizer(self._policy_config, moments).to(self.device)

    def update(self, replay: Source, k: int) -> Metrics:
        """k joint steps of critics and actor, as the paper has them; for one actor."""
        if len(self.actor.online) > 1:
            raise ConfigError(
                f"update trains one actor; there are {len(self.actor.online)}. Use critic_steps and actor_steps, or set_actor"
            )
        return self._each(replay, k, self._joint_step)

    def critic_steps(self, replay: Source, k: int, target_policy: NDArray[np.float32] | None = None) -> Metrics:
        """k steps of the critics alone, their targets after each.

        Next actions are those of this fixed policy [D] (of several [P, D], each for its share of a batch), or of the actor's own target.
        """
        own = self.actor.target.cpu().numpy()
        self.actor.set_target(own if target_policy is None else np.atleast_2d(target_policy))
        try:
            return self._each(replay, k, self._critic_step)
        finally:
            self.actor.set_target(own)

    def actor_steps(self, replay: Source, k: int, fresh: bool = True) -> Metrics:
        """k steps of the actor alone (of all its rows, a batch each), critics frozen; optimiser fresh or kept."""
        if fresh:
            self.actor.fresh_optimizer()
        rows = len(self.actor.online)
        return self._each(replay, k, lambda batch: self._actor_step(batch.obs.view(rows, -1, batch.obs.shape[-1])), rows)

    def set_actor(self, vectors: NDArray[np.float32]) -> None:
        """Be this policy [D], or these [P, D]: online and target alike, fresh optimiser."""
        self.actor.set(np.atleast_2d(vectors))

    def actor_vectors(self) -> NDArray[np.float32]:
        """The actor's parameters [P, D]."""
        return self.actor.vectors()

    def state_dict(self) -> State:
        """All that changes in here; observation statistics are given by whoever calls `normalize`."""
        return {"actor": self.actor.state_dict(), "critic": self.critic.state_dict(), "updates": self.updates, "calls": self._calls}

    def load_state_dict(self, state: State) -> None:
        """Be the learner that wrote `state`."""
        self.actor.load_state_dict(state["actor"])
        self.critic.load_state_dict(state["critic"])
        self.updates, self._calls = int(state["updates"]), int(state["calls"])

    def critic_state(self) -> State:
        """What evolution hands from one job to the next: all that judges, and no actor."""
        return {"critic": self.critic.state_dict(), "updates": self.updates}

    def load_critic_state(self, state: State) -> None:
        """Judge as the learner did that wrote `state`."""
        self.critic.load_state_dict(state["critic"])
        self.updates = int(state["updates"])

    @abstractmethod
    def values(self, obs: NDArray[np.float32], action: NDArray[Any] | None = None) -> NDArray[np.float32]:
        """What the critics make of actions [B], or of the actor's own, for raw observations."""

    @abstractmethod
    def _joint_step(self, batch: Tensors) -> dict[str, Tensor]: ...

    @abstractmethod
    def _critic_step(self, batch: Tensors) -> dict[str, Tensor]: ...

    @abstractmethod
    def _actor_step(self, obs: Tensor) -> dict[str, Tensor]: ...  # [P, B, D]: a batch for each row of actors

    def _each(self, replay: Source, k: int, step: Callable[[Tensors], dict[str, Tensor]], rows: int = 1) -> Metrics:
        """Take k steps, a batch each; the mean of what they report, which is left as it is until the end: a mean costs as much as a layer."""
        if not k:
            return {}
        with self._computing():
            self._generator.manual_seed(seeds.mix(self._seed, seeds.Stream.LEARN, self._calls))
            self._calls += 1
            seen: dict[str, list[Tensor]] = {}
            before = self.updates
            for batch in self._batches(replay, k, rows):
                for name, value in step(batch).items():
                    seen.setdefault(name, []).append(value)
        means = {}
        for name, values in seen.items():
            each = torch.stack(values).float().flatten(1).mean(1)
            bad = (~torch.isfinite(each)).nonzero()
            if len(bad):
                where = f"batch {int(bad[0]) + 1} of {k}, drawn after {before} updates"
                raise Diverged(f"{name} is {float(each[bad[0]])} in {where}: the learner has diverged. Lower the learning rates")
            means[name] = float(each.mean())
        norms = {"critic_gradient_norm": self.critic.gradient, "actor_gradient_norm": self.actor.gradient}
        return means | {name: float(gradient.norm()) for name, gradient in norms.items()}

    def _batches(self, replay: Source, k: int, rows: int) -> Iterator[Tensors]:
        """k batches, as many times as large as there are rows to share them; a few dozen are drawn at once."""
        config = self.config
        for first in range(0, k, DRAWN_AT_ONCE):
            drawn = replay.draw(min(DRAWN_AT_ONCE, k - first), rows * config.batch, config.n_step, config.gamma)
            arrays = [torch.from_numpy(np.ascontiguousarray(a)).to(self.device) for a in drawn]
            obs, action, reward, next_obs, terminated, _, steps = arrays
            discount = bootstrap_discount(config.gamma, steps, terminated)
            obs, next_obs = self._normalizer(obs), self._normalizer(next_obs)
            for n in range(len(obs)):
                yield Tensors(obs[n], action[n], reward[n], next_obs[n], discount[n])

    def _prepared(self, obs: NDArray[np.float32]) -> Tensor:
        return self._normalizer(torch.from_numpy(np.array(obs, np.float32)).to(self.device))

    def _of_actor(self, obs: Tensor) -> Tensor:
        return shared_out(self.actor, len(self.actor.online), obs)

    def _noise(self, like: Tensor) -> Tensor:
        return torch.randn(like.shape, generator=self._generator, device=self.device)

    @contextlib.contextmanager
    def _computing(self) -> Iterator[None]:
        """Threads and precision of the config, and what was set before again afterwards."""
        half = self.config.precision == "bfloat16"
        with threads(int(self._settled.threads)), torch.autocast(self.device.type, torch.bfloat16, enabled=half):
            yield


def shared_out(forward: Callable[[Tensor], Tensor], rows: int, x: Tensor) -> Tensor:
    """Outputs [B, out] of so many networks for one batch [B, in], each for its share of it."""
    if rows == 1:
        return forward(x[None])[0]
    share = -(-len(x) // rows)
    whole = torch.cat([x, x[: rows * share - len(x)]])
    return forward(whole.view(rows, share, -1)).flatten(0, 1)[: len(x)]


def together(obs: Tensor, action: Tensor, count: int) -> Tensor:
    """The critics' inputs [count, B, obs + A], one copy for all."""
    return torch.cat([obs, action], -1).expand(count, -1, -1)
