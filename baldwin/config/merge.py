"""Merging trees of settings."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import yaml

from baldwin.errors import ConfigError, clean_text
from baldwin.populations import is_range

Tree = dict[str, Any]
MAX_DEPTH = 20
MAX_NODES = 100_000
NAMES_OF_PARTS = {"kind", "conv", "module", "network", "name"}
FREE = {"kwargs", "runtime_env"}


def parse_yaml(text: str, where: str, compiled: bool = False) -> Any:
    """What a YAML text holds, as plain values.

    `compiled`: by the parser in C, which is ten times faster, but ends the process when it is given thousands of brackets.

    Raises:
        ConfigError: it is not YAML, or not settings.
    """
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader) if compiled else yaml.SafeLoader
    try:
        return plain_tree(yaml.load(text, loader))
    except (yaml.YAMLError, ValueError, RecursionError) as error:  # ValueError: a date that is none; RecursionError: thousands of brackets
        reason = clean_text(str(error), 200) if not isinstance(error, RecursionError) else "nested too deeply"
        raise ConfigError(f"{where} is not YAML: {reason}") from error


def merge(under: Mapping[str, Any], over: Mapping[str, Any], free: bool = False) -> Tree:
    """Maps merge key by key; anything else, lists and ranges included, is replaced. `free`: inside arguments that only others know.

    Raises:
        ConfigError: a part that was named in one word (`memory: lstm`) gets keys without its kind, which would be lost.
    """
    out = dict(under)
    for key, value in over.items():
        short = out.get(key)
        kindless = isinstance(value, Mapping) and value and not is_range(value) and not NAMES_OF_PARTS & set(value)
        if not free and kindless and isinstance(short, str):
            word = "conv" if key not in ("memory", "learner") else "kind" if key == "memory" else "name"
            raise ConfigError(
                f"{key} is {clean_text(short, 50)!r} and cannot get {', '.join(map(str, value))} besides: write {key}.{word}={clean_text(short, 50)}"
            )
        both = isinstance(value, Mapping) and isinstance(out.get(key), Mapping) and not (is_range(value) or is_range(out[key]))
        out[key] = merge(out[key], value, free or key in FREE) if both else value
    return out


def overlay(under: Mapping[str, Any], over: Mapping[str, Any]) -> Tree:
    """Merge; but a layer that names another algorithm, or another population, starts that section anew: the old one's fields mean nothing to it.

    What a population searches stays.
    """
    for section, default in (("algorithm", "es"), ("population", None)):
        old, new = (layer.get(section) or {} for layer in (under, over))
        if not (isinstance(old, Mapping) and isinstance(new, Mapping)):
            continue
        if old and new.get("name") is not None and new["name"] != old.get("name", default):
            kept = {"search": old["search"]} if section == "population" and "search" in old else {}
            under = {**{k: v for k, v in under.items() if k != section}, **({section: kept} if kept else {})}
    return merge(under, over)


def plain_tree(value: Any) -> Any:
    """A copy of a YAML tree in which text that looks like a number is a number (YAML 1.1 reads 1e-3 and 5e6 as text), and aliases are written out.

    Raises:
        ConfigError: nested too deeply, or too large when written out: an alias that holds itself, or one of many of many.
    """
    return _plain(value, MAX_DEPTH, iter(range(MAX_NODES)))


def _plain(value: Any, depth: int, budget: Iterator[int]) -> Any:
    if not depth or next(budget, None) is None:
        raise ConfigError(
            f"expected settings, nested at most {MAX_DEPTH} deep and {MAX_NODES:,} in number; got more. Are there YAML aliases?"
        )
    if isinstance(value, dict):
        return {k: _plain(v, depth - 1, budget) for k, v in value.items()}
    if isinstance(value, list):
        return [_plain(v, depth - 1, budget) for v in value]
    return _number(value) if isinstance(value, str) else value


def _number(text: str) -> Any:
    if "e" not in text.lower() or text[:1] not in "+-.0123456789":
        return text
    try:
        number = float(text)
    except ValueError:
        return text
    return int(number) if number.is_integer() and 1 <= abs(number) <= 2**63 else number
