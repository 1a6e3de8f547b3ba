"""Samplers and pruners of sweeps, by outcomes that are computed instead of trained for."""

from __future__ import annotations

import sys
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from baldwin.errors import MissingExtra
from baldwin.parts import Sections
from baldwin.populations.config import PopulationContext
from baldwin.populations.member import RETURNS, STATE_HASH, Hyperparameters
from baldwin.populations.sweep import Sweep, SweepConfig
from baldwin.types import Outcome
from tests.populations.test_members import config_of, sections_of

SEARCH = {
    "algorithm.lr": {"log": [1e-5, 1e-1]},
    "algorithm.entropy_coef": {"uniform": [0.0, 1.0]},
    "algorithm.epochs": {"int": [1, 10]},
    "algorithm.batch_size": {"choice": [16, 32]},
    "policy.hidden": {"choice": [[64, 64], [256]]},
}
NEEDS = {"tpe": "optuna", "cma-es": "cmaes", "gp": "scipy", "qmc": "scipy"}


@cache
def sections() -> Sections:
    return sections_of(config_of("ppo"))


def make(sampler: str = "random", pruner: str = "none", trials: int = 8, rungs: int = 1, seed: int = 1) -> Sweep:
    for package in ("optuna", NEEDS.get(sampler, "optuna")):
        pytest.importorskip(package)
    config = SweepConfig.model_validate(
        {"trials": trials, "seeds": 1, "sampler": sampler, "pruner": pruner, "rungs": rungs, "search": SEARCH}
    )
    return Sweep(config, PopulationContext(sections(), seed, None, True, 1))


def score(values: Hyperparameters) -> float:
    """Best at lr=1e-3 and no entropy bonus."""
    return -abs(np.log10(float(values["algorithm.lr"])) + 3) - float(values["algorithm.entropy_coef"])  # type: ignore[arg-type]


def advance(sweep: Sweep, rounds: int, workers: int = 2) -> None:
    """So many rounds, with as many at a time as there are workers; the newest ends first."""
    open_jobs = []
    for _ in range(rounds):
        open_jobs += sweep.ask(workers - len(open_jobs))
        if not open_jobs:
            return
        job = open_jobs.pop()
        (ticket,) = job.tickets
        values = sweep._plans[ticket].hyperparameters
        name = np.frombuffer(ticket.to_bytes(32, "big"), np.uint8)
        sweep.tell([Outcome(ticket, score(values), env_steps=1, arrays={STATE_HASH: name, RETURNS: np.full(2, score(values))})])


@pytest.mark.parametrize("sampler", ["random", "tpe", "cma-es", "gp", "qmc"])
def test_every_sampler_gives_values_that_differ_and_are_allowed(sampler: str) -> None:
    sweep = make(sampler)
    advance(sweep, 8)
    rows = sweep.table()
    assert len(rows) == 8
    rates = [row["hyperparameters"]["algorithm.lr"] for row in rows]
    bonuses = [row["hyperparameters"]["algorithm.entropy_coef"] for row in rows]
    assert len(set(rates)) == len(set(bonuses)) == 8
    assert all(1e-5 < rate < 1e-1 for rate in rates)
    assert all(0 < bonus < 1 for bonus in bonuses)
    assert np.ptp(np.log10(rates)) > 1
    assert all(row["hyperparameters"]["algorithm.epochs"] in range(1, 11) for row in rows)
    assert {row["hyperparameters"]["algorithm.batch_size"] for row in rows} <= {16, 32}
    assert all(row["hyperparameters"]["policy.hidden"] in ([64, 64], [256]) for row in rows)


@pytest.mark.parametrize("sampler", ["tpe", "cma-es", "gp", "qmc"])
def test_a_sampler_goes_on_after_a_resume_as_if_nothing_had_happened(sampler: str) -> None:
    whole, first, second = (make(sampler) for _ in range(3))
    advance(whole, 8, workers=1)
    advance(first, 5, workers=1)
    second.load_state_dict(first.state_dict())
    advance(second, 3, workers=1)
    assert second.table() == whole.table()


@pytest.mark.parametrize(("sampler", "trials"), [("tpe", 60), ("cma-es", 60), ("gp", 20)])
def test_samplers_that_learn_close_in_on_the_best_values(sampler: str, trials: int) -> None:
    """One that began anew with every trial would not."""
    sweep = make(sampler, trials=trials)
    advance(sweep, trials, workers=1)
    scores = [score(sweep._values[trial]) for trial in range(trials)]
    assert np.mean(scores[-trials // 4 :]) > np.mean(scores[: trials // 4]) + 0.3


@pytest.mark.parametrize("pruner", ["median", "halving", "hyperband"])
def test_every_pruner_ends_bad_trials_early_and_lets_the_best_finish(pruner: str) -> None:
    sweep = make(pruner=pruner, trials=16, rungs=4)
    advance(sweep, 64, workers=1)
    assert len(sweep._done) == 16
    assert 0 < len(sweep._pruned) < 16
    best = max(range(16), key=lambda trial: score(sweep._values[trial]))
    assert best not in sweep._pruned
    assert all(len(sweep._rungs[trial]) < 4 for trial in sweep._pruned)
    again = make(pruner=pruner, trials=16, rungs=4)
    again.load_state_dict(sweep.state_dict())
    assert again.table() == sweep.table()


def test_a_trial_that_failed_is_nobodys_example() -> None:
    sweep = make("tpe")
    (job,) = sweep.ask(1)
    sweep.tell([Outcome(job.tickets[0], float("nan"), reason="the wheel came off")])
    advance(sweep, 7)
    assert len(sweep.table()) == 8
    assert np.isnan(sweep.table()[-1]["median"])


def test_a_missing_package_is_named_with_the_command_that_installs_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pytest.importorskip("optuna")
    monkeypatch.setitem(sys.modules, "cmaes", None)
    with pytest.raises(MissingExtra, match=r"sampler cma-es needs the extra 'sweep'.*pip install 'baldwin-rl\[sweep\]'"):
        Sweep(SweepConfig.model_validate({"sampler": "cma-es", "search": SEARCH}), PopulationContext(sections(), 1, None, True, 1))
