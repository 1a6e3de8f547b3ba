"""Sweeps: trials with hyper-parameters of their own, several seeds each, compared by the median over seeds; nobody learns from another's state."""

from __future__ import annotations

import itertools
from typing import Any, ClassVar, Literal

import numpy as np
from pydantic import Field, PositiveInt

from baldwin.errors import ConfigError
from baldwin.ops import pbt
from baldwin.ops.ranges import Choice, Int, Log, Range
from baldwin.ops.seeds import mix
from baldwin.populations.config import PopulationConfig, PopulationContext, PopulationEntry, register_population
from baldwin.populations.member import Hyperparameters, Member
from baldwin.populations.population import CONTINUE, START, Plan, Population
from baldwin.populations.study import OWN, Pruner, Sampler, Study
from baldwin.types import Metrics, State

GRID_POINTS = 5  # of a range that is not a choice


class SweepConfig(PopulationConfig):
    """A sweep: independent trials at random, on a grid, or by Optuna; the median over seeds counts."""

    copies_states: ClassVar[bool] = False

    name: Literal["sweep"] = "sweep"
    trials: PositiveInt = Field(20, description="Sets of hyper-parameters")
    seeds: PositiveInt = Field(3, description="Runs of each")
    steps: PositiveInt = Field(100_000, description="Environment steps of each run, at least")
    sampler: Sampler = Field(
        "random", description=f"random; grid: all choices, and {GRID_POINTS} points of each range; the others are Optuna's (extra sweep)"
    )
    pruner: Pruner = Field("none", description="Who is stopped early, by Optuna's rules (extra sweep)")
    members: Literal[1] = Field(1, description="A sweep has trials x seeds members")
    keep_states: bool = Field(False, description="Keep the states of all trials that are finished, and not only of the best")
    rungs: PositiveInt = Field(1, description="Evaluations of a run, after equal shares of its steps; a pruner decides after each")

    @property
    def trial_count(self) -> int:
        """Trials that there will be: no more than a grid has points."""
        return min(self.trials, len(grid(self.ranges))) if self.sampler == "grid" else self.trials


