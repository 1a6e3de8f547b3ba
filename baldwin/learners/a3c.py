"""A3C (Mnih et al. 2016, arXiv 1602.01783): workers compute gradients, which are applied as they arrive."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field, PositiveInt

from baldwin.algorithm import AlgorithmEntry, BuildContext, register
from baldwin.errors import Diverged, EnvironmentFailure
from baldwin.learners.a2c import A2C, OneStepConfig
from baldwin.learners.actor_critic_loss import REPORTED
from baldwin.learners.experience import Experience, from_segment
from baldwin.learners.impala import MAX_LAG, Pending
from baldwin.learners.learn_job import METRIC, LearnJob, PolicyGradientSpec, policy_gradient_spec
from baldwin.learners.policy_gradient_algorithm import MAX_JOB_PARAMS, STEP_ARRAYS, PolicyGradientAlgorithm, obs_moments
from baldwin.networks import PolicyConfig
from baldwin.observations import VECTOR
from baldwin.ops.moments import Moments
from baldwin.ops.returns import explained_variance
from baldwin.rollout import ACTOR, CUT, LATENCIES, MEMORY, REPLACED, CollectJob
from baldwin.types import Job, Metrics, Outcome, Shared, State, Worker

LEARNER = "learner"
"""The key under which policy and values are shared with the workers."""
GRADIENT, MOMENTS = "gradient", "obs_moments"


class A3CConfig(OneStepConfig):
    """A3C: gradients computed by the workers and applied on arrival. Asynchronous."""

    removed: ClassVar[dict[str, str]] = {"actor_lag": "workers never wait for each other here"}

    name: Literal["a3c"] = "a3c"
    block: PositiveInt = Field(1, description="Environments that one job steps together, in one call")
    rollout_length: PositiveInt = Field(20, description="Steps of each environment in a segment")

    def make_learner(self, policy: PolicyConfig, **parts: Any) -> A3C:
        """A new learner with this config; `parts` are the other arguments of its class."""
        return A3C(policy, self, **parts)

    def check(self, policy: PolicyConfig, generations_kept: int) -> None:
        """Rewards are seen by the workers only."""
        super().check(policy, generations_kept)
        if self.normalize_reward:
            raise ValueError(
                "a3c cannot normalise rewards, which its workers see first: use a2c or impala, or scale them in the environment"
            )


class A3C(A2C):
    """A2C's loss; gradients and steps of the optimiser are apart."""

    def segment_gradient(self, experience: Experience) -> tuple[NDArray[np.float32], Metrics]:
        """The gradient [D] of the loss of a segment, and the loss's parts."""
        with self._updating(0):
            steps = self.estimate(experience)
            gradient, parts = self.loss_gradient(steps)
        found = {name: getattr(parts, name) for name in REPORTED}
        return gradient.numpy(), found | {"explained_variance": explained_variance(steps.value.numpy(), steps.target.numpy())}

    def apply(self, gradient: NDArray[np.float32], env_steps: int) -> Metrics:
        """One step of the optimiser down a gradient, scaled to `max_grad_norm` where it is larger.

        Raises:
            Diverged: the gradient is not finite.
        """
        norm = float(np.linalg.norm(gradient))
        if not np.isfinite(norm):
            raise Diverged("a worker's gradient is not finite: the learner has diverged. Lower algorithm.lr")
        with self._updating(env_steps):
            self.descend(torch.tensor(gradient))
        self.updates += 1
        return {"gradient_norm": norm}


@dataclass(frozen=True, slots=True)
class GradientJob:
    """Collect a segment, and compute the gradient of its loss."""

    collect: CollectJob
    learner: PolicyGradientSpec
    params: NDArray[np.float32] | None  # of policy and values; None: those shared as `LEARNER` in the actor's version

    @property
    def kind(self) -> str:
        """The name of these jobs in the timeline: gradient."""
        return "gradient"

    @property
    def tickets(self) -> tuple[int, ...]:
        """The ticket of the segment."""
        return self.collect.tickets

    @property
    def stream(self) -> int | None:
        """The stream of environments that the segment continues."""
        return self.collect.stream

    def run(self, worker: Worker) -> list[Outcome]:
        """The gradient, what the learner reports, and how the episodes went; not the observations."""
        collected = worker.collect(self.collect)
        version = self.collect.actor_version
        learner = self.learner.make(np.array(worker.shared(LEARNER, version)["params"] if self.params is None else self.params))
        if not isinstance(learner, A3C):
            raise TypeError(f"expected A3C, got {type(learner).__name__}")
        learner.normalize(Moments.unpack(self.collect.obs_moments))
        experience = from_segment({**collected.arrays, **collected.derived}, self.learner.env.obs)
        if not experience.steps:
            raise EnvironmentFailure("no player's decision was answered within a segment: raise algorithm.rollout_length")
        gradient, metrics = learner.segment_gradient(experience)
        arrays = {name: collected.arrays[name] for name in (*STEP_ARRAYS, MEMORY, LATENCIES, REPLACED, CUT) if name in collected.arrays}
        arrays |= {METRIC + name: np.array(value) for name, value in metrics.items()}
        derived = {GRADIENT: gradient} if gradient.size > MAX_JOB_PARAMS else {}
        arrays |= {} if derived else {GRADIENT: gradient}
        if VECTOR in experience.obs:
            arrays[MOMENTS] = obs_moments(experience).pack()
        return [
            Outcome(
                collected.ticket,
                collected.fitness,
                env_steps=collected.env_steps,
                arrays=arrays,
                derived=derived,
                replayed_steps=collected.replayed_steps,
                reason=collected.reason,
                actor_steps=1,
            )
        ]


