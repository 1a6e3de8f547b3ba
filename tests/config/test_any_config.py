"""Any text and any tree: a config, or an error that names what is wrong."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from baldwin.config import RunConfig, dump_config, load_config, read_config
from baldwin.config.load import parse_override, validate
from baldwin.config.merge import merge, parse_yaml
from baldwin.errors import ConfigError

keys = st.sampled_from(
    ["env", "id", "policy", "hidden", "algorithm", "name", "lr", "executor", "run", "seed", "stop", "env_steps", "kwargs", "critic"]
)
leaves = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=8)
    | st.sampled_from(["es", "td3", "sac", "cem-rl", "aes", "1e-3"])
)
trees = st.recursive(
    leaves, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys | st.text(max_size=4), inner, max_size=4), max_leaves=12
)
sections = st.fixed_dictionaries(
    {"env": st.just({"id": "CartPole-v1"})}, optional=dict.fromkeys(("policy", "algorithm", "executor", "run", "stop"), trees)
)


def check_config_or_error(tree: Any) -> None:
    try:
        config = validate(tree)
    except ConfigError as error:
        assert str(error)
        assert len(str(error)) < 20_000
    else:
        assert isinstance(config, RunConfig)


@settings(deadline=None, max_examples=150, suppress_health_check=[HealthCheck.too_slow])
@given(sections)
def test_any_tree_is_a_config_or_a_named_error(tree: dict[str, Any]) -> None:
    check_config_or_error(tree)


@settings(deadline=None, max_examples=150)
@given(st.text(max_size=60) | st.from_regex(r"(\[|\{|&a |\*a|- |: |\"|a|1|\n){1,40}", fullmatch=True))
def test_any_text_is_yaml_or_a_named_error(text: str) -> None:
    try:
        parse_yaml(text, "the text")
    except ConfigError as error:
        assert "the text" in str(error) or "nested at most" in str(error)


@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.binary(max_size=60))
def test_any_bytes_are_a_config_or_a_named_error(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "c.yaml").write_bytes(content)
    with pytest.raises(ConfigError):  # nobody gets an environment right by chance
        read_config(tmp_path / "c.yaml")


@settings(deadline=None, max_examples=100)
@given(st.text(max_size=20), trees)
def test_any_override_is_taken_or_named(key: str, value: Any) -> None:
    try:
        tree = parse_override(f"{key}={value}")
    except ConfigError as error:
        assert str(error)
    else:
        check_config_or_error(merge({"env": {"id": "CartPole-v1"}}, tree))


@settings(deadline=None, max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.integers(0, 2**40), st.floats(1e-6, 1e3), st.lists(st.integers(1, 64), max_size=3))
def test_a_saved_config_is_the_same_config(tmp_path: Path, seed: int, lr: float, hidden: list[int]) -> None:
    config = load_config(None, (), [f"run.seed={seed}", f"algorithm.lr={lr!r}", f"policy.hidden={hidden}"], env="CartPole-v1")
    (tmp_path / "c.yaml").write_text(dump_config(config))
    assert read_config(tmp_path / "c.yaml") == config
