"""A switch that nobody reads is a lie: every field of every config model is read somewhere, on that very model."""

from __future__ import annotations

from collections import defaultdict
from functools import cache
from pathlib import Path

from mypy import build as mypy_build
from mypy.find_sources import create_source_list
from mypy.nodes import MemberExpr
from mypy.options import Options
from mypy.types import Instance, UnionType, get_proper_type
from pydantic import BaseModel

import baldwin
from baldwin.algorithm import ALGORITHMS
from baldwin.config import RunConfig
from baldwin.populations import POPULATIONS

READ_BY_PYDANTIC = {"name", "network"}  # an algorithm's name chooses its model, a policy's network the defaults of its other keys


def models(model: type[BaseModel]) -> set[type[BaseModel]]:
    found = {model}
    for field in model.model_fields.values():
        for kind in (field.annotation, *getattr(field.annotation, "__args__", ())):
            if isinstance(kind, type) and issubclass(kind, BaseModel):
                found |= models(kind)
    return found


@cache
def attributes_read() -> dict[str, set[str]]:
    """Full name of a class -> the attributes that are read of its instances, as mypy infers their types."""
    options = Options()
    options.export_types = True
    options.preserve_asts = True
    options.incremental = False
    options.follow_imports = "skip"  # the types of other packages are of no interest, and take a minute
    options.ignore_missing_imports = True
    options.python_version = (3, 11)
    folder = Path(baldwin.__file__).parent
    result = mypy_build.build(create_source_list([str(folder)], options), options)
    read: dict[str, set[str]] = defaultdict(set)

    for expression in result.types:
        if isinstance(expression, MemberExpr):
            kind = get_proper_type(result.types.get(expression.expr))
            for part in kind.items if isinstance(kind, UnionType) else [kind]:
                proper = get_proper_type(part)
                if isinstance(proper, Instance):
                    read[proper.type.fullname].add(expression.name)
    return read


def read_of(model: type[BaseModel]) -> set[str]:
    """What is read of a model, of a base class that has the field, or of a subclass."""
    read = attributes_read()
    found = {name for kind in model.__mro__ for name in read.get(f"{kind.__module__}.{kind.__name__}", ()) if name in model.model_fields}
    for entry in ALL_MODELS:
        if issubclass(entry, model):
            found |= read.get(f"{entry.__module__}.{entry.__name__}", set())
    return found


ENTRIES = [entry.config for registry in (ALGORITHMS, POPULATIONS) for entry in registry.values()]  # type: ignore[attr-defined]
ALL_MODELS = sorted(models(RunConfig) | {m for config in ENTRIES for m in models(config)}, key=lambda m: m.__qualname__)
OWN = [m for m in ALL_MODELS if m.__module__.startswith("baldwin.")]


def test_every_field_is_read() -> None:
    """One test for all models, so that mypy runs in one process only; a field of the same name elsewhere does not count."""
    from baldwin.strategies.aes import OnePlusOneUpdateConfig

    unread = {model.__name__: set(model.model_fields) - read_of(model) - READ_BY_PYDANTIC for model in OWN}
    assert {name: fields for name, fields in unread.items() if fields} == {}

    class Unread(OnePlusOneUpdateConfig):
        memory: int = 3

    assert "memory" not in read_of(Unread)
    assert "window" in read_of(Unread)
