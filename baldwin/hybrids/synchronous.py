"""CEM-RL (Pourchot & Sigaud 2018, arXiv 1810.01222), one individual at a time or spread over workers.

A generation is a list of stages. What is in one stage may be done at once, by anyone; its results are processed when all
are back, in the order of the stage. So the outcome is the same however many workers there are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any, ClassVar, Literal, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, PositiveInt, model_validator

from baldwin.algorithm import AlgorithmEntry, BuildContext, register
from baldwin.errors import EnvironmentFailure
from baldwin.hybrids.config import HybridConfig
from baldwin.hybrids.hybrid import HybridAlgorithm, PendingJob, check_environment, initial_center
from baldwin.strategies import CEM, CEMUpdateConfig
from baldwin.types import Individual, Metrics, Outcome, State, Trial, outcome_from_state, outcome_state


class Step(NamedTuple):
    """A job of a stage."""

    kind: Literal["critic", "individual"]
    slot: int  # of the individual, or of the one whose policy the critic is trained for


class Finished(NamedTuple):
    """A job of the generation that is back."""

    pending: PendingJob
    outcome: Outcome


class HybridCEMConfig(CEMUpdateConfig):
    """The update of CEM with the defaults of AES-RL's code."""

    noise_tau: float = Field(0.9, ge=0, lt=1, description="How slowly it goes from one to the other; CEM-RL has 0.95")
    divide_variance_by_k: bool = Field(
        True, description="Divide the parents' variance by their number once more, as CEM-RL's code and AES-RL's do"
    )


class SynchronousHybridConfig(HybridConfig):
    """Settings of both versions of CEM-RL, besides those of all hybrids."""

    strategy: HybridCEMConfig = HybridCEMConfig()
    common_random_numbers: bool = Field(False, description="All individuals of a generation start from the same state")
    rl_individuals: int = Field(5, ge=0, description="Individuals that learn by gradient; their mirror images do not")
    buffer_size: PositiveInt = Field(1_000_000, description="Transitions in the replay buffer")
    checkpoint_slack: PositiveInt = Field(
        500_000, description="Transitions kept beyond those, for jobs that are in flight and for earlier checkpoints"
    )

    @property
    def one_by_one(self) -> bool:
        """One individual after the other, the critic in between."""
        return False

    @property
    def critic_parallel(self) -> bool:
        """The critic trains while individuals are played."""
        return False

    @property
    def free_running_steps(self) -> int:
        """Critic updates per job of a critic that never pauses; 0 where it does."""
        return 0

    def steps_between_versions(self, episode: int) -> int:
        """Learning steps of a generation with episodes of that length."""
        return self.strategy.population * episode

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if self.rl_individuals > self.strategy.population:
            raise ValueError(f"expected rl_individuals <= strategy.population={self.strategy.population}; got {self.rl_individuals}")
        if self.strategy.importance_mixing and self.resolve_switch(self.warmup_updates_distribution, faithful=True):
            raise ValueError(
                "strategy.importance_mixing keeps fitness, which must not be that of random actions: set warmup_updates_distribution=false"
            )
        return self


class CEMRLConfig(SynchronousHybridConfig):
    """CEM-RL: one individual after the other; the critic trains before each individual that learns."""

    name: Literal["cem-rl"] = "cem-rl"

    @property
    def one_by_one(self) -> bool:
        """Whether individuals are played one after the other, as in the paper."""
        return True


