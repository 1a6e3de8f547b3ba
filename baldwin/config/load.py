"""Preset or algorithm, then -c files, then -m overrides: merged, validated, with clear messages where that fails."""

from __future__ import annotations

import typing
from collections.abc import Iterable, Mapping, Sequence
from functools import reduce
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from baldwin.algorithm import ALGORITHMS, AlgorithmConfig
from baldwin.config.merge import Tree, merge, overlay, parse_yaml
from baldwin.config.model import RunConfig
from baldwin.config.preset import algorithm_defaults, preset_tree, tuned_tree
from baldwin.config_base import ConfigModel
from baldwin.errors import ConfigError, clean_text, nearest
from baldwin.networks import PolicyConfig
from baldwin.populations import POPULATIONS, PopulationConfig, is_range, middle, parse_range

MAX_CHARACTERS = 1_000_000


def load_config(
    preset: str | None = None,
    files: Sequence[Path] = (),
    overrides: Sequence[str] = (),
    *,
    base: Mapping[str, Any] | None = None,
    algorithm: str | None = None,
    env: str | None = None,
) -> RunConfig:
    """Merge in the order defaults of the algorithm, preset (or the tuned section of algorithm and env), files, overrides; and validate.

    `base` is a complete config, such as that of a run which is resumed.

    Raises:
        ConfigError: with what was expected, what came, and the nearest valid name.
    """
    layers: list[Mapping[str, Any]] = [base] if base else []
    if preset is not None:
        layers.append(preset_tree(preset))
    if algorithm is not None or env is not None:
        layers.append(_algorithm_and_env(algorithm, env, preset))
    layers += [_read_file(path) for path in files]
    layers.append(reduce(merge, [parse_override(text) for text in overrides], {}))
    tree: Tree = reduce(overlay, layers, {})
    section = tree.get("env")
    if env is not None and isinstance(section, Mapping) and is_range(section.get("id")):
        raise ConfigError(f"--env {env} and env.id={section['id']} both name the environment: leave --env out to search several")
    if base is None:
        section = tree.get("algorithm")
        tree = merge(algorithm_defaults(str(section.get("name", "es")) if isinstance(section, Mapping) else "es"), tree)
    return validate(tree)


def _algorithm_and_env(algorithm: str | None, env: str | None, preset: str | None) -> Tree:
    if preset is not None:
        raise ConfigError(f"expected a PRESET or --algo and --env, not both; got {preset!r} too. Leave one out")
    if algorithm is not None:
        ALGORITHMS.find(algorithm)
    return algorithm_defaults(algorithm or "es") if env is None else tuned_tree(algorithm or "es", env)


def parse_override(text: str) -> Tree:
    """'a.b=1' -> {'a': {'b': 1}}; the value is YAML.

    Raises:
        ConfigError: it is not KEY=VALUE, or the value is not YAML.
    """
    key, sign, value = text.partition("=")
    if not sign or not key.strip():
        raise ConfigError(f"-m takes KEY=VALUE, as in -m algorithm.lr=0.02; got {text!r}")
    tree: Any = parse_yaml(value, f"-m {key.strip()}: the value") if value else None
    for part in reversed(key.strip().split(".")):
        tree = {part: tree}
    return typing.cast("Tree", tree)


def validate(tree: Mapping[str, Any]) -> RunConfig:
    """The frozen model of a merged tree.

    Raises:
        ConfigError: every problem on a line of its own.
    """
    tree = take_ranges(tree)
    section = tree.get("algorithm") or {}
    if not isinstance(section, Mapping):
        raise ConfigError(f"'algorithm': expected a map with a name; got {section!r}")
    name = str(section.get("name", "es"))
    model = ALGORITHMS.find(name).config
    problems: list[str] = []
    algorithm: AlgorithmConfig | None = None
    try:
        algorithm = model.model_validate({"name": name, **section})
    except ValidationError as error:
        problems += [_explain(e, model, ("algorithm",)) for e in error.errors()]
    population, own_problems = _population(tree.get("population"))
    problems += own_problems
    own = tree.get("policy") or {}
    network = own.get("network") if isinstance(own, Mapping) else None
    defaults = merge(model.policy_defaults_for(section), PolicyConfig.presets.get(network, {}) if isinstance(network, str) else {})
    policy = merge({"policy": defaults}, {"policy": own})
    stand_in = algorithm or AlgorithmConfig.model_construct(name=name)  # so that other sections are checked too
    try:
        config = RunConfig.model_validate({**tree, **policy, "algorithm": stand_in, "population": population})
    except ValidationError as error:
        problems += [_explain(e, RunConfig) for e in error.errors()]
    if problems:
        raise ConfigError("\n".join(problems))
    return config


def take_ranges(tree: Mapping[str, Any]) -> Tree:
    """A copy of a config tree whose ranges are moved to `population.search`; in the place of each range stands a value of it.

    Raises:
        ConfigError: a range makes no sense, or there is nobody to search it.
    """
    found: dict[str, Any] = {}

    def plain(value: Any, path: tuple[str, ...]) -> Any:
        if is_range(value):
            try:
                stand_in = middle(parse_range(value))
            except ConfigError as error:
                raise ConfigError(f"{'.'.join(path)}: {error}") from error
            found[".".join(path)] = value
            return stand_in
        return {k: plain(v, (*path, str(k))) for k, v in value.items()} if isinstance(value, Mapping) else value

    searched = ("env", "policy", "algorithm")
    out = {key: plain(value, (key,)) if key in searched else value for key, value in tree.items()}
    if not found:
        return out
    population = tree.get("population")
    if not isinstance(population, Mapping):
        raise ConfigError(
            f"{', '.join(found)}: a range is for baldwin evolve with a population: section (-m population.name=pbt), or for baldwin sweep; "
            "baldwin train takes one value"
        )
    return out | {"population": merge(dict(population), {"search": merge(population.get("search") or {}, found)})}


