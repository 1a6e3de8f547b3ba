"""CEM-RL (Pourchot & Sigaud 2018, arXiv 1810.01222), one individual at a time or spread over workers.

A generation is a list of stages. What is in one stage may be done at once, by anyone; it is taken in when the stage is
whole, in the order of its places. So the result is the same however many work on it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, PositiveInt, model_validator

from baldwin.errors import EnvironmentFailure
from baldwin.hybrids.config import HybridConfig
from baldwin.hybrids.hybrid import Body, Hybrid, Task, read_task, write_task
from baldwin.strategies import CEM, CEMRule
from baldwin.types import Individual, Metrics, Outcome, State, Trial, outcome_state

Step = tuple[str, int]  # (critic, n) or (life, place)


class HybridCEMRule(CEMRule):
    """As in AES-RL's code."""

    extra_tau: float = Field(0.9, ge=0, lt=1, description="How slowly it goes from one to the other; CEM-RL has 0.95")
    divide: bool = Field(True, description="Divide the elite's variance by their number once more, as CEM-RL's code and AES-RL's do")


class GenerationsConfig(HybridConfig):
    """What both have besides."""

    strategy: HybridCEMRule = HybridCEMRule()
    rl_individuals: int = Field(5, ge=0, description="Individuals that learn: the first ones, whose mirror images do not")
    capacity: PositiveInt = Field(1_000_000, description="Transitions that are remembered")
    surplus: PositiveInt = Field(
        500_000, description="Transitions kept beyond those, for work that is under way and for earlier checkpoints"
    )

    def steps_between_versions(self, episode: int) -> int:
        """A generation's."""
        return self.strategy.population * episode

    @model_validator(mode="after")
    def _fits_together(self) -> Any:
        if self.rl_individuals > self.strategy.population:
            raise ValueError(f"expected rl_individuals <= strategy.population={self.strategy.population}; got {self.rl_individuals}")
        if self.strategy.importance_mixing and self.is_on(self.warmup_moves, faithful=True):
            raise ValueError("strategy.importance_mixing keeps fitness, which must not be that of random actions: set warmup_moves=false")
        return self


class CEMRLConfig(GenerationsConfig):
    """CEM-RL: a generation one by one, the shared critic studying before each individual that learns."""

    name: Literal["cem-rl"] = "cem-rl"


class PCEMRLConfig(GenerationsConfig):
    """P-CEM-RL: the same generation spread over workers."""

    name: Literal["p-cem-rl"] = "p-cem-rl"
    critic: Literal["serial", "parallel"] = Field("serial", description="The critic studies before the individuals, or beside them")
    critic_chunk: PositiveInt = Field(1000, description="parallel without back-pressure: critic steps of one job")
    back_pressure: bool | None = Field(
        None,
        description="parallel: the critic takes as many steps a generation as it has learning steps; otherwise it never rests. "
        "faithful: no; fixed: yes",
    )


