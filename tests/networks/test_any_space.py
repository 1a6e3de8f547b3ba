"""Actions for any outputs lie in their space, however it is nested."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from hypothesis import given, settings
from hypothesis import strategies as st

from baldwin import load_policy
from baldwin.errors import ConfigError
from baldwin.networks import ActionMap
from tests.runs.tools import in_process, small, train_run

boxes = st.builds(
    lambda low, width, n, dtype: spaces.Box(np.full(n, low, dtype), np.full(n, low + width, dtype), dtype=dtype),
    st.floats(-10, 10, width=32), st.floats(0.125, 20, width=32), st.integers(1, 3), st.sampled_from([np.float32, np.float64]),
)  # fmt: skip
leaves = (
    boxes
    | st.builds(spaces.Discrete, st.integers(1, 5), start=st.integers(-3, 3))
    | st.builds(spaces.MultiDiscrete, st.lists(st.integers(1, 4), min_size=1, max_size=3))
    | st.builds(spaces.MultiBinary, st.integers(1, 4))
)
nested = st.recursive(
    leaves,
    lambda inner: st.builds(spaces.Tuple, st.lists(inner, min_size=1, max_size=3)) | st.builds(spaces.Dict, st.dictionaries(st.text("abc", min_size=1, max_size=2), inner, min_size=1, max_size=3)),
    max_leaves=6,
)  # fmt: skip


@settings(deadline=None, max_examples=200)
@given(nested, st.integers(1, 4), st.integers(0, 2**31))
def test_any_outputs_are_actions_of_the_space(space: Any, rows: int, seed: int) -> None:
    act = ActionMap(space, "tanh")
    out = 3 * torch.randn(rows, act.outputs, generator=torch.Generator().manual_seed(seed))
    actions = act(out)
    assert len(actions) == rows
    for n, action in enumerate(actions):
        assert space.contains(action), (space, action)
        (alone,) = act(out[n : n + 1])
        np.testing.assert_equal(action, alone)


def test_parts_get_their_own_outputs() -> None:
    space = spaces.Dict({"a": spaces.Discrete(2), "b": spaces.Tuple((spaces.Box(0, 4, (1,), np.float32), spaces.MultiBinary(1)))})
    act = ActionMap(space, "clip")
    assert act.outputs == 4
    (action,) = act(torch.tensor([[0.0, 1.0, 0.5, -1.0]]))
    assert action["a"] == 1
    assert action["b"][0].tolist() == [3.0]
    assert action["b"][1].tolist() == [0]


def test_evolution_learns_mixed_actions(tmp_path: Path) -> None:
    config = small("tests.toys.worlds:Mixed", "algorithm.population=64", "algorithm.block=32", "algorithm.lr=0.1", "policy.hidden=[16]", "stop.generations=60", "stop.score=16.5", "algorithm.action_noise=0")  # fmt: skip
    run = train_run(config, tmp_path / "run")
    assert run.score is not None
    assert run.score > 16  # of 20; chance is about 4.5
    policy = load_policy(tmp_path / "run")
    obs = {"number": 1, "target": np.array([0.5, -0.5], np.float32)}
    assert run.parts.env_spec.action_space.contains(policy.act(obs))


@pytest.mark.parametrize("algorithm", ["td3", "sac", "cem-rl"])
def test_learners_refuse_them_in_one_sentence(algorithm: str, tmp_path: Path) -> None:
    done = in_process("train", "--algo", algorithm, "--env", "tests.toys.worlds:Mixed", "--out", tmp_path / "run")
    assert done.returncode == 2
    assert f"{algorithm} needs" in done.stderr
    assert "use algorithm.name=ppo or es" in done.stderr


def test_an_empty_dict_is_no_action() -> None:
    with pytest.raises(ConfigError, match="no policy for the action space"):
        ActionMap(spaces.Dict({}), "tanh")
