"""Preset, then -c files, then -m overrides: merged, checked, and said plainly where it fails."""

from __future__ import annotations

import os
import typing
from collections.abc import Iterable, Mapping, Sequence
from functools import reduce
from importlib import resources
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from baldwin.config.model import ALGORITHM_CONFIGS, RunConfig
from baldwin.errors import ConfigError, nearest, pick
from baldwin.hybrids import HALVES, HybridConfig

Tree = dict[str, Any]


def list_presets() -> dict[str, str]:
    """Name -> what it says of itself in its first line."""
    folder = resources.files("baldwin.config") / "presets"
    found = sorted((f for f in folder.iterdir() if f.name.endswith(".yaml")), key=lambda f: f.name)
    return {f.name.removesuffix(".yaml"): f.read_text().splitlines()[0].lstrip("# ") for f in found}


def load_config(
    preset: str | None, files: Sequence[Path] = (), overrides: Sequence[str] = (), base: Mapping[str, Any] | None = None
) -> RunConfig:
    """Merge in the order preset (or base), files, overrides, and validate.

    Raises:
        ConfigError: with what was expected, what came, and the nearest valid name.
    """
    layers: list[Mapping[str, Any]] = [base] if base else []
    if preset is not None:
        layers.append(_read_preset(preset))
    layers += [_read_file(path) for path in files]
    layers.append(reduce(merge, [parse_override(text) for text in overrides], {}))
    return validate(reduce(overlay, layers, {}))


def overlay(under: Mapping[str, Any], over: Mapping[str, Any]) -> Tree:
    """Merge; but a layer that names another algorithm begins that section anew: the old one's fields mean nothing to it."""
    algorithms = [layer.get("algorithm") or {} for layer in (under, over)]
    if all(isinstance(a, Mapping) for a in algorithms):
        old, new = algorithms[0].get("name", "es"), algorithms[1].get("name")
        if algorithms[0] and new is not None and new != old:
            under = {k: v for k, v in under.items() if k != "algorithm"}
    return merge(under, over)


def merge(under: Mapping[str, Any], over: Mapping[str, Any]) -> Tree:
    """Maps merge key by key; anything else, lists included, is replaced."""
    out = dict(under)
    for key, value in over.items():
        both = isinstance(value, Mapping) and isinstance(out.get(key), Mapping)
        out[key] = merge(out[key], value) if both else value
    return out


def parse_override(text: str) -> Tree:
    """'a.b=1' -> {'a': {'b': 1}}; the value is YAML.

    Raises:
        ConfigError: it is not KEY=VALUE, or the value is not YAML.
    """
    key, sign, value = text.partition("=")
    if not sign or not key.strip():
        raise ConfigError(f"-m takes KEY=VALUE, as in -m algorithm.lr=0.02; got {text!r}")
    try:
        tree: Any = _number(yaml.safe_load(value)) if value else None
    except yaml.YAMLError as error:
        raise ConfigError(f"-m {text!r}: the value is not YAML ({str(error).splitlines()[0]}). Quote it.") from error
    for part in reversed(key.strip().split(".")):
        tree = {part: tree}
    return typing.cast("Tree", tree)


def validate(tree: Mapping[str, Any]) -> RunConfig:
    """The frozen model of a merged tree.

    Raises:
        ConfigError: every problem on a line of its own.
    """
    algorithm = tree.get("algorithm") or {}
    if isinstance(algorithm, Mapping):
        name = str(algorithm.get("name", "es"))
        chosen = pick(ALGORITHM_CONFIGS, name, "algorithm")
        defaults = chosen.policy_for(algorithm) if issubclass(chosen, HybridConfig) else getattr(chosen, "policy_defaults", {})
        tree = merge({"policy": defaults, "algorithm": {"name": name}}, tree)
    try:
        return RunConfig.model_validate(tree)
    except ValidationError as error:
        raise ConfigError("\n".join(_explain(e) for e in error.errors())) from error


