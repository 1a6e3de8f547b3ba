"""Presets: one YAML file per algorithm, with defaults and a section per environment id."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

from baldwin.config.merge import Tree, merge, parse_yaml
from baldwin.errors import pick

MAX_NAME = 100  # characters
META = ("preset", "summary", "source", "measured", "variants")


@dataclass(frozen=True, slots=True)
class Preset:
    """A tuned configuration of one algorithm in one environment."""

    name: str
    algorithm: str
    env: str
    summary: str
    source: str  # where the settings come from
    measured: str  # the score they reached here, or "no"
    tree: Tree  # without the algorithm's defaults

    @property
    def about(self) -> str:
        """Algorithm, environment, summary, source and measured score, on one line."""
        return f"{self.algorithm} in {self.env}: {self.summary} (source: {self.source}; measured: {self.measured})"


@cache
def list_presets() -> dict[str, Preset]:
    """All presets by name."""
    presets: dict[str, Preset] = {}
    for algorithm, sections in _files().items():
        for env, section in sections.items():
            if env != "defaults":
                tuned = {section["preset"]: section} if "preset" in section else {}
                named = tuned | section.get("variants", {})
                presets |= {name: _preset(name, algorithm, env, s) for name, s in named.items()}
    return dict(sorted(presets.items()))


def preset_tree(name: str) -> Tree:
    """The configuration of a preset.

    Raises:
        ConfigError: there is none of that name; names the nearest.
    """
    preset = pick(list_presets(), name, "preset")
    return merge(algorithm_defaults(preset.algorithm), preset.tree)


def tuned_tree(algorithm: str, env: str) -> Tree:
    """The algorithm's section for the environment if there is one, its defaults for any environment otherwise."""
    section = _files().get(algorithm, {}).get(env)
    if section is not None and "preset" in section and env != "defaults":
        return preset_tree(section["preset"])
    name = folder_name(f"{env}-{algorithm}")
    return merge(algorithm_defaults(algorithm), {"env": {"id": env}, "run": {"name": name}})


def folder_name(text: str) -> str:
    """A text as the name of a folder."""
    return re.sub(r"[^\w.-]+", "-", text).strip(".-")[:MAX_NAME] or "run"


def algorithm_defaults(algorithm: str) -> Tree:
    """Settings of the algorithm's preset file for any environment, as a config tree with `algorithm.name`."""
    return merge(_files().get(algorithm, {}).get("defaults", {}), {"algorithm": {"name": algorithm}})


def _preset(name: str, algorithm: str, env: str, section: Mapping[str, Any]) -> Preset:
    own = {key: value for key, value in section.items() if key not in META}
    tree = merge({"env": {"id": env}, "run": {"name": name}}, own)
    return Preset(name, algorithm, env, section["summary"], section["source"], str(section["measured"]), tree)


@cache
def _files() -> dict[str, Tree]:
    folder = resources.files("baldwin.config") / "presets"
    files = {f.name.removesuffix(".yaml"): f for f in folder.iterdir() if f.name.endswith(".yaml")}
    return {name: parse_yaml(files[name].read_text(), f"{name}.yaml", compiled=True) for name in sorted(files)}
