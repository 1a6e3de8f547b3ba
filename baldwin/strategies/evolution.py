"""Policy search by any strategy over vectors: an episode's return is the fitness.

The strategy sees vectors and numbers. What an episode needs besides (blocks, seeds, step limits, observation statistics)
is kept here, once for all strategies.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Literal, NamedTuple, Protocol, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from baldwin.algorithm import AlgorithmConfig, AlgorithmEntry, BaseAlgorithm, BuildContext, register
from baldwin.config_base import ConfigModel
from baldwin.errors import BaldwinError
from baldwin.networks import REFERENCE, make_network
from baldwin.opponents import JobOpponents, OpponentPool
from baldwin.ops import seeds
from baldwin.ops.moments import Moments
from baldwin.ops.noise import Shape
from baldwin.ops.statistics import return_stats
from baldwin.rollout import RolloutJob, RolloutSpec
from baldwin.types import Arrays, Metrics, Outcome, Perturbation, Shared, State, Trial

SEED_PERIOD = 64
"""Jobs that share seeds of environments. A pool with fixed seeds is fast-forwarded by at most this many jobs' episodes, also after a resume."""


class CapConfig(ConfigModel):
    """A step limit below the environment's own, in training only: evaluations play whole episodes."""

    renamed: ClassVar[dict[str, str]] = {"share": "fraction"}

    rule: Literal["none", "fixed", "grow", "twice-mean"] = Field(
        "none",
        description="fixed: always `start`; grow: starts at `start`, grows when many episodes hit it, never shrinks; "
        "twice-mean: 2 x the last generation's mean length",
    )
    start: int = Field(200, ge=1, description="First limit, in steps")
    fraction: float = Field(0.2, gt=0, le=1, description="grow: the fraction of episodes at the limit that makes it grow")
    growth: float = Field(1.5, gt=1, description="grow: by this factor")


class EvolutionConfig(AlgorithmConfig):
    """What all strategies have in common: episodes, blocks, common random numbers, cuts, costs."""

    mutable: ClassVar[tuple[str, ...]] = ("episodes", "action_noise", "step_cost")
    plays_opponents: ClassVar[bool] = True
    renamed: ClassVar[dict[str, str]] = {"lanes": "n_envs"}

    episodes: int = Field(1, ge=1, description="Episodes of each individual; its fitness is their mean return")
    block: int = Field(32, ge=2, multiple_of=2, description="Individuals per job. Part of the run's identity: bits may change with it")
    n_envs: int | None = Field(
        None, ge=2, multiple_of=2, description="Environments a worker steps side by side; default: one for each trial of a block"
    )
    common_random_numbers: Literal["pair", "block", "population", "none"] = Field(
        "population", description="Who starts from the same states: mirrored pairs, the trials of a block, the whole population, or nobody"
    )
    action_noise: float = Field(
        0.0, ge=0, description="Standard deviation of Gaussian noise on continuous actions in training, in units of half the action range"
    )
    step_cost: float = Field(
        0.0,
        description="Taken off the fitness for each step, such as an alive bonus that rewards standing still; returns and scores stay true",
    )
    cap: CapConfig = CapConfig()

    @property
    def extra_trials(self) -> int:
        """Trials that may accompany a block, such as the center."""
        return 0

    @property
    def collects_results(self) -> bool:
        """Whether it needs to know what the environment tells of an episode besides its rewards."""
        return False

    @property
    def width(self) -> int:
        """Environments per worker; an even number, so that pairs are neighbours."""
        return self.n_envs or 2 * math.ceil((self.block + self.extra_trials) / 2)

    @model_validator(mode="after")
    def _shared_starts_need_an_env_each(self) -> Self:
        shared, trials = self.common_random_numbers, self.block + self.extra_trials
        if shared in ("block", "population") and self.width < trials:
            raise ValueError(
                f"common_random_numbers={shared} needs n_envs >= {trials}, one for each trial of a block (or unset): an environment that plays "
                f"twice would start elsewhere; got n_envs={self.n_envs}. Set common_random_numbers=none to keep n_envs"
            )
        return self


class Strategy(Protocol):
    """Ask/tell over flat vectors, with tickets."""

    @property
    def center(self) -> NDArray[np.float32]:
        """The mean of the distribution: what is evaluated, saved and exported."""

    @property
    def version(self) -> int:
        """Updates made so far."""

    def ask(self, n: int) -> list[Trial]:
        """Up to n candidates (the center may accompany them); an empty list means that it waits."""

    def reopen(self, ticket: int) -> Trial:
        """The trial of an open ticket again, after a resume."""

    def tell(self, outcomes: Sequence[Outcome]) -> Metrics | None:
        """Take results in any order, each ticket once; metrics when they completed an update."""

    def state_dict(self) -> State:
        """Everything that a resumed run needs, for `load_state_dict`."""

    def load_state_dict(self, state: State) -> None:
        """Continue from a `state_dict`."""


