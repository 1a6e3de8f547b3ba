"""What all hybrids share: one critic, one replay buffer that every individual fills, and jobs that can be made again."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from baldwin.algorithm import BaseAlgorithm, BuildContext
from baldwin.errors import ConfigError, Diverged, EnvironmentFailure
from baldwin.hybrids.config import HybridConfig
from baldwin.hybrids.jobs import CRITIC, METRIC, ImproveAndEvaluate, TrainCritic
from baldwin.learners.buffers import make_replay, merge_vectors
from baldwin.learners.off_policy import check_action_space, learner_spec
from baldwin.networks import make_network
from baldwin.opponents import SCRIPT, JobOpponents, OpponentPool
from baldwin.ops import seeds
from baldwin.ops.moments import Moments
from baldwin.ops.statistics import return_stats
from baldwin.rollout import CollectJob, EpisodePosition, RolloutJob, RolloutSpec, episode_seed, transitions
from baldwin.types import Arrays, Individual, Job, Metrics, Outcome, Shared, State, Trial, flatten_tree, unflatten_tree

OVERWRITTEN = "the transitions it sampled were overwritten meanwhile: raise algorithm.checkpoint_slack"
AVERAGED = ("return", "length", "step_size", "staleness", "distance", "baseline")  # fields of individuals that metrics average


@dataclass(frozen=True, slots=True)
class PendingJob:
    """An open job: enough to make it again, exactly."""

    kind: str  # critic, rl, es, random or mean
    slot: int  # whom it is about: an individual's ticket, or its position in the stage of a generation
    version: int  # of the distribution, when it was asked
    params: NDArray[np.float32]  # [D], or target policies [n, D] for the critic
    obs_moments: NDArray[np.float64]
    steps: int = 0  # of gradient
    replay_first: int = 0  # oldest index of the replay that it samples
    replay_total: int = 0  # one past the newest; 0 if it does not sample
    critic_version: int = 0
    episodes: int = 1  # of the mean
    start: int = -1  # the episode whose start it shares; -1: one of its own

    @property
    def reads_replay(self) -> bool:
        """Whether it samples from the replay buffer."""
        return self.replay_total > 0


class HybridAlgorithm(BaseAlgorithm):
    """A strategy, a learner and a replay buffer. The number of a job is its ticket."""

    counters = (*BaseAlgorithm.counters, "critic_steps", "actor_steps", "critic_version", "_tickets", "_failed_jobs")

    def __init__(self, config: HybridConfig, context: BuildContext, center: NDArray[np.float32]) -> None:
        super().__init__()
        self.config, self._context, self._seed = config, context, context.seed
        rule = config.learner
        if not config.resolve_switch(config.scale_target_noise, faithful=False):
            rule = rule.with_noise_unit(context.actions.half_range if context.actions.continuous else 1.0)
        self._learner_spec = learner_spec(rule, context)
        self._learner = self._learner_spec.make()
        self.replay = make_replay(context, config.buffer_size, config.checkpoint_slack)
        self.critic: Arrays = flatten_tree(self._learner.critic_state())
        self.critic_version = 0
        self._frozen_critics = {0: self._freeze_critic()}  # the current version, and those that open jobs name
        self._published_critics: set[int] = set()
        self.moments = Moments.empty(context.env.obs.vector_size)
        self.critic_steps = 0
        self.actor_steps = 0
        self._tickets = 0
        self._pending: dict[int, PendingJob] = {}
        self._finished: list[Individual] = []  # since the last call of `individuals`
        self._epoch: list[Individual] = []  # since the last line of metrics
        self._failed_jobs = 0  # since the last line of metrics
        self._samples: list[tuple[str, float, float]] = []  # metric, weight, value
        self._policy = self._current_policy(center)
        self._opponents = JobOpponents(OpponentPool(context.opponents, context.opponent_policies)) if context.opponents else None

    @property
    @abstractmethod
    def center(self) -> NDArray[np.float32]:
        """The mean of the distribution."""

    @property
    def simulator_steps(self) -> int:
        """All environment steps of training."""
        return self.learning_steps + self.eval_steps

    @property
    def gradient_steps(self) -> int:
        """Updates of critics and actors."""
        return self.critic_steps + self.actor_steps

    @property
    def warming_up(self) -> bool:
        """Whether actions are still random."""
        return self.learning_steps < self.config.start_steps

    @property
    def _warmup_updates(self) -> bool:
        return self.config.resolve_switch(self.config.warmup_updates_distribution, faithful=True)

    def policy_state(self) -> Arrays:
        """Greedy parameters and observation moments as they were when this version began: a version has one policy."""
        return self._policy

    def publish(self) -> list[Shared]:
        """The greedy policy once per version, for evaluations; critics once per version of theirs, for jobs that train actors; new opponents."""
        needed = self._needed_critics()
        new = sorted(needed - self._published_critics) if self.config.inheritance != "darwinian" else []
        self._published_critics = needed
        critics = [Shared(CRITIC, v, self._frozen_critics[v], min(needed)) for v in new]
        return super().publish() + critics + (self._opponents.pool.publish() if self._opponents else [])

    def individuals(self) -> list[Individual]:
        """Records of the individuals that were finished since the last call."""
        finished, self._finished = self._finished, []
        return finished

    def reset_optimizer(self) -> None:
        """Adam's moments of critics, and of the temperature where there is one; actors have a fresh optimiser in every job."""
        self._learner.load_critic_state(unflatten_tree(self.critic))
        self._learner.reset_optimizer()
        self.critic = flatten_tree(self._learner.critic_state())

    def set_policy_params(self, params: NDArray[np.float32]) -> None:
        """Move the mean of the distribution; critics and replay buffer stay."""
        self._set_center(params)
        self._policy = self._current_policy(self.center)

    @abstractmethod
    def _set_center(self, center: NDArray[np.float32]) -> None:
        """Move the mean of the distribution, between updates."""

    def _open_job(self, kind: str, slot: int, version: int, params: NDArray[np.float32], steps: int = 0, **extra: Any) -> int:
        """Open a ticket. A job with gradient steps sees the critics and the replay buffer as they are now."""
        ticket = self._tickets
        self._tickets += 1
        pending = PendingJob(kind, slot, version, params, self.moments.pack(), **extra)
        if steps:
            view = self.replay.view()
            pending = replace(pending, steps=steps, replay_first=view.first, replay_total=view.total, critic_version=self.critic_version)
        self._pending[ticket] = pending
        return self._open_tickets(ticket, [ticket])

    def _make_job(self, number: int) -> Job:
        pending = self._pending[number]
        if pending.kind == "critic":
            return self._critic_job(number)
        start = pending.start if pending.start >= 0 else number
        mixture = self._opponents.mixture_of(number) if self._opponents else None
        if pending.kind == "mean":
            own = pending.start < 0
            spec = RolloutSpec(
                purpose="mean",
                version=pending.version,
                seeds=seeds.seeds(1, self._seed, seeds.Stream.TRAIN, number) if own else episode_seed(self._seed, 0, start),
                first_episode=0,
                episodes=pending.episodes,
                max_steps=self._context.env.max_episode_steps,
                skip_failed_episodes=True,
                obs_moments=pending.obs_moments,
                opponents=mixture,
            )
            return RolloutJob((Trial(number, pending.version, pending.params),), spec)
        # The same as the mean's where both begin at one start.
        opponent = mixture.choose(int(episode_seed(self._seed, 0, start)[0]), 0, 0) if mixture else SCRIPT
        episode = CollectJob(
            ticket=number,
            seed=self._seed,
            params=pending.params,
            obs_moments=pending.obs_moments,
            positions=(EpisodePosition(0, start, self._context.actions.empty_actions(), opponent=opponent),),
            steps=None,
            explore="random" if pending.kind == "random" else "greedy",
            max_episode_steps=self._context.env.max_episode_steps,
            opponents=mixture,
        )
        view = self.replay.view(pending.replay_first, pending.replay_total) if pending.reads_replay else None
        return ImproveAndEvaluate(self._learner_spec, episode, pending.steps, pending.critic_version, view)

    def _critic_job(self, ticket: int) -> TrainCritic:
        """One critic job is open at a time, so that it continues from the critics as they are."""
        pending = self._pending[ticket]
        view = self.replay.view(pending.replay_first, pending.replay_total)
        policies = np.atleast_2d(pending.params)
        return TrainCritic(ticket, self._learner_spec, self.critic, policies, pending.steps, view, pending.obs_moments)

    def _on_outcomes(self, outcomes: Sequence[Outcome]) -> Metrics | None:
        metrics: Metrics | None = None
        for outcome in outcomes:
            pending = self._pending[outcome.ticket]
            if pending.reads_replay and pending.replay_first < self.replay.total - self.replay.length:
                outcome = Outcome(outcome.ticket, float("nan"), reason=OVERWRITTEN)
            elif pending.kind == "critic" and not (outcome.failed or outcome.derived or self._context.policy_only):
                (outcome,) = self._critic_job(outcome.ticket).run()  # it comes from a journal, which leaves out derived arrays
            del self._pending[outcome.ticket]
            self._count_steps(outcome)
            if self._opponents and pending.kind != "random":
                self._opponents.add(outcome.ticket, outcome.arrays)
            metrics = self._on_result(pending, outcome) or metrics
        return metrics

    @abstractmethod
    def _on_result(self, pending: PendingJob, outcome: Outcome) -> Metrics | None:
        """Take one result; metrics when it completed a version."""

    def _check_failures(self, pending: PendingJob, outcome: Outcome) -> None:
        """Stop where nothing of a kind works. Called in an order that does not depend on who was faster, where there is one."""
        kind = {"rl": "learning", "critic": "critic"}.get(pending.kind, "playing")
        self._count_failure(outcome, self.config, EnvironmentFailure if kind == "playing" else Diverged, kind)

    def _set_critic(self, outcome: Outcome) -> None:
        """Continue with the critics of a result; with the old ones if it failed."""
        if outcome.derived:
            self.critic = outcome.derived
            self.critic_version += 1
            needed = self._needed_critics()
            self._frozen_critics = {v: arrays for v, arrays in self._frozen_critics.items() if v in needed}
            self._frozen_critics[self.critic_version] = self._freeze_critic()

    def _needed_critics(self) -> set[int]:
        """The current version, and those that open jobs name."""
        return {p.critic_version for p in self._pending.values() if p.kind == "rl"} | {self.critic_version}

    def _freeze_critic(self) -> dict[str, NDArray[Any]]:
        return self._learner.frozen_critic(unflatten_tree(self.critic))

    def _store(self, outcome: Outcome) -> tuple[int, int]:
        """Add an episode to the replay buffer; returns its first index and one past its last."""
        (rows,) = transitions(outcome.arrays)
        last = self.replay.add(rows)
        self.learning_steps += outcome.env_steps
        self.moments = merge_vectors(self.moments, rows, self._context.policy)
        return last + 1 - len(rows["reward"]), last + 1

    def _count_steps(self, outcome: Outcome) -> None:
        self._failed_jobs += outcome.failed
        self.critic_steps += outcome.critic_steps
        self.actor_steps += outcome.actor_steps
        weight = float(outcome.critic_steps or outcome.actor_steps)
        self._samples += [(n.removeprefix(METRIC), weight, float(a)) for n, a in outcome.arrays.items() if n.startswith(METRIC)]

    def _record_individual(self, record: Individual) -> None:
        self._finished.append(record)
        self._epoch.append(record)

    def _end_epoch(self, metrics: Metrics) -> Metrics:
        """Complete a version: a line of metrics from the individuals and the losses since the last one."""
        self.version += 1
        self._policy = self._current_policy(self.center)
        metrics = metrics | return_stats([float(r["return"]) for r in self._epoch])
        for name in AVERAGED:
            values = [float(r[name]) for r in self._epoch if name in r]
            if values and name != "return":
                metrics["episode_length" if name == "length" else name] = float(np.mean(values))
        for kind in ("es", "rl"):
            returns = [float(r["return"]) for r in self._epoch if r["kind"] == kind]
            metrics |= {f"{kind}_return": float(np.mean(returns))} if returns else {}
        for name in {sample[0] for sample in self._samples}:
            weights, values_ = np.array([sample[1:] for sample in self._samples if sample[0] == name]).T
            metrics[name] = float((weights * values_).sum() / weights.sum())
        metrics |= {
            "individuals": float(len(self._epoch)),
            "failed": float(self._failed_jobs),
            "rl_fraction": float(np.mean([r["kind"] == "rl" for r in self._epoch])),
            "simulator_steps": float(self.simulator_steps),
            "critic_steps": float(self.critic_steps),
            "actor_steps": float(self.actor_steps),
            "critic_steps_per_learning_step": self.critic_steps / max(1, self.learning_steps),
            "buffer_fill": len(self.replay) / self.replay.capacity,
        }
        if self._opponents:
            metrics |= self._opponents.end_generation(self._policy, self.simulator_steps, self._open.values())
        self._epoch = []
        self._samples = []
        self._failed_jobs = 0
        return dict(sorted(metrics.items()))

    def _current_policy(self, center: NDArray[np.float32]) -> dict[str, NDArray[Any]]:
        return {"params": center, "obs_moments": self.moments.pack()}

    def state_dict(self) -> State:
        """Critics, replay position, open jobs, statistics and the epoch so far."""
        sampled = [p.replay_first for p in self._pending.values() if p.reads_replay]
        older = self._needed_critics() - {self.critic_version}
        return super().state_dict() | {
            "critic": dict(self.critic),
            "frozen_critics": {str(v): dict(self._frozen_critics[v]) for v in sorted(older)},
            "replay": self.replay.state_dict(min(sampled, default=None)),
            "obs_moments": self.moments.pack(),
            "policy": dict(self._policy),
            "pending": {str(ticket): asdict(pending) for ticket, pending in self._pending.items()},
            "epoch": self._epoch,
            "samples": [{"metric": name, "weight": weight, "value": value} for name, weight, value in self._samples],
            "opponents": self._opponents.state_dict() if self._opponents else {},
        }

    def load_state_dict(self, state: State) -> None:
        """Continue from a `state_dict`."""
        super().load_state_dict(state)
        self.critic = dict(state["critic"])
        self._frozen_critics = {int(v): dict(arrays) for v, arrays in state["frozen_critics"].items()}
        self._frozen_critics[self.critic_version] = self._freeze_critic()
        self._published_critics = set()
        self.replay.load_state_dict(state["replay"])
        self.moments = Moments.unpack(state["obs_moments"])
        self._policy = dict(state["policy"])
        self._pending = {int(ticket): PendingJob(**pending) for ticket, pending in state["pending"].items()}
        self._epoch = [dict(r) for r in state["epoch"]]
        self._samples = [(str(s["metric"]), float(s["weight"]), float(s["value"])) for s in state["samples"]]
        if self._opponents:
            self._opponents.load_state_dict(state["opponents"])


def initial_center(context: BuildContext) -> NDArray[np.float32]:
    """The parameters that a run begins with."""
    return make_network(context.policy, context.env.obs, context.actions.outputs).init(context.seed)


def check_environment(config: HybridConfig, context: BuildContext) -> None:
    """Refuse what cannot work in this environment.

    Raises:
        ConfigError: the learner cannot act in it, or the replay buffer would lose what the kept checkpoints need.
    """
    check_action_space(config.name, config.learner.name, context)
    limit = context.env.max_episode_steps
    if limit is None:
        return
    span = context.generations_kept * config.steps_between_versions(limit)
    if span > config.slack_for_checkpoints:
        raise ConfigError(
            f"up to {span} steps lie between run.keep x run.checkpoint_every generations with episodes of {limit} steps, and "
            f"algorithm.checkpoint_slack={config.checkpoint_slack} keeps {config.slack_for_checkpoints} for going back to a checkpoint: "
            f"lower run.checkpoint_every or raise algorithm.checkpoint_slack"
        )
