"""AES-RL (Lee et al. 2020, arXiv 2012.05417) and its kin: one critic, any number of individuals, no barrier.

An individual is drawn from the distribution as it is; by a controlled chance it first climbs the critics. After its
episode the mean is played, so that it is known what it had to beat, and the distribution moves by this one result. The
critic studies beside all this, a chunk at a time, with the mean as its target policy.
"""

from __future__ import annotations

from collections import deque
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, PositiveFloat, PositiveInt

from baldwin.hybrids.config import HybridConfig
from baldwin.hybrids.hybrid import Body, Hybrid, Task
from baldwin.ops import seeds
from baldwin.ops.controllers import rl_chance
from baldwin.strategies import ACEMRule, AESRule, Gaussian, OnePlusOneRule
from baldwin.types import Individual, Metrics, Outcome, State


class AsynchronousConfig(HybridConfig):
    """What the asynchronous ones have besides."""

    rl_ratio: float = Field(0.5, ge=0, le=1, description="Wanted share of individuals that learn")
    rl_gain: PositiveFloat = Field(50.0, description="How hard that share is held")
    mean_episodes: PositiveInt = Field(5, description="Episodes of the mean after each individual, to judge it by")
    window: PositiveInt = Field(10, description="Actor steps of an individual: the summed length of so many episodes before it")
    critic_chunk: PositiveInt = Field(1000, description="Critic steps of one job")
    critic_ratio: PositiveFloat = Field(1.0, description="Critic steps for each learning step, at most")
    critic_lag: PositiveInt = Field(5, description="Chunks that the critic may be behind before it holds others up")
    back_pressure: bool | None = Field(None, description="Individuals wait while the critic is that far behind. faithful: no; fixed: yes")
    count_evaluations: bool | None = Field(None, description="The mean's episodes count as environment steps. faithful: no; fixed: yes")
    round: PositiveInt = Field(1000, description="Learning steps between two lines of metrics: a generation of this algorithm")

    def steps_between_versions(self, episode: int) -> int:
        """A round, which ends with an episode."""
        return self.round + episode


class HybridACEMRule(ACEMRule):
    """As in AES-RL's code."""

    divide: bool = Field(True, description="Divide the elite's variance by their number once more, as AES-RL's code does")


class AESRLConfig(AsynchronousConfig):
    """AES-RL: asynchronous ES and a gradient learner, each individual pulling the mean by its gain over it."""

    name: Literal["aes-rl"] = "aes-rl"
    strategy: AESRule = AESRule()


class ACEMRLConfig(AsynchronousConfig):
    """ACEM-RL: the cross-entropy method on a sliding window, and a gradient learner."""

    name: Literal["acem-rl"] = "acem-rl"
    strategy: HybridACEMRule = HybridACEMRule()


class OnePlusOneRLConfig(AsynchronousConfig):
    """(1+1)-ES with the 1/5 rule, and a gradient learner."""

    name: Literal["one-plus-one-rl"] = "one-plus-one-rl"
    strategy: OnePlusOneRule = OnePlusOneRule()

    @property
    def real_strategy(self) -> OnePlusOneRule:
        """The seed's window never slides."""
        frozen = self.is_on(self.strategy.frozen_window, faithful=True)
        return self.strategy.model_copy(update={"frozen_window": frozen})


