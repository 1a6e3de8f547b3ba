"""What the policy-gradient learners share: networks, optimiser, values and advantages of segments, and one gradient step."""

from __future__ import annotations

import contextlib
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, Self

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field, PositiveFloat, PositiveInt
from torch import Tensor

from baldwin.algorithm import AlgorithmConfig
from baldwin.envs import EnvSpec
from baldwin.errors import ConfigError, Diverged
from baldwin.learners.actor_critic import ActorCritic, Outputs
from baldwin.learners.actor_critic_loss import LossParts, PolicyLoss, Weights, combined_loss, pair_gradient
from baldwin.learners.experience import Experience
from baldwin.learners.learner import CriticConfig
from baldwin.learners.schedule import StepSchedule, value_at
from baldwin.networks import ActionDistribution, ActionMap, Adam, Normalizer, Obs, Optimizer, PolicyConfig, RMSProp
from baldwin.networks.numpy_mlp import MAX_NUMPY_SIZE
from baldwin.observations import ACTION_MASK, VECTOR, Observation, ObservationSpec
from baldwin.ops import seeds
from baldwin.ops.moments import Moments
from baldwin.ops.policy_loss import squared_error
from baldwin.ops.returns import td_errors
from baldwin.ops.threads import auto_threads, one_numpy_thread, threads
from baldwin.types import Metrics, State

Share = Annotated[float, Field(ge=0, le=1)]
CHUNK = 4096  # observations whose values are computed at once


class PolicyGradientConfig(AlgorithmConfig):
    """One update of a policy-gradient learner."""

    mutable: ClassVar[tuple[str, ...]] = ("lr", "gamma", "gammas", "entropy_coef", "value_coef", "max_grad_norm", "eps")
    policy_defaults: ClassVar[dict[str, Any]] = {
        "hidden": [64, 64],
        "activation": "tanh",
        "init": "orthogonal",
        "normalize_obs": False,
        "squash": "clip",
    }

    lr: PositiveFloat | StepSchedule = Field(3e-4, description="Step size: a number, or {kind, start, end, env_steps}")
    gamma: float = Field(0.99, gt=0, le=1, description="Discount per frame")
    gammas: dict[str, Share] = Field(default_factory=dict, description="Discounts of single reward components, by name")
    entropy_coef: float = Field(0.0, ge=0, description="Weight of the entropy bonus")
    value_coef: float = Field(0.5, ge=0, description="Weight of the value loss")
    max_grad_norm: PositiveFloat | None = Field(0.5, description="Gradients are scaled down to this norm; null: never")
    optimizer: Literal["adam", "rmsprop"] = "adam"
    eps: PositiveFloat = Field(1e-5, description="Of the optimiser")
    critic: CriticConfig = CriticConfig(hidden=[64, 64], activation="tanh", init="orthogonal", output_scale=1.0)
    shared_critic: bool | Literal["auto"] = Field(
        "auto", description="Policy and values are one network with two heads; auto: where it sees images or has memory"
    )
    log_std_init: float = Field(0.0, description="Log standard deviation of continuous actions at the start (policy.head=deterministic)")
    threads: PositiveInt | Literal["auto"] = Field(
        "auto", description="CPU threads of an update; auto: the cores for images, at most four, else one. Part of the run's identity"
    )

    @abstractmethod
    def make_learner(self, policy: PolicyConfig, **parts: Any) -> PolicyGradientLearner:
        """A new learner; `parts`: the keyword arguments of `PolicyGradientLearner`."""

    def resolved_for(self, env: EnvSpec) -> Self:
        """The same with the threads that images call for."""
        return self.model_copy(update={"threads": auto_threads(bool(env.obs.images))}) if self.threads == "auto" else self

    def check(self, policy: PolicyConfig, generations_kept: int) -> None:
        """Refuse what cannot be trained by a policy gradient."""
        if policy.has_virtual_batch_norm:
            raise ValueError("virtual batch normalisation is for strategies: use norm: none")


class PolicyGradientBatch(NamedTuple):
    """Steps as a loss needs them: flat rows [B, ...], or whole sequences of a policy with memory."""

    obs: Obs  # [B, ...], or [L, T, ...] with memory
    action: Tensor  # [B, columns]
    log_prob: Tensor  # [B], when they were taken
    advantage: Tensor  # [B], weighted sum over the components
    target: Tensor  # [B, C] of the values
    value: Tensor  # [B, C] before the update
    memory: Tensor  # [L, S], with memory
    begins: Tensor  # [L, T], with memory
    rows: Tensor | None  # of the flattened sequences that are real; None: all


