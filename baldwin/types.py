"""The types that cross packages."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from baldwin.errors import BaldwinError
from baldwin.observations import Observation
from baldwin.ops.noise import Noise

Arrays = Mapping[str, NDArray[Any]]
Metrics = dict[str, float]
Individual = dict[str, Any]
"""A record of one individual, for a line of JSON."""
Fingerprint = dict[str, str]
"""What a result depends on besides its job, by name: library versions, arithmetic, hashes of what was shared."""
State = dict[str, Any]
"""Numbers, strings, arrays and nestings of them: what a checkpoint can hold without pickle."""

CENTER = "center"
"""The key under which every algorithm shares its greedy parameters and observation statistics."""


@dataclass(frozen=True, slots=True)
class Perturbation:
    """How a worker rebuilds a candidate: the shared center plus `scale` times the noise of (generation, pair)."""

    noise: Noise
    generation: int
    pair: int
    scale: float  # sign * sigma; 0.0 is the center itself


@dataclass(frozen=True, slots=True)
class Trial:
    """A candidate on its way out; its id is the ticket back."""

    id: int
    version: int  # updates already made when it was asked
    params: Perturbation | NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a trial. `fitness` is higher-is-better: a number, or a vector with one name per objective.

    NaN in it, with a reason, means that the evaluation failed.
    """

    ticket: int
    fitness: float | NDArray[np.float64]
    env_steps: int = 0
    truncated: float = 0.0  # fraction of its episodes that a time limit ended
    reason: str = ""
    arrays: Arrays = field(default_factory=dict)  # whatever else travels: observation moments, transitions, parameters that were changed
    derived: Arrays = field(default_factory=dict)  # what its job could compute again: the journal leaves it out
    critic_steps: int = 0  # gradient steps that the job took
    actor_steps: int = 0
    replayed_steps: int = 0  # environment steps that were simulated again to continue an episode; not in env_steps
    objectives: tuple[str, ...] = ()  # names of the components of a vector fitness

    def __post_init__(self) -> None:
        if np.shape(self.fitness) != ((len(self.objectives),) if self.objectives else ()):
            raise ValueError(f"expected one fitness per objective {self.objectives}, or a number and no objectives; got {self.fitness}")

    @property
    def failed(self) -> bool:
        """True if the fitness is not finite, so that it cannot be ranked."""
        return not (math.isfinite(self.fitness) if isinstance(self.fitness, float) else bool(np.isfinite(self.fitness).all()))

    @property
    def scalar(self) -> float:
        """The fitness, where one number is needed.

        Raises:
            BaldwinError: it is a vector.
        """
        if self.objectives:
            raise BaldwinError(f"expected one fitness, got {len(self.objectives)} objectives: {', '.join(self.objectives)}")
        return float(self.fitness)


class Batch(NamedTuple):
    """Transitions, or windows of several steps. Both flags are those of the last step; only `terminated` stops the bootstrap."""

    obs: Observation  # [..., *shape], all frames
    action: NDArray[Any]  # [..., A] in [-1, 1], or [...] an index
    reward: NDArray[np.float32]  # [...], discounted sum over the window
    next_obs: Observation  # after the window
    terminated: NDArray[np.bool_]
    truncated: NDArray[np.bool_]
    steps: NDArray[np.int64]  # real length of the window; in frames, where steps last several
    indices: NDArray[np.int64] | None = None  # of the rows, where they were sampled by priorities
    weights: NDArray[np.float32] | None = None  # of their losses, where they were sampled by priorities


class Windows(NamedTuple):
    """Steps around sampled rows, T of them side by side. A window never leaves its episode: `valid` says which steps are there."""

    obs: Observation  # [..., T + 1, *shape]: before every step, and after the last one that is there
    action: NDArray[Any]  # [..., T, A] in [-1, 1], or [..., T] an index
    reward: NDArray[np.float32]  # [..., T]
    terminated: NDArray[np.bool_]  # [..., T]
    valid: NDArray[np.bool_]  # [..., T]
    log_prob: NDArray[np.float32]  # [..., T] of the action when it was taken; empty where that is not stored
    memory: NDArray[np.float32]  # [..., S] of the policy before the first step that is there; empty without memory
    indices: NDArray[np.int64]  # [...] of the sampled rows
    rows: NDArray[np.int64]  # [..., T] of all steps; where there is none, of any
    weights: NDArray[np.float32] | None = None  # [...] of their losses, where they were sampled by priorities
    elapsed: NDArray[np.int32] | None = None  # [..., T] frames of each step, where steps last several


class Shared(NamedTuple):
    """A value for all workers. They keep every version from `oldest` on, since open jobs may still name those.

    One `on_demand` is named by the hash of its content and needed by few jobs (`job_reads`): an executor may send it only to workers
    that run one and do not hold it. With an `oldest` above its version, it is not needed any more.
    """

    key: str
    version: int
    arrays: Arrays
    oldest: int
    on_demand: bool = False


