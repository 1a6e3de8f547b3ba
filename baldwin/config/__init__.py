"""Configuration: YAML files and overrides, merged into one frozen, validated model."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from baldwin.config.load import dump_config, load_config, read_config
    from baldwin.config.model import RunConfig, RunSection, StopSection, config_schema
    from baldwin.config.preset import Preset, list_presets

_HOMES = {
    "Preset": "preset",
    "RunConfig": "model",
    "RunSection": "model",
    "StopSection": "model",
    "config_schema": "model",
    "dump_config": "load",
    "list_presets": "preset",
    "load_config": "load",
    "read_config": "load",
}
__all__ = [
    "Preset",
    "RunConfig",
    "RunSection",
    "StopSection",
    "config_schema",
    "dump_config",
    "list_presets",
    "load_config",
    "read_config",
]


def __getattr__(name: str) -> Any:
    """Load a name when it is first used: presets can be listed without importing every algorithm."""
    if name in _HOMES:
        return getattr(import_module(f"baldwin.config.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'baldwin.config' has no attribute {name!r}")
