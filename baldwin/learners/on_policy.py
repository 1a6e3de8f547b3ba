"""On-policy training: segments of one policy version, one update from all of them, the next version.

Round r has a job for each stream of environments and is collected by the policy as it was after r - actor_lag updates. Rounds
are learned from in order and segments in the order of their streams, so that the result is the same whoever collects.
With actor_lag = 1 the next round is collected while this one is learned from, by a job of its own.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, PositiveFloat, PositiveInt

from baldwin.algorithm import BaseAlgorithm, BuildContext, FailureLimits
from baldwin.envs import EnvSpec
from baldwin.errors import Diverged, EnvironmentFailure
from baldwin.learners.episode_tracker import EpisodeTracker
from baldwin.learners.experience import Experience, from_segment, join
from baldwin.learners.policy_gradient import PolicyGradientConfig, PolicyGradientLearner
from baldwin.learners.reward_scaler import RewardScaler
from baldwin.networks import ActionMap, PolicyConfig, make_network, stored_columns
from baldwin.observations import VECTOR
from baldwin.ops.moments import Moments
from baldwin.rollout import ACTOR, MEMORY, CollectJob
from baldwin.types import (
    Arrays,
    Job,
    Metrics,
    Outcome,
    Shared,
    State,
    Worker,
    flatten_tree,
    outcome_from_state,
    outcome_state,
    unflatten_tree,
)

MAX_JOB_PARAMS = 100_000  # larger actors are shared once per version instead of travelling with every job
METRIC = "metric/"
COLLECTING = "collecting"
STEP_ARRAYS = ("action", "reward", "terminated", "truncated")


class OnPolicyConfig(PolicyGradientConfig, FailureLimits):
    """What is collected for an update."""

    steps_per_epoch: PositiveInt = Field(
        2048, description="Environment steps per line of metrics, at least: the generation of this algorithm"
    )
    normalize_reward: bool = Field(False, description="Divide rewards by the standard deviation of their discounted sums")
    reward_clip: PositiveFloat = Field(10.0, description="Bound of normalised rewards")

    @property
    @abstractmethod
    def env_count(self) -> int:
        """Environments."""

    @property
    def envs_per_job(self) -> int:
        """Environments that one job steps together."""
        return 1

    @property
    def segment_length(self) -> int | None:
        """Steps of each environment in a job; None: whole episodes."""
        return None

    @property
    def lag(self) -> int:
        """Updates that the acting policy is behind."""
        return 0

    @property
    def streams(self) -> int:
        """Jobs of a round."""
        return -(-self.env_count // self.envs_per_job)


class SegmentConfig(OnPolicyConfig):
    """Segments of a fixed length."""

    n_envs: PositiveInt = Field(8, description="Environments")
    block: PositiveInt = Field(4, description="Environments that one job steps together, in one call")
    rollout_length: PositiveInt = Field(128, description="Steps of each environment in a segment")

    @property
    def env_count(self) -> int:
        """`n_envs`."""
        return self.n_envs

    @property
    def envs_per_job(self) -> int:
        """`block`."""
        return self.block

    @property
    def segment_length(self) -> int | None:
        """`rollout_length`."""
        return self.rollout_length


@dataclass(frozen=True, slots=True)
class PolicyGradientSpec:
    """All that it takes to make a learner, in any process."""

    policy: PolicyConfig
    config: PolicyGradientConfig
    env: EnvSpec
    rewards: dict[str, float]
    seed: int

    def make(self, params: NDArray[np.float32] | None = None) -> PolicyGradientLearner:
        """A new learner, with these parameters [D] or fresh ones."""
        actions = ActionMap(self.env.action_space, self.policy.squash, self.policy.head)
        return self.config.make_learner(self.policy, obs=self.env.obs, actions=actions, rewards=self.rewards, seed=self.seed, params=params)


@dataclass(frozen=True, slots=True)
class LearnJob:
    """One update as a job, so that collecting goes on meanwhile. Carries the learner's state: nobody else needs its optimiser."""

    ticket: int
    learner: PolicyGradientSpec
    state: Arrays  # a flattened `state_dict`
    experience: Experience
    obs_moments: NDArray[np.float64]
    env_steps: int
    stream: None = None

    @property
    def kind(self) -> str:
        """learn, for the timeline."""
        return "learn"

    @property
    def tickets(self) -> tuple[int, ...]:
        """Its only ticket."""
        return (self.ticket,)

    def run(self, worker: Worker | None) -> list[Outcome]:
        """The learner after the update, as derived arrays: the journal leaves them out.

        Raises:
            Diverged: a loss is not finite.
        """
        state = unflatten_tree(self.state)
        learner = self.learner.make(state["params"])
        learner.load_state_dict(state)
        learner.normalize(Moments.unpack(self.obs_moments))
        before = learner.updates
        metrics = learner.update(self.experience, self.env_steps)
        arrays = {METRIC + name: np.array(value) for name, value in metrics.items()}
        return [Outcome(self.ticket, 0.0, arrays=arrays, derived=flatten_tree(learner.state_dict()), critic_steps=learner.updates - before)]


