from __future__ import annotations

import os
import secrets
import sys
import tempfile
from collections.abc import Iterator

import pytest
import torch

from baldwin.executors import ExecutorConfig
from baldwin.executors.cluster import LOCAL_SETTINGS, SETTINGS, connect

torch.set_num_threads(1)  # test processes share the cores: threads that wait for each other burn them (tests/networks: 6 times the CPU)
os.environ["OMP_NUM_THREADS"] = "1"  # the same in processes that tests start
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # nor do those compile the package every time
sys.dont_write_bytecode = False
os.environ.update(SETTINGS | LOCAL_SETTINGS | {"RAY_AUTH_TOKEN": secrets.token_hex(32)})  # before anyone imports Ray
os.environ["XDG_CONFIG_HOME"] = tempfile.mkdtemp(prefix="baldwin-tests-")  # the key that signs runs is not the user's own


@pytest.fixture(scope="session")
def _ray_is_left_behind() -> Iterator[None]:
    yield
    import ray

    ray.shutdown()


@pytest.fixture
def local_ray(_ray_is_left_behind: None) -> None:
    """A real Ray on this machine, started once for all tests that want one; executors of this process join it."""
    connect(ExecutorConfig(name="ray", workers=4))


@pytest.fixture
def ray_address(local_ray: None) -> str:
    """Where another process joins it; a Ray of its own would take longer to start than most tests take."""
    import ray

    return str(ray.get_runtime_context().gcs_address)


@pytest.fixture(autouse=True)
def _ray_where_a_parameter_says_so(request: pytest.FixtureRequest) -> None:
    if "ray" in getattr(getattr(request.node, "callspec", None), "params", {}).values():
        request.getfixturevalue("local_ray")


SLOW_FILES = ("test_ray_runs", "test_hybrid_runs", "test_on_policy_runs", "test_interrupt", "test_exactness")


@pytest.hookimpl(tryfirst=True)  # before xdist reads the groups
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Long tests first: one that begins last keeps one process busy while the others have nothing left to do.

    Tests with Ray run in one process, and those with clusters of their own in another: a Ray per process would take longer to
    start than the tests take.
    """
    items.sort(key=lambda item: item.path.stem not in SLOW_FILES)
    for item in items:
        params = getattr(getattr(item, "callspec", None), "params", {})
        fixtures = getattr(item, "fixturenames", ())
        if item.path.stem == "test_ray_runs":
            item.add_marker(pytest.mark.xdist_group("clusters"))
        elif (
            item.path.stem == "test_ray"
            or any(isinstance(value, str) and value == "ray" for value in params.values())
            or "local_ray" in fixtures  # also through ray_address
        ):
            item.add_marker(pytest.mark.xdist_group("ray"))
        elif item.path.parent.name == "contracts" and "name" in params:  # an algorithm's tests compare with the same run of it
            item.add_marker(pytest.mark.xdist_group(f"contracts {params['name']}"))
        elif "quiet" in fixtures and ("kind" in params or "backend" in params):  # what several tests compare with is made once
            item.add_marker(pytest.mark.xdist_group(f"{item.path.stem} {params.get('kind', params.get('backend'))}"))
