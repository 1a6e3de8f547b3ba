"""Configuration: YAML files and overrides, merged into one frozen, validated model."""

from baldwin.config.load import load_config, read_config, write_config
from baldwin.config.model import RunConfig, RunSection, StopSection, config_schema
from baldwin.config.preset import Preset, list_presets

__all__ = [
    "Preset",
    "RunConfig",
    "RunSection",
    "StopSection",
    "config_schema",
    "list_presets",
    "load_config",
    "read_config",
    "write_config",
]
