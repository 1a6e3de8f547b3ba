"""Opponents that decide by a function of what they see."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class ByFunction:
    """Members of a pool without networks: observations -> actions."""

    def __init__(self, choose: Callable[[Any], Any]) -> None:
        self._choose = choose

    def begin(self, rows: Any, seeds: Any) -> None: ...

    def act(self, members: Any, obs: Any, rows: Any) -> Any:
        return self._choose(obs)
