"""What every algorithm has: an entry in the registry, a config, tickets for open jobs, and a state by field names."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from baldwin.config_base import ConfigModel
from baldwin.envs import EnvSpec
from baldwin.errors import BaldwinError, TicketError
from baldwin.networks import ActionMap, PolicyConfig
from baldwin.observations import Observation
from baldwin.opponents import OpponentsConfig
from baldwin.registry import ConfigEntry, Registry
from baldwin.types import CENTER, Algorithm, Arrays, Individual, Job, Metrics, Outcome, Shared, State

FAILURE_WINDOW = 100  # jobs


class FailureLimits(ConfigModel):
    """When an algorithm that goes on without the results of failed jobs gives up."""

    max_failures_in_a_row: int = Field(
        10, ge=1, le=FAILURE_WINDOW, description="Jobs that fail one after the other before the run gives up"
    )
    max_failure_rate: float = Field(
        0.9, gt=0, le=1, description=f"And the share of the last {FAILURE_WINDOW} jobs that may fail, once there are so many"
    )


class AlgorithmConfig(ConfigModel):
    """The `algorithm:` section. The first line of a subclass's docstring is what `baldwin list algorithms` shows."""

    policy_defaults: ClassVar[dict[str, Any]] = {}
    plays_opponents: ClassVar[bool] = False  # whether it takes the section `opponents:`

    name: str

    @classmethod
    def policy_defaults_for(cls, section: Mapping[str, Any]) -> dict[str, Any]:
        """Defaults of the `policy:` section, given the `algorithm:` section as it was written."""
        return cls.policy_defaults

    def check(self, policy: PolicyConfig, generations_kept: int) -> None:
        """Refuse combinations that cannot work. `generations_kept`: the span of the checkpoints that a run keeps.

        Raises:
            ValueError: with what was expected, what came, and what to do.
        """

    def resolved(self) -> Self:
        """This config with every `auto` replaced by what it means on this machine."""
        return self

    def resolved_for(self, env: EnvSpec) -> Self:
        """This config with every `auto` that depends on the environment replaced, called when that is known."""
        return self

    def resolved_for_steps(self, env_steps: int | None) -> Self:
        """This config with every `auto` that depends on the length of the run replaced; `env_steps` is None where nobody knows it."""
        return self

    def on_cpu(self) -> Self:
        """This config for a CPU: evaluating a trained policy needs no GPU."""
        return self


@dataclass(frozen=True, slots=True)
class BuildContext:
    """What an algorithm is built from besides its own config."""

    env: EnvSpec
    policy: PolicyConfig
    actions: ActionMap
    seed: int
    generations_kept: int = 1  # span of the checkpoints that the run keeps
    folder: Path | None = None  # for files of the algorithm's own, such as a replay buffer; None: in memory
    shared_files: bool = True  # workers can read that folder
    policy_only: bool = False  # rebuild only what the policy depends on
    reference: Observation = field(default_factory=dict)  # fixed observations [R, ...], where the network needs some
    opponents: OpponentsConfig | None = None  # whom the learning player meets
    opponent_policies: Sequence[tuple[str, Arrays]] = ()  # names and arrays of those that are there at the start
    reward_weights: dict[str, float] = field(default_factory=lambda: {"reward": 1.0})  # components of the reward, by name


@dataclass(frozen=True, slots=True)
class AlgorithmEntry(ConfigEntry[AlgorithmConfig]):
    """One algorithm of the registry."""

    build: Callable[[Any, BuildContext], Algorithm]
    family: Literal["strategy", "learner", "hybrid"]
    paper: str
    asynchronous: bool = False  # results take effect in the order of arrival, so that it decides the outcome
    make_strategy: Callable[..., Any] | None = None  # of a strategy: (center, config, shapes, seed) -> ask/tell over vectors


ALGORITHMS: Registry[AlgorithmEntry] = Registry("algorithm")


def register(entry: AlgorithmEntry) -> AlgorithmEntry:
    """Add an algorithm to the registry."""
    return ALGORITHMS.add(entry.name, entry)


def too_many_failures(recent: Sequence[int], limits: FailureLimits) -> str:
    """Why to give up after these results (1 for a failure), the newest last; or ""."""
    in_a_row = next((n for n, failed in enumerate(reversed(recent)) if not failed), len(recent))
    if in_a_row < limits.max_failures_in_a_row and not (
        len(recent) == FAILURE_WINDOW and sum(recent) > limits.max_failure_rate * len(recent)
    ):
        return ""
    return (
        f"failed {in_a_row} times in a row, {sum(recent)} of the last {len(recent)} times "
        f"(algorithm.max_failures_in_a_row={limits.max_failures_in_a_row}, max_failure_rate={limits.max_failure_rate:g})"
    )


