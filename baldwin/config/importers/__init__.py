"""Configs of other programs, converted: what each key became, or why it is not there."""

from baldwin.config.importers.read import IMPORTERS, import_config, render_config
from baldwin.config.importers.rules import Imported, Row

__all__ = ["IMPORTERS", "Imported", "Row", "import_config", "render_config"]
