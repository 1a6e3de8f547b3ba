"""Off-policy training: collect a segment, store it, make updates from the replay buffer.

Ticket t belongs to stream t mod S of S = 1 + actor_lag independent streams of environments, and is collected by the actor
as it was after ticket t - S was learned from. Segments are learned from in the order of their tickets. So the lag is
bounded, and the result is the same whoever collects, however fast.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any, cast

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from baldwin.algorithm import BaseAlgorithm, BuildContext
from baldwin.errors import ConfigError, EnvironmentFailure
from baldwin.learners.buffers import make_priorities, make_replay, merge_vectors, window_columns
from baldwin.learners.episode_tracker import EpisodeTracker
from baldwin.learners.off_policy_config import OffPolicyConfig
from baldwin.learners.replay_learner import ReplayLearner, TransitionLearner
from baldwin.learners.spec import LearnerSpec
from baldwin.learners.turns import OpenDecisions
from baldwin.learners.window_learner import WindowLearner
from baldwin.opponents import WIN, OpponentAssignment, OpponentPool, stored_mixture
from baldwin.ops.moments import Moments
from baldwin.replay import ReplayBuffer
from baldwin.rollout import (
    DECIDED,
    FAILED,
    INITIAL_ERROR,
    MEMORY,
    UNBEGUN,
    Amount,
    CollectJob,
    Exploration,
    Lookahead,
    final_observations,
    is_lost,
    transitions,
)
from baldwin.rollout.novelty import Novelty
from baldwin.types import Arrays, Metrics, Outcome, Shared, State, outcome_from_state, outcome_state

NOVELTY = "novelty/"
"""Prefix of an actor's arrays: the networks that choose among its actions."""


