"""Merging trees of settings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Tree = dict[str, Any]


def merge(under: Mapping[str, Any], over: Mapping[str, Any]) -> Tree:
    """Maps merge key by key; anything else, lists included, is replaced."""
    out = dict(under)
    for key, value in over.items():
        both = isinstance(value, Mapping) and isinstance(out.get(key), Mapping)
        out[key] = merge(out[key], value) if both else value
    return out


def overlay(under: Mapping[str, Any], over: Mapping[str, Any]) -> Tree:
    """Merge; but a layer that names another algorithm starts that section anew: the old one's fields mean nothing to it."""
    algorithms = [layer.get("algorithm") or {} for layer in (under, over)]
    if all(isinstance(a, Mapping) for a in algorithms):
        old, new = algorithms[0].get("name", "es"), algorithms[1].get("name")
        if algorithms[0] and new is not None and new != old:
            under = {k: v for k, v in under.items() if k != "algorithm"}
    return merge(under, over)


def parse_numbers(value: Any) -> Any:
    """YAML 1.1 reads 1e-3 and 5e6 as text: nobody means that."""
    if isinstance(value, dict):
        return {k: parse_numbers(v) for k, v in value.items()}
    if isinstance(value, list):
        return [parse_numbers(v) for v in value]
    if isinstance(value, str) and "e" in value.lower() and value[:1] in "+-.0123456789" and value:
        try:
            number = float(value)
        except ValueError:
            return value
        return int(number) if number.is_integer() and abs(number) >= 1 else number
    return value
