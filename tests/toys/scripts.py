"""Scripted opponents of the toys."""

from __future__ import annotations

from typing import Any


def says_what_it_sees(observation: Any, legal: Any) -> int:
    """The best reply in `duels.Duel`."""
    return int(observation[0] > 0)


def says_nothing(observation: Any, legal: Any) -> None:
    """No action at all."""


def raises(observation: Any, legal: Any) -> int:
    """A mistake in it."""
    return int(observation["light"])