class Sweep(Population):
    """Member trial x seeds + k is run k of a trial. A generation is a trial that is finished."""

    _config: SweepConfig

    def __init__(self, config: SweepConfig, context: PopulationContext) -> None:
        super().__init__(config, context)
        if not self.ranges:
            raise ConfigError("a sweep needs ranges, as in -m 'algorithm.lr={log: [1e-5, 1e-2]}'")
        if config.pruner != "none" and config.rungs < 2:
            raise ConfigError(f"population.pruner={config.pruner} decides between rungs: set population.rungs to 2 or more")
        self._grid = grid(self.ranges) if config.sampler == "grid" else []
        self.trials = config.trial_count
        needs_study = config.sampler not in OWN or config.pruner != "none"
        seed = mix(context.seed, 0)
        self._study = Study(config.sampler, config.pruner, self.ranges, config.rungs, seed) if needs_study else None
        self._values: dict[int, Hyperparameters] = {}  # trial -> what was chosen for it
        self._rungs: dict[int, list[float]] = {}  # trial -> medians over seeds, rung by rung
        self._done: list[int] = []  # trials that are finished, in that order
        self._pruned: list[int] = []
        self._waiting: list[int] = []  # members whose next rung may begin
        self._reported = 0

    @property
    def best(self) -> Member | None:
        """Of the best trial that is finished, the member nearest to the median."""
        finished = [t for t in self._done if t not in self._pruned and np.isfinite(self._rungs[t][-1])]
        if not finished:
            return None
        trial = max(finished, key=lambda t: (self._rungs[t][-1], -t))
        runs = [m for m in self._runs(trial) if m.state_sha256]
        return min(runs, key=lambda m: abs(m.score - self._rungs[trial][-1])) if runs else None

    def _known(self) -> list[Member]:
        """Of trials that are finished, only the best can still be asked for."""
        best = self.best
        over = set() if self._config.keep_states else set(self._done) - {best.id // self._config.seeds if best else None}
        return [m for m in self.members if m.id // self._config.seeds not in over]

    def _startable(self) -> set[str]:
        return {m.state_sha256 for m in self.members if m.id in self._waiting and m.state_sha256}

    def _runs(self, trial: int) -> list[Member]:
        return [m for m in self.members if m.id // self._config.seeds == trial]

    def _plan(self) -> Plan | None:
        config = self._config
        share = -(-config.steps // config.rungs)
        if self._waiting:
            member = next(m for m in self.members if m.id == self._waiting[0])
            self._waiting.pop(0)
            return Plan(
                member.id,
                member.seed,
                member.hyperparameters,
                CONTINUE,
                parents=[member.id],
                state_sha256=member.state_sha256,
                before=member.hyperparameters,
                rounds=member.rounds,
                line_steps=member.line_steps,
                steps=share,
            )
        number = len(self.members)
        trial, run = divmod(number, config.seeds)
        if trial >= self.trials:
            return None
        if trial not in self._values:
            self._values[trial] = self._choose(trial)
        self.members.append(Member(number, self.member_seed(run), self._values[trial]))  # run k has the same seed in every trial
        return Plan(number, self.member_seed(run), self._values[trial], START, steps=share)

    def _choose(self, trial: int) -> Hyperparameters:
        """The hyper-parameters of a trial: of Optuna's samplers, a function of all that was asked and told before."""
        own: Hyperparameters | None = None
        if self._config.sampler == "grid":
            own = self._grid[trial]
        elif self._config.sampler == "random":
            own = pbt.resample(self.ranges, self.rng(0, trial))
        return self._study.ask(trial, own) if self._study else own or {}

    def _on_round_finished(self, plan: Plan, child: Member) -> None:
        at = next(n for n, m in enumerate(self.members) if m.id == plan.member)
        self.members[at] = child
        trial = plan.member // self._config.seeds
        runs = self._runs(trial)
        rung = len(self._rungs.setdefault(trial, [])) + 1
        finished = [m for m in runs if m.rounds >= rung]
        if len(finished) < self._config.seeds:
            return
        self._rungs[trial].append(float(np.median([m.score for m in runs])))
        median = self._rungs[trial][-1]
        failed, last = not np.isfinite(median), rung >= self._config.rungs
        should_end = bool(self._study and not failed and self._study.report(trial, rung, median))
        if should_end and not last:
            self._pruned.append(trial)
        if last or failed or trial in self._pruned:
            self._done.append(trial)
            if self._study:
                self._study.end(trial, median, pruned=trial in self._pruned)
        else:
            self._waiting += [m.id for m in runs]

    def _generation_complete(self) -> bool:
        return len(self._done) > self._reported

    def _select(self) -> None:
        self._reported = len(self._done)

    def _end_generation(self) -> Metrics:
        metrics = super()._end_generation()
        self.version = len(self._done)
        return metrics

    def _more_metrics(self) -> Metrics:
        finals = [self._rungs[t][-1] for t in self._done if t not in self._pruned and np.isfinite(self._rungs[t][-1])]
        return {"trials": float(len(self._done)), "pruned": float(len(self._pruned)), **({"best_median": max(finals)} if finals else {})}

    def table(self) -> list[dict[str, Any]]:
        """The trials that are finished, best first."""
        rows = []
        for trial in self._done:
            scores = [m.score for m in self._runs(trial)]
            rows.append(
                {
                    "trial": trial,
                    "hyperparameters": self._values[trial],
                    "median": self._rungs[trial][-1],
                    "scores": scores,
                    "env_steps": sum(m.line_steps for m in self._runs(trial)),
                    "pruned": trial in self._pruned,
                }
            )
        return sorted(rows, key=lambda row: -np.inf if row["pruned"] or np.isnan(row["median"]) else row["median"], reverse=True)

    def state_dict(self) -> State:
        """And what was chosen for each trial, and its medians."""
        return super().state_dict() | {
            "values": {str(t): dict(values) for t, values in self._values.items()},
            "rungs": {str(t): list(medians) for t, medians in self._rungs.items()},
            "done": list(self._done),
            "pruned": list(self._pruned),
            "waiting": list(self._waiting),
            "reported": self._reported,
            "study": self._study.state_dict() if self._study else {},
            "table": self.table(),
        }

    def load_state_dict(self, state: State) -> None:
        """Continue from a `state_dict`."""
        super().load_state_dict(state)
        self._values = {int(t): dict(values) for t, values in state["values"].items()}
        self._rungs = {int(t): [float(x) for x in medians] for t, medians in state["rungs"].items()}
        self._done, self._pruned, self._waiting = (list(map(int, state[name])) for name in ("done", "pruned", "waiting"))
        self._reported = int(state["reported"])
        if self._study:
            self._study.load_state_dict(state["study"])


def grid(ranges: dict[str, Range]) -> list[Hyperparameters]:
    """All combinations: every choice, every whole number of a short range, and otherwise points that are equally far apart."""
    points = {}
    for key, found in ranges.items():
        if isinstance(found, Choice):
            points[key] = list(found.values)
        elif isinstance(found, Int):
            count = min(GRID_POINTS, found.high - found.low + 1)
            points[key] = sorted({round(x) for x in np.linspace(found.low, found.high, count)})
        elif isinstance(found, Log):
            points[key] = np.geomspace(found.low, found.high, GRID_POINTS).tolist()
        else:
            points[key] = np.linspace(found.low, found.high, GRID_POINTS).tolist()
    return [dict(zip(points, values, strict=True)) for values in itertools.product(*points.values())]


register_population(PopulationEntry(SweepConfig, Sweep, "Bergstra and Bengio 2012; Akiba et al. 2019, arXiv 1907.10902"))
