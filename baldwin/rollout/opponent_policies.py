"""Frozen policies at play: members of a pool, or players with networks of their own, and what each of them remembers of its match."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from baldwin.envs import EnvSpec, OtherPlayers
from baldwin.networks import (
    ActionMap,
    Forward,
    Inputs,
    Network,
    Normalizer,
    ObservationBuffer,
    PolicyConfig,
    SensorNetwork,
    as_numpy,
    make_network,
    reference_of,
)
from baldwin.observations import ACTION_MASK, VECTOR, Observation, ObservationSpec, take
from baldwin.ops import seeds as seeding
from baldwin.ops.moments import Moments
from baldwin.rollout.scripts import Script, seen_by_script
from baldwin.types import Arrays

MAX_NUMPY_WIDTH = 64  # environments: for more, torch's products are worth its overhead


def one_for_all(network: Network, params: NDArray[np.float32], normalize: Normalizer, width: int) -> Forward:
    """One network with the parameters [D] for a batch of environments: (observations [L, ...], memory [L, S]) -> (outputs, memory)."""
    small = as_numpy(network, params[None]) if width <= MAX_NUMPY_WIDTH else None
    if small is not None:
        return lambda obs, memory: (torch.from_numpy(small.forward(normalize.array(obs[VECTOR].numpy()))[0][0]), memory)
    bound = network.bind(torch.from_numpy(params)[None], fixed=True)
    return lambda obs, memory: _one(bound, normalize(obs), memory)


def features_for_all(network: Network, params: NDArray[np.float32], normalize: Normalizer) -> Forward:
    """The same for what is behind the network's encoders and memory, in place of its outputs."""
    own = cast("SensorNetwork", network).features
    bound = own.bind(torch.from_numpy(params[: sum(math.prod(shape) for shape in own.shapes)])[None], fixed=True)
    return lambda obs, memory: _one(bound, normalize(obs), memory)


def _one(bound: Forward, obs: Inputs, memory: Tensor) -> tuple[Tensor, Tensor]:
    out, after = bound({key: x[None] for key, x in obs.items()}, memory[None])
    return out[0], after[0]


class PoolPolicies:
    """Greedy actions of members, and those of scripts. A row is one opponent in one match, whoever plays it, with its memory and earlier frames.

    A member's network always sees all rows, so that an action has the same bits whoever else decides at the same time.
    """

    def __init__(
        self,
        forward_of: Callable[[int, int], Forward],
        spec: ObservationSpec,
        act: ActionMap,
        state_size: int,
        rows: int,
        script_of: Callable[[int], Script | None] = lambda number: None,
    ) -> None:
        """`forward_of`: (number of a member, rows) -> its network, (observations [rows, ...], memory [rows, S]) -> (outputs, memory).
        `script_of`: what a member decides by that has no network."""
        self._forward_of, self._script_of, self._act = forward_of, script_of, act
        self._seen = ObservationBuffer(spec, rows)
        self._memory = torch.zeros(rows, state_size)
        self._begins = np.ones(rows, np.bool_)
        self._seeds = np.zeros(rows, np.int64)
        self._decisions = np.zeros(rows, np.int64)  # of scripts, in this match

    def begin(self, rows: NDArray[np.intp], seeds: NDArray[np.int64]) -> None:
        """A match begins in these rows, which has these seeds [k] for them."""
        self._begins[rows] = True
        self._seeds[rows], self._decisions[rows] = seeds, 0

    @torch.inference_mode()
    def act(self, members: NDArray[np.int64], obs: Observation, rows: NDArray[np.intp]) -> NDArray[Any]:
        """Actions [k, ...] of these members [k], who see these observations [k, ...] in these rows."""
        first = self._begins[rows]
        self._seen.begin(rows[first], take(obs, first))
        self._seen.advance(rows[~first], take(obs, ~first))
        self._begins[rows] = False
        memory, tensors = self._memory, self._seen.tensors
        memory[torch.from_numpy(rows[first])] = 0.0
        self._memory = memory.clone()
        space = self._act.space
        found = np.empty(len(memory), object) if self._act.mixed else np.zeros((len(memory), *(space.shape or ())), space.dtype)
        for number in np.unique(members).tolist():
            own = rows[members == number]
            script = self._script_of(number)
            if script:
                self._follow(script, found, obs, np.flatnonzero(members == number), own)
                continue
            out, after = self._forward_of(number, len(memory))(tensors, memory)
            found[own] = self._act(out, mask=tensors.get(ACTION_MASK))[own]
            self._memory[torch.from_numpy(own)] = after[torch.from_numpy(own)]
        return found[rows]

    def _follow(self, script: Script, found: NDArray[Any], obs: Observation, places: NDArray[np.intp], rows: NDArray[np.intp]) -> None:
        """A script's actions in these rows, which see what is in these places of the observations."""
        for place, row in zip(places.tolist(), rows.tolist(), strict=True):
            rng = seeding.generator(int(self._seeds[row]), seeding.Stream.MATCH, int(self._decisions[row]))
            self._decisions[row] += 1
            found[row] = script(*seen_by_script(obs, place), rng)


@dataclass(frozen=True, slots=True)
class FrozenPlayers:
    """Players of every match that one frozen policy plays greedily, with a network and spaces of its own."""

    names: tuple[str, ...]
    env_spec: EnvSpec  # as these players see it
    policy: PolicyConfig
    arrays: Arrays  # params, obs_moments, and what else the policy was saved with

    def at_play(self, matches: int) -> OtherPlayers:
        """The same in so many matches side by side."""
        spec = self.env_spec.obs
        act = ActionMap(self.env_spec.action_space, self.policy.squash, self.policy.head)
        network = make_network(self.policy, spec, act.outputs)
        if reference := reference_of(self.arrays):
            network.set_reference(reference)
        normalize = Normalizer(self.policy, Moments.unpack(np.asarray(self.arrays["obs_moments"])))
        rows = matches * len(self.names)
        forward = one_for_all(network, np.array(self.arrays["params"], np.float32), normalize, rows)
        return OtherPlayers(self.names, spec, PoolPolicies(lambda number, width: forward, spec, act, network.state_size, rows))