def _population(section: Any) -> tuple[PopulationConfig | None, list[str]]:
    """The model of the section, and what is wrong with it."""
    if section is None:
        return None, []
    if not isinstance(section, Mapping) or "name" not in section:
        return None, [f"'population': expected a map with a name ({', '.join(POPULATIONS)}); got {clean_text(repr(section), 100)}"]
    try:
        model = POPULATIONS.find(str(section["name"])).config
    except ConfigError as error:
        return None, [str(error)]
    try:
        return model.model_validate(section), []
    except ValidationError as error:
        return None, [_explain(e, model, ("population",)) for e in error.errors()]


def read_config(path: Path) -> RunConfig:
    """The config that a run directory was made with."""
    return validate(_read_file(path))


def dump_config(config: RunConfig) -> str:
    """Every key, defaults included, as YAML."""
    return yaml.safe_dump(config.model_dump(mode="json"), sort_keys=False)


def read_text(path: Path) -> str:
    """The text of a config file.

    Raises:
        ConfigError: it cannot be read, is no text, or is too long.
    """
    try:
        with open(path, encoding="utf-8") as file:
            text = file.read(MAX_CHARACTERS + 1)
    except (OSError, ValueError) as error:  # ValueError: not UTF-8, or a NUL in the name
        reason = getattr(error, "strerror", None) or ("it is not a text file" if isinstance(error, UnicodeError) else str(error))
        raise ConfigError(f"cannot read {str(path)[:200]!r}: {reason}") from error
    if len(text) > MAX_CHARACTERS:
        raise ConfigError(f"cannot read {path}: expected a config of at most {MAX_CHARACTERS:,} characters")
    return text


def _read_file(path: Path) -> Tree:
    tree = parse_yaml(read_text(path), str(path))
    if tree is None:
        return {}
    if not isinstance(tree, dict):
        raise ConfigError(f"{path}: expected a map with env, policy, algorithm, executor, run, stop; got {type(tree).__name__}")
    return tree


def _explain(error: ErrorDetails, model: type[BaseModel], prefix: tuple[str, ...] = ()) -> str:
    """A validation error as one line: where it is, what was expected, what was found, what to do."""
    path = [str(p) for p in error["loc"] if not str(p).startswith(("function-", "constrained-", "literal["))]
    owner, names = _section(model, path[:-1])
    path = [p for p in path if p not in names]
    where = ".".join((*prefix, *path)) or "config"
    if error["type"] == "extra_forbidden":
        new, gone = (owner.new_name(path[-1]), owner.why_removed(path[-1])) if issubclass(owner, ConfigModel) else (None, None)
        if gone:
            return f"key {where!r} was removed: {gone}. Leave it out"
        if new:
            return f"key {where!r} is now called {new!r}: use {'.'.join((*prefix, *path[:-1], new))}"
        fields = list(owner.model_fields)
        return f"unknown key {where!r}.{nearest(path[-1], fields)} Valid here: {', '.join(fields)}."
    if error["type"] == "missing":
        return f"{where!r} is required: {'--env CartPole-v1, -m env.id=CartPole-v1, or a preset' if where == 'env' else 'set it'}"
    got = error.get("input")
    shown = clean_text(repr(got), 200)
    if error["type"] == "union_tag_invalid":
        context = error.get("ctx", {})
        return f"{where!r}: expected {context.get('expected_tags')}; got {context.get('tag')!r}"
    if error["type"] == "literal_error":
        return f"{where!r}: {error['msg'].removeprefix('Input ')}; got {shown}.{nearest(str(got), error['msg'].split(chr(39))[1::2])}"
    message = error["msg"].removeprefix("Value error, ").replace("Input should", "should")
    return f"{where!r}: {message}" + (f"; got {shown}" if not isinstance(got, dict | BaseModel) else "")


def _section(model: type[BaseModel], path: Iterable[str]) -> tuple[type[BaseModel], set[str]]:
    """The model of the section at this path, and the names in the path that pydantic added: branches of unions, which nobody wrote."""
    added: set[str] = set()
    branches: list[type[BaseModel]] = []
    for part in path:
        chosen = [b for b in branches if part in (b.__name__, _literal(b))]
        if chosen and part not in model.model_fields:
            model = chosen[0]
            added.add(part)
        elif part in model.model_fields:
            annotation = model.model_fields[part].annotation
            kinds = [annotation, *typing.get_args(annotation)]
            branches = [t for t in kinds if isinstance(t, type) and issubclass(t, BaseModel)]
            model = branches[0] if branches else model
    return model, added


def _literal(model: type[BaseModel]) -> str:
    """The name by which a union tells this model from its other branches."""
    return str(model.model_fields["name"].default) if "name" in model.model_fields else ""
