"""What was chosen: YAML files and overrides, merged into one frozen, validated model."""

from baldwin.config.load import list_presets, load_config, read_config, write_config
from baldwin.config.model import ALGORITHM_CONFIGS, RunConfig, RunSection, StopSection

__all__ = ["ALGORITHM_CONFIGS", "RunConfig", "RunSection", "StopSection", "list_presets", "load_config", "read_config", "write_config"]
