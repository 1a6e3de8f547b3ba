"""A module that cannot be imported, made where the tests need it: a linter would trip over it in the tree."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import tests.toys


@pytest.fixture(scope="session", autouse=True)
def module_with_a_syntax_error() -> Iterator[None]:
    path = Path(tests.toys.__file__).parent / "syntax.py"
    path.write_text("def broken(:\n")
    yield
    path.unlink()
