"""Replay buffers and priorities of learners: which columns they have, and statistics of what goes in."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from baldwin.algorithm import BuildContext
from baldwin.errors import ConfigError
from baldwin.networks import PolicyConfig
from baldwin.observations import VECTOR, ObservationSpec
from baldwin.ops.moments import Moments
from baldwin.replay import ELAPSED, LOG_PROB, PREVIOUS_INDEX, Column, PrioritizedConfig, PrioritizedSampler, ReplayBuffer
from baldwin.rollout import (
    MEMORY,
    NEXT_OBS,
    OBS,
)
from baldwin.types import Arrays


def make_replay(context: BuildContext, buffer_size: int, slack: int, kept: Mapping[str, Column] | None = None) -> ReplayBuffer:
    """A replay buffer for the transitions of the environment, and what else is `kept` of each.

    Raises:
        ConfigError: it does not fit.
    """
    columns = replay_columns(context.env.obs, context.actions.empty_actions()) | dict(kept or {})
    columns |= {ELAPSED: Column("<i4")} if context.env.has_elapsed else {}
    try:
        return ReplayBuffer(columns, buffer_size, seed=context.seed, folder=context.folder, slack=slack, shared=context.shared_files)
    except (MemoryError, ValueError, OverflowError) as error:
        raise ConfigError(f"a replay of algorithm.buffer_size={buffer_size} transitions does not fit: {error}. Lower it") from error


def make_priorities(replay: ReplayBuffer, config: PrioritizedConfig, seed: int) -> PrioritizedSampler:
    """A sampler of a replay buffer by priorities.

    Raises:
        ConfigError: its sum tree, 9 bytes for each row, does not fit.
    """
    try:
        return PrioritizedSampler(replay, config, seed=seed)
    except MemoryError as error:
        raise ConfigError(f"priorities of algorithm.buffer_size={replay.capacity} transitions do not fit: {error}. Lower it") from error


def replay_columns(spec: ObservationSpec, empty_actions: NDArray[Any]) -> dict[str, Column]:
    """What is stored of a step: images once, everything else before and after it."""
    images = {sensor.key for sensor in spec.images}
    columns = {
        "action": Column(empty_actions.dtype.str, empty_actions.shape[1:]),
        "reward": Column("<f4"),
        "terminated": Column("|b1"),
        "truncated": Column("|b1"),
    }
    for key, (dtype, shape) in spec.columns.items():
        column = Column(np.dtype(dtype).str, shape, frames=spec.frames if key in images else 0)
        columns |= {OBS + key: column} if key in images else {OBS + key: column, NEXT_OBS + key: column}
    return columns


def window_columns(memory_size: int, log_prob: bool, refresh: bool = False) -> dict[str, Column]:
    """What windows need besides transitions."""
    columns = {PREVIOUS_INDEX: Column("<i8")}
    columns |= {MEMORY: Column("<f4", (memory_size,), mutable=refresh)} if memory_size else {}
    return columns | ({LOG_PROB: Column("<f4")} if log_prob else {})


def merge_vectors(moments: Moments, rows: Arrays, policy: PolicyConfig) -> Moments:
    """Observation statistics with the vectors of these rows, where the policy normalises them."""
    name = OBS + VECTOR
    return moments.merge(Moments.of(rows[name])) if policy.normalize_obs and name in rows else moments
