"""A module that cannot be imported, outside the tree: a linter would trip over it in there."""

from __future__ import annotations

from collections.abc import Iterator

import pytest


@pytest.fixture(scope="session", autouse=True)
def module_with_a_syntax_error(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    folder = tmp_path_factory.mktemp("broken")
    (folder / "cannot_be_imported.py").write_text("def broken(:\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(folder)
        yield
