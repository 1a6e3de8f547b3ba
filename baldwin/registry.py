"""Tables of parts by name, open to other packages.

A package adds parts by registering them when it is imported. Baldwin's own packages are imported by whoever looks a part
up; others name a module in the entry-point group `baldwin.plugins`, which is imported at the first look-up.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import metadata
from typing import Generic, TypeVar

from pydantic import BaseModel

from baldwin.errors import BaldwinError, ConfigError, pick

T = TypeVar("T")
C = TypeVar("C", bound=BaseModel)

PLUGINS = "baldwin.plugins"
log = logging.getLogger("baldwin")


@dataclass(frozen=True, slots=True)
class ConfigEntry(Generic[C]):
    """An entry of a registry that is named and described by the config model of its part."""

    config: type[C]

    @property
    def name(self) -> str:
        """The default of the config's field `name`, by which a config file chooses the part."""
        return str(self.config.model_fields["name"].default)

    @property
    def summary(self) -> str:
        """The first line of the config's docstring, which `baldwin list` shows."""
        return (self.config.__doc__ or "").split("\n")[0]


class Registry(Mapping[str, T], Generic[T]):
    """Name -> entry. Looking something up loads the plugins first."""

    def __init__(self, what: str) -> None:
        """`what` the entries are, for messages: 'algorithm', 'executor', ..."""
        self._what = what
        self._entries: dict[str, T] = {}

    def add(self, name: str, entry: T) -> T:
        """Register an entry and return it.

        Raises:
            BaldwinError: another entry has that name.
        """
        if name in self._entries:
            raise BaldwinError(f"{self._what} {name!r} is registered already: expected a name of its own")
        self._entries[name] = entry
        return entry

    def find(self, name: str) -> T:
        """The entry of that name.

        Raises:
            ConfigError: there is none; names the nearest.
        """
        load_plugins()
        return pick(self._entries, name, self._what)

    def check(self, name: str) -> str:
        """The name, for a validator of a config.

        Raises:
            ValueError: there is no such entry; names the nearest.
        """
        try:
            self.find(name)
        except ConfigError as error:
            raise ValueError(str(error)) from error
        return name

    def __getitem__(self, name: str) -> T:
        load_plugins()
        return self._entries[name]

    def __iter__(self) -> Iterator[str]:
        load_plugins()
        return iter(self._entries)

    def __len__(self) -> int:
        load_plugins()
        return len(self._entries)


@cache
def load_plugins() -> None:
    """Import every module that other packages name. One that fails is reported and left out: it must not stop every run."""
    for plugin in metadata.entry_points(group=PLUGINS):
        try:
            plugin.load()
        except Exception as error:
            log.warning("plugin %r (%s) could not be loaded: %s: %s", plugin.name, plugin.value, type(error).__name__, error)
