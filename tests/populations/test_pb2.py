"""PB2 in PBT's place: it finds good hyper-parameters in fewer rounds than perturbations do."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from baldwin.populations.config import PopulationContext
from baldwin.populations.member import TrainMember
from baldwin.populations.pbt import PBT, PBTConfig
from tests.populations.test_members import config_of, sections_of
from tests.populations.test_populations import copies, small
from tests.populations.tools import state_name, trained
from tests.runs.tools import train_run

SEARCH = {"algorithm.lr": {"log": [1e-5, 1e-1]}, "algorithm.entropy_coef": {"uniform": [0.0, 1.0]}}


def gain(lr: float, entropy: float, done: int) -> float:
    """What a round adds to a member's skill: most at a step size that falls from 1e-2 to 1e-3, and at an entropy bonus of 0.2."""
    best = -2 - done / 10
    return float(np.exp(-0.5 * ((np.log10(lr) - best) / 0.5) ** 2 - 0.5 * ((entropy - 0.2) / 0.2) ** 2))


def skill_after(rounds: int, explore: str, seed: int) -> float:
    """The best member's skill after so many rounds of four members, where the jobs' outcomes are computed by `gain`."""
    config = PBTConfig.model_validate(
        {"members": 4, "synchronous": True, "fraction": 0.25, "episodes": 2, "search": SEARCH, "explore": explore}
    )
    population = PBT(config, PopulationContext(sections_of(config_of("ppo")), seed, None, True, 1))
    skills = {"": (0.0, 0)}  # state -> skill, rounds
    for _ in range(4 * rounds):
        (job,) = population.ask(1)
        assert isinstance(job, TrainMember)
        skill, done = skills[job.parent_sha256]
        skill += gain(job.sections.algorithm.lr, job.sections.algorithm.entropy_coef, done)  # type: ignore[attr-defined]
        skills[state_name(job.ticket)] = skill, done + 1
        population.tell([trained(job, [skill, skill])])
    return max(m.score for m in population.members)


def test_pb2_beats_perturbations_where_the_best_step_size_moves() -> None:
    """Four members and two numbers, ten seeds: perturbations walk, the Gaussian process looks everywhere first and remembers."""
    scores = {explore: np.array([skill_after(12, explore, seed) for seed in range(10)]) for explore in ("perturb", "pb2")}
    assert scores["pb2"].mean() > 1.1 * scores["perturb"].mean()
    assert (scores["pb2"] > scores["perturb"]).sum() >= 7


def test_pb2_in_a_run_is_exact_and_stays_within_its_ranges(tmp_path: Path) -> None:
    options = ("population.synchronous=true", "stop.generations=4")
    run = train_run(small("pb2", *options), tmp_path / "run")
    found = copies(run)
    assert found
    for record in found:
        assert 1e-5 <= record["hyperparameters"]["algorithm.lr"] <= 1e-1
        assert record["hyperparameters"]["algorithm.epochs"] in (1, 2, 3, 4)
    again = train_run(small("pb2", *options, "executor.name=process", "executor.workers=2"), tmp_path / "again")
    assert again.params_sha256() == run.params_sha256()
    assert [r["hyperparameters"] for r in copies(again)] == [r["hyperparameters"] for r in found]
    assert run.algorithm._changes.shape == (4 * 3, 2 + 2)  # type: ignore[attr-defined]  # the first rounds have nothing to compare with


def test_what_pb2_has_seen_is_saved(tmp_path: Path) -> None:
    run = train_run(small("pb2"), tmp_path / "run")
    state = run.algorithm.state_dict()
    other = PBT(run.config.population, run.algorithm._context)  # type: ignore[attr-defined, arg-type]
    other.load_state_dict(state)
    np.testing.assert_array_equal(other._changes, state["changes"])
    assert len(state["changes"]) == pytest.approx(8, abs=0)