class OffPolicyAlgorithm(BaseAlgorithm):
    """A learner and a replay buffer."""

    counters = (*BaseAlgorithm.counters, "_asked", "_learned", "_epoch_steps", "_epoch_updates", "_epoch_failures", "_pending_updates")

    def __init__(self, learner: ReplayLearner, replay: ReplayBuffer, config: OffPolicyConfig, context: BuildContext) -> None:
        super().__init__()
        self.learner, self.replay, self._config, self._context = learner, replay, config, context
        self._priorities = make_priorities(replay, config.prioritized, context.seed) if config.prioritized else None
        self._starts_by_td_error = bool(config.prioritized and config.prioritized.initial == "td-error")
        actors_know = self._starts_by_td_error and isinstance(learner, TransitionLearner) and learner.acts_by_values
        self._lookahead = Lookahead(config.n_step, config.gamma) if actors_know else None  # of the errors that segments come with
        self._novelty = learner.novelty() if isinstance(learner, WindowLearner) else None  # as it was at the start
        self._streams = 1 + config.actor_lag
        self._memory_size = learner.state_size if isinstance(learner, WindowLearner) else 0
        valued = None if self._memory_size else learner  # nobody knows what a policy with memory remembered at an episode's end
        self._tracker = EpisodeTracker(self._streams * config.n_envs, context.actions.empty_actions(), context.env.obs, valued)
        for env in range(self._streams * config.n_envs):
            self._tracker.remember(env, np.zeros(self._memory_size, np.float32))
        self._open_decisions = OpenDecisions()
        pool = OpponentPool(context.opponents, context.opponent_policies) if context.opponents else None
        self._assignment = OpponentAssignment(pool, self._streams * config.n_envs, context.seed) if pool else None
        if self._assignment:
            self._tracker.on_end = self._assignment.end
        self.moments = Moments.empty(context.env.obs.vector_size)
        self._new_moments = self.moments  # of this epoch's observations
        self._asked = 0  # tickets
        self._learned = 0  # tickets
        self._actors = {n: self._acting(n) for n in range(self._streams)}  # ticket -> the actor that collects it
        self._arrived: dict[int, Outcome] = {}  # segments that wait for earlier ones
        self._pending_updates = 0.0
        self._epoch_steps = 0
        self._epoch_updates = 0
        self._epoch_failures = 0  # segments that failed, or were cut short by a failure
        self._update_metrics: list[tuple[int, Metrics]] = []  # number of updates, and their means
        self._policy = self._current_actor()

    @property
    def gradient_steps(self) -> int:
        """Updates of the critics since the start of training, those before a resume included."""
        return self.learner.updates

    def policy_state(self) -> Arrays:
        """Greedy parameters and observation moments as they were when this epoch began: a version has one policy."""
        return self._policy

    def publish(self) -> list[Shared]:
        """The greedy policy once per version, and new opponents."""
        return super().publish() + (self._assignment.pool.publish() if self._assignment else [])

    def _next_job(self) -> int | None:
        if self._asked not in self._actors:
            return None
        self._asked += 1
        return self._open_tickets(self._asked - 1, [self._asked - 1])

    def _make_job(self, number: int) -> CollectJob:
        config, actor = self._config, self._actors[number]
        env_steps = number * config.n_envs * config.rollout_length
        return CollectJob(
            ticket=number,
            seed=self._context.seed,
            params=actor["params"],
            obs_moments=actor["obs_moments"],
            positions=self._tracker.positions(self._envs_of(number), self._assignment.current if self._assignment else None),
            steps=config.rollout_length,
            explore=self._exploration(env_steps),
            noise=self._noise(number, env_steps),
            max_episode_steps=self._context.env.max_episode_steps,
            stream=number % self._streams,
            opponents=stored_mixture(actor),
            novelty=self._novelty_of(actor),
            keep_memory=self._memory_size > 0,
            keep_log_prob=config.target != "nstep",
            errors=self._lookahead,
        )

    def _novelty_of(self, actor: Arrays) -> Novelty | None:
        """What chooses among an actor's actions, if anything does."""
        if self._novelty is None:
            return None
        return replace(self._novelty, params=actor[NOVELTY + "params"], mean=actor[NOVELTY + "mean"], std=actor[NOVELTY + "std"])

    def _noise(self, number: int, env_steps: int) -> Amount:
        """How much is explored: the same in all environments, or in each by an amount of its own."""
        amount, spread = self._config.exploration_at(env_steps), self._config.exploration_spread
        last = self._streams * self._config.n_envs - 1
        if spread == 1 or not last:
            return amount
        most = 1.0 if self._config.exploration_kind == "epsilon" else math.inf
        return tuple(min(most, amount * spread ** (env / last)) for env in self._envs_of(number))

    def _exploration(self, env_steps: int) -> Exploration:
        if env_steps < self._config.start_steps:
            return "random"
        kind = self._config.exploration_kind
        return "distribution" if kind == "sample" and self._context.actions.in_rows else kind

    def _on_outcomes(self, outcomes: Sequence[Outcome]) -> Metrics | None:
        """Learn from segments in the order of tickets, up to the end of an epoch: epochs then end one at a time.

        A segment that waits here never stalls the loop: each one learned from sets the next one of its stream free.
        """
        self._arrived |= {o.ticket: o for o in outcomes}
        metrics: Metrics | None = None
        while metrics is None and self._learned in self._arrived:
            metrics = self._learn_from(self._arrived.pop(self._learned))
            del self._actors[self._learned]
            self._actors[self._learned + self._streams] = self._acting(self._learned + self._streams)
            self._learned += 1
        return metrics

    def _learn_from(self, outcome: Outcome) -> Metrics | None:
        """Store a segment and make the updates it calls for; metrics when it completes an epoch."""
        if self._assignment and (mixture := stored_mixture(self._actors[outcome.ticket])):
            self._assignment.mixture = mixture
        self._count_failure(outcome, self._config, EnvironmentFailure, "collecting")
        self._epoch_failures += is_lost(outcome)
        if not outcome.failed:
            self._store(outcome)
        if is_lost(outcome):
            self._drop_episodes(self._envs_of(outcome.ticket))
        if outcome.failed:
            return None
        self.learning_steps += outcome.env_steps
        self._epoch_steps += outcome.env_steps
        if self.env_steps > self._config.start_steps:
            self._pending_updates += outcome.env_steps * self._config.updates_per_step
            due, before = int(self._pending_updates), self.learner.updates
            self._pending_updates -= due
            self._update_metrics.append((due, self.learner.train(self._priorities or self.replay, due)))
            self._epoch_updates += self.learner.updates - before
        return self._end_epoch() if self._epoch_steps >= self._config.steps_per_epoch else None

    def _store(self, outcome: Outcome) -> None:
        arrays, final_obs = outcome.arrays, final_observations(outcome.arrays)
        self._tracker.add_latencies(arrays)
        for n, (env, rows) in enumerate(zip(self._envs_of(outcome.ticket), transitions(arrays), strict=True)):
            takes_turns = DECIDED in arrays or env in self._open_decisions
            if takes_turns:
                decided = arrays[DECIDED][n] if DECIDED in arrays else np.ones(len(rows["reward"]) + 1, np.bool_)
                steps, after = self._open_decisions.answered(env, rows, decided), self._open_decisions.last_index(env)
            else:
                steps, after = rows, self._tracker.last_index(env)
            errors = arrays[INITIAL_ERROR][n] if INITIAL_ERROR in arrays and not takes_turns else None
            last = self._add_to_replay(steps, after, errors) if len(steps["reward"]) else after
            if takes_turns and len(steps["reward"]):
                self._open_decisions.stored(env, last, ended=bool(steps["terminated"][-1] | steps["truncated"][-1]))
            told = {name: arrays[name][n] for name in (WIN, FAILED, UNBEGUN) if name in arrays}
            self._tracker.add_steps(env, rows | told, last, final_obs, valued=not takes_turns)
            if self._memory_size:
                self._tracker.remember(env, arrays[MEMORY][n])

    def _add_to_replay(self, rows: Arrays, after: int, errors: NDArray[np.float32] | None) -> int:
        """Add steps of an environment that follow the row `after`; the index of the last one. `errors`: of their actor, if it has told."""
        last = self.replay.add(rows, after)
        if self._priorities and self._starts_by_td_error:
            new = np.arange(last + 1 - len(rows["reward"]), last + 1)
            if errors is None:
                stored = self.replay.view().rows(new[None], self._config.n_step, self._config.gamma)
                errors = cast("TransitionLearner", self.learner).td_errors(stored)
            self._priorities.update_priorities(new, errors)
        self._new_moments = merge_vectors(self._new_moments, rows, self._context.policy)
        return last

    def _drop_episodes(self, envs: Sequence[int]) -> None:
        self._tracker.drop_episodes(envs)
        for env in envs:
            self._open_decisions.forget(env)

    def _end_epoch(self) -> Metrics:
        if self._context.policy.normalize_obs:
            self.moments = self.moments.merge(self._new_moments)
            self._new_moments = Moments.empty(len(self.moments.mean))
            self.learner.normalize(self.moments)
        metrics = self._tracker.pop_stats() | {"buffer_fill": len(self.replay) / self.replay.capacity}
        metrics["failed_segments"] = float(self._epoch_failures)
        metrics["update_to_data"] = self._epoch_updates / self._epoch_steps
        for name in {name for _, means in self._update_metrics for name in means}:
            pairs = [(k, means[name]) for k, means in self._update_metrics if name in means]
            metrics[name] = sum(k * v for k, v in pairs) / sum(k for k, _ in pairs)
        if self._assignment:
            metrics |= self._assignment.end_epoch(self._current_actor(), self.learning_steps, self._actors.values())
        self.version += 1
        self._policy = self._current_actor()
        self._update_metrics = []
        self._epoch_steps = 0
        self._epoch_updates = 0
        self._epoch_failures = 0
        return dict(sorted(metrics.items()))

    def _current_actor(self) -> dict[str, NDArray[Any]]:
        return {"params": self.learner.actor_vectors()[0], "obs_moments": self.moments.pack()}

    def _acting(self, ticket: int) -> dict[str, NDArray[Any]]:
        found: dict[str, NDArray[Any]] = {"params": self.learner.acting_vector(ticket), "obs_moments": self.moments.pack()}
        if isinstance(self.learner, WindowLearner) and (novelty := self.learner.novelty()):
            found |= {NOVELTY + "params": novelty.params, NOVELTY + "mean": novelty.mean, NOVELTY + "std": novelty.std}
        return found | (self._assignment.arrays() if self._assignment else {})

    def _envs_of(self, ticket: int) -> range:
        """The environments of a ticket's stream."""
        first = ticket % self._streams * self._config.n_envs
        return range(first, first + self._config.n_envs)

    def leave_episodes(self) -> None:
        """The next episodes of all environments begin."""
        self._drop_episodes(range(self._streams * self._config.n_envs))
        self._actors = {ticket: self._acting(ticket) for ticket in self._actors}

    def reset_optimizer(self) -> None:
        """Adam's moments of all networks, and of the temperature."""
        self.learner.reset_optimizer()

    def set_policy_params(self, params: NDArray[np.float32]) -> None:
        """Replace the actor, of dqn the Q-network, with a fresh optimiser."""
        self.learner.set_actor(params)
        self._actors = {ticket: self._acting(ticket) for ticket in self._actors}
        self._policy = self._current_actor()

    def set_obs_moments(self, moments: NDArray[np.float64]) -> None:
        """Replace the observation statistics."""
        self.moments = Moments.unpack(moments)
        self.learner.normalize(self.moments)

    def weights(self) -> NDArray[np.float32]:
        """Parameters of all networks that the policy is learned by, one after the other."""
        return np.concatenate([network.vectors().ravel() for network in self.learner.main_networks().values()])

    def set_weights(self, weights: NDArray[np.float32]) -> None:
        """Replace all networks and their targets, with fresh optimisers."""
        used = 0
        for network in self.learner.main_networks().values():
            shape = network.vectors().shape
            size = int(np.prod(shape))
            network.reset(weights[used : used + size].reshape(shape))
            used += size
        self.learner.reset_optimizer()  # of the temperature, too
        self._actors = {ticket: self._acting(ticket) for ticket in self._actors}
        self._policy = self._current_actor()

    def state_dict(self) -> State:
        """Learner, replay position, open episodes, statistics, and segments that wait for earlier ones."""
        return super().state_dict() | {
            "learner": self.learner.state_dict(),
            "replay": self.replay.state_dict(),
            "priorities": self._priorities.state_dict() if self._priorities else {},
            "obs_moments": self.moments.pack(),
            "new_obs_moments": self._new_moments.pack(),
            "policy": dict(self._policy),
            "episodes": self._tracker.state_dict(),
            "actors": {str(ticket): actor for ticket, actor in self._actors.items()},
            "arrived": [outcome_state(o) for o in self._arrived.values()],
            "open_decisions": self._open_decisions.state_dict(),
            "update_metrics": [{"updates": k, "means": means} for k, means in self._update_metrics],
            "opponents": self._assignment.state_dict() if self._assignment else {},
        }

    def load_state_dict(self, state: State) -> None:
        """Continue from a `state_dict`."""
        super().load_state_dict(state)
        self.learner.load_state_dict(state["learner"])
        self.replay.load_state_dict(state["replay"])
        if self._priorities:
            self._priorities.load_state_dict(state["priorities"])
        self.moments = Moments.unpack(state["obs_moments"])
        self._new_moments = Moments.unpack(state["new_obs_moments"])
        self.learner.normalize(self.moments)
        self._policy = dict(state["policy"])
        self._tracker.load_state_dict(state["episodes"])
        self._actors = {int(ticket): dict(actor) for ticket, actor in state["actors"].items()}
        self._arrived = {int(o["ticket"]): outcome_from_state(o) for o in state["arrived"]}
        self._open_decisions.load_state_dict(state["open_decisions"])
        self._update_metrics = [(int(m["updates"]), dict(m["means"])) for m in state["update_metrics"]]
        if self._assignment:
            self._assignment.load_state_dict(state["opponents"])


