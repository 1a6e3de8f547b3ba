"""How long tests wait for something that must happen: far longer than it takes, since a busy machine may be many times slower."""

from __future__ import annotations

import time
from collections.abc import Callable

PATIENCE = 900.0  # seconds


def wait_until(ready: Callable[[], bool], alive: Callable[[], bool] = lambda: True, pause: float = 0.01) -> None:
    """Return when it is ready, or no longer alive."""
    deadline = time.monotonic() + PATIENCE
    while not ready() and alive():
        assert time.monotonic() < deadline
        time.sleep(pause)
