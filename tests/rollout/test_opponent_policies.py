"""Members of a pool at play: each opponent remembers its own match, and nothing of others."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

from baldwin.errors import EnvironmentFailure
from baldwin.networks import ActionMap, GreedyPolicy, PolicyConfig, make_network
from baldwin.observations import VECTOR, describe_observations
from baldwin.opponents import script_policy
from baldwin.ops.moments import Moments
from baldwin.rollout.opponent_policies import PoolPolicies
from baldwin.rollout.scripts import script_of

ACTIONS = spaces.Discrete(3)
SPACE = spaces.Dict({"camera": spaces.Box(0, 255, (1, 8, 8), np.uint8), "speed": spaces.Box(-1, 1, (2,), np.float32)})
POLICY = PolicyConfig(
    hidden=[6], normalize_obs=False, output_scale=1.0, memory={"kind": "gru", "size": 4}, images={"conv": "small", "hidden": [6]}
)


def test_rows_play_as_single_policies_with_their_own_memory_and_frames() -> None:
    """Five opponents of two members decide at random moments, and their matches begin anew at random moments."""
    spec = describe_observations(SPACE, "a game", action_space=ACTIONS, frames=3)
    act = ActionMap(ACTIONS, POLICY.squash, POLICY.head)
    network = make_network(POLICY, spec, act.outputs)
    params = {number: network.init(number) for number in (1, 2)}
    moments = Moments.empty(spec.vector_size).pack()

    def forward_of(number: int, rows: int) -> Any:
        bound = network.bind(torch.from_numpy(params[number])[None], fixed=True)

        def forward(obs: Any, memory: Any) -> Any:
            out, after = bound({key: x[None] for key, x in obs.items()}, memory[None])
            return out[0], after[0]

        return forward

    pool = PoolPolicies(forward_of, spec, act, network.state_size, 5)
    single = {}
    members, rng = np.ones(5, np.int64), np.random.default_rng(3)
    SPACE.seed(5)
    chosen = []
    for step in range(60):
        begin = np.flatnonzero((rng.random(5) < 0.2) | (step == 0))
        members[begin] = rng.integers(1, 3, len(begin))
        pool.begin(begin, begin)
        for row in begin.tolist():
            single[row] = GreedyPolicy(POLICY, spec, ACTIONS, {"params": params[int(members[row])], "obs_moments": moments})
        rows = np.flatnonzero(rng.random(5) < 0.6)
        if not len(rows):
            continue
        seen = [SPACE.sample() for _ in rows]
        read = [spec.read(one, None) for one in seen]
        found = pool.act(members[rows], {key: np.concatenate([one[key] for one in read]) for key in read[0]}, rows)
        expected = [single[row].act(one) for row, one in zip(rows.tolist(), seen, strict=True)]
        assert found.tolist() == expected
        chosen += expected
    assert len(set(chosen)) > 1


def script_pool(script: str, space: spaces.Space[Any], rows: int = 4) -> PoolPolicies:
    act = ActionMap(space, "clip")
    policy = script_policy(f"script:{script}")

    def no_network(number: int, width: int) -> Any:
        raise AssertionError("a script has no network")

    return PoolPolicies(
        no_network, describe_observations(spaces.Box(-1, 1, (2,)), "x"), act, 0, rows, lambda number: script_of(policy, act)
    )


@pytest.mark.parametrize("space", [spaces.Discrete(5, start=2), spaces.Box(-2, 3, (2,)), spaces.MultiDiscrete([2, 3])], ids=str)
def test_random_scripts_draw_by_the_match_and_the_moment(space: spaces.Space[Any]) -> None:
    """Whoever else decides at the same time, and in whatever row they sit."""
    together, alone = script_pool("random", space), script_pool("random", space)
    seen, ones = {VECTOR: np.zeros((4, 2), np.float32)}, np.ones(4, np.int64)
    together.begin(np.arange(4), np.array([7, 8, 7, 9]))
    alone.begin(np.array([3]), np.array([7]))
    drawn = np.stack([together.act(ones, seen, np.arange(4)) for _ in range(30)])
    single = np.concatenate([alone.act(ones[:1], {VECTOR: seen[VECTOR][:1]}, np.array([3])) for _ in range(30)])
    assert all(space.contains(action) for row in drawn for action in row)
    np.testing.assert_array_equal(drawn[:, 0], drawn[:, 2])
    np.testing.assert_array_equal(drawn[:, 0], single)
    assert not np.array_equal(drawn[:, 0], drawn[:, 1])
    together.begin(np.array([1]), np.array([7]))
    np.testing.assert_array_equal(together.act(ones[:1], {VECTOR: seen[VECTOR][:1]}, np.array([1]))[0], drawn[0, 0])


def test_random_scripts_take_legal_actions() -> None:
    legal = np.array([0, 1, 0, 1, 0], np.bool_)
    script = script_of(script_policy("script:random"), ActionMap(spaces.Discrete(5), "clip"))
    assert script is not None
    assert {int(script(None, legal, np.random.default_rng(n))) for n in range(40)} == {1, 3}


@pytest.mark.parametrize("space", [spaces.MultiBinary(3), spaces.Dict({"flags": spaces.MultiBinary(3), "choice": spaces.Discrete(2)})])
def test_random_scripts_set_flags(space: spaces.Space[object]) -> None:
    script = script_of(script_policy("script:random"), ActionMap(space, "clip"))
    assert script is not None
    drawn = [script(None, None, np.random.default_rng(n)) for n in range(20)]
    assert all(space.contains(action) for action in drawn)
    assert len({str(action) for action in drawn}) > 3


def test_scripts_of_a_user_see_what_the_player_sees_and_their_mistakes_are_named() -> None:
    seen = {VECTOR: np.array([[1, 1], [-1, 1]], np.float32)}
    rows, ones = np.array([2, 0]), np.ones(2, np.int64)
    assert script_pool("tests.toys.scripts:says_what_it_sees", spaces.Discrete(2)).act(ones, seen, rows).tolist() == [1, 0]
    with pytest.raises(EnvironmentFailure, match=r"opponent script:tests.toys.scripts:raises failed: IndexError"):
        script_pool("tests.toys.scripts:raises", spaces.Discrete(2)).act(ones, seen, rows)
    with pytest.raises(EnvironmentFailure, match=r"opponent script:tests.toys.scripts:says_nothing failed"):
        script_pool("tests.toys.scripts:says_nothing", spaces.Discrete(2)).act(ones, seen, rows)
    with pytest.raises(EnvironmentFailure, match=r"expected an action in Discrete\(2, start=5\); got"):
        script_pool("tests.toys.scripts:says_what_it_sees", spaces.Discrete(2, start=5)).act(ones, seen, rows)