class Asynchronous(Hybrid):
    """The distribution moves with every individual."""

    config: AsynchronousConfig

    def __init__(self, gaussian: Gaussian, config: AsynchronousConfig, body: Body) -> None:
        super().__init__(config, body)
        self.gaussian = gaussian
        self._policy = self._now()
        self._lengths: deque[int] = deque(maxlen=config.window)
        self._dispatched = [1, 1]  # individuals that learn, and that do not
        self._moves = self._round_steps = 0
        self._grown: dict[int, tuple[NDArray[np.float32], Individual]] = {}  # place -> who waits to be judged
        self._to_judge: list[int] = []  # of them, those for whom the mean is not yet being played

    @property
    def center(self) -> NDArray[np.float32]:
        """The mean, as it is played."""
        return self.gaussian.center

    @property
    def env_steps(self) -> int:
        """Of training."""
        counted = self.config.is_on(self.config.count_evaluations, faithful=False)
        return self.simulator_steps if counted else self.learning_steps

    def _next(self) -> int | None:
        if self._to_judge:
            return self._give("mean", self._to_judge.pop(0), self._moves, self.center, episodes=self.config.mean_episodes)
        behind = self.config.critic_ratio * self.learning_steps - self.critic_steps
        learns = not self.warming_up and self.config.inheritance != "darwinian"
        if learns and behind > 0 and not any(t.kind == "critic" for t in self._open.values()):
            return self._give("critic", -1, self._moves, self.center, self.config.critic_chunk)
        held = self.config.is_on(self.config.back_pressure, faithful=False)
        if learns and held and behind > self.config.critic_lag * self.config.critic_chunk:
            return None
        return None if self._would_overwrite() else self._individual()

    def _would_overwrite(self) -> bool:
        """Whether what is being drawn from might be, if one more episode were on its way."""
        needed = [t.rows[0] for t in self._open.values() if t.draws]
        coming = 1 + sum(t.kind in ("es", "rl", "random") for t in self._open.values())
        longest = self._limit or max(self._lengths, default=1)
        return bool(needed) and self.replay.total + coming * longest - self.replay.length > min(needed)

    def _individual(self) -> int:
        place, x = self._tickets, self.gaussian.draw(self._tickets)
        if self.warming_up:
            return self._give("random", place, self._moves, x)
        chance = rl_chance(self._dispatched[0] / sum(self._dispatched), self.config.rl_ratio, self.config.rl_gain)
        able = self.config.inheritance != "darwinian" and len(self._lengths) > 0  # else there is nothing to learn from
        learns = able and seeds.generator(self._seed, seeds.Stream.HYBRID, place).random() < chance
        self._dispatched[0 if learns else 1] += 1
        return self._give("rl" if learns else "es", place, self._moves, x, sum(self._lengths) if learns else 0)

    def _take(self, task: Task, outcome: Outcome) -> Metrics | None:
        self._bear(task, outcome)
        if task.kind == "critic":
            self.critic = outcome.derived or self.critic
            return None
        if task.kind == "mean":
            self.judged_steps += outcome.env_steps
            if outcome.failed:
                self._to_judge.append(task.place)  # the mean is played again, on other seeds
                return None
            return self._judge(*self._grown.pop(task.place), outcome.fitness)
        if outcome.failed:
            return None
        self._remember(outcome)
        self._lengths.append(outcome.env_steps)
        self._round_steps += outcome.env_steps
        record: Individual = {"kind": task.kind, "place": task.place, "return": outcome.fitness, "length": outcome.env_steps}
        record |= {"version": task.version, "actor_steps": outcome.actor_steps}
        if task.kind == "random" and not self._warmup_moves:
            return self._closed(record)
        inherits = self.config.inheritance == "lamarckian" and "params" in outcome.arrays
        self._grown[task.place] = (np.asarray(outcome.arrays["params"]) if inherits else task.params, record)
        self._to_judge.append(task.place)
        return None

    def _judge(self, x: NDArray[np.float32], record: Individual, baseline: float) -> Metrics | None:
        """The distribution moves by one individual."""
        distance = float(np.linalg.norm(x - self.gaussian.mean))
        pull = self.gaussian.move(x.astype(np.float64), float(record["return"]), baseline)
        staleness, self._moves = self._moves - int(record.pop("version")), self._moves + 1
        return self._closed(
            record
            | {
                "baseline": baseline,
                "pull": pull,
                "staleness": staleness,
                "distance": distance,
                "variance_floor_fraction": self.gaussian.floor_fraction,
            }
        )

    def _closed(self, record: Individual) -> Metrics | None:
        record.pop("version", None)
        self._judged(record)
        if self._round_steps < self.config.round:
            return None
        self._round_steps = 0
        spread = self.gaussian.spread
        return self._turn({"variance_mean": float(spread.mean()), "variance_floor_fraction": self.gaussian.floor_fraction})

    def state_dict(self) -> State:
        """All that changes."""
        return super().state_dict() | {
            "gaussian": self.gaussian.state_dict(),
            "lengths": list(self._lengths),
            "asynchronous": [*self._dispatched, self._moves, self._round_steps],
            "grown": {str(place): {"params": x, "record": record} for place, (x, record) in self._grown.items()},
            "to_judge": self._to_judge,
        }

    def load_state_dict(self, state: State) -> None:
        """Be the algorithm that wrote `state`."""
        super().load_state_dict(state)
        self.gaussian.load_state_dict(state["gaussian"])
        self._lengths = deque(state["lengths"], maxlen=self.config.window)
        *dispatched, self._moves, self._round_steps = state["asynchronous"]
        self._dispatched = [int(n) for n in dispatched]
        self._grown = {int(place): (g["params"], dict(g["record"])) for place, g in state["grown"].items()}
        self._to_judge = [int(place) for place in state["to_judge"]]
