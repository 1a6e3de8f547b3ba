"""AES-RL (Lee et al. 2020, arXiv 2012.05417) and its kin: one critic, any number of individuals, no barrier.

An individual is drawn from the current distribution; with a controlled probability it is first improved by gradient
against the critics. After its episode the mean is played, where the strategy compares with it, and the distribution is
updated by this one result. Critics train beside all this, a chunk per job, with the mean as their target policy.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import ClassVar, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, PositiveFloat, PositiveInt, model_validator

from baldwin.algorithm import AlgorithmEntry, BuildContext, register
from baldwin.hybrids.config import HybridConfig
from baldwin.hybrids.hybrid import HybridAlgorithm, PendingJob, check_environment, initial_center
from baldwin.ops import seeds
from baldwin.ops.controllers import rl_probability
from baldwin.strategies import ACEM, AES, ACEMUpdateConfig, AESUpdateConfig, Gaussian, OnePlusOne, OnePlusOneUpdateConfig
from baldwin.strategies.gaussian import GaussianConfig
from baldwin.types import Individual, Metrics, Outcome, State

DEFAULT_MEAN_EPISODES = 5


class AsynchronousConfig(HybridConfig):
    """Settings of asynchronous hybrids, besides those of all hybrids."""

    renamed: ClassVar[dict[str, str]] = {
        "window": "actor_steps_window",
        "critic_chunk": "critic_steps_per_job",
        "critic_lag": "max_critic_lag",
        "round": "steps_per_epoch",
    }

    strategy: GaussianConfig = GaussianConfig()
    rl_ratio: float = Field(0.5, ge=0, le=1, description="Target fraction of individuals that learn by gradient")
    rl_gain: PositiveFloat = Field(50.0, description="Gain of the controller that keeps that fraction")
    actor_steps_window: PositiveInt = Field(10, description="Actor steps of an individual: the summed length of so many episodes before it")
    critic_steps_per_job: PositiveInt = Field(1000, description="Critic updates per job")
    critic_ratio: PositiveFloat = Field(1.0, description="Critic updates for each learning step, at most")
    max_critic_lag: PositiveInt = Field(5, description="Jobs that the critic may be behind before individuals wait for it")
    back_pressure: bool | None = Field(None, description="Individuals wait while the critic is that far behind. faithful: no; fixed: yes")
    steps_per_epoch: PositiveInt = Field(1000, description="Learning steps per line of metrics: the generation of this algorithm")

    def steps_between_versions(self, episode: int) -> int:
        """An epoch, which ends with an episode."""
        return self.steps_per_epoch + episode

    @property
    def resolved_strategy(self) -> GaussianConfig:
        """The config of the distribution, with every switch resolved."""
        return self.strategy

    @property
    def resolved_mean_episodes(self) -> int:
        """Episodes of the mean after each individual: none, where no baseline is compared with."""
        return 0

    @property
    def shares_starts(self) -> bool:
        """The mean is played from the individual's start."""
        return False

    @property
    def counts_evaluations(self) -> bool:
        """The mean's episodes count as environment steps."""
        return True


class BaselineHybridConfig(AsynchronousConfig):
    """An asynchronous hybrid that compares individuals with the mean."""

    mean_episodes: PositiveInt | None = Field(
        None, description="Episodes of the mean after each individual; default: 5, or 1 with common_random_numbers"
    )
    count_evaluations: bool | None = Field(None, description="The mean's episodes count as environment steps. faithful: no; fixed: yes")
    common_random_numbers: bool = Field(False, description="The mean is played once after each individual, from the same start")

    @property
    def resolved_mean_episodes(self) -> int:
        """Episodes of the mean after each individual."""
        return self.mean_episodes or (1 if self.common_random_numbers else DEFAULT_MEAN_EPISODES)

    @property
    def shares_starts(self) -> bool:
        """Whether `common_random_numbers` is on."""
        return self.common_random_numbers

    @property
    def counts_evaluations(self) -> bool:
        """Whether the mean's episodes count as environment steps: `count_evaluations`, or if that is not set, the value of `behaviour`."""
        return self.resolve_switch(self.count_evaluations, faithful=False)

    @model_validator(mode="after")
    def _one_shared_start(self) -> Self:
        if self.common_random_numbers and self.resolved_mean_episodes > 1:
            raise ValueError("common_random_numbers plays the mean once, from the individual's start: leave mean_episodes out")
        return self


class HybridACEMConfig(ACEMUpdateConfig):
    """The update of ACEM with the defaults of AES-RL's code."""

    divide_variance_by_k: bool = Field(True, description="Divide the parents' variance by their number once more, as AES-RL's code does")


class AESRLConfig(BaselineHybridConfig):
    """AES-RL: asynchronous ES and a gradient learner, each individual moving the mean by its gain over it."""

    name: Literal["aes-rl"] = "aes-rl"
    strategy: AESUpdateConfig = AESUpdateConfig()


