"""A switch that nobody reads is a lie: every field of every config model is read somewhere in the package."""

import ast
from pathlib import Path

import pytest
from pydantic import BaseModel

import baldwin
from baldwin.config import RunConfig


def models(model: type[BaseModel]) -> set[type[BaseModel]]:
    found = {model}
    for field in model.model_fields.values():
        for kind in (field.annotation, *getattr(field.annotation, "__args__", ())):
            if isinstance(kind, type) and issubclass(kind, BaseModel):
                found |= models(kind)
    return found


def attributes_read() -> set[str]:
    read: set[str] = set()
    for path in Path(baldwin.__file__).parent.rglob("*.py"):
        read |= {n.attr for n in ast.walk(ast.parse(path.read_text())) if isinstance(n, ast.Attribute)}
    return read


@pytest.mark.parametrize("model", sorted(models(RunConfig), key=lambda m: m.__name__))
def test_every_field_is_read(model: type[BaseModel]) -> None:
    assert set(model.model_fields) - attributes_read() == set()
