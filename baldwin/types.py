"""The nouns that cross rooms."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from baldwin.ops.noise import Noise

Arrays = Mapping[str, NDArray[Any]]
Metrics = dict[str, float]
Individual = dict[str, float | str]
"""One line about an individual: its kind, and numbers."""
Echo = dict[str, str]
"""What a result depends on besides its job, by name: library versions, arithmetic, a hash of what was shared."""
State = dict[str, Any]
"""Numbers, strings, arrays and nestings of them: what a checkpoint can hold without pickle."""

CENTER = "center"
"""The key under which every algorithm shares its greedy parameters and observation statistics."""


@dataclass(frozen=True, slots=True)
class Perturbation:
    """How a worker rebuilds a candidate: the shared centre plus `scale` times the noise of (generation, pair)."""

    noise: Noise
    generation: int
    pair: int
    scale: float  # sign * sigma; 0.0 is the centre itself


@dataclass(frozen=True, slots=True)
class Trial:
    """A candidate on its way out; its id is the ticket back."""

    id: int
    version: int  # updates already made when it was asked
    params: Perturbation | NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a trial came to. `fitness` is higher-is-better; NaN with a reason means that the evaluation failed."""

    ticket: int
    fitness: float
    env_steps: int = 0
    truncated: float = 0.0  # share of its episodes that the clock ended
    reason: str = ""
    arrays: Arrays = field(default_factory=dict)  # whatever else travels: observation moments, transitions, parameters that were changed
    derived: Arrays = field(default_factory=dict)  # what its job could compute again: the journal leaves it out
    critic_steps: int = 0  # gradient steps that it took
    actor_steps: int = 0

    @property
    def failed(self) -> bool:
        """True where the fitness is not a number one could rank."""
        return not np.isfinite(self.fitness)


class Batch(NamedTuple):
    """Transitions, or windows of several steps. Both flags are those of the last step; only `terminated` stops the bootstrap."""

    obs: NDArray[np.float32]  # [..., obs]
    action: NDArray[Any]  # [..., A] in [-1, 1], or [...] an index
    reward: NDArray[np.float32]  # [...], discounted sum over the window
    next_obs: NDArray[np.float32]  # [..., obs], after the window
    terminated: NDArray[np.bool_]
    truncated: NDArray[np.bool_]
    steps: NDArray[np.int64]  # real length of the window


class Worker(Protocol):
    """Where a job runs: it owns an environment and a policy, and holds what was shared."""

    def receive(self, key: str, version: int, arrays: Arrays) -> None:
        """Keep a shared value until a newer version of it comes."""

    def evaluate(self, trials: Sequence[Trial], plan: Any) -> list[Outcome]:
        """Play the trials' episodes as planned."""

    def collect(self, plan: Any) -> Outcome:
        """Go on with training episodes as planned; the transitions are in the outcome's arrays."""

    def echo(self) -> Echo:
        """What its results depend on now: two workers with equal echoes give equal results."""

    def close(self) -> None:
        """Free the environments."""


class Job(Protocol):
    """A frozen, picklable piece of work."""

    @property
    def kind(self) -> str:
        """What sort of work it is, for the timeline."""

    @property
    def tickets(self) -> tuple[int, ...]:
        """The trials it answers for."""

    def run(self, worker: Worker) -> list[Outcome]:
        """Do the work; a pure function of the job and of what was shared."""


class Result(NamedTuple):
    """A job that came back: its outcomes, where and when it ran by the executor's clock, and what it took of other processes' time."""

    job: Job
    outcomes: list[Outcome]
    worker: int
    started: float
    finished: float
    cpu_seconds: float


class Executor(Protocol):
    """A way to run jobs somewhere. No algorithm may know which one it got."""

    @property
    def workers(self) -> int:
        """How many there are now."""

    @property
    def slots(self) -> int:
        """How many more jobs it would take now."""

    def share(self, key: str, version: int, arrays: Arrays) -> None:
        """Make this available to all workers, once."""

    def submit(self, job: Job) -> None:
        """Take a job."""

    def wait(self) -> list[Result]:
        """Block until at least one job is back; an empty list means that nothing is in flight."""

    def report(self) -> Metrics:
        """What is worth knowing about the workers since the last call, such as deaths and bytes; may be nothing."""

    def close(self) -> None:
        """Stop all workers."""


class Algorithm(Protocol):
    """What the loop drives: evolution, gradient or both."""

    @property
    def version(self) -> int:
        """Updates made so far."""

    @property
    def env_steps(self) -> int:
        """Environment steps spent on training so far."""

    @property
    def learning_steps(self) -> int:
        """Those of them that were learned from; the rest only judged."""

    @property
    def gradient_steps(self) -> int:
        """Back-propagated updates made so far."""

    def publish(self) -> list[tuple[str, int, Arrays]]:
        """What workers need and do not have yet: (key, version, arrays)."""

    def ask(self, n: int) -> list[Job]:
        """Up to n jobs; an empty list means that it waits for results."""

    def tell(self, outcomes: Sequence[Outcome]) -> Metrics | None:
        """Take results in any order, each ticket once; returns metrics when they completed an update."""

    def individuals(self) -> list[Individual]:
        """What became of each individual since the last call; for an algorithm that does not tell, none."""

    def policy_state(self) -> Arrays:
        """The greedy policy: parameters and observation statistics."""

    def state_dict(self) -> State:
        """All that changes, open tickets included."""

    def load_state_dict(self, state: State) -> None:
        """Be the algorithm that wrote `state`."""

    def reissue(self) -> None:
        """Ask for every open job again, under its old tickets: nobody is working on them any more."""


def failed(job: Job, reason: str) -> list[Outcome]:
    """The outcomes of a job that could not be done."""
    return [Outcome(ticket, float("nan"), reason=reason) for ticket in job.tickets]


def outcome_state(outcome: Outcome) -> State:
    """An outcome for a checkpoint; `Outcome(**state)` is the way back."""
    found = {f.name: getattr(outcome, f.name) for f in fields(outcome)}
    return {name: dict(value) if isinstance(value, Mapping) else value for name, value in found.items()}