class ACEMRLConfig(AsynchronousConfig):
    """ACEM-RL: the cross-entropy method on a sliding window, and a gradient learner."""

    name: Literal["acem-rl"] = "acem-rl"
    removed: ClassVar[dict[str, str]] = {
        "mean_episodes": "the update of ACEM reads no baseline, so the mean is not played",
        "count_evaluations": "the update of ACEM reads no baseline, so the mean is not played",
    }

    strategy: HybridACEMConfig = HybridACEMConfig()


class OnePlusOneRLConfig(BaselineHybridConfig):
    """(1+1)-ES with the 1/5 rule, and a gradient learner."""

    name: Literal["one-plus-one-rl"] = "one-plus-one-rl"
    strategy: OnePlusOneUpdateConfig = OnePlusOneUpdateConfig()

    @property
    def resolved_strategy(self) -> OnePlusOneUpdateConfig:
        """The window of the reference implementation never slides."""
        frozen = self.resolve_switch(self.strategy.frozen_window, faithful=True)
        return self.strategy.model_copy(update={"frozen_window": frozen})


class AsynchronousHybrid(HybridAlgorithm):
    """The distribution is updated by every individual as it is finished."""

    config: AsynchronousConfig
    counters = (*HybridAlgorithm.counters, "_distribution_version", "_n_rl", "_n_es", "_epoch_steps")

    def __init__(self, gaussian: Gaussian, config: AsynchronousConfig, context: BuildContext) -> None:
        super().__init__(config, context, gaussian.center)
        self.gaussian = gaussian
        self._distribution_version = 0  # updates of the distribution
        self._n_rl = 1  # individuals that were sent to learn, and those that were not
        self._n_es = 1
        self._epoch_steps = 0
        self._episode_lengths: deque[int] = deque(maxlen=config.actor_steps_window)
        self._awaiting_baseline: dict[int, tuple[NDArray[np.float32], Individual]] = {}  # ticket -> parameters, record
        self._baseline_queue: list[int] = []  # of them, those for whom the mean is not being played yet

    @property
    def center(self) -> NDArray[np.float32]:
        """The mean of the distribution."""
        return self.gaussian.center

    def _set_center(self, center: NDArray[np.float32]) -> None:
        self.gaussian.set_center(center)

    @property
    def env_steps(self) -> int:
        """Environment steps of training; without the mean's episodes, where those do not count."""
        return self.simulator_steps if self.config.counts_evaluations else self.learning_steps

    # One individual, from the draw to the update of the distribution:

    def _next_job(self) -> int | None:
        """A baseline that is waited for, then a chunk for the critic, then a new individual."""
        if self._baseline_queue:
            return self._open_baseline(self._baseline_queue.pop(0))
        learning = not self.warming_up and self.config.inheritance != "darwinian"
        behind = self.config.critic_ratio * self.learning_steps - self.critic_steps
        if learning and behind > 0 and not any(p.kind == "critic" for p in self._pending.values()):
            return self._open_job("critic", -1, self._distribution_version, self.center, self.config.critic_steps_per_job)
        wait_for_critic = self.config.resolve_switch(self.config.back_pressure, faithful=False)
        if learning and wait_for_critic and behind > self.config.max_critic_lag * self.config.critic_steps_per_job:
            return None
        return None if self._would_overwrite() else self._open_individual()

    def _open_individual(self) -> int:
        """Draw an individual and decide whether it learns before it plays."""
        number, x = self._tickets, self.gaussian.draw(self._tickets)
        if self.warming_up:
            return self._open_job("random", number, self._distribution_version, x)
        probability = rl_probability(self._n_rl / (self._n_rl + self._n_es), self.config.rl_ratio, self.config.rl_gain)
        can_learn = self.config.inheritance != "darwinian" and len(self._episode_lengths) > 0  # else there is nothing to learn from
        if can_learn and seeds.generator(self._seed, seeds.Stream.HYBRID, number).random() < probability:
            self._n_rl += 1
            return self._open_job("rl", number, self._distribution_version, x, sum(self._episode_lengths))
        self._n_es += 1
        return self._open_job("es", number, self._distribution_version, x)

    def _on_result(self, pending: PendingJob, outcome: Outcome) -> Metrics | None:
        self._check_failures(pending, outcome)
        if pending.kind == "critic":
            self._set_critic(outcome)
            return None
        if pending.kind == "mean":
            return self._on_baseline(pending, outcome)
        return None if outcome.failed else self._on_individual(pending, outcome)

    def _on_individual(self, pending: PendingJob, outcome: Outcome) -> Metrics | None:
        """Store its episode. Then it waits for the baseline, if the strategy needs one, or updates the distribution at once."""
        self._store(outcome)
        self._episode_lengths.append(outcome.env_steps)
        self._epoch_steps += outcome.env_steps
        record: Individual = {"kind": pending.kind, "index": pending.slot, "return": outcome.scalar, "length": outcome.env_steps}
        if pending.kind == "random" and not self._warmup_updates:
            return self._finish_individual(record)
        record |= {"actor_steps": outcome.actor_steps, "version": pending.version}
        inherits = self.config.inheritance == "lamarckian" and "params" in outcome.arrays
        x = np.asarray(outcome.arrays["params"]) if inherits else pending.params
        if not self.gaussian.needs_baseline:
            return self._update_distribution(x, record, None)
        self._awaiting_baseline[pending.slot] = (x, record)
        self._baseline_queue.append(pending.slot)
        return None

    def _open_baseline(self, individual: int) -> int:
        """Play the mean as it is now, from the individual's start if they share it."""
        start = individual if self.config.shares_starts else -1
        episodes = self.config.resolved_mean_episodes
        return self._open_job("mean", individual, self._distribution_version, self.center, episodes=episodes, start=start)

    def _on_baseline(self, pending: PendingJob, outcome: Outcome) -> Metrics | None:
        self.eval_steps += outcome.env_steps
        if outcome.failed:
            self._baseline_queue.append(pending.slot)  # the mean is played again
            return None
        return self._update_distribution(*self._awaiting_baseline.pop(pending.slot), outcome.scalar)

    def _update_distribution(self, x: NDArray[np.float32], record: Individual, baseline: float | None) -> Metrics | None:
        """Update mean and variance by one individual."""
        distance = float(np.linalg.norm(x - self.gaussian.mean))
        fitness = np.array([float(record["return"])])
        (step_size,) = self.gaussian.update(x.astype(np.float64)[None], fitness, 0.0 if baseline is None else baseline)
        staleness = self._distribution_version - int(record.pop("version"))
        self._distribution_version += 1
        return self._finish_individual(
            record
            | ({} if baseline is None else {"baseline": baseline})
            | {
                "step_size": float(step_size),
                "staleness": staleness,
                "distance": distance,
                "variance_floor_fraction": self.gaussian.floor_fraction,
            }
        )

    def _finish_individual(self, record: Individual) -> Metrics | None:
        """Record it; metrics when an epoch is complete."""
        self._record_individual(record)
        if self._epoch_steps < self.config.steps_per_epoch:
            return None
        self._epoch_steps = 0
        variance = float(self.gaussian.variance.mean())
        return self._end_epoch({"variance_mean": variance, "variance_floor_fraction": self.gaussian.floor_fraction})

    def _would_overwrite(self) -> bool:
        """Whether one more episode in flight could overwrite what an open job samples."""
        sampled = [p.replay_first for p in self._pending.values() if p.reads_replay]
        coming = 1 + sum(p.kind in ("es", "rl", "random") for p in self._pending.values())
        longest = self._context.env.max_episode_steps or max(self._episode_lengths, default=1)
        return bool(sampled) and self.replay.total + coming * longest - self.replay.length > min(sampled)

    def state_dict(self) -> State:
        """State of the hybrid, with the distribution and the individuals that wait for their baseline."""
        return super().state_dict() | {
            "gaussian": self.gaussian.state_dict(),
            "episode_lengths": list(self._episode_lengths),
            "awaiting_baseline": {str(n): {"params": x, "record": record} for n, (x, record) in self._awaiting_baseline.items()},
            "baseline_queue": self._baseline_queue,
        }

    def load_state_dict(self, state: State) -> None:
        """Continue from a `state_dict`."""
        super().load_state_dict(state)
        self.gaussian.load_state_dict(state["gaussian"])
        self._episode_lengths = deque(state["episode_lengths"], maxlen=self.config.actor_steps_window)
        self._awaiting_baseline = {int(n): (w["params"], dict(w["record"])) for n, w in state["awaiting_baseline"].items()}
        self._baseline_queue = [int(n) for n in state["baseline_queue"]]


def register_asynchronous(config: type[AsynchronousConfig], gaussian: Callable[..., Gaussian]) -> AlgorithmEntry:
    """Add an asynchronous hybrid to the registry: its config, and its distribution, made as gaussian(center, config, seed=...)."""

    def build(chosen: AsynchronousConfig, context: BuildContext) -> AsynchronousHybrid:
        check_environment(chosen, context)
        distribution = gaussian(initial_center(context), chosen.resolved_strategy, seed=context.seed)
        return AsynchronousHybrid(distribution, chosen, context)

    return register(AlgorithmEntry(config, build, "hybrid", "arXiv 2012.05417", asynchronous=True))


register_asynchronous(AESRLConfig, AES)
register_asynchronous(ACEMRLConfig, ACEM)
register_asynchronous(OnePlusOneRLConfig, OnePlusOne)