class A3CAlgorithm(PolicyGradientAlgorithm):
    """Each stream's gradient is applied when it arrives; its next segment is collected with what came out."""

    counters = (*PolicyGradientAlgorithm.counters, "_asked")
    learner: A3C

    def __init__(self, learner: A3C, config: A3CConfig, context: BuildContext, spec: PolicyGradientSpec) -> None:
        super().__init__(learner, config, context, spec)
        self._asked = 0
        self._pending: dict[int, Pending] = {}

    def publish(self) -> list[Shared]:
        """What every algorithm publishes, and policy with values, where they are too large to travel with every job."""
        found = super().publish()
        oldest = min(self._actors)
        return found + [Shared(LEARNER, s.version, {"params": self._actors[s.version][LEARNER]}, oldest) for s in found if s.key == ACTOR]

    @property
    def replayable(self) -> bool:
        """Where gradients are small enough to be journaled; observations are not needed."""
        return self.learner.nets.params.numel() <= MAX_JOB_PARAMS

    def _next_job(self) -> int | None:
        busy = {p.stream for p in self._pending.values()}
        idle = [stream for stream in range(self._config.streams) if stream not in busy]
        if not idle or self._learned - min(self._actors) > MAX_LAG:
            return None
        chosen = min(idle, key=lambda stream: (stream - self._asked) % self._config.streams)
        self._pending[self._asked] = Pending(chosen, self._learned)
        self._asked += 1
        return self._open_tickets(self._asked - 1, [self._asked - 1])

    def _make_job(self, number: int) -> Job:
        pending = self._pending[number]
        collect = self._collect_job(number, pending.stream, pending.actor_version)
        params = self._actors[pending.actor_version][LEARNER]
        return GradientJob(collect, self._spec, params if params.size <= MAX_JOB_PARAMS else None)

    def _learn_job(self, ticket: int) -> LearnJob:
        raise TypeError("workers of a3c compute gradients, not updates")

    def _on_outcomes(self, outcomes: Sequence[Outcome]) -> Metrics | None:
        metrics = None
        for outcome in outcomes:
            pending = self._pending.pop(outcome.ticket)
            self._follow(pending.stream, outcome, pending.actor_version)
            if not outcome.failed:
                metrics = self._apply(pending, outcome) or metrics
            needed = {p.actor_version for p in self._pending.values()} | {self._learned}
            self._actors = {n: actor for n, actor in self._actors.items() if n in needed}
            self._shared_actors &= needed
        return metrics

    def _current_actor(self) -> dict[str, NDArray[Any]]:
        """With all parameters: workers compute gradients of the values, too."""
        return super()._current_actor() | {LEARNER: self.learner.nets.params.numpy().copy()}

    def _apply(self, pending: Pending, outcome: Outcome) -> Metrics | None:
        found = {name.removeprefix(METRIC): float(value) for name, value in outcome.arrays.items() if name.startswith(METRIC)}
        found |= self.learner.apply({**outcome.arrays, **outcome.derived}[GRADIENT], self.learning_steps)
        found["staleness"] = float(self._learned - pending.actor_version)
        if self._context.policy.normalize_obs and MOMENTS in outcome.arrays:
            self.moments = self.moments.merge(Moments.unpack(np.asarray(outcome.arrays[MOMENTS])))
        metrics = self._count_update(outcome.env_steps, found, 1)
        self._actors[self._learned] = self._current_actor()
        return metrics

    def state_dict(self) -> State:
        """The state of every policy-gradient algorithm, and what open jobs were given."""
        return super().state_dict() | {"pending": {str(ticket): asdict(p) for ticket, p in self._pending.items()}}

    def load_state_dict(self, state: State) -> None:
        """Continue from a `state_dict`."""
        super().load_state_dict(state)
        self._pending = {int(ticket): Pending(**p) for ticket, p in state["pending"].items()}


def build_a3c(config: A3CConfig, context: BuildContext) -> A3CAlgorithm:
    """The algorithm of the config."""
    spec = policy_gradient_spec(config, context)
    learner = spec.make()
    if not isinstance(learner, A3C):
        raise TypeError(f"expected A3C, got {type(learner).__name__}")
    return A3CAlgorithm(learner, config, context, spec)


register(AlgorithmEntry(A3CConfig, build_a3c, "learner", "arXiv 1602.01783", asynchronous=True))