class Worker(Protocol):
    """Where a job runs: it owns environments and a policy network, and holds what was shared."""

    def receive(self, shared: Shared) -> None:
        """Keep a shared value; drop versions of its key before `oldest`."""

    def shared(self, key: str, version: int) -> Arrays:
        """A shared value.

        Raises:
            StaleShare: this worker does not hold that version.
        """

    def evaluate(self, trials: Sequence[Trial], spec: Any) -> list[Outcome]:
        """Play the trials' episodes; one outcome per trial, in order."""

    def collect(self, job: Any) -> Outcome:
        """Continue training episodes; the transitions are in the outcome's arrays."""

    def fingerprint(self, held: Sequence[tuple[str, int]]) -> Fingerprint:
        """What results depend on, given the shared values (key, version) in use: workers with equal ones give equal results."""

    def close(self) -> None:
        """Close the environments."""


class Job(Protocol):
    """A frozen, picklable piece of work."""

    @property
    def kind(self) -> str:
        """The kind of work, for the timeline: train, evaluate, collect, critic, ..."""

    @property
    def tickets(self) -> tuple[int, ...]:
        """The tickets that its outcomes carry."""

    @property
    def stream(self) -> int | None:
        """Jobs of one stream continue each other's episodes: an executor gives them to the same worker while it lives."""

    def run(self, worker: Worker) -> list[Outcome]:
        """Do the work; a pure function of the job and of what was shared."""


class Result(NamedTuple):
    """A finished job: its outcomes, where and when it ran by the executor's clock, and the CPU time it took in other processes."""

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
        """The number of workers now."""

    @property
    def slots(self) -> int:
        """How many more jobs it would take now."""

    def share(self, shared: Shared) -> None:
        """Make a value available to all workers, once."""

    def submit(self, job: Job) -> None:
        """Accept a job; its result comes from `wait`."""

    def wait(self) -> list[Result]:
        """Block until at least one job is finished; an empty list means that nothing is in flight."""

    def report(self) -> Metrics:
        """Metrics of the workers since the last call, such as deaths and bytes; may be empty."""

    def close(self) -> None:
        """Stop all workers."""


class Algorithm(Protocol):
    """What the loop drives: evolution, gradient or both."""

    @property
    def version(self) -> int:
        """Number of updates made: the generation."""

    @property
    def env_steps(self) -> int:
        """Environment steps spent on training."""

    @property
    def learning_steps(self) -> int:
        """Those of them that were learned from; the rest only evaluated individuals."""

    @property
    def gradient_steps(self) -> int:
        """Updates by back-propagation that were made so far."""

    @property
    def replayed_steps(self) -> int:
        """Environment steps that were simulated again because an episode moved to another worker."""

    @property
    def replayable(self) -> bool:
        """Whether the journal holds all that it learns from; if not, a resumed run goes on from its checkpoint."""

    def publish(self) -> list[Shared]:
        """What workers need and do not have yet."""

    def ask(self, n: int) -> list[Job]:
        """Up to n jobs; an empty list means that it waits for results."""

    def tell(self, outcomes: Sequence[Outcome]) -> Metrics | None:
        """Take results in any order, each ticket once; returns metrics when they completed an update."""

    def individuals(self) -> list[Individual]:
        """Records of the individuals that were finished since the last call; empty for algorithms that keep none."""

    def policy_state(self) -> Arrays:
        """The greedy policy: parameters and observation statistics."""

    def state_dict(self) -> State:
        """All that a resumed run needs, open tickets included."""

    def load_state_dict(self, state: State) -> None:
        """Continue from a `state_dict`."""

    def reissue(self) -> None:
        """Give out every open job again, under its old tickets: the workers that had them are gone."""


def job_reads(job: Job) -> tuple[str, ...]:
    """Keys of the values on demand that the job reads: its attribute `reads`, which most jobs do not have."""
    return tuple(getattr(job, "reads", ()))


def failed(job: Job, reason: str) -> list[Outcome]:
    """The outcomes of a job that could not be done."""
    return [Outcome(ticket, float("nan"), reason=reason) for ticket in job.tickets]


def outcome_state(outcome: Outcome) -> State:
    """An outcome as a checkpoint holds it."""
    state = {f.name: getattr(outcome, f.name) for f in fields(outcome)}
    return {name: dict(value) if isinstance(value, Mapping) else value for name, value in state.items()}


def outcome_from_state(state: State) -> Outcome:
    """The inverse of `outcome_state`."""
    return Outcome(**(state | {"objectives": tuple(state["objectives"])}))


def flatten_tree(state: State, path: str = "") -> dict[str, NDArray[Any]]:
    """Nested arrays and numbers as arrays with names like a/b."""
    arrays: dict[str, NDArray[Any]] = {}
    if not state:
        raise ValueError(f"expected arrays or numbers in {path!r}; an empty map would be lost")
    for name, value in state.items():
        arrays |= flatten_tree(value, f"{path}{name}/") if isinstance(value, dict) else {path + name: np.asarray(value)}
    return arrays


def unflatten_tree(arrays: Arrays) -> State:
    """The inverse of `flatten_tree`."""
    state: State = {}
    for path, value in arrays.items():
        *parents, name = path.split("/")
        node = state
        for parent in parents:
            node = node.setdefault(parent, {})
        node[name] = value
    return state