class Generations(Hybrid):
    """The distribution moves when a generation is whole."""

    config: CEMRLConfig | PCEMRLConfig

    def __init__(self, strategy: CEM, config: CEMRLConfig | PCEMRLConfig, body: Body) -> None:
        super().__init__(config, body)
        self.strategy = strategy
        self._policy = self._now()
        self._rl = 0 if config.inheritance == "darwinian" else config.rl_individuals
        self._beside = self._restless = False
        if isinstance(config, PCEMRLConfig):
            self._beside = config.critic == "parallel"
            self._restless = self._beside and not config.is_on(config.back_pressure, faithful=False)
        self._last_steps = 0  # learning steps of the last generation
        self._studied_last = False  # restless: what was given last was a study
        self._trials: list[Trial] = []
        self._rows: list[tuple[int, int]] = []  # where the replay has those who were played
        self._kept_rows: list[tuple[int, int]] = []  # and those who were kept
        self._begin()

    @property
    def center(self) -> NDArray[np.float32]:
        """The mean, as it is played."""
        return self.strategy.center

    def _begin(self) -> None:
        self._warm = self.warming_up
        self._trials = [] if self._warm and not self._warmup_moves else self.strategy.ask(self.strategy.population)
        self._stage = self._given = self._steps = 0
        self._back: dict[int, tuple[Task, Outcome] | None] = {}  # place in the stage -> what came of it
        self._played: list[tuple[Task, Outcome]] = []
        before, self._rows, self._kept_rows = self._rows + self._kept_rows, [], []
        for index in self.strategy.kept if self._trials else ():
            self._keep(*before[index])

    def _keep(self, first: int, total: int) -> None:
        """Who stays without being played is remembered once more, and counts for how long others learn."""
        there = total > first >= self.replay.total - self.replay.length
        last = self.replay.add(self.replay.read(first, total)) + 1 if there else 0
        self._kept_rows.append((last - (total - first), last) if there else (0, 0))
        self._steps += total - first

    def _stages(self) -> list[list[Step]]:
        places = range(len(self._trials) or self.strategy.population)
        lives: list[Step] = [("life", place) for place in places]
        if isinstance(self.config, CEMRLConfig):
            return [[step] for place in places for step in ([("critic", place)] if place < self._rl else []) + [lives[place]]]
        if not self._rl or self._restless:
            return [lives]
        return [[("critic", 0), *lives]] if self._beside else [[("critic", 0)], lives]

    def _random(self) -> bool:
        """Whether this individual's actions are. The seed's serial loop looks at every individual, and beyond the limit only."""
        if self.config.behaviour == "fixed" or not self._trials:
            return self._warm
        return self.learning_steps <= self.config.start_steps if isinstance(self.config, CEMRLConfig) else self.warming_up

    def _next(self) -> int | None:
        if isinstance(self.config, PCEMRLConfig) and self._restless and self._may_study():
            self._studied_last = True
            return self._give("critic", -1, self.version, self.center, self.config.critic_chunk)
        self._studied_last = False
        stages = self._stages()
        while self._given < len(stages[self._stage]):
            kind, place = stages[self._stage][self._given]
            self._given += 1
            ticket = self._study_of(place) if kind == "critic" else self._life_of(place)
            if ticket is not None:
                return ticket
            self._back[self._given - 1] = None
            self._advance()
        return None

    def _may_study(self) -> bool:
        """Restless: one study at a time, and on a single worker in turn with the others."""
        if not self._rl or self._random() or any(t.kind == "critic" for t in self._open.values()):
            return False
        return bool(self._open) or not self._studied_last

    def _study_of(self, place: int) -> int | None:
        """The critic takes as many steps a generation as the last one had learning steps, a share with each of its policies."""
        learners = min(self._rl, len(self._trials))  # fewer, if many stayed from the last generation
        shares = 1 if self._beside else max(1, learners)
        steps = 0 if self._random() else self._last_steps // shares
        if not steps:
            return None
        if self._beside:
            policies = self.center
        else:
            chosen = [place] if isinstance(self.config, CEMRLConfig) else range(learners)
            policies = np.stack([np.asarray(self._trials[n].params) for n in chosen])
        return self._give("critic", self._given - 1, self.version, policies, steps)

    def _life_of(self, place: int) -> int:
        random = self._random()
        params = np.asarray(self._trials[place].params) if self._trials else self.center
        learns = not random and place < self._rl and self._last_steps > 0
        kind = "random" if random else "rl" if learns else "es"
        return self._give(kind, self._given - 1, self.version, params, self._last_steps if learns else 0)

    def _take(self, task: Task, outcome: Outcome) -> Metrics | None:
        if task.kind == "critic" and task.place < 0:
            self._bear(task, outcome)
            self.critic = outcome.derived or self.critic
            return None
        self._back[task.place] = (task, outcome)
        return self._advance()

    def _advance(self) -> Metrics | None:
        """Take a whole stage in, and go to the next one; metrics when that was the last."""
        stages = self._stages()
        if len(self._back) < len(stages[self._stage]):
            return None
        for place in sorted(self._back):
            came = self._back[place]
            if came is None:
                continue
            if came[0].kind == "critic":
                self.critic = came[1].derived or self.critic
            else:
                self._lived(*came)
            if came[0].draws:
                self._bear(*came)
        self._stage, self._given, self._back = self._stage + 1, 0, {}
        return self._close() if self._stage == len(stages) else None

    def _lived(self, task: Task, outcome: Outcome) -> None:
        kept = {name: a for name, a in outcome.arrays.items() if name == "params"}  # its steps are in the replay
        self._played.append((replace(task, critic=None), replace(outcome, arrays=kept)))
        self._rows.append((0, 0) if outcome.failed else self._remember(outcome))
        self._steps += outcome.env_steps

    def _close(self) -> Metrics:
        """A generation is whole: the distribution moves, unless all that was only a warm-up."""
        if all(outcome.failed for _, outcome in self._played):
            raise EnvironmentFailure(f"every individual of generation {self.version} failed; the first reason: {self._played[0][1].reason}")
        old, found = self.strategy.mean, Metrics()
        results = [self._result(place, *played) for place, played in enumerate(self._played)]
        if self._trials:
            found = self.strategy.tell(results) or {}
        for place, (task, outcome) in enumerate(self._played):
            if not outcome.failed:
                self._judged(self._record(place, task, outcome, old))
        self._last_steps = self._steps
        metrics = self._turn(found | {"variance_floor_fraction": self.strategy.floor_fraction})
        self._begin()
        return metrics

    def _result(self, place: int, task: Task, outcome: Outcome) -> Outcome:
        """As the strategy hears of it."""
        inherits = self.config.inheritance == "lamarckian" and "params" in outcome.arrays
        ticket = self._trials[place].id if self._trials else place
        return Outcome(ticket, outcome.fitness, reason=outcome.reason, arrays={"params": outcome.arrays["params"]} if inherits else {})

    def _record(self, place: int, task: Task, outcome: Outcome, mean: NDArray[np.float64]) -> Individual:
        record: Individual = {"kind": task.kind, "place": place, "return": outcome.fitness, "length": outcome.env_steps}
        if not self._trials:
            return record
        x = outcome.arrays.get("params", task.params) if self.config.inheritance == "lamarckian" else task.params
        return record | {
            "actor_steps": outcome.actor_steps,
            "pull": float(self.strategy.weights[place]),
            "staleness": 0,
            "distance": float(np.linalg.norm(x - mean)),
            "variance_floor_fraction": self.strategy.floor_fraction,
        }

    def state_dict(self) -> State:
        """All that changes."""
        return super().state_dict() | {
            "strategy": self.strategy.state_dict(),
            "generation": [self._last_steps, self._stage, self._given, self._steps, int(self._warm), int(self._studied_last)],
            "rows": [[list(r) for r in self._rows], [list(r) for r in self._kept_rows]],
            "trials": [t.id for t in self._trials],
            "back": {str(place): _pack([came] if came else []) for place, came in self._back.items()},
            "played": _pack(self._played),
        }

    def load_state_dict(self, state: State) -> None:
        """Be the algorithm that wrote `state`."""
        super().load_state_dict(state)
        self.strategy.load_state_dict(state["strategy"])
        self._last_steps, self._stage, self._given, self._steps, *flags = state["generation"]
        self._warm, self._studied_last = (bool(flag) for flag in flags)
        self._rows, self._kept_rows = ([(int(first), int(total)) for first, total in part] for part in state["rows"])
        self._trials = [self.strategy.reopen(ticket) for ticket in state["trials"]]
        self._back = {int(place): next(iter(_unpack(came)), None) for place, came in state["back"].items()}
        self._played = _unpack(state["played"])


def _pack(came: Sequence[tuple[Task, Outcome]]) -> list[State]:
    return [{"task": write_task(task), "outcome": outcome_state(outcome)} for task, outcome in came]


def _unpack(state: list[State]) -> list[tuple[Task, Outcome]]:
    return [(read_task(s["task"]), Outcome(**s["outcome"])) for s in state]