class TrialResult(NamedTuple):
    """Results of a trial, kept until its generation is complete."""

    env_steps: int
    truncated: float
    fitness: float


class EvolutionAlgorithm(BaseAlgorithm):
    """A strategy, and the way its candidates are played."""

    counters = (*BaseAlgorithm.counters, "_asked", "cap")

    def __init__(self, strategy: Strategy, config: EvolutionConfig, context: BuildContext) -> None:
        super().__init__()
        self.strategy, self._config, self._context = strategy, config, context
        self.moments = Moments.empty(context.env.obs.vector_size)
        self.cap = float(config.cap.start)
        self._opponents = JobOpponents(OpponentPool(context.opponents, context.opponent_policies)) if context.opponents else None
        self._asked = 0  # jobs
        self._new_moments: dict[int, NDArray[np.float64]] = {}  # ticket -> observation moments of this generation
        self._played: dict[int, TrialResult] = {}  # ticket -> this generation's results
        self._episodes_per_env = math.ceil((config.block + config.extra_trials) / config.width) * config.episodes

    def policy_state(self) -> Arrays:
        """Greedy parameters and observation moments."""
        reference = {REFERENCE + key: array for key, array in self._context.reference.items()}
        return {"params": self.strategy.center, "obs_moments": self.moments.pack(), **reference}

    def publish(self) -> list[Shared]:
        """The greedy policy once per version, and new opponents."""
        return super().publish() + (self._opponents.pool.publish() if self._opponents else [])

    def _next_job(self) -> int | None:
        trials = self.strategy.ask(self._config.block)
        if not trials:
            return None
        self._asked += 1
        return self._open_tickets(self._asked - 1, [t.id for t in trials])

    def _make_job(self, number: int) -> RolloutJob:
        trials = tuple(self.strategy.reopen(ticket) for ticket, job in self._open.items() if job == number)
        spec = self._rollout_spec(number)
        if not isinstance(trials[0].params, Perturbation):  # whole vectors do not depend on the shared center
            spec = replace(spec, obs_moments=self.moments.pack())
        return RolloutJob(trials, spec)

    def _rollout_spec(self, number: int) -> RolloutSpec:
        """Seeds change every SEED_PERIOD jobs (or generations, where a population shares its starts); in between, episodes count on."""
        config, shared = self._config, self._config.common_random_numbers
        period, position = divmod(self.version if shared == "population" else number, SEED_PERIOD)
        group = {"pair": 2, "block": config.width, "population": config.width, "none": 1}[shared]
        env_seeds = seeds.seeds(config.width, self._context.seed, seeds.Stream.TRAIN, period)
        return RolloutSpec(
            purpose="train",
            version=self.version,
            seeds=env_seeds[np.arange(config.width) // group],
            first_episode=position * self._episodes_per_env,
            episodes=config.episodes,
            max_steps=self._step_limit(),
            action_noise=config.action_noise,
            collect_moments=self._context.policy.normalize_obs,
            collect_results=config.collects_results,
            opponents=self._opponents.mixture_of(number) if self._opponents else None,
        )

    def _on_outcomes(self, outcomes: Sequence[Outcome]) -> Metrics | None:
        """Hand results to the strategy; statistics and step limits change only when it makes an update."""
        metrics = self.strategy.tell([self._apply_step_cost(o) for o in outcomes] if self._config.step_cost else outcomes)
        for outcome in outcomes:
            self.learning_steps += outcome.env_steps
            self._played[outcome.ticket] = TrialResult(outcome.env_steps, outcome.truncated, outcome.scalar)
            if self._opponents:
                self._opponents.add(outcome.ticket, outcome.arrays)
            if "obs_moments" in outcome.arrays:
                self._new_moments[outcome.ticket] = np.asarray(outcome.arrays["obs_moments"])
        if self.version == self.strategy.version:
            return None
        self.version = self.strategy.version
        metrics = metrics or {}
        return metrics | self._finish_generation("center_return" in metrics)

    def _apply_step_cost(self, outcome: Outcome) -> Outcome:
        return replace(outcome, fitness=outcome.scalar - self._config.step_cost * outcome.env_steps / self._config.episodes)

    def _step_limit(self) -> int | None:
        own = self._context.env.max_episode_steps
        return own if self._config.cap.rule == "none" else min(int(self.cap), own or int(self.cap))

    def _finish_generation(self, with_center: bool) -> Metrics:
        """Merge this generation's observation moments, in the order of tickets, move the step limit, and let the mean join the pool."""
        for ticket in sorted(self._new_moments):
            self.moments = self.moments.merge(Moments.unpack(self._new_moments[ticket]))
        steps, truncated, returns = np.array([self._played[t] for t in sorted(self._played)], np.float64).T
        lengths = steps[steps > 0] / self._config.episodes  # a job that was lost played none
        metrics = {"episode_length": float(lengths.mean()), "truncated_fraction": float(truncated.mean())}
        cap = self._config.cap
        if cap.rule == "grow" and truncated.mean() >= cap.fraction:
            self.cap = min(self.cap * cap.growth, float(self._context.env.max_episode_steps or math.inf))
        elif cap.rule == "twice-mean":
            self.cap = max(1.0, math.floor(2 * float(lengths.mean())))
        if cap.rule != "none":
            metrics["episode_cap"] = float(self._step_limit() or 0)
        if self._config.step_cost:  # what the strategy saw had the cost taken off; the center, if it was played, has the last ticket
            population = returns[:-1] if with_center else returns
            metrics |= return_stats(population[np.isfinite(population)])
            metrics |= {"center_return": float(returns[-1])} if with_center else {}
        if self._opponents:
            metrics |= self._opponents.end_generation(self.policy_state(), self.learning_steps, self._open.values())
        self._new_moments = {}
        self._played = {}
        return metrics

    def reset_optimizer(self) -> None:
        """The moments of a strategy that ascends gradients.

        Raises:
            BaldwinError: it does not.
        """
        reset = getattr(self.strategy, "reset_optimizer", None)
        if reset is None:
            raise BaldwinError(f"{self._config.name} has no optimiser that could begin anew")
        reset()

    def set_policy_params(self, params: NDArray[np.float32]) -> None:
        """Move the center of the strategy; an optimiser of its own begins anew.

        Raises:
            BaldwinError: it has none that can be set.
        """
        set_center = getattr(self.strategy, "set_center", None)
        if set_center is None:
            raise BaldwinError(f"{self._config.name} has no center that can be set between updates")
        set_center(params)

    def set_obs_moments(self, moments: NDArray[np.float64]) -> None:
        """Replace the observation statistics."""
        self.moments = Moments.unpack(moments)

    def weights(self) -> NDArray[np.float32]:
        """Parameters [D] of the center of the search distribution."""
        return self.strategy.center

    def set_weights(self, weights: NDArray[np.float32]) -> None:
        """Put the center of the search distribution at these parameters [D]; an optimiser begins anew."""
        self.set_policy_params(weights)

    def state_dict(self) -> State:
        """The strategy's state, observation statistics, and this generation's results so far."""
        return super().state_dict() | {
            "strategy": self.strategy.state_dict(),
            "obs_moments": self.moments.pack(),
            "new_obs_moments": {str(ticket): moments for ticket, moments in self._new_moments.items()},
            "played": {str(ticket): played._asdict() for ticket, played in self._played.items()},
            "opponents": self._opponents.state_dict() if self._opponents else {},
        }

    def load_state_dict(self, state: State) -> None:
        """Continue from a `state_dict`."""
        super().load_state_dict(state)
        self.strategy.load_state_dict(state["strategy"])
        self.moments = Moments.unpack(state["obs_moments"])
        self._new_moments = {int(ticket): moments for ticket, moments in state["new_obs_moments"].items()}
        self._played = {int(ticket): TrialResult(**played) for ticket, played in state["played"].items()}
        if self._opponents:
            self._opponents.load_state_dict(state["opponents"])


StrategyFactory = Callable[[NDArray[np.float32], Any, tuple[Shape, ...], int], Strategy]
"""(initial center [D], config, shapes of the parameter tensors, seed) -> strategy."""


def register_strategy(config: type[EvolutionConfig], make: StrategyFactory, paper: str, asynchronous: bool = False) -> AlgorithmEntry:
    """Add a strategy to the registry: its config, and how it is made around a center."""

    def build(chosen: EvolutionConfig, context: BuildContext) -> EvolutionAlgorithm:
        network = make_network(context.policy, context.env.obs, context.actions.outputs)
        return EvolutionAlgorithm(make(network.init(context.seed), chosen, network.shapes, context.seed), chosen, context)

    return register(AlgorithmEntry(config, build, "strategy", paper, asynchronous, make_strategy=make))
