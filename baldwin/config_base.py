"""The base of every section of a config."""

from __future__ import annotations

from typing import ClassVar

from pydantic import BaseModel, ConfigDict


class ConfigModel(BaseModel):
    """A frozen section that refuses unknown keys. `renamed` maps keys of earlier versions to what they are called now."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    renamed: ClassVar[dict[str, str]] = {}

    @classmethod
    def new_name(cls, key: str) -> str | None:
        """What a key of an earlier version is called now, if it was renamed here or in a base class."""
        return next((c.renamed[key] for c in cls.__mro__ if issubclass(c, ConfigModel) and key in c.renamed), None)
