"""Foreign files, read and converted."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from baldwin.config.importers.aesrl import import_aesrl
from baldwin.config.importers.asac import import_asac
from baldwin.config.importers.rules import Imported
from baldwin.config.importers.zoo import import_zoo
from baldwin.config.load import read_text, validate
from baldwin.config.merge import Tree, merge, parse_yaml, plain_tree
from baldwin.config.preset import algorithm_defaults, folder_name
from baldwin.errors import ConfigError, clean_text, pick

ORDER = ("env", "policy", "algorithm", "executor", "run", "stop")


@dataclass(frozen=True, slots=True)
class Choice:
    """Which part of a file is meant, and what replaces or completes it."""

    env: str | None = None
    algorithm: str | None = None
    section: str | None = None


@dataclass(frozen=True, slots=True)
class Importer:
    """A kind of file that can be converted."""

    program: str
    parse: Callable[[str, str], Any]  # (text, where it is from) -> tree
    convert: Callable[[dict[str, Any], Path, Choice], Imported]
    takes: frozenset[str]  # fields of Choice that mean something to it


def parse_json(text: str, where: str) -> Any:
    """What a JSON text holds.

    Raises:
        ConfigError: it is not JSON.
    """
    try:
        return plain_tree(json.loads(text))
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{where} is not JSON: {clean_text(str(error), 200)}") from error


IMPORTERS: dict[str, Importer] = {
    "asac": Importer(
        "Advanced-Soft-Actor-Critic", parse_yaml, lambda tree, path, c: import_asac(tree, c.section, c.env), frozenset({"env", "section"})
    ),
    "aesrl": Importer("AES-RL", parse_json, lambda tree, path, c: import_aesrl(tree, c.env), frozenset({"env"})),
    "zoo": Importer(
        "RL Baselines3 Zoo",
        parse_yaml,
        lambda tree, path, c: import_zoo(tree, c.algorithm or path.stem, c.env),
        frozenset({"env", "algorithm"}),
    ),
}


def import_config(kind: str, path: Path, *, env: str | None = None, algorithm: str | None = None, section: str | None = None) -> Imported:
    """Convert a config of another program. The tree loads with `load_config`.

    Args:
        kind: asac, aesrl or zoo.
        path: The file.
        env: An environment instead of the file's; of zoo, the entry of the file.
        algorithm: zoo: the algorithm that the file is for; default: the file's name.
        section: asac: the named config in the file; default: `default`.

    Raises:
        ConfigError: the file cannot be read or converted, or Baldwin refuses the result.
    """
    importer = pick(IMPORTERS, kind, "importer")
    choice = Choice(env, algorithm, section)
    for option in ("algorithm", "section"):
        if getattr(choice, option) is not None and option not in importer.takes:
            raise ConfigError(f"import {kind} takes no --{'algo' if option == 'algorithm' else option}: leave it out")
    tree = _as_json(importer.parse(read_text(path), str(path)))
    if not isinstance(tree, dict) or not tree:
        raise ConfigError(f"{path}: expected a config of {importer.program}; got {'nothing' if not tree else type(tree).__name__}")
    try:
        imported = importer.convert(tree, path, choice)
        named = merge({"run": {"name": _name(imported.tree)}}, imported.tree)
        validate(merge(algorithm_defaults(named["algorithm"]["name"]), named))
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from error
    return Imported(named, imported.rows)


def render_config(imported: Imported, kind: str, path: Path) -> str:
    """The config as a YAML file."""
    head = f"# From {clean_text(path.name, 100)}, a config of {IMPORTERS[kind].program}.\n"
    tree = json.loads(json.dumps(imported.tree))  # so that equal lists are written out, not as an alias of one of them
    return head + yaml.safe_dump({name: tree[name] for name in ORDER if name in tree}, sort_keys=False, default_flow_style=None)


def _as_json(value: Any) -> Any:
    """A copy of a YAML value in which dates and other types that JSON does not have are text."""
    if isinstance(value, dict):
        return {str(key): _as_json(part) for key, part in value.items()}
    if isinstance(value, list):
        return [_as_json(part) for part in value]
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)


def _name(tree: Tree) -> str:
    return folder_name(f"{tree['env']['id']}-{tree['algorithm']['name']}")
