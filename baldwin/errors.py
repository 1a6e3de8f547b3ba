"""One short error tree. A message says what was expected, what came, and what to do."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from typing import TypeVar

T = TypeVar("T")

DISTRIBUTION = "baldwin-rl"
MAX_MESSAGE = 600  # characters of a message that came from foreign code


class BaldwinError(Exception):
    """Anything this package raises on purpose."""


class UserError(BaldwinError):
    """The caller can put it right: the command line exits with 2."""


class ConfigError(UserError):
    """A choice that cannot be: an unknown key, a wrong type, an impossible value."""


class EnvironmentFailure(UserError):
    """An environment that cannot be made, raises, hangs, or returns what its spaces forbid."""


class MissingExtra(UserError):
    """An optional dependency that is not installed."""


class RunDirectoryError(UserError):
    """A run directory that is missing, in use, of another kind, or damaged beyond its last good checkpoint."""


class StorageError(BaldwinError):
    """The disk refused: full, read-only, gone. What was saved before is intact."""


class ReplayError(BaldwinError):
    """A replay that cannot give what it is asked for: nothing written yet, or rows that are gone."""


class Diverged(BaldwinError):
    """A loss that is not a number. The last checkpoint is from before it."""


class TicketError(BaldwinError):
    """A ticket that was never given out, or came back twice."""


class StaleShare(BaldwinError):
    """A worker was asked to use a shared value that it does not hold."""


class Stalled(BaldwinError):
    """Nothing is in flight and the algorithm asks for nothing."""


def nearest(name: str, names: Iterable[str]) -> str:
    """' Did you mean ...?' or nothing; never the name itself."""
    near = difflib.get_close_matches(name, [n for n in names if n != name], n=1, cutoff=0.5)
    return f" Did you mean {near[0]!r}?" if near else ""


def clean_text(text: str, limit: int = MAX_MESSAGE) -> str:
    """A message that is safe to print: one line, no control characters, cut in the middle if it is long."""
    text = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    return text if len(text) <= limit else f"{text[: limit // 2]} ... {text[-limit // 2 :]}"


def describe_exception(error: BaseException) -> str:
    """Type and message of an exception from foreign code, also where its own `__str__` raises; never empty."""
    try:
        message = clean_text(str(error))
    except Exception as broken:
        message = f"(its message cannot be shown: {type(broken).__name__})"
    return clean_text(f"{type(error).__name__}: {message}" if message else type(error).__name__)


def pick(table: Mapping[str, T], name: str, what: str) -> T:
    """The entry of that name.

    Raises:
        ConfigError: there is none; names the nearest.
    """
    if name in table:
        return table[name]
    raise ConfigError(f"no {what} {name!r}; there are: {', '.join(sorted(table))}.{nearest(name, table)}")


def missing_extra(extra: str, purpose: str) -> MissingExtra:
    """The error for an absent optional dependency, with the exact command."""
    return MissingExtra(f"{purpose} needs the extra {extra!r}, which is not installed. Run: pip install '{DISTRIBUTION}[{extra}]'")
