from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from baldwin.errors import BaldwinError
from baldwin.runs.journal import Journal, read_journal
from baldwin.strategies import CEM, CEMUpdateConfig
from baldwin.types import Outcome, outcome_from_state, outcome_state


def test_fitness_may_be_a_vector_with_names(tmp_path: Path) -> None:
    """From the worker through the journal and a checkpoint."""
    outcomes = [Outcome(n, np.array([1.0 + n, -2.0]), objectives=("speed", "energy")) for n in range(2)]
    assert not outcomes[0].failed
    assert Outcome(2, np.array([1.0, np.nan]), objectives=("speed", "energy")).failed
    journal = Journal(tmp_path / "journal.bin")
    journal.append({"kind": "tell"}, outcomes)
    journal.close()
    (record,) = read_journal(tmp_path / "journal.bin")
    for outcome, read in zip(outcomes, record.outcomes, strict=True):
        assert read.objectives == ("speed", "energy")
        np.testing.assert_array_equal(read.fitness, outcome.fitness)
        again = outcome_from_state(outcome_state(outcome))
        np.testing.assert_array_equal(again.fitness, outcome.fitness)
        assert again.objectives == outcome.objectives


def test_a_vector_without_names_is_refused() -> None:
    with pytest.raises(ValueError, match="expected one fitness per objective"):
        Outcome(0, np.array([1.0, 2.0]))
    with pytest.raises(ValueError, match="expected one fitness per objective"):
        Outcome(0, 1.0, objectives=("speed",))


def test_a_strategy_of_one_objective_refuses_several() -> None:
    strategy = CEM(np.zeros(3, np.float32), CEMUpdateConfig(), seed=1)
    (trial, *_) = strategy.ask(10)
    with pytest.raises(BaldwinError, match="expected one fitness, got 2 objectives: speed, energy"):
        strategy.tell([Outcome(trial.id, np.array([1.0, 2.0]), objectives=("speed", "energy"))])
