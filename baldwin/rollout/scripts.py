"""Opponents that are functions: `script:random`, and a user's `script:package.module:function`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from baldwin.errors import ConfigError, EnvironmentFailure, UserError, clean_text, describe_exception
from baldwin.imports import import_module
from baldwin.networks import ActionMap, to_environment
from baldwin.observations import ACTION_MASK, Observation
from baldwin.opponents import RANDOM, SCRIPT_NAME
from baldwin.rollout.exploration import random_actions
from baldwin.types import Arrays

Script = Callable[[Any, NDArray[np.bool_] | None, np.random.Generator], Any]
"""(observation, legal choices, numbers of the match and the moment) -> action."""


def script_of(policy: Arrays, act: ActionMap) -> Script | None:
    """What a member decides by, if that is a function and no network."""
    if SCRIPT_NAME not in policy:
        return None
    return load_script(bytes(np.asarray(policy[SCRIPT_NAME], np.uint8)).decode(), act, EnvironmentFailure)


def load_script(name: str, act: ActionMap, error: type[UserError] = ConfigError) -> Script:
    """The script that `opponents.pool` calls script:NAME.

    Raises:
        UserError: of the given class; there is none.
    """
    if name == RANDOM:
        return _random(act)
    where = f"opponents.pool: script:{name}"
    module_name, _, function_name = name.rpartition(":")
    if not module_name:
        raise error(f"{where}: expected script (the world's own), script:{RANDOM} or script:package.module:function")
    function = getattr(import_module(module_name, where, error), function_name, None)
    if not callable(function):
        raise error(f"{where}: expected a function (observation, legal) -> action; {module_name!r} has no function {function_name!r}")
    return _own(name, function, act)


def seen_by_script(obs: Observation, row: int) -> tuple[Any, NDArray[np.bool_] | None]:
    """The observation of one player, an array or a dict of arrays by sensor, and which choices are legal; None: all are."""
    sensors = {key: array[row] for key, array in obs.items() if key != ACTION_MASK}
    legal = obs[ACTION_MASK][row].astype(np.bool_) if ACTION_MASK in obs else None
    return next(iter(sensors.values())) if len(sensors) == 1 else sensors, legal


def _random(act: ActionMap) -> Script:
    """Uniform over the Box, or over the legal choices."""

    def choose(observation: Any, legal: NDArray[np.bool_] | None, rng: np.random.Generator) -> Any:
        drawn = random_actions(act, 1, None if legal is None else torch.from_numpy(legal)[None], rng)
        return (to_environment(act, drawn) if act.in_rows else act.unscale_action(drawn))[0]

    return choose


def _own(name: str, function: Callable[[Any, Any], Any], act: ActionMap) -> Script:
    """A user's function, which is a function of what the player sees alone."""

    def choose(observation: Any, legal: NDArray[np.bool_] | None, rng: np.random.Generator) -> Any:
        try:
            action = function(observation, legal)
            action = action if act.mixed else np.asarray(action).astype(act.space.dtype, casting="same_kind")
            known = act.space.contains(action)
        except Exception as error:
            raise EnvironmentFailure(f"opponent script:{name} failed: {describe_exception(error)}") from error
        if not known:
            raise EnvironmentFailure(f"opponent script:{name}: expected an action in {act.space}; got {clean_text(repr(action), 80)}")
        return action

    return choose