class PolicyGradientAlgorithm(BaseAlgorithm):
    """What synchronous and asynchronous ones share: environments in their episodes, actors by version, statistics, metrics."""

    counters = (*BaseAlgorithm.counters, "_learned", "_epoch_steps", "_epoch_failures", "_epoch_updates")

    def __init__(self, learner: PolicyGradientLearner, config: OnPolicyConfig, context: BuildContext, spec: PolicyGradientSpec) -> None:
        super().__init__()
        self.learner, self._config, self._context, self._spec = learner, config, context, spec
        empty = np.empty((0, stored_columns(context.actions)), np.float32)
        self._tracker = EpisodeTracker(config.env_count, empty, context.env.obs)
        state_size = make_network(context.policy, context.env.obs, context.actions.outputs).state_size
        for env in range(config.env_count):
            self._tracker.remember(env, np.zeros(state_size, np.float32))
        self._rewards = RewardScaler(config.env_count, config.gamma, learner.weights) if config.normalize_reward else None
        self.moments = Moments.empty(context.env.obs.vector_size)
        self._learned = 0  # updates from segments
        self._actors: dict[int, dict[str, NDArray[Any]]] = {0: self._current_actor()}  # updates made -> the actor of then
        self._shared_actors: set[int] = set()
        self._epoch_steps = 0
        self._epoch_failures = 0
        self._epoch_updates = 0
        self._update_metrics: list[Metrics] = []
        self._policy = self._greedy()

    @property
    def gradient_steps(self) -> int:
        """Gradient steps made."""
        return self.learner.updates

    @property
    def replayable(self) -> bool:
        """Not where it sees images: the journal would grow by gigabytes."""
        return not self._context.env.obs.images

    def policy_state(self) -> Arrays:
        """Greedy parameters and observation moments as they were when this epoch began: a version has one policy."""
        return self._policy

    def publish(self) -> list[Shared]:
        """The greedy policy once per version, and actors that are too large to travel with every job."""
        found = super().publish()
        large = [n for n, actor in self._actors.items() if actor["params"].size > MAX_JOB_PARAMS and n not in self._shared_actors]
        self._shared_actors |= set(large)
        return found + [Shared(ACTOR, n, {"params": self._actors[n]["params"]}, min(self._actors)) for n in large]

    def _collect_job(self, ticket: int, stream: int, actor_version: int) -> CollectJob:
        """Continue the environments of a stream with the actor of that many updates."""
        config, actor = self._config, self._actors[actor_version]
        return CollectJob(
            ticket=ticket,
            seed=self._context.seed,
            params=actor["params"] if actor["params"].size <= MAX_JOB_PARAMS else None,
            obs_moments=actor["obs_moments"],
            positions=self._tracker.positions(self._envs_of(stream)),
            steps=config.segment_length,
            explore="distribution",
            max_episode_steps=self._context.env.max_episode_steps,
            stream=stream,
            actor_version=actor_version,
            log_std=actor.get("log_std"),
            journal_images=False,
        )

    def _take(self, stream: int, outcome: Outcome) -> Experience | None:
        """Follow the environments of a stream through a segment; its experience, or None if it failed."""
        self._follow(stream, outcome)
        experience = None if outcome.failed else from_segment({**outcome.arrays, **outcome.derived}, self._context.env.obs)
        if self._rewards and experience:
            experience = self._rewards.scale(experience, self._envs_of(stream), self._config.reward_clip)
        if self._rewards and outcome.reason:
            self._rewards.forget(self._envs_of(stream))
        if experience is None:
            return None
        if self._context.policy.normalize_obs and VECTOR in experience.obs:
            self.moments = self.moments.merge(obs_moments(experience))
        return experience

    def _follow(self, stream: int, outcome: Outcome) -> None:
        """Where the environments of a stream are after a segment; episodes are given up where it failed."""
        self._count_failure(outcome, self._config, EnvironmentFailure, COLLECTING)
        self._epoch_failures += bool(outcome.reason)
        arrays, envs = outcome.arrays, self._envs_of(stream)
        if not outcome.failed:
            for row, env in enumerate(envs):
                self._tracker.add_steps(env, {name: arrays[name][row] for name in STEP_ARRAYS})
                if MEMORY in arrays:
                    self._tracker.remember(env, arrays[MEMORY][row])
        if outcome.reason:
            self._tracker.drop_episodes(envs)

    def _count_update(self, steps: int, metrics: Metrics, updates: int) -> Metrics | None:
        """Count an update; the metrics of the epoch, if it completes one."""
        self._learned += 1
        self.learning_steps += steps
        self._epoch_steps += steps
        self._epoch_updates += updates
        self._update_metrics.append(metrics)
        if self._epoch_steps < self._config.steps_per_epoch:
            return None
        found = self._tracker.pop_stats() | {"failed_segments": float(self._epoch_failures), "updates": float(self._epoch_updates)}
        for name in {name for means in self._update_metrics for name in means}:
            found[name] = float(np.mean([means[name] for means in self._update_metrics if name in means]))
        self.version += 1
        self._policy = self._greedy()
        self._update_metrics = []
        self._epoch_steps = 0
        self._epoch_failures = 0
        self._epoch_updates = 0
        return dict(sorted(found.items()))

    def _current_actor(self) -> dict[str, NDArray[Any]]:
        return {**self.learner.actor(), "obs_moments": self.moments.pack()}

    def _greedy(self) -> dict[str, NDArray[Any]]:
        return {"params": self.learner.actor()["params"], "obs_moments": self.moments.pack()}

    def _envs_of(self, stream: int) -> range:
        size = self._config.envs_per_job
        return range(stream * size, min((stream + 1) * size, self._config.env_count))

    def state_dict(self) -> State:
        """Learner, actors, open episodes, statistics."""
        return super().state_dict() | {
            "learner": self.learner.state_dict(),
            "obs_moments": self.moments.pack(),
            "policy": dict(self._policy),
            "episodes": self._tracker.state_dict(),
            "actors": {str(n): actor for n, actor in self._actors.items()},
            "rewards": self._rewards.state_dict() if self._rewards else {},
            "update_metrics": self._update_metrics,
        }

    def load_state_dict(self, state: State) -> None:
        """Continue from a `state_dict`."""
        super().load_state_dict(state)
        self.learner.load_state_dict(state["learner"])
        self.moments = Moments.unpack(state["obs_moments"])
        self._policy = dict(state["policy"])
        self._tracker.load_state_dict(state["episodes"])
        self._actors = {int(n): dict(actor) for n, actor in state["actors"].items()}
        self._shared_actors = set()
        if self._rewards:
            self._rewards.load_state_dict(state["rewards"])
        self._update_metrics = [dict(m) for m in state["update_metrics"]]

    def _make_learn_job(self, ticket: int, experience: Experience, obs_moments: NDArray[np.float64]) -> LearnJob:
        state = flatten_tree(self.learner.state_dict())
        return LearnJob(ticket, self._spec, state, experience, obs_moments, self.learning_steps)

    def _learned_from(self, outcome: Outcome) -> Metrics:
        """Continue with the learner of a finished update; what it reported.

        Raises:
            Diverged: a loss is not finite.
        """
        if not outcome.derived:  # it comes from a journal, which leaves out derived arrays; or its worker died, or it has diverged
            (outcome,) = self._learn_job(outcome.ticket).run(None)
        self.learner.load_state_dict(unflatten_tree(outcome.derived))
        return {name.removeprefix(METRIC): float(value) for name, value in outcome.arrays.items() if name.startswith(METRIC)}

    @abstractmethod
    def _learn_job(self, ticket: int) -> LearnJob:
        """The update of that ticket."""


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
        parts = [part for stream, o in enumerate(outcomes) if (part := self._take(stream, o)) is not None]
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
        """And segments that wait for their round, or for their update."""
        return super().state_dict() | {
            "arrived": [outcome_state(o) for o in self._arrived.values()],
            "experience": asdict(self._experience) if self._experience else {},
        }

    def load_state_dict(self, state: State) -> None:
        """Continue from a `state_dict`."""
        super().load_state_dict(state)
        self._arrived = {int(o["ticket"]): outcome_from_state(o) for o in state["arrived"]}
        self._experience = Experience(**state["experience"]) if state["experience"] else None


def obs_moments(experience: Experience) -> Moments:
    """Statistics of the vectors of real steps."""
    return Moments.of(experience.obs[VECTOR][experience.valid])


def policy_gradient_spec(config: PolicyGradientConfig, context: BuildContext) -> PolicyGradientSpec:
    """All that it takes to make the learner of a config, anywhere."""
    return PolicyGradientSpec(context.policy, config, context.env, context.reward_weights, context.seed)


def build_on_policy(config: OnPolicyConfig, context: BuildContext) -> OnPolicyAlgorithm:
    """The algorithm of a learner's config."""
    spec = policy_gradient_spec(config, context)
    return OnPolicyAlgorithm(spec.make(), config, context, spec)