class BaseAlgorithm(ABC):
    """Tickets, publishing, re-issue, recent failures, and counters by name.

    A job has a number, and one or several tickets that its outcomes carry. A subclass says which job comes next
    (`_next_job`), makes a job from its number (`_make_job`, also again after a resume) and takes results (`_on_outcomes`).
    """

    counters: ClassVar[tuple[str, ...]] = ("version", "learning_steps", "eval_steps", "replayed_steps")
    """Attributes that are plain numbers and part of the state; a subclass adds its own."""

    def __init__(self) -> None:
        self.version = 0
        self.learning_steps = 0  # environment steps that were learned from
        self.eval_steps = 0  # environment steps that only evaluated individuals
        self.replayed_steps = 0
        self._open: dict[int, int] = {}  # ticket -> number of its job
        self._to_reissue: list[int] = []  # numbers of jobs whose workers are gone
        self._recent_failures: dict[str, list[int]] = {}  # kind of job -> 1 for each of the last ones that failed, 0 otherwise
        self._published = -1

    @property
    def env_steps(self) -> int:
        """Environment steps spent on training."""
        return self.learning_steps + self.eval_steps

    @property
    def gradient_steps(self) -> int:
        """Back-propagated updates made: none, unless a subclass makes some."""
        return 0

    @property
    def replayable(self) -> bool:
        """Whether the journal holds all that this algorithm learns from."""
        return True

    def individuals(self) -> list[Individual]:
        """Records of finished individuals: none, unless a subclass keeps them."""
        return []

    def publish(self) -> list[Shared]:
        """The greedy policy, once per version."""
        if self._published == self.version:
            return []
        self._published = self.version
        return [Shared(CENTER, self.version, self.policy_state(), self.version)]

    def ask(self, n: int) -> list[Job]:
        """Up to n jobs: those to be re-issued first, then new ones."""
        jobs: list[Job] = []
        while len(jobs) < n:
            number = self._to_reissue.pop(0) if self._to_reissue else self._next_job()
            if number is None:
                break
            jobs.append(self._make_job(number))
        return jobs

    def tell(self, outcomes: Sequence[Outcome]) -> Metrics | None:
        """Take results in any order, each ticket once; returns metrics when they completed an update.

        Raises:
            TicketError: a ticket that is not open, or one that comes twice; nothing was taken.
        """
        tickets = [o.ticket for o in outcomes]
        if len(set(tickets)) < len(tickets) or any(t not in self._open for t in tickets):
            raise TicketError(f"expected open tickets, each once; got {tickets}. Tell each result only once.")
        for outcome in outcomes:
            del self._open[outcome.ticket]
            self.replayed_steps += outcome.replayed_steps
        return self._on_outcomes(outcomes)

    def reissue(self) -> None:
        """Give out every open job again, under its old tickets."""
        self._to_reissue = sorted(set(self._open.values()))

    def state_dict(self) -> State:
        """Counters by name, open tickets, and jobs to be re-issued; a subclass adds its own fields."""
        return {
            "counters": {name: getattr(self, name) for name in self.counters},
            "open": {str(ticket): number for ticket, number in self._open.items()},
            "to_reissue": self._to_reissue,
            "recent_failures": {kind: np.array(recent, np.int8) for kind, recent in self._recent_failures.items()},
        }

    def load_state_dict(self, state: State) -> None:
        """Continue from a `state_dict`."""
        for name in self.counters:
            setattr(self, name, state["counters"][name])
        self._open = {int(ticket): int(number) for ticket, number in state["open"].items()}
        self._to_reissue = [int(number) for number in state["to_reissue"]]
        self._recent_failures = {kind: recent.tolist() for kind, recent in state["recent_failures"].items()}
        self._published = -1

    def leave_episodes(self) -> None:
        """Go on as a copy with a seed of its own: episodes that are open belong to the original. Called between updates."""
        return

    def reset_optimizer(self) -> None:
        """Forget the moments of gradients. Called between updates.

        Raises:
            BaldwinError: there are none.
        """
        raise BaldwinError(f"{type(self).__name__} has no optimiser that could begin anew")

    def set_policy_params(self, params: NDArray[np.float32]) -> None:
        """Go on from other parameters of the policy [D]. Called between updates.

        Raises:
            BaldwinError: the algorithm cannot.
        """
        raise BaldwinError(f"{type(self).__name__} cannot take parameters from elsewhere")

    def weights(self) -> NDArray[np.float32]:
        """Everything that is trained [W]: policy and value functions.

        Raises:
            BaldwinError: the algorithm does not tell.
        """
        raise BaldwinError(f"{type(self).__name__} does not tell its weights: use a learner or a strategy with a center")

    def set_weights(self, weights: NDArray[np.float32]) -> None:
        """Replace everything that is trained, slow copies included, with a fresh optimiser. Called between updates.

        Raises:
            BaldwinError: the algorithm cannot.
        """
        raise BaldwinError(f"{type(self).__name__} cannot take weights from elsewhere")

    def set_obs_moments(self, moments: NDArray[np.float64]) -> None:
        """Go on with other observation statistics, as `Moments.pack` gives them. Called between updates, before weights are set."""
        return

    def _open_tickets(self, number: int, tickets: Sequence[int]) -> int:
        """Open the tickets of a job; returns its number."""
        self._open |= dict.fromkeys(tickets, number)
        return number

    def _count_failure(self, outcome: Outcome, limits: FailureLimits, error: type[BaldwinError], kind: str = "job") -> None:
        """Count a result among the last ones of its kind, and give up when too many failed.

        Raises:
            BaldwinError: of the given class: too many in a row, or too large a share.
        """
        recent = [*self._recent_failures.get(kind, []), int(outcome.failed)][-FAILURE_WINDOW:]
        self._recent_failures[kind] = recent
        give_up = too_many_failures(recent, limits)
        if give_up:
            raise error(f"{kind} {give_up}; the last reason: {outcome.reason or 'unknown'}")

    @abstractmethod
    def policy_state(self) -> Arrays:
        """The greedy policy of this version: parameters and observation statistics."""

    @abstractmethod
    def _next_job(self) -> int | None:
        """Number of the next new job, its tickets opened; None to wait for results."""

    @abstractmethod
    def _make_job(self, number: int) -> Job:
        """The job of that number; the same whenever it is made (of an asynchronous strategy, with the observation statistics of now)."""

    @abstractmethod
    def _on_outcomes(self, outcomes: Sequence[Outcome]) -> Metrics | None:
        """Take results whose tickets were open; metrics when they completed an update."""