class ActionEvaluation(NamedTuple):
    """What the networks say of steps now."""

    log_prob: Tensor  # [B]
    values: Tensor  # [B, C]
    distribution: ActionDistribution

    def entropy(self) -> Tensor:
        """Mean entropy of the policy."""
        return self.distribution.entropy().mean()


class PolicyGradientLearner(ABC):
    """Owns networks and optimiser; never an environment or a logger."""

    config: PolicyGradientConfig

    def __init__(
        self,
        policy: PolicyConfig,
        config: PolicyGradientConfig,
        *,
        obs: ObservationSpec,
        actions: ActionMap,
        rewards: dict[str, float],
        seed: int,
        n_values: int | None = None,
        params: NDArray[np.float32] | None = None,
    ) -> None:
        """`rewards`: names and weights of the reward's components; `n_values`: 0 for a learner without a value function;
        `params` [D] of all networks, instead of fresh ones."""
        self.config, self._policy_config, self._actions, self._seed = config, policy, actions, seed
        self.device = torch.device("cpu")
        self.updates = 0
        names = self._reward_names = list(rewards)
        for name in (*config.gammas, *self._lambdas()):
            if name not in rewards:
                raise ConfigError(f"algorithm: there is no reward component {name!r}; there are: {', '.join(names)}")
        self.weights = np.array([rewards[name] for name in names], np.float32)
        self._gamma = np.array([config.gammas.get(name, config.gamma) for name in names], np.float32)
        has_memory = policy.has_memory
        shared = bool(obs.images or has_memory) and policy.kind == "mlp" if config.shared_critic == "auto" else config.shared_critic
        self.nets = ActorCritic(
            policy,
            config.critic,
            shared=shared,
            obs=obs,
            actions=actions,
            n_values=len(names) if n_values is None else n_values,
            log_std_init=config.log_std_init,
            seed=seed,
            device=self.device,
            params=params,
        )
        self._threads = auto_threads(bool(obs.images)) if config.threads == "auto" else config.threads
        self._generator = torch.Generator()
        self.reset_optimizer()
        self.normalize(Moments.empty(obs.vector_size))

    @abstractmethod
    def update(self, experience: Experience, env_steps: int) -> Metrics:
        """Learn from segments; `env_steps` taken so far, for schedules. Returns what is worth reporting.

        Raises:
            Diverged: a loss is not finite.
        """

    def _lambdas(self) -> dict[str, float]:
        """The lambda of single reward components, where the learner has any."""
        return {}

    def normalize(self, moments: Moments) -> None:
        """Use these observation statistics from now on."""
        self._normalizer = Normalizer(self._policy_config, moments)

    def actor(self) -> dict[str, NDArray[np.float32]]:
        """The parameters, by name, that workers act with."""
        return self.nets.actor()

    def state_dict(self) -> State:
        """Parameters, optimiser and counters; observation statistics belong to whoever calls `normalize`."""
        return {"params": self.nets.params.numpy().copy(), "optimizer": self._optimizer.state_dict(), "updates": self.updates}

    def load_state_dict(self, state: State) -> None:
        """Continue from a `state_dict`."""
        self.nets.set_params(state["params"])
        self.reset_optimizer()
        self._optimizer.load_state_dict(state["optimizer"])
        self.updates = int(state["updates"])

    def reset_optimizer(self) -> None:
        """A new optimiser, with the step size and the epsilon of the config."""
        kind = Adam if self.config.optimizer == "adam" else RMSProp
        self._optimizer: Optimizer = kind(self.nets.params, value_at(self.config.lr, 0), self.config.eps, self.nets.leaves)

    @contextlib.contextmanager
    def _updating(self, env_steps: int) -> Iterator[None]:
        """Random numbers, threads and step size of one update."""
        self._generator.manual_seed(seeds.mix(self._seed, seeds.Stream.LEARN, self.updates))
        self._optimizer.lr = value_at(self.config.lr, env_steps)
        with threads(int(self._threads)), one_numpy_thread(), np.errstate(over="ignore", invalid="ignore"):
            yield  # `report` refuses what is not finite

    def prepare(self, obs: Observation) -> Obs:
        """Raw observations as normalised tensors."""
        writable = {key: np.require(a, requirements=["C", "W"]) for key, a in obs.items()}
        return self._normalizer({key: torch.from_numpy(a) for key, a in writable.items()})

    @torch.no_grad()
    def values(self, experience: Experience) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """V(s_t) and V(what followed) [L, T, C]: after a time limit, that of the episode's last observation."""
        count, steps = experience.valid.shape
        n = len(self.weights)
        if not self.nets.n_values:
            return np.zeros((count, steps, n), np.float32), np.zeros((count, steps, n), np.float32)
        if self.nets.state_size:
            obs, last, final = (self.prepare(o) for o in (experience.obs, experience.last_obs, experience.final_obs))
            begins, memory = torch.from_numpy(experience.begins), torch.from_numpy(experience.memory)
            outputs, states = self.nets.unroll(obs, memory, begins)
            value = outputs.values.numpy()
            real = torch.from_numpy(experience.valid.sum(1) - 1)
            keep = torch.from_numpy(~experience.ended[np.arange(count), real.numpy()]).unsqueeze(-1)
            last_value = self.nets.values_at(last, states[torch.arange(count), real] * keep).numpy()
            at = torch.from_numpy(experience.final_at)
            final_value = self.nets.values_at(final, states[at[:, 0], at[:, 1]]).numpy() if len(at) else np.zeros((0, n), np.float32)
        else:
            parts = (
                (x.reshape(-1, *x.shape[2:]), experience.last_obs[key], experience.final_obs[key]) for key, x in experience.obs.items()
            )
            found = self._values_of({key: np.concatenate(own) for key, own in zip(experience.obs, parts, strict=True)})
            value, last_value, final_value = np.split(found, [count * steps, count * (steps + 1)])
            value = value.reshape(count, steps, n)
        following = np.concatenate([value[:, 1:], value[:, :1]], 1)
        following[np.arange(count), experience.valid.sum(1) - 1] = last_value
        following[experience.final_at[:, 0], experience.final_at[:, 1]] = final_value
        return value, following

    def _values_of(self, obs: Observation) -> NDArray[np.float32]:
        """Values [B, C] of raw observations, a few thousand at a time."""
        size, pair = len(next(iter(obs.values()))), self.nets.pair
        if pair and size * pair.width <= MAX_NUMPY_SIZE:
            return pair.values.forward(self._normalizer.array(obs[VECTOR]))[0][0, :, : self.nets.n_values]
        x = self.prepare(obs)
        chunks = [self.nets({key: own[at : at + CHUNK] for key, own in x.items()}).values for at in range(0, size, CHUNK)]
        return np.asarray((torch.cat(chunks) if len(chunks) > 1 else chunks[0]).numpy())

    def discounts(self, experience: Experience) -> NDArray[np.float32]:
        """gamma^k for a step of k frames, 0 where the episode terminated [L, T, C]."""
        frames = experience.elapsed[..., None]
        return np.where(experience.terminated[..., None], np.float32(0), self._gamma**frames).astype(np.float32)

    def deltas(
        self, experience: Experience, value: NDArray[Any], following: NDArray[Any], discount: NDArray[np.float32] | None = None
    ) -> NDArray[np.float32]:
        """Temporal-difference errors [L, T, C], 0 for padding. `discount`: the `discounts`, if they are known."""
        found = td_errors(experience.reward, value, following, self.discounts(experience) if discount is None else discount)
        return found if experience.valid.all() else np.where(experience.valid[..., None], found, np.float32(0))

    def steps(self, experience: Experience, advantage: NDArray[Any], target: NDArray[Any], value: NDArray[Any]) -> PolicyGradientBatch:
        """All real steps as tensors; `advantage`, `target` and `value` are [L, T, C]."""
        rows = None if experience.valid.all() else torch.from_numpy(np.flatnonzero(experience.valid))

        def flat(array: NDArray[Any]) -> Tensor:
            tensor = torch.from_numpy(np.ascontiguousarray(array, np.float32)).flatten(0, 1)
            return tensor if rows is None else tensor[rows]

        obs = self.prepare(experience.obs)
        if not self.nets.state_size:
            obs = {key: x.flatten(0, 1) if rows is None else x.flatten(0, 1)[rows] for key, x in obs.items()}
        return PolicyGradientBatch(
            obs,
            flat(experience.action),
            flat(experience.log_prob),
            flat(advantage @ self.weights),
            flat(target),
            flat(value),
            torch.from_numpy(np.array(experience.memory)),
            torch.from_numpy(experience.begins),
            rows,
        )

    def evaluate(self, steps: PolicyGradientBatch) -> ActionEvaluation:
        """Log-probabilities, entropies and values of steps under the current parameters."""
        masks = steps.obs.get(ACTION_MASK)
        if self.nets.state_size:
            unrolled, _ = self.nets.unroll(steps.obs, steps.memory, steps.begins)
            outputs = Outputs(unrolled.policy.flatten(0, 1), unrolled.values.flatten(0, 1))
            masks = None if masks is None else masks.flatten(0, 1)
            if steps.rows is not None:
                outputs = Outputs(outputs.policy[steps.rows], outputs.values[steps.rows])
                masks = None if masks is None else masks[steps.rows]
        else:
            outputs = self.nets(steps.obs)
        chosen = ActionDistribution(self._actions, outputs.policy, masks, self.nets.log_std)
        return ActionEvaluation(chosen.log_prob(steps.action), outputs.values, chosen)

    def gradient(
        self, steps: PolicyGradientBatch, policy_loss: PolicyLoss, value_loss: Callable[[Tensor, Tensor], Tensor] = squared_error
    ) -> tuple[Tensor, LossParts]:
        """The gradient [D] of policy_loss(log pi(a|s)) + value_coef value_loss(V, target) - entropy_coef mean H, and its parts."""
        weights = Weights(self.config.value_coef, self.config.entropy_coef)
        pair = self.nets.pair
        if pair and value_loss is squared_error and ACTION_MASK not in steps.obs and len(steps.action) * pair.width <= MAX_NUMPY_SIZE:
            obs, action, target = steps.obs[VECTOR].numpy(), steps.action.numpy(), steps.target.numpy()
            gradient, parts = pair_gradient(policy_loss, pair, obs, action, target, weights)
            return torch.from_numpy(gradient), parts
        now = self.evaluate(steps)
        loss, parts = combined_loss(policy_loss, now.log_prob, value_loss(now.values, steps.target), now.entropy(), weights)
        return self._optimizer.gradient(loss), parts

    def descend(self, gradient: Tensor) -> Tensor | None:
        """One step of the optimiser; the norm of the gradient, if that is limited."""
        return self._optimizer.descend(gradient, self.config.max_grad_norm)

    def ratios(self, experience: Experience) -> NDArray[np.float32]:
        """Probability of each joint action now over that when it was taken [L, T, 1]; 1 for padding."""
        empty = np.zeros((*experience.valid.shape, len(self.weights)), np.float32)
        with torch.no_grad():
            steps = self.steps(experience, empty, empty, empty)
            log_prob = torch.cat([self.evaluate(part).log_prob for part in self._chunks(steps)])
            ratio = (log_prob - steps.log_prob).exp().numpy()
        found = np.ones((*experience.valid.shape, 1), np.float32)
        found[experience.valid] = ratio[:, None]
        return found

    def _chunks(self, steps: PolicyGradientBatch) -> Iterator[PolicyGradientBatch]:
        """A few thousand steps at a time; sequences as a whole."""
        if self.nets.state_size:
            yield steps
            return
        for at in range(0, len(steps.action), CHUNK):
            rows = slice(at, at + CHUNK)
            yield steps._replace(obs={key: x[rows] for key, x in steps.obs.items()}, action=steps.action[rows])

    def minimize(self, loss: Tensor) -> Tensor | None:
        """One step of the optimiser; the norm of the gradient, if that is limited."""
        return self._optimizer.minimize(loss, self.config.max_grad_norm)


def report(values: Mapping[str, Sequence[float | Tensor]]) -> Metrics:
    """Means of what each gradient step reported.

    Raises:
        Diverged: one of them is not finite.
    """
    found = {}
    for name, each in values.items():
        numbers = [float(v.detach()) if isinstance(v, Tensor) else v for v in each]
        bad = [v for v in numbers if not math.isfinite(v)]
        if bad:
            raise Diverged(f"{name} is {bad[0]}: the learner has diverged. Lower algorithm.lr")
        found[name] = math.fsum(numbers) / len(numbers)
    return found
