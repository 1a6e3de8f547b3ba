from __future__ import annotations

import os
import secrets
import tempfile
from collections.abc import Iterator

import pytest

from baldwin.executors import ExecutorConfig
from baldwin.executors.cluster import LOCAL_SETTINGS, SETTINGS, connect

os.environ.update(SETTINGS | LOCAL_SETTINGS | {"RAY_AUTH_TOKEN": secrets.token_hex(32)})  # before anyone imports Ray
os.environ["XDG_CONFIG_HOME"] = tempfile.mkdtemp(prefix="baldwin-tests-")  # the key that signs runs is not the user's own


@pytest.fixture(scope="session")
def _ray_is_left_behind() -> Iterator[None]:
    yield
    import ray

    ray.shutdown()


@pytest.fixture
def local_ray(_ray_is_left_behind: None) -> None:
    """A real Ray on this machine, started once for all tests that want one; executors join it."""
    connect(ExecutorConfig(name="ray", workers=4))


@pytest.fixture(autouse=True)
def _ray_where_a_parameter_says_so(request: pytest.FixtureRequest) -> None:
    if "ray" in getattr(getattr(request.node, "callspec", None), "params", {}).values():
        request.getfixturevalue("local_ray")
