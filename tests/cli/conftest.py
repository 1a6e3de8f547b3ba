"""A module that cannot be imported, outside the tree: a linter would trip over it in there."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest


@pytest.fixture(scope="session", autouse=True)
def module_with_a_syntax_error(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    folder, before = tmp_path_factory.mktemp("broken"), os.environ.get("PYTHONPATH", "")
    (folder / "cannot_be_imported.py").write_text("def broken(:\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", f"{folder}{os.pathsep}{before}" if before else str(folder))
        yield
