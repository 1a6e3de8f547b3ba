"""IMPALA (Espeholt et al. 2018, arXiv 1802.01561): actors that never wait for the learner, whose segments are corrected by V-trace."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np
from pydantic import Field, PositiveFloat, PositiveInt
from torch import Tensor

from baldwin.algorithm import AlgorithmEntry, BuildContext, register
from baldwin.learners.actor_critic_loss import REPORTED, LossParts
from baldwin.learners.experience import Experience, join
from baldwin.learners.learn_job import LearnJob, PolicyGradientSpec, policy_gradient_spec
from baldwin.learners.policy_gradient import PolicyGradientBatch, PolicyGradientLearner, report
from baldwin.learners.policy_gradient_algorithm import PolicyGradientAlgorithm, SegmentConfig
from baldwin.learners.schedule import StepSchedule
from baldwin.networks import PolicyConfig
from baldwin.ops.policy_loss import score_loss
from baldwin.ops.returns import explained_variance, vtrace
from baldwin.types import Job, Metrics, Outcome, State

MAX_LAG = 200  # updates that a segment may be behind before the others wait for it: workers keep all policies since


class IMPALAConfig(SegmentConfig):
    """IMPALA: decoupled actors and learner, V-trace. Asynchronous."""

    name: Literal["impala"] = "impala"
    rollout_length: PositiveInt = Field(20, description="Steps of each environment in a segment")
    segments_per_update: PositiveInt = Field(2, description="Jobs whose segments make a batch")
    rho_clip: PositiveFloat = Field(1.0, description="Bound of the importance weights in V-trace's targets and in the policy gradient")
    c_clip: PositiveFloat = Field(1.0, description="Bound of the importance weights that carry corrections back in time")
    lr: PositiveFloat | StepSchedule = Field(6e-4, description="Step size: a number, or {kind, start, end, env_steps}")
    entropy_coef: float = Field(0.01, ge=0, description="Weight of the entropy bonus")
    max_grad_norm: PositiveFloat | None = Field(40.0, description="Gradients are scaled down to this norm; null: never")

    def make_learner(self, policy: PolicyConfig, **parts: Any) -> IMPALA:
        """A new learner with this config; `parts` are the other arguments of its class."""
        return IMPALA(policy, self, **parts)


class IMPALA(PolicyGradientLearner):
    """One gradient step per batch, on targets of V-trace."""

    config: IMPALAConfig

    def update(self, experience: Experience, env_steps: int) -> Metrics:
        """One step down the loss of all segments."""
        with self._updating(env_steps):
            rho = self.ratios(experience)
            steps = self.estimate(experience, rho)
            gradient, parts = self.loss_gradient(steps)
            norm = self.descend(gradient)
            self.updates += 1
        found = report({name: [getattr(parts, name)] for name in REPORTED} | ({} if norm is None else {"gradient_norm": [norm]}))
        return found | {
            "explained_variance": explained_variance(steps.value.numpy(), steps.target.numpy()),
            "mean_rho": float(rho[experience.valid].mean()),
        }

    def estimate(self, experience: Experience, rho: Any) -> PolicyGradientBatch:
        """All steps with targets v and advantages min(rho_clip, rho) (r + discount v' - V)."""
        config = self.config
        value, following = self.values(experience)
        discount, ended = self.discounts(experience), experience.ended[..., None]
        correction = vtrace(self.deltas(experience, value, following), discount, ended, rho, config.rho_clip, config.c_clip)
        next_correction = np.concatenate([correction[:, 1:], np.zeros_like(correction[:, :1])], 1) * ~ended
        advantage = self.deltas(experience, value, following + next_correction)
        return self.steps(experience, np.minimum(rho, config.rho_clip) * advantage, value + correction, value)

    def loss_gradient(self, steps: PolicyGradientBatch) -> tuple[Tensor, LossParts]:
        """Of - mean rho A log pi(a|s) + value_coef sum_c mean (V_c - v_c)^2 - entropy_coef mean H."""
        return self.gradient(steps, lambda log_prob: score_loss(log_prob, steps.advantage.numpy()))


@dataclass(slots=True)
class Pending:
    """An open job: a segment of a stream, or an update."""

    stream: int  # -1: an update
    actor_version: int


class DecoupledAlgorithm(PolicyGradientAlgorithm):
    """Each stream collects with the newest policy there is; whenever enough segments have arrived, a job learns from them.

    At most twice as many segments as an update takes wait for it, so that the lag is bounded.
    """

    counters = (*PolicyGradientAlgorithm.counters, "_asked")

    def __init__(self, learner: PolicyGradientLearner, config: IMPALAConfig, context: BuildContext, spec: PolicyGradientSpec) -> None:
        super().__init__(learner, config, context, spec)
        self._per_update = config.segments_per_update
        self._asked = 0
        self._pending: dict[int, Pending] = {}
        self._segments: list[tuple[int, Experience]] = []  # (updates that its actor had, segment), in the order of arrival

    @property
    def _learning(self) -> bool:
        return any(p.stream < 0 for p in self._pending.values())

    def _next_job(self) -> int | None:
        busy = {p.stream for p in self._pending.values()}
        idle = [stream for stream in range(self._config.streams) if stream not in busy]
        if len(self._segments) >= self._per_update and not self._learning:
            chosen = -1
        elif idle and len(self._segments) < 2 * self._per_update and self._learned - min(self._actors) <= MAX_LAG:
            chosen = min(idle, key=lambda stream: (stream - self._asked) % self._config.streams)
        else:
            return None
        self._pending[self._asked] = Pending(chosen, self._learned)
        self._asked += 1
        return self._open_tickets(self._asked - 1, [self._asked - 1])

    def _make_job(self, number: int) -> Job:
        pending = self._pending[number]
        return self._learn_job(number) if pending.stream < 0 else self._collect_job(number, pending.stream, pending.actor_version)

    def _learn_job(self, ticket: int) -> LearnJob:
        batch = join([segment for _, segment in self._segments[: self._per_update]])
        return self._make_learn_job(ticket, batch, self._actors[self._pending[ticket].actor_version]["obs_moments"])

    def _on_outcomes(self, outcomes: Sequence[Outcome]) -> Metrics | None:
        metrics = None
        for outcome in outcomes:
            pending = self._pending[outcome.ticket]
            if pending.stream >= 0:
                segment = self._to_experience(pending.stream, outcome, pending.actor_version)
                if segment is not None:
                    self._segments.append((pending.actor_version, segment))
            else:
                metrics = self._finish_update(outcome) or metrics
            del self._pending[outcome.ticket]
            self._drop_actors()
        return metrics

    def _finish_update(self, outcome: Outcome) -> Metrics | None:
        found = self._learned_from(outcome)
        batch, self._segments = self._segments[: self._per_update], self._segments[self._per_update :]
        found["staleness"] = float(np.mean([self._learned - version for version, _ in batch]))
        metrics = self._count_update(sum(segment.steps for _, segment in batch), found, outcome.critic_steps)
        self._actors[self._learned] = self._current_actor()
        return metrics

    def _drop_actors(self) -> None:
        """Keep the newest actor and those that open jobs name."""
        needed = {p.actor_version for p in self._pending.values()} | {self._learned}
        self._actors = {n: actor for n, actor in self._actors.items() if n in needed}
        self._shared_actors &= needed

    def state_dict(self) -> State:
        """What all policy-gradient algorithms save, open jobs, and segments that wait for their update."""
        return super().state_dict() | {
            "pending": {str(ticket): asdict(p) for ticket, p in self._pending.items()},
            "segments": [{"actor_version": version, "experience": asdict(segment)} for version, segment in self._segments],
        }

    def load_state_dict(self, state: State) -> None:
        """Continue from a `state_dict`."""
        super().load_state_dict(state)
        self._pending = {int(ticket): Pending(**p) for ticket, p in state["pending"].items()}
        self._segments = [(int(s["actor_version"]), Experience(**s["experience"])) for s in state["segments"]]


def build_impala(config: IMPALAConfig, context: BuildContext) -> DecoupledAlgorithm:
    """The algorithm of the config."""
    spec = policy_gradient_spec(config, context)
    return DecoupledAlgorithm(spec.make(), config, context, spec)


register(AlgorithmEntry(IMPALAConfig, build_impala, "learner", "arXiv 1802.01561", asynchronous=True))
