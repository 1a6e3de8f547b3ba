"""What foreign keys become: tables of rules, and a report of each key."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from baldwin.config.merge import Tree, merge
from baldwin.errors import ConfigError, clean_text, nearest

Settings = Mapping[str, Any]
Converted = tuple[dict[str, Any], str]
"""Baldwin's keys, dotted, with their values; and a remark. Without keys, the remark says why there are none."""
Rule = Callable[[Any, Settings], Converted]
"""(value, all settings of the file and the defaults below it) -> what became of it."""

NOTHING_LOST = "nothing is lost: it is so here, too"


@dataclass(frozen=True, slots=True)
class Row:
    """What became of one key."""

    key: str
    value: Any
    origin: str  # "file"; "option" of the command; or "default" of the program that the file is for
    became: dict[str, Any]
    note: str

    def as_dict(self) -> dict[str, Any]:
        """The row as plain values, for `baldwin import --json`."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Imported:
    """A config as a tree, and what became of each key of the file."""

    tree: Tree
    rows: list[Row]


def same(*keys: str, note: str = "") -> Rule:
    """The value goes to these keys as it is; null leaves them out."""
    return lambda value, settings: (dict.fromkeys(keys, value), note) if value is not None else ({}, "not set")


def absent(reason: str, off: tuple[Any, ...] = (), needs: str = "") -> Rule:
    """There is no such key. Nothing is lost with a value of `off`, or if another key that it `needs` is off."""

    def convert(value: Any, settings: Settings) -> Converted:
        if any(type(value) is type(o) and value == o for o in off):
            return {}, NOTHING_LOST
        return {}, f"has no effect without {needs}" if needs and not settings.get(needs) else reason

    return convert


def apply_rules(
    rules: Mapping[str, Rule], file: Settings, defaults: Settings, options: Settings, features: Collection[str] = (), **start: Any
) -> Imported:
    """Convert the settings of a file, options that replace some of them, and the defaults of its program that both leave as they are.

    `features`: keys whose defaults are reported even if nothing became of them; `start`: sections that are set anyway.

    Raises:
        ConfigError: a value that is not what its key takes.
    """
    settings = {**dict.fromkeys(options), **defaults, **file, **options}  # options first, so that the config begins with them
    tree: Tree = dict(start)
    rows = []
    for key, value in settings.items():
        rule = rules.get(key) or absent(f"not a key that is known here.{nearest(key, rules)}")
        try:
            became, note = rule(value, settings)
        except (TypeError, ValueError, ArithmeticError, KeyError, IndexError, AttributeError) as error:
            raise ConfigError(
                f"key {key!r}: cannot use the value {clean_text(repr(value), 100)} ({clean_text(str(error), 200)})"
            ) from error
        for path, converted in became.items():
            tree = merge(tree, nested(path, converted))
        origin = "option" if key in options else "file" if key in file else "default"
        if origin != "default" or became or key in features:
            rows.append(Row(key, value, origin, became, note))
    return Imported(tree, rows)


def nested(path: str, value: Any) -> Tree:
    """'a.b', 1 -> {'a': {'b': 1}}."""
    for part in reversed(path.split(".")):
        value = {part: value}
    return dict(value)


def number(value: Any) -> float:
    """A number.

    Raises:
        ValueError: it is none.
    """
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError("expected a number")
    return value


def whole(value: Any) -> int:
    """A whole number, also if it is written as 1e6.

    Raises:
        ValueError: it is none.
    """
    if number(value) != int(value):
        raise ValueError("expected a whole number")
    return int(value)
