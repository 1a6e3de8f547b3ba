"""Optuna's samplers and pruners for sweeps. A study is rebuilt from what happened to it: samplers keep objects that no file of a run may hold."""

from __future__ import annotations

import math
import warnings
from importlib import import_module
from typing import Any, Literal

from baldwin.errors import missing_extra
from baldwin.ops.ranges import Choice, Int, Log, Range
from baldwin.populations.member import Hyperparameters
from baldwin.types import State

Sampler = Literal["random", "grid", "tpe", "cma-es", "gp", "qmc"]
Pruner = Literal["none", "median", "halving", "hyperband"]
OWN = ("random", "grid")  # samplers that are not Optuna's
PACKAGES = {"cma-es": ("cmaes",), "gp": ("scipy",), "qmc": ("scipy",)}  # that these samplers need besides Optuna
ASK, REPORT, END = "ask", "report", "end"


class Study:
    """Trials by number. What it answers is a function of the seed and of all that was asked and told before, in that order."""

    def __init__(self, sampler: Sampler, pruner: Pruner, ranges: dict[str, Range], rungs: int, seed: int) -> None:
        """Raises MissingExtra where a package that the sampler needs is not installed."""
        self._optuna = import_optuna(sampler)
        self._ranges = ranges
        self._distributions = {key: self._distribution(found) for key, found in ranges.items()}
        self._sampler, self._pruner, self._rungs, self._seed = sampler, pruner, rungs, seed
        self._begin()

    def _begin(self) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # parts that Optuna calls experimental
            sampler, pruner = self._make_sampler(self._sampler, self._seed), self._make_pruner(self._pruner, self._rungs)
        # Hyperband deals trials to its brackets by the name of the study.
        self._study = self._optuna.create_study(study_name="sweep", direction="maximize", sampler=sampler, pruner=pruner)
        self._trials: dict[int, Any] = {}  # that are running
        self._history: list[State] = []

    def ask(self, trial: int, chosen: Hyperparameters | None = None) -> Hyperparameters:
        """The hyper-parameters of a new trial: the sampler's, unless they were chosen elsewhere."""
        self._history.append({"event": ASK, "trial": trial, "chosen": chosen or {}})
        if chosen:
            own = {key: found.index(chosen[key]) if isinstance(found, Choice) else chosen[key] for key, found in self._ranges.items()}
            self._study.enqueue_trial(own)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a sampler's internals, for instance that Sobol sequences like powers of two
            self._trials[trial] = self._study.ask(self._distributions)
        drawn = self._trials[trial].params
        return {key: found.values[drawn[key]] if isinstance(found, Choice) else drawn[key] for key, found in self._ranges.items()}

    def report(self, trial: int, rung: int, value: float) -> bool:
        """Tell how a trial does after a rung, counted from 1; whether it should end here."""
        self._history.append({"event": REPORT, "trial": trial, "rung": rung, "value": value})
        self._trials[trial].report(value, rung)
        return bool(self._trials[trial].should_prune())

    def end(self, trial: int, value: float, pruned: bool = False) -> None:
        """A trial is over, with this value; NaN if it failed."""
        self._history.append({"event": END, "trial": trial, "value": value, "pruned": pruned})
        states = self._optuna.trial.TrialState
        state = states.FAIL if not math.isfinite(value) else states.PRUNED if pruned else states.COMPLETE
        self._study.tell(self._trials.pop(trial), value if state == states.COMPLETE else None, state=state)

    def state_dict(self) -> State:
        """What happened, in order."""
        return {"history": list(self._history)}

    def load_state_dict(self, state: State) -> None:
        """Begin anew, and let it happen again."""
        self._begin()
        for event in state["history"]:
            trial = int(event["trial"])
            if event["event"] == ASK:
                self.ask(trial, event["chosen"])
            elif event["event"] == REPORT:
                self.report(trial, int(event["rung"]), float(event["value"]))
            else:
                self.end(trial, float(event["value"]), bool(event["pruned"]))

    def _distribution(self, found: Range) -> Any:
        """The same range as Optuna knows it: of a choice the place of a value, since values may be lists, which it refuses."""
        distributions = self._optuna.distributions
        if isinstance(found, Choice):
            return distributions.CategoricalDistribution(range(len(found.values)))
        if isinstance(found, Int):
            return distributions.IntDistribution(found.low, found.high)
        return distributions.FloatDistribution(found.low, found.high, log=isinstance(found, Log))

    def _make_sampler(self, name: Sampler, seed: int) -> Any:
        samplers = self._optuna.samplers
        if name == "tpe":
            return samplers.TPESampler(seed=seed)
        if name == "cma-es":
            return samplers.CmaEsSampler(seed=seed, warn_independent_sampling=False)  # choices are drawn at random
        if name == "gp":
            return samplers.GPSampler(seed=seed)
        if name == "qmc":  # without scrambling, the sequence begins in a corner of the ranges
            return samplers.QMCSampler(seed=seed, scramble=True, warn_independent_sampling=False)
        return samplers.RandomSampler(seed=seed)

    def _make_pruner(self, name: Pruner, rungs: int) -> Any:
        pruners = self._optuna.pruners
        if name == "median":
            return pruners.MedianPruner(n_startup_trials=3, n_warmup_steps=0)
        if name == "halving":
            return pruners.SuccessiveHalvingPruner(min_resource=1, reduction_factor=2)
        if name == "hyperband":
            return pruners.HyperbandPruner(min_resource=1, max_resource=rungs, reduction_factor=2)
        return pruners.NopPruner()


def import_optuna(sampler: Sampler) -> Any:
    """Optuna, without its progress messages, and what the sampler needs besides.

    Raises:
        MissingExtra: one of them is not installed.
    """
    try:
        import optuna

        for package in PACKAGES.get(sampler, ()):
            import_module(package)
    except ModuleNotFoundError as error:
        raise missing_extra("sweep", f"sampler {sampler}" if error.name != "optuna" else "this sampler or pruner") from error
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna
