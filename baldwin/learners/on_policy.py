"""On-policy training: segments of one policy version, one update from all of them, the next version.

Round r has a job for each stream of environments and is collected by the policy as it was after r - actor_lag updates. Rounds
are learned from in order and segments in the order of their streams, so that the result is the same whoever collects.
With actor_lag = 1 the next round is collected while this one is learned from, by a job of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

from baldwin.algorithm import BuildContext
from baldwin.errors import Diverged
from baldwin.learners.experience import Experience, join
from baldwin.learners.learn_job import LearnJob, PolicyGradientSpec, policy_gradient_spec
from baldwin.learners.policy_gradient import PolicyGradientLearner
from baldwin.learners.policy_gradient_algorithm import OnPolicyConfig, PolicyGradientAlgorithm
from baldwin.ops.moments import Moments
from baldwin.types import (
    Job,
    Metrics,
    Outcome,
    State,
    outcome_from_state,
    outcome_state,
)


class OnPolicyAlgorithm(PolicyGradientAlgorithm):
    """Rounds of segments, one update each."""

    counters = (*PolicyGradientAlgorithm.counters, "_asked", "_taken", "_learning")

    def __init__(self, learner: PolicyGradientLearner, config: OnPolicyConfig, context: BuildContext, spec: PolicyGradientSpec) -> None:
        super().__init__(learner, config, context, spec)
        self._lag = config.lag
        self._asked = 0  # segments
        self._taken = 0  # rounds
        self._learning = 0  # 1 while an update is a job
        self._arrived: dict[int, Outcome] = {}  # segments of rounds that are not complete
        self._experience: Experience | None = None  # of the round that is to be learned from

    def _next_job(self) -> int | None:
        """Numbers of round r are r (S + 1) + stream, and S for its update."""
        streams = self._config.streams
        if self._lag and self._experience is not None and not self._learning:
            self._learning = 1
            number = self._learned * (streams + 1) + streams
            return self._open_tickets(number, [number])
        round_number, stream = divmod(self._asked, streams)
        if round_number > self._taken or round_number > self._learned + self._lag:
            return None
        self._asked += 1
        number = round_number * (streams + 1) + stream
        return self._open_tickets(number, [number])

    def _make_job(self, number: int) -> Job:
        round_number, stream = divmod(number, self._config.streams + 1)
        if stream == self._config.streams:
            return self._learn_job(number)
        return self._collect_job(number, stream, max(0, round_number - self._lag))

    def _learn_job(self, ticket: int) -> LearnJob:
        acting = max(0, ticket // (self._config.streams + 1) - self._lag)
        return self._make_learn_job(ticket, self._ready(), self._actors[acting]["obs_moments"])

    def _ready(self) -> Experience:
        if self._experience is None:
            raise Diverged("an update was asked for before its round was complete")
        return self._experience

    def _on_outcomes(self, outcomes: Sequence[Outcome]) -> Metrics | None:
        streams, metrics = self._config.streams, None
        for outcome in outcomes:
            if outcome.ticket % (streams + 1) == streams:
                found = self._learned_from(outcome)
                metrics = self._finish_update(self._ready().steps, found, outcome.critic_steps) or metrics
                self._learning = 0
            else:
                self._arrived[outcome.ticket] = outcome
        first = self._taken * (streams + 1)
        if self._experience is None and all(first + n in self._arrived for n in range(streams)):
            metrics = self._take_round([self._arrived.pop(first + n) for n in range(streams)]) or metrics
        return metrics

    def _take_round(self, outcomes: list[Outcome]) -> Metrics | None:
        """Take the segments of a complete round; learn from them now, or let a job do it."""
        acting = max(0, self._taken - self._lag)
        parts = [part for stream, o in enumerate(outcomes) if (part := self._to_experience(stream, o, acting)) is not None]
        self._taken += 1
        if not parts:  # every segment failed; the next round begins with the same actor
            self._learned += 1
            self._actors[self._learned] = self._actors[self._learned - 1]
            return None
        self._experience = join(parts)
        if self._lag:
            return None
        self.learner.normalize(Moments.unpack(self._actors[self._learned]["obs_moments"]))
        before = self.learner.updates
        found = self.learner.update(self._experience, self.learning_steps)
        return self._finish_update(self._experience.steps, found, self.learner.updates - before)

    def _finish_update(self, steps: int, metrics: Metrics, updates: int) -> Metrics | None:
        self._experience = None
        staleness = {"staleness": float(min(self._lag, self._learned))}
        found = self._count_update(steps, metrics | staleness, updates)
        self._actors[self._learned] = self._current_actor()
        for old in [n for n in self._actors if n < self._learned - self._lag]:
            del self._actors[old]
            self._shared_actors.discard(old)
        return found

    def state_dict(self) -> State:
        """What all policy-gradient algorithms save, and segments that wait for their round or their update."""
        return super().state_dict() | {
            "arrived": [outcome_state(o) for o in self._arrived.values()],
            "experience": asdict(self._experience) if self._experience else {},
        }

    def load_state_dict(self, state: State) -> None:
        """Continue from a `state_dict`."""
        super().load_state_dict(state)
        self._arrived = {int(o["ticket"]): outcome_from_state(o) for o in state["arrived"]}
        self._experience = Experience(**state["experience"]) if state["experience"] else None


def build_on_policy(config: OnPolicyConfig, context: BuildContext) -> OnPolicyAlgorithm:
    """The algorithm of a learner's config."""
    spec = policy_gradient_spec(config, context)
    return OnPolicyAlgorithm(spec.make(), config, context, spec)
