"""The base of every section of a config."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Self

from pydantic import BaseModel, ConfigDict, field_validator

MAX_FLOAT = 1e30  # beyond it, float32 arithmetic overflows
MAX_INT = 2**63 - 1


class ConfigModel(BaseModel):
    """A frozen section that refuses unknown keys and absurd numbers. `renamed` maps keys of earlier versions to what they are called now,
    `removed` those that are gone to why; `mutable` are the keys that may change in mid-training, because no saved state depends on them."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    renamed: ClassVar[dict[str, str]] = {}
    removed: ClassVar[dict[str, str]] = {}
    mutable: ClassVar[tuple[str, ...]] = ()

    @classmethod
    def new_name(cls, key: str) -> str | None:
        """What a key of an earlier version is called now, if it was renamed here or in a base class."""
        return next((c.renamed[key] for c in cls.__mro__ if issubclass(c, ConfigModel) and key in c.renamed), None)

    @classmethod
    def why_removed(cls, key: str) -> str | None:
        """Why a key of an earlier version is no longer there."""
        return next((c.removed[key] for c in cls.__mro__ if issubclass(c, ConfigModel) and key in c.removed), None)

    def is_changed(self, name: str) -> bool:
        """Whether a field has another value than its default. (The config of a run that goes on has all fields set.)"""
        return bool(getattr(self, name) != type(self).model_fields[name].default)

    def is_mutable(self, path: Sequence[str]) -> bool:
        """Whether the key at this path may change in mid-training."""
        head, *rest = path
        if rest and isinstance(part := getattr(self, head, None), ConfigModel):
            return part.is_mutable(rest)
        return not rest and any(head in c.mutable for c in type(self).__mro__ if issubclass(c, ConfigModel))

    def with_values(self, values: Mapping[tuple[str, ...], Any]) -> Self:
        """The same with other values at these paths, validated.

        Raises:
            ValidationError: a value, or a combination of them, is not allowed.
        """
        tree = self.model_dump()
        for path, value in values.items():
            node = tree
            for part in path[:-1]:
                node = node.setdefault(part, {})
            node[path[-1]] = value
        return type(self).model_validate(tree)

    def foreign_code(self) -> list[str]:
        """What this section would run that is not part of an installed package, as `key=value`: a user's classes, another machine's code."""
        nested = {name: getattr(self, name) for name in type(self).model_fields}
        return [f"{name}.{found}" for name, value in nested.items() if isinstance(value, ConfigModel) for found in value.foreign_code()]

    @field_validator("*")
    @classmethod
    def _no_absurd_numbers(cls, value: Any) -> Any:
        for number in value if isinstance(value, list) else [value]:
            limit = MAX_FLOAT if isinstance(number, float) else MAX_INT
            if isinstance(number, int | float) and limit < abs(number) < math.inf:  # infinity is refused unless the field allows it
                raise ValueError(f"expected a number within +-{limit:.3g}")
        return value
