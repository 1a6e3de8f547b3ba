"""Policy search: any strategy over vectors, with an episode's return as the fitness.

The strategy sees vectors and numbers. What an episode needs besides (blocks, seeds, step caps, observation statistics)
is kept here, once for all strategies.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Literal, Protocol, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, model_validator

from baldwin.errors import TicketError
from baldwin.ops import seeds
from baldwin.ops.moments import Moments
from baldwin.rollout import Evaluate, Plan
from baldwin.types import CENTER, Arrays, Individual, Job, Metrics, Outcome, Perturbation, State, Trial

SEASON = 64
"""Jobs that share lane seeds. A pool with fixed seeds is fast-forwarded by at most this many jobs' episodes, also after a resume."""


class CapConfig(BaseModel):
    """When the clock may end an episode before the environment does."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    rule: Literal["none", "grow", "twice-mean"] = Field(
        "none",
        description="grow: starts at `start`, grows when many episodes hit it, never shrinks; twice-mean: 2 x the last generation's mean length",
    )
    start: int = Field(200, ge=1, description="First cap, in steps")
    share: float = Field(0.2, gt=0, le=1, description="grow: the share of episodes at the cap that makes it grow")
    growth: float = Field(1.5, gt=1, description="grow: by this factor")


class SearchConfig(BaseModel):
    """How candidates are played."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    episodes: int = Field(1, ge=1, description="Episodes of each individual; its fitness is their mean return")
    block: int = Field(32, ge=2, multiple_of=2, description="Individuals of one job. Part of the run's identity: bits may change with it")
    lanes: int | None = Field(
        None, ge=2, multiple_of=2, description="Environments a worker steps side by side; default: one for each individual of a block"
    )
    common_random_numbers: Literal["pair", "population", "none"] = Field("pair", description="Who meets the same worlds")
    action_noise: float = Field(
        0.0, ge=0, description="Std of Gaussian noise on continuous actions in training, in units of half the action range"
    )
    step_cost: float = Field(
        0.0,
        description="Taken off the fitness for each step, such as an alive bonus that rewards standing still; returns and scores stay true",
    )
    cap: CapConfig = CapConfig()

    @property
    def companions(self) -> int:
        """Trials that may ride along with a block."""
        return 1

    @model_validator(mode="after")
    def _one_world_needs_a_lane_for_everybody(self) -> Self:
        if self.common_random_numbers == "population" and self.lanes is not None and self.lanes <= self.block:
            raise ValueError(
                "common_random_numbers=population needs lanes > block (or unset): a lane that plays twice would meet a second world"
            )
        return self


class Strategy(Protocol):
    """Ask/tell over flat vectors, with tickets."""

    @property
    def center(self) -> NDArray[np.float32]:
        """The parameters that stand for the whole: what is evaluated, saved and exported."""

    @property
    def version(self) -> int:
        """Updates made so far."""

    def ask(self, n: int) -> list[Trial]:
        """Up to n candidates (the unperturbed centre may ride along); an empty list means that it waits."""

    def reopen(self, ticket: int) -> Trial:
        """The trial of an open ticket again, after a resume."""

    def tell(self, outcomes: Sequence[Outcome]) -> Metrics | None:
        """Take results in any order, each ticket once; metrics when they completed an update."""

    def state_dict(self) -> State:
        """All that changes."""

    def load_state_dict(self, state: State) -> None:
        """Be the strategy that wrote `state`."""