class PCEMRLConfig(SynchronousHybridConfig):
    """P-CEM-RL: the same generation spread over workers."""

    renamed: ClassVar[dict[str, str]] = {"critic": "critic_schedule", "critic_chunk": "critic_steps_per_job"}

    name: Literal["p-cem-rl"] = "p-cem-rl"
    critic_schedule: Literal["serial", "parallel"] = Field("serial", description="The critic trains before the individuals, or beside them")
    critic_steps_per_job: PositiveInt = Field(1000, description="parallel without back-pressure: critic updates per job")
    back_pressure: bool | None = Field(
        None,
        description="parallel: the critic makes as many updates per generation as there are learning steps; otherwise it never pauses. "
        "faithful: no; fixed: yes",
    )

    @property
    def critic_parallel(self) -> bool:
        """Whether `critic_schedule` is parallel."""
        return self.critic_schedule == "parallel"

    @property
    def free_running_steps(self) -> int:
        """`critic_steps_per_job`, if the critic is parallel and without back-pressure."""
        pauses = not self.critic_parallel or self.resolve_switch(self.back_pressure, faithful=False)
        return 0 if pauses else self.critic_steps_per_job


class SynchronousHybrid(HybridAlgorithm):
    """The distribution is updated when a generation is complete."""

    config: SynchronousHybridConfig
    counters = (*HybridAlgorithm.counters, "_last_steps", "_stage", "_n_dispatched", "_steps", "_warm_up", "_critic_was_last")

    def __init__(self, strategy: CEM, config: SynchronousHybridConfig, context: BuildContext) -> None:
        super().__init__(config, context, strategy.center)
        self.strategy = strategy
        self._n_rl = 0 if config.inheritance == "darwinian" else config.rl_individuals
        self._last_steps = 0  # learning steps of the last generation
        self._critic_was_last = False  # free-running: the last job was the critic's
        self._replay_ranges: list[tuple[int, int]] = []  # of the individuals that were played: first index, one past the last
        self._kept_ranges: list[tuple[int, int]] = []  # of those that were kept from the last generation
        self._start_generation()

    @property
    def center(self) -> NDArray[np.float32]:
        """The mean of the distribution."""
        return self.strategy.center

    def _set_center(self, center: NDArray[np.float32]) -> None:
        self.strategy.set_center(center)
        self._start_generation()

    # One generation, from the draw to the update of the distribution:

    def _start_generation(self) -> None:
        """Draw the individuals, those that learn first: the first of each mirrored pair, then the second ones."""
        self._warm_up = self.warming_up
        trials = [] if self._warm_up and not self._warmup_updates else self.strategy.ask(self.strategy.population)
        self._trials: list[Trial] = trials[::2] + trials[1::2]
        self._stage = 0
        self._n_dispatched = 0  # jobs of the stage
        self._steps = 0  # learning steps of this generation
        self._results: dict[int, Finished | None] = {}  # position in the stage -> result; None: there was nothing to do
        self._individuals: list[Finished] = []
        before = self._replay_ranges + self._kept_ranges
        self._replay_ranges = []
        self._kept_ranges = []
        for index in self.strategy.kept if self._trials else ():
            self._carry_over(*before[index])

    def _stages(self) -> list[list[Step]]:
        slots = range(len(self._trials) or self.strategy.population)
        individuals = [Step("individual", slot) for slot in slots]
        if self.config.one_by_one:
            return [[step] for slot in slots for step in ([Step("critic", slot)] if slot < self._n_rl else []) + [individuals[slot]]]
        if not self._n_rl or self.config.free_running_steps:
            return [individuals]
        return [[Step("critic", 0), *individuals]] if self.config.critic_parallel else [[Step("critic", 0)], individuals]

    def _next_job(self) -> int | None:
        if self.config.free_running_steps and self._can_train_critic():
            self._critic_was_last = True
            return self._open_job("critic", -1, self.version, self.center, self.config.free_running_steps)
        self._critic_was_last = False
        stages = self._stages()
        while self._n_dispatched < len(stages[self._stage]):
            step = stages[self._stage][self._n_dispatched]
            self._n_dispatched += 1
            ticket = self._open_critic(step.slot) if step.kind == "critic" else self._open_individual(step.slot)
            if ticket is not None:
                return ticket
            self._results[self._n_dispatched - 1] = None
            self._finish_stage_if_complete()
        return None

    def _open_critic(self, slot: int) -> int | None:
        """As many critic updates per generation as the last one had learning steps, an equal share against each policy that learns."""
        n_rl = min(self._n_rl, len(self._trials))  # fewer, if many stayed from the last generation
        shares = 1 if self.config.critic_parallel else max(1, n_rl)
        steps = 0 if self._random_actions() else self._last_steps // shares
        if not steps:
            return None
        if self.config.critic_parallel:
            policies = self.center
        else:
            policies = np.stack([np.asarray(self._trials[n].params) for n in ([slot] if self.config.one_by_one else range(n_rl))])
        return self._open_job("critic", self._n_dispatched - 1, self.version, policies, steps)

    def _open_individual(self, slot: int) -> int:
        random = self._random_actions()
        params = np.asarray(self._trials[slot].params) if self._trials else self.center
        learns = not random and slot < self._n_rl and self._last_steps > 0
        kind = "random" if random else "rl" if learns else "es"
        steps = self._last_steps if learns else 0
        start = self.version if self.config.common_random_numbers else -1
        return self._open_job(kind, self._n_dispatched - 1, self.version, params, steps, start=start)

    def _on_result(self, pending: PendingJob, outcome: Outcome) -> Metrics | None:
        if pending.kind == "critic" and pending.slot < 0:  # free-running
            self._check_failures(pending, outcome)
            self._set_critic(outcome)
            return None
        self._results[pending.slot] = Finished(pending, outcome)
        return self._finish_stage_if_complete()

    def _finish_stage_if_complete(self) -> Metrics | None:
        """Process the results of a stage in its order and begin the next one; metrics when that was the last."""
        stages = self._stages()
        if len(self._results) < len(stages[self._stage]):
            return None
        for position in sorted(self._results):
            finished = self._results[position]
            if finished is None:
                continue
            if finished.pending.kind == "critic":
                self._set_critic(finished.outcome)
            else:
                self._store_individual(finished)
            if finished.pending.reads_replay:
                self._check_failures(*finished)
        self._stage += 1
        self._n_dispatched = 0
        self._results = {}
        return self._finish_generation() if self._stage == len(stages) else None

    def _store_individual(self, finished: Finished) -> None:
        outcome = finished.outcome
        self._replay_ranges.append((0, 0) if outcome.failed else self._store(outcome))
        self._steps += outcome.env_steps
        kept = {name: a for name, a in outcome.arrays.items() if name == "params"}  # its transitions are in the replay now
        self._individuals.append(Finished(finished.pending, replace(outcome, arrays=kept)))

    def _finish_generation(self) -> Metrics:
        """Update the distribution by the individuals of a complete generation, unless all that was only a warm-up."""
        if all(f.outcome.failed for f in self._individuals):
            reason = self._individuals[0].outcome.reason
            raise EnvironmentFailure(f"every individual of generation {self.version} failed; the first reason: {reason}")
        indices = [self.strategy.index_of(trial.id) for trial in self._trials] or list(range(len(self._individuals)))
        old_mean = self.strategy.mean
        metrics = (self.strategy.tell([self._for_strategy(n, f) for n, f in enumerate(self._individuals)]) or {}) if self._trials else {}
        for index, finished in zip(indices, self._individuals, strict=True):
            if not finished.outcome.failed:
                self._record_individual(self._record(index, finished, old_mean))
        by_index = dict(zip(indices, self._replay_ranges, strict=True))
        self._replay_ranges = [by_index[index] for index in sorted(by_index)]
        self._last_steps = self._steps
        metrics = self._end_epoch(metrics | {"variance_floor_fraction": self.strategy.floor_fraction})
        self._start_generation()
        return metrics

    def _for_strategy(self, slot: int, finished: Finished) -> Outcome:
        """The result as the strategy gets it: with changed parameters where they are inherited."""
        outcome = finished.outcome
        inherits = self.config.inheritance == "lamarckian" and "params" in outcome.arrays
        arrays = {"params": outcome.arrays["params"]} if inherits else {}
        return Outcome(self._trials[slot].id, outcome.fitness, reason=outcome.reason, arrays=arrays)

    def _record(self, index: int, finished: Finished, old_mean: NDArray[np.float64]) -> Individual:
        pending, outcome = finished
        record: Individual = {"kind": pending.kind, "index": index, "return": outcome.scalar, "length": outcome.env_steps}
        if not self._trials:
            return record
        x = outcome.arrays.get("params", pending.params) if self.config.inheritance == "lamarckian" else pending.params
        return record | {
            "actor_steps": outcome.actor_steps,
            "step_size": float(self.strategy.weights[index]),
            "staleness": 0,
            "distance": float(np.linalg.norm(x - old_mean)),
            "variance_floor_fraction": self.strategy.floor_fraction,
        }

    def _random_actions(self) -> bool:
        """Whether the next individual acts at random. The reference implementation decides that before every individual."""
        if self.config.behaviour == "fixed" or not self._trials:
            return self._warm_up
        return self.learning_steps <= self.config.start_steps if self.config.one_by_one else self.warming_up

    def _can_train_critic(self) -> bool:
        """Free-running: one critic job at a time, and on a single worker alternating with the others."""
        if not self._n_rl or self._random_actions() or any(p.kind == "critic" for p in self._pending.values()):
            return False
        return bool(self._pending) or not self._critic_was_last

    def _carry_over(self, first: int, total: int) -> None:
        """An individual that stays without being played is stored once more, and counts for how long others learn."""
        there = total > first >= self.replay.total - self.replay.length
        last = self.replay.add(self.replay.read(first, total)) + 1 if there else 0
        self._kept_ranges.append((last - (total - first), last) if there else (0, 0))
        self._steps += total - first

    def state_dict(self) -> State:
        """State of the hybrid, with the strategy and the results of this generation so far."""
        return super().state_dict() | {
            "strategy": self.strategy.state_dict(),
            "replay_ranges": _ranges_state(self._replay_ranges),
            "kept_ranges": _ranges_state(self._kept_ranges),
            "trials": [t.id for t in self._trials],
            "results": {str(position): _finished_state(f) if f else {} for position, f in self._results.items()},
            "individuals": [_finished_state(f) for f in self._individuals],
        }

    def load_state_dict(self, state: State) -> None:
        """Continue from a `state_dict`."""
        super().load_state_dict(state)
        self.strategy.load_state_dict(state["strategy"])
        self._replay_ranges = [(int(r["first"]), int(r["total"])) for r in state["replay_ranges"]]
        self._kept_ranges = [(int(r["first"]), int(r["total"])) for r in state["kept_ranges"]]
        self._trials = [self.strategy.reopen(ticket) for ticket in state["trials"]]
        self._results = {int(position): _finished_from_state(f) if f else None for position, f in state["results"].items()}
        self._individuals = [_finished_from_state(f) for f in state["individuals"]]


def _ranges_state(ranges: Sequence[tuple[int, int]]) -> list[dict[str, int]]:
    return [{"first": first, "total": total} for first, total in ranges]


def _finished_state(finished: Finished) -> State:
    return {"pending": asdict(finished.pending), "outcome": outcome_state(finished.outcome)}


def _finished_from_state(state: State) -> Finished:
    return Finished(PendingJob(**state["pending"]), outcome_from_state(state["outcome"]))


def _build(config: Any, context: BuildContext) -> SynchronousHybrid:
    check_environment(config, context)
    return SynchronousHybrid(CEM(initial_center(context), config.strategy, seed=context.seed), config, context)


register(AlgorithmEntry(CEMRLConfig, _build, "hybrid", "arXiv 1810.01222"))
register(AlgorithmEntry(PCEMRLConfig, _build, "hybrid", "arXiv 1810.01222, 2012.05417"))
