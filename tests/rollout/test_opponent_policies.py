"""Members of a pool at play: each opponent remembers its own match, and nothing of others."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from gymnasium import spaces

from baldwin.networks import ActionMap, GreedyPolicy, PolicyConfig, make_network
from baldwin.observations import describe_observations
from baldwin.ops.moments import Moments
from baldwin.rollout.opponent_policies import PoolPolicies

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
        pool.begin(begin)
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