def read_config(path: Path) -> RunConfig:
    """The config that a run directory was made with."""
    return validate(_read_file(path))


def write_config(config: RunConfig, path: Path) -> None:
    """Save all choices, defaults included."""
    aside = path.with_suffix(".writing")
    with open(aside, "w") as file:
        yaml.safe_dump(config.model_dump(mode="json"), file, sort_keys=False)
        file.flush()
        os.fsync(file.fileno())
    aside.rename(path)  # whole or not at all: without it nothing can be resumed


def _read_preset(name: str) -> Tree:
    pick(list_presets(), name, "preset")
    tree = _parse((resources.files("baldwin.config") / "presets" / f"{name}.yaml").read_text(), name)
    return merge({"run": {"name": name}}, tree)


def _read_file(path: Path) -> Tree:
    try:
        text = Path(path).read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read {path}: {getattr(error, 'strerror', None) or 'it is not a text file'}") from error
    return _parse(text, str(path))


def _parse(text: str, where: str) -> Tree:
    try:
        tree = _number(yaml.safe_load(text))
    except yaml.YAMLError as error:
        raise ConfigError(f"{where} is not YAML: {error}") from error
    if tree is None:
        return {}
    if not isinstance(tree, dict):
        raise ConfigError(f"{where}: expected a map with env, policy, algorithm, executor, run, stop; got {type(tree).__name__}")
    return tree


def _number(value: Any) -> Any:
    """YAML 1.1 reads 1e-3 and 5e6 as text: nobody means that."""
    if isinstance(value, dict):
        return {k: _number(v) for k, v in value.items()}
    if isinstance(value, list):
        return [_number(v) for v in value]
    if isinstance(value, str) and "e" in value.lower() and value[:1] in "+-.0123456789" and value:
        try:
            number = float(value)
        except ValueError:
            return value
        return int(number) if number.is_integer() and abs(number) >= 1 else number
    return value


def _explain(error: ErrorDetails) -> str:
    """One line: where, expected, got, do."""
    path = [str(p) for p in error["loc"] if not str(p).startswith(("function-", "constrained-", "literal["))]
    model: type[BaseModel] = RunConfig
    depth = 0  # of the model in the path
    if len(path) > 1 and path[0] == "algorithm" and path[1] in ALGORITHM_CONFIGS:
        model, depth = ALGORITHM_CONFIGS[path.pop(1)], 1  # pydantic names the branch of the union; a person did not write it
    if len(path) > 2 and path[1] == "learner" and path[2] in HALVES:
        model, depth = HALVES[path.pop(2)], 2
    where = ".".join(path) or "config"
    if error["type"] == "extra_forbidden":
        names = _fields_at(model, path[depth:-1])
        return f"unknown key {where!r}.{nearest(path[-1], names)} Valid here: {', '.join(names)}."
    if error["type"] == "missing":
        return f"{where!r} is required: {'-m env.id=CartPole-v1, or a preset' if where == 'env' else 'set it'}"
    got = error.get("input")
    if error["type"] == "literal_error":
        return f"{where!r}: {error['msg'].removeprefix('Input ')}; got {got!r}.{nearest(str(got), _quoted(error['msg']))}"
    message = error["msg"].removeprefix("Value error, ").replace("Input should", "should")
    return f"{where!r}: {message}" + (f"; got {got!r}" if not isinstance(got, dict | BaseModel) else "")


def _quoted(message: str) -> list[str]:
    return message.split("'")[1::2]


def _fields_at(model: Any, path: Iterable[str]) -> list[str]:
    """The valid keys of the section of a model at this path."""
    for part in path:
        kinds = (
            [model.model_fields[part].annotation, *typing.get_args(model.model_fields[part].annotation)]
            if part in model.model_fields
            else []
        )
        inner = [t for t in kinds if isinstance(t, type) and issubclass(t, BaseModel)]
        if not inner:
            continue  # a union's branch name
        model = inner[0]
    return list(model.model_fields)
