"""Expressions in config files: read as literals, never executed."""

from __future__ import annotations

import ast
from typing import Any

from baldwin.errors import ConfigError, clean_text

MAX_CHARACTERS = 10_000


def parse_literal(text: str) -> Any:
    """The value of a Python literal, where `dict(a=1)` is a dict and a dotted name such as nn.ReLU is its own text.

    Raises:
        ConfigError: it is not such a literal.
    """
    problem = f"longer than {MAX_CHARACTERS:,} characters"
    if len(text) <= MAX_CHARACTERS:
        try:
            return _value(ast.parse(text.strip(), mode="eval").body)
        except (SyntaxError, ValueError, TypeError, RecursionError, MemoryError) as error:
            problem = clean_text(str(error), 100) or type(error).__name__
    raise ConfigError(
        f"expected numbers, texts, lists, dict(name=value) and names such as nn.ReLU; cannot read {clean_text(text, 200)!r}: {problem}"
    )


def _value(node: ast.expr) -> Any:
    match node:
        case ast.Constant(value=value) if value is None or isinstance(value, bool | int | float | str):
            return value
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_value(operand)
        case ast.UnaryOp(op=ast.UAdd(), operand=operand):
            return +_value(operand)
        case ast.List(elts=items) | ast.Tuple(elts=items):
            return [_value(item) for item in items]
        case ast.Dict(keys=keys, values=values) if None not in keys:
            return {_value(key): _value(value) for key, value in zip(keys, values, strict=True) if key is not None}
        case ast.Call(func=ast.Name(id="dict"), args=[], keywords=pairs) if all(pair.arg for pair in pairs):
            return {str(pair.arg): _value(pair.value) for pair in pairs}
        case ast.Name(id=name):
            return name
        case ast.Attribute(value=owner, attr=name):
            return f"{_dotted(owner)}.{name}"
    raise ValueError(f"{ast.unparse(node)} is not a literal")


def _dotted(node: ast.expr) -> str:
    if not isinstance(node, ast.Name | ast.Attribute):
        raise ValueError(f"{ast.unparse(node)} is not a name")
    return str(_value(node))
