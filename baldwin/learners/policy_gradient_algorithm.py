"""What synchronous and asynchronous policy-gradient algorithms share: segments, actors by version, statistics, metrics."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, PositiveFloat, PositiveInt

from baldwin.algorithm import BaseAlgorithm, BuildContext, FailureLimits
from baldwin.errors import EnvironmentFailure
from baldwin.learners.episode_tracker import EpisodeTracker
from baldwin.learners.experience import Experience, from_segment
from baldwin.learners.learn_job import METRIC, LearnJob, PolicyGradientSpec
from baldwin.learners.policy_gradient import PolicyGradientConfig, PolicyGradientLearner
from baldwin.learners.reward_scaler import RewardScaler
from baldwin.networks import make_network
from baldwin.observations import VECTOR
from baldwin.opponents import WIN, OpponentAssignment, OpponentPool, stored_mixture
from baldwin.ops.moments import Moments
from baldwin.rollout import ACTOR, FAILED, MEMORY, UNBEGUN, CollectJob, is_lost
from baldwin.types import (
    Arrays,
    Metrics,
    Outcome,
    Shared,
    State,
    flatten_tree,
    unflatten_tree,
)

MAX_JOB_PARAMS = 100_000  # larger actors are shared once per version instead of travelling with every job
COLLECTING = "collecting"
STEP_ARRAYS = ("action", "reward", "terminated", "truncated", WIN, FAILED, UNBEGUN)


class OnPolicyConfig(PolicyGradientConfig, FailureLimits):
    """What is collected for an update."""

    mutable: ClassVar[tuple[str, ...]] = ("reward_clip",)
    plays_opponents: ClassVar[bool] = True

    steps_per_epoch: PositiveInt = Field(
        2048, description="Environment steps per line of metrics, at least: the generation of this algorithm"
    )
    normalize_reward: bool = Field(False, description="Divide rewards by the standard deviation of their discounted sums")
    reward_clip: PositiveFloat = Field(10.0, description="Bound of normalised rewards")

    @property
    @abstractmethod
    def env_count(self) -> int:
        """Environments that the run steps, over all jobs."""

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
        """How many jobs a round has, each with a stream of environments of its own."""
        return -(-self.env_count // self.envs_per_job)


class SegmentConfig(OnPolicyConfig):
    """Segments of a fixed length."""

    n_envs: PositiveInt = Field(8, description="Environments")
    block: PositiveInt = Field(4, description="Environments that one job steps together, in one call")
    rollout_length: PositiveInt = Field(128, description="Steps of each environment in a segment")

    @property
    def env_count(self) -> int:
        """Environments that collect for the learner, over all jobs."""
        return self.n_envs

    @property
    def envs_per_job(self) -> int:
        """Environments that one job steps side by side."""
        return self.block

    @property
    def segment_length(self) -> int | None:
        """Steps of each environment in a job; None: whole episodes."""
        return self.rollout_length


class PolicyGradientAlgorithm(BaseAlgorithm):
    """What synchronous and asynchronous ones share: environments in their episodes, actors by version, statistics, metrics."""

    counters = (*BaseAlgorithm.counters, "_learned", "_epoch_steps", "_epoch_failures", "_epoch_updates")

    def __init__(self, learner: PolicyGradientLearner, config: OnPolicyConfig, context: BuildContext, spec: PolicyGradientSpec) -> None:
        super().__init__()
        self.learner, self._config, self._context, self._spec = learner, config, context, spec
        empty = np.empty((0, context.actions.columns), np.float32)
        self._tracker = EpisodeTracker(config.env_count, empty, context.env.obs)
        state_size = make_network(context.policy, context.env.obs, context.actions.outputs).state_size
        for env in range(config.env_count):
            self._tracker.remember(env, np.zeros(state_size, np.float32))
        pool = OpponentPool(context.opponents, context.opponent_policies) if context.opponents else None
        self._assignment = OpponentAssignment(pool, config.env_count, context.seed) if pool else None
        if self._assignment:
            self._tracker.on_end = self._assignment.end
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
        """Updates that the learner has made so far."""
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
        found += self._assignment.pool.publish() if self._assignment else []
        return found + [Shared(ACTOR, n, {"params": self._actors[n]["params"]}, min(self._actors)) for n in large]

    def _collect_job(self, ticket: int, stream: int, actor_version: int) -> CollectJob:
        """Continue the environments of a stream with the actor of that many updates."""
        config, actor = self._config, self._actors[actor_version]
        return CollectJob(
            ticket=ticket,
            seed=self._context.seed,
            params=actor["params"] if actor["params"].size <= MAX_JOB_PARAMS else None,
            obs_moments=actor["obs_moments"],
            positions=self._tracker.positions(self._envs_of(stream), self._assignment.current if self._assignment else None),
            steps=config.segment_length,
            explore="distribution",
            max_episode_steps=self._context.env.max_episode_steps,
            stream=stream,
            actor_version=actor_version,
            log_std=actor.get("log_std"),
            journal_images=False,
            opponents=stored_mixture(actor),
        )

    def _to_experience(self, stream: int, outcome: Outcome, actor_version: int) -> Experience | None:
        """Follow the environments of a stream through a segment by the actor of that version; its experience, or None if it failed."""
        self._follow(stream, outcome, actor_version)
        experience = None if outcome.failed else from_segment({**outcome.arrays, **outcome.derived}, self._context.env.obs)
        if experience and not experience.steps:  # of players that take turns, a short segment may have no whole step
            experience = None
        if self._rewards and experience:
            experience = self._rewards.scale(experience, self._envs_of(stream), self._config.reward_clip)
        if self._rewards and is_lost(outcome):
            self._rewards.forget(self._envs_of(stream))
        if experience is None:
            return None
        if self._context.policy.normalize_obs and VECTOR in experience.obs:
            self.moments = self.moments.merge(obs_moments(experience))
        return experience

    def _follow(self, stream: int, outcome: Outcome, actor_version: int) -> None:
        """Where the environments of a stream are after a segment; episodes are given up where it failed, or was cut short."""
        if self._assignment and (mixture := stored_mixture(self._actors[actor_version])):
            self._assignment.mixture = mixture
        self._count_failure(outcome, self._config, EnvironmentFailure, COLLECTING)
        self._epoch_failures += is_lost(outcome)
        arrays, envs = outcome.arrays, self._envs_of(stream)
        if not outcome.failed:
            self._tracker.add_segments(envs, {name: arrays[name] for name in STEP_ARRAYS if name in arrays})
            self._tracker.add_latencies(arrays)
            for row, env in enumerate(envs if MEMORY in arrays else ()):
                self._tracker.remember(env, arrays[MEMORY][row])
        if is_lost(outcome):
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
            values = np.array([means[name] for means in self._update_metrics if name in means])
            known = values[~np.isnan(values)]  # explained_variance is not known where all targets are equal
            found[name] = float(known.mean()) if len(known) else float("nan")
        if self._assignment:
            found |= self._assignment.end_epoch(self._greedy(), self.learning_steps, self._actors.values())
        self.version += 1
        self._policy = self._greedy()
        self._update_metrics = []
        self._epoch_steps = 0
        self._epoch_failures = 0
        self._epoch_updates = 0
        return dict(sorted(found.items()))

    def _current_actor(self) -> dict[str, NDArray[Any]]:
        found: dict[str, NDArray[Any]] = {**self.learner.actor(), "obs_moments": self.moments.pack()}
        return found | (self._assignment.arrays() if self._assignment else {})

    def _greedy(self) -> dict[str, NDArray[Any]]:
        return {"params": self.learner.actor()["params"], "obs_moments": self.moments.pack()}

    def _envs_of(self, stream: int) -> range:
        size = self._config.envs_per_job
        return range(stream * size, min((stream + 1) * size, self._config.env_count))

    def leave_episodes(self) -> None:
        """The next episodes of all environments begin."""
        envs = range(self._config.env_count)
        self._tracker.drop_episodes(envs)
        if self._rewards:
            self._rewards.forget(envs)
        self._replace_actor()

    def _replace_actor(self) -> None:
        """The newest version gets what the learner is now."""
        newest = max(self._actors)
        self._actors[newest] = self._current_actor()
        self._shared_actors.discard(newest)

    def reset_optimizer(self) -> None:
        """The moments of Adam or RMSProp."""
        self.learner.reset_optimizer()

    def set_policy_params(self, params: NDArray[np.float32]) -> None:
        """Replace the actor, with a fresh optimiser; critic and spread of actions stay."""
        weights = self.weights()
        weights[self.learner.nets.policy_rows] = params
        self.set_weights(weights)

    def set_obs_moments(self, moments: NDArray[np.float64]) -> None:
        """Replace the observation statistics."""
        self.moments = Moments.unpack(moments)

    def weights(self) -> NDArray[np.float32]:
        """Actor, critic and spread of actions."""
        return np.asarray(self.learner.nets.params.numpy().copy(), np.float32)

    def set_weights(self, weights: NDArray[np.float32]) -> None:
        """Replace them, with a fresh optimiser."""
        self.learner.nets.set_params(weights)
        self.learner.reset_optimizer()
        self._replace_actor()
        self._policy = self._greedy()

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
            "opponents": self._assignment.state_dict() if self._assignment else {},
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
        if self._assignment:
            self._assignment.load_state_dict(state["opponents"])

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


def obs_moments(experience: Experience) -> Moments:
    """Statistics of the vectors of real steps."""
    return Moments.of(experience.obs[VECTOR][experience.valid])