class Search:
    """An algorithm for the loop, made of a strategy and the way its candidates are played."""

    gradient_steps = 0

    def __init__(
        self, strategy: Strategy, config: SearchConfig, *, seed: int, obs_size: int, max_episode_steps: int | None, normalize: bool
    ) -> None:
        self.strategy, self._config, self._seed, self._limit = strategy, config, seed, max_episode_steps
        self._normalize = normalize
        self.moments = Moments.empty(obs_size)
        self.cap = float(config.cap.start)
        self.env_steps = 0
        self._asked = 0  # jobs
        self._open: dict[int, int] = {}  # ticket -> number of its job
        self._reissue: list[int] = []  # jobs whose results were lost with the last process
        self._fresh: dict[int, NDArray[np.float64]] = {}  # ticket -> observation moments of this generation
        self._played: dict[int, tuple[int, float, float]] = {}  # ticket -> (steps, truncated share, return) of this generation
        self._published = -1
        self._width = config.lanes or config.block + 2  # even, and one for the centre that rides along with the last block
        self._rounds = math.ceil((config.block + config.companions) / self._width) * config.episodes

    @property
    def version(self) -> int:
        """Updates made so far."""
        return self.strategy.version

    @property
    def learning_steps(self) -> int:
        """Every step was learned from."""
        return self.env_steps

    def individuals(self) -> list[Individual]:
        """None is spoken of."""
        return []

    def publish(self) -> list[tuple[str, int, Arrays]]:
        """The centre and the observation statistics, once a version."""
        if self._published == self.version:
            return []
        self._published = self.version
        return [(CENTER, self.version, self.policy_state())]

    def ask(self, n: int) -> list[Job]:
        """Up to n blocks: lost ones first, under their old tickets, then new ones."""
        jobs: list[Job] = []
        while len(jobs) < n:
            if self._reissue:
                number = self._reissue.pop(0)
                trials = [self.strategy.reopen(ticket) for ticket, job in self._open.items() if job == number]
            else:
                trials = self.strategy.ask(self._config.block)
                if not trials:
                    break
                number, self._asked = self._asked, self._asked + 1
                self._open |= dict.fromkeys((t.id for t in trials), number)
            plan = self._plan(number)
            if not isinstance(trials[0].params, Perturbation):  # vectors come as they are, whatever the centre is by then
                plan = replace(plan, moments=self.moments.pack())
            jobs.append(Evaluate(tuple(trials), plan))
        return jobs

    def tell(self, outcomes: Sequence[Outcome]) -> Metrics | None:
        """Take results in any order; statistics and caps move only when the strategy does."""
        before = self.version
        unknown = [o.ticket for o in outcomes if o.ticket not in self._open]
        if unknown or len({o.ticket for o in outcomes}) < len(outcomes):
            raise TicketError(f"expected open tickets, each once; got {unknown or [o.ticket for o in outcomes]}. Tell a trial only once.")
        found = self.strategy.tell([self._charged(o) for o in outcomes] if self._config.step_cost else outcomes)
        for outcome in outcomes:
            del self._open[outcome.ticket]
            self.env_steps += outcome.env_steps
            self._played[outcome.ticket] = (outcome.env_steps, outcome.truncated, outcome.fitness)
            if "obs_moments" in outcome.arrays:
                self._fresh[outcome.ticket] = np.asarray(outcome.arrays["obs_moments"])
        if self.version == before:
            return None
        found = found or {}
        return found | self._turn(found)

    def policy_state(self) -> Arrays:
        """Greedy parameters and observation moments."""
        return {"params": self.strategy.center, "obs_moments": self.moments.pack()}

    def state_dict(self) -> State:
        """All that changes, open tickets included."""
        return {
            "strategy": self.strategy.state_dict(),
            "obs_moments": self.moments.pack(),
            "env_steps": self.env_steps,
            "asked": self._asked,
            "cap": self.cap,
            "reissue": self._reissue,
            "open": [list(pair) for pair in self._open.items()],
            "fresh": {str(t): m for t, m in self._fresh.items()},
            "played": [[t, *row] for t, row in self._played.items()],
        }

    def load_state_dict(self, state: State) -> None:
        """Be the search that wrote `state`."""
        self.strategy.load_state_dict(state["strategy"])
        self.moments = Moments.unpack(state["obs_moments"])
        self.env_steps, self._asked, self.cap = state["env_steps"], state["asked"], state["cap"]
        self._open = {int(t): int(job) for t, job in state["open"]}
        self._fresh = {int(t): m for t, m in state["fresh"].items()}
        self._played = {int(t): (int(steps), float(share), float(total)) for t, steps, share, total in state["played"]}
        self._reissue = [int(job) for job in state["reissue"]]
        self._published = -1

    def reissue(self) -> None:
        """Ask every open block again: nobody is working on them any more."""
        self._reissue = sorted(set(self._open.values()))

    def _charged(self, outcome: Outcome) -> Outcome:
        return replace(outcome, fitness=outcome.fitness - self._config.step_cost * outcome.env_steps / self._config.episodes)

    def _plan(self, number: int) -> Plan:
        everybody = self._config.common_random_numbers == "population"
        season, place = divmod(self.version if everybody else number, SEASON)
        sharing = {"pair": 2, "population": self._width, "none": 1}[self._config.common_random_numbers]
        lane = seeds.seeds(self._width, self._seed, seeds.Stream.TRAIN, season)
        return Plan(
            purpose="train",
            version=self.version,
            seeds=lane[np.arange(self._width) // sharing],
            skip=place * self._rounds,
            episodes=self._config.episodes,
            limit=self._step_limit(),
            action_noise=self._config.action_noise,
            collect=self._normalize,
        )

    def _step_limit(self) -> int | None:
        if self._config.cap.rule == "none":
            return self._limit
        return min(int(self.cap), self._limit or int(self.cap))

    def _true_returns(self, returns: NDArray[np.float64], probed: bool) -> Metrics:
        """What the strategy saw was charged for steps; the centre, where it rides along, has the last ticket."""
        population = returns[:-1] if probed else returns
        true = population[np.isfinite(population)]
        metrics = {
            "return_mean": float(true.mean()),
            "return_std": float(true.std()),
            "return_max": float(true.max()),
            "return_min": float(true.min()),
        }
        return metrics | ({"unperturbed_return": float(returns[-1])} if probed else {})

    def _turn(self, found: Metrics) -> Metrics:
        """Merge what this generation saw, in the order of tickets, and move the cap."""
        for ticket in sorted(self._fresh):
            self.moments = self.moments.merge(Moments.unpack(self._fresh[ticket]))
        table = np.array([self._played[t] for t in sorted(self._played)], np.float64)  # [N, 3]
        steps = table[table[:, 0] > 0, 0] / self._config.episodes  # a job that was lost played none
        truncated = float(table[:, 1].mean())
        metrics = {"episode_length": float(steps.mean()), "truncated_fraction": truncated}
        cap = self._config.cap
        if cap.rule == "grow" and truncated >= cap.share:
            self.cap = min(self.cap * cap.growth, float(self._limit or math.inf))
        elif cap.rule == "twice-mean":
            self.cap = max(1.0, math.floor(2 * float(steps.mean())))
        if cap.rule != "none":
            metrics["episode_cap"] = float(self._step_limit() or 0)
        if self._config.step_cost:
            metrics |= self._true_returns(table[:, 2], "unperturbed_return" in found)
        self._fresh, self._played = {}, {}
        return metrics
