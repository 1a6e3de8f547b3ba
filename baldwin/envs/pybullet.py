"""PyBullet's Gymnasium environments: pybullet:HalfCheetahBulletEnv-v0."""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import os
from collections.abc import Callable, Iterator
from typing import Any

import gymnasium as gym

from baldwin.envs.vector_env import PYBULLET
from baldwin.errors import EnvironmentFailure, missing_extra, nearest

PREFIX = PYBULLET
PACKAGE = "pybullet_envs_gymnasium"
LEFTOVERS = frozenset({"ThrowerBulletEnv-v0", "HumanoidFlagrunHarderBulletEnv-v0"})
"""Environments of version 0.6 whose reset leaves something of the last episode; of all 13 these were found."""


def env_names() -> list[str]:
    """All ids, without the prefix; none if the package is not installed."""
    try:
        importlib.import_module(PACKAGE)
    except ImportError:
        return []
    return [name for name, spec in gym.registry.items() if str(spec.entry_point).startswith(f"{PACKAGE}.")]


def check_name(name: str) -> str:
    """The id of an environment, once it is registered with Gymnasium.

    Raises:
        MissingExtra: the package is not installed.
        EnvironmentFailure: there is no such environment.
    """
    names = env_names()
    if not names:
        raise missing_extra("pybullet", f"environment '{PREFIX}{name}'")
    if name not in names:
        raise EnvironmentFailure(
            f"there is no environment {PREFIX}{name}: expected one of {', '.join(names)}.{nearest(name, names)} (baldwin list envs pybullet)"
        )
    return name


class ExactResets(gym.Wrapper[Any, Any, Any, Any]):
    """Makes an episode a pure function of its seed and the actions.

    The first reset builds the scene, later ones restore it, which is not the same to the last bit: so it is reset once more before the
    first episode. Where something else is left from the last episode, each one gets an environment of its own, which takes 30 ms.
    """

    def __init__(self, make: Callable[[], gym.Env[Any, Any]], *, anew: bool) -> None:
        with silenced():
            super().__init__(make())
        self._make, self._anew, self._used = make, anew, False

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin an episode."""
        with silenced() if self._anew or not self._used else contextlib.nullcontext():
            if self._anew and self._used:
                self.env.close()
                self.env = self._make()
            elif not self._used and not self._anew:
                self.env.reset(seed=0)
            self._used = True
            return self.env.reset(seed=seed, options=options)


@contextlib.contextmanager
def silenced() -> Iterator[None]:
    """Bullet prints when it is imported and for every world: not into what a command prints as JSON."""
    kept = [os.dup(stream) for stream in (1, 2)]
    nowhere = os.open(os.devnull, os.O_WRONLY)
    _flush()
    try:
        for stream in (1, 2):
            os.dup2(nowhere, stream)
        yield
    finally:
        _flush()
        for stream, copy in zip((1, 2), kept, strict=True):
            os.dup2(copy, stream)
            os.close(copy)
        os.close(nowhere)


def _flush() -> None:
    """Empty the buffers of C, where that can be done from here."""
    with contextlib.suppress(OSError, TypeError, AttributeError):
        ctypes.CDLL(None).fflush(None)