def build_off_policy(config: OffPolicyConfig, context: BuildContext) -> OffPolicyAlgorithm:
    """The algorithm of a learner's config.

    Raises:
        ConfigError: the learner cannot act in this environment, or the replay buffer does not fit.
    """
    check_action_space(config.name, config.name, context)
    actions = context.actions
    if getattr(config, "action_noise", 0.0) and not actions.continuous:
        raise ConfigError(f"algorithm.action_noise is for actions in a Box; got {context.env.action_space}. Leave it out")
    on_windows = config.trains_on_windows(context.policy)
    make = partial(WindowLearner, config=config) if on_windows else cast("Any", config).make_learner
    learner: ReplayLearner = make(
        policy=context.policy, obs=context.env.obs, n_actions=actions.size, discrete=not actions.continuous, seed=context.seed
    )
    kept = window_columns(learner.state_size, config.target != "nstep", config.refresh) if isinstance(learner, WindowLearner) else {}
    replay = make_replay(context, config.buffer_size, config.checkpoint_slack, kept)
    return OffPolicyAlgorithm(learner, replay, config, context)


def learner_spec(config: Any, context: BuildContext) -> LearnerSpec:
    """All that it takes to make the learner of an update config, anywhere."""
    actions = context.actions
    return LearnerSpec(context.policy, config, context.env.obs, actions.size, not actions.continuous, context.seed)


def check_action_space(name: str, learner: str, context: BuildContext) -> None:
    """Refuse an environment in which the learner cannot act.

    Raises:
        ConfigError: with what it needs, and what else would do.
    """
    space = context.env.action_space
    box, discrete = isinstance(space, spaces.Box), isinstance(space, spaces.Discrete)
    if (box and context.actions.bounded and learner != "dqn") or (learner in ("sac", "dqn") and discrete):
        return
    if name == "sac" and context.actions.in_rows and context.actions.bounded:
        return
    needs = {"sac": "bounded Box or discrete actions", "dqn": "Discrete actions"}
    needed = needs.get(learner, "actions in a bounded Box")
    sac = "algorithm.name=sac" if name == learner else "algorithm.learner=sac"
    other = f"{sac} or algorithm.name=es" if discrete or learner == "dqn" else "algorithm.name=ppo or es"
    raise ConfigError(f"{name} needs {needed}; got {space}. Wrap the environment, or use {other}")
