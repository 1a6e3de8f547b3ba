"""Cores, memory and threads. A product split over threads may round differently from one that is not: where bits matter, one thread computes."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import cache

from threadpoolctl import ThreadpoolController

MAX_AUTO_THREADS = 4  # a guess: measured on two cores only


def cores() -> int:
    """The cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else (os.cpu_count() or 1)


def auto_threads(has_images: bool) -> int:
    """Threads of an update where nobody says: the cores, at most four, for networks that see images; one for others."""
    return min(cores(), MAX_AUTO_THREADS) if has_images else 1


def total_memory() -> int:
    """Bytes of memory of this machine."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


@contextmanager
def threads(count: int) -> Iterator[None]:
    """Run torch on so many threads inside, and give the caller's number back after."""
    import torch  # not above: executors import this module for `cores`, and a Ray actor without torch starts in a third of the time

    before = torch.get_num_threads()
    if before == count:  # setting it again takes as long as a small layer
        yield
        return
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def one_thread() -> AbstractContextManager[None]:
    """Run torch on one thread inside."""
    return threads(1)


@cache
def _numpy_blas() -> ThreadpoolController:
    return ThreadpoolController().select(user_api="blas")


@contextmanager
def one_numpy_thread() -> Iterator[None]:
    """Let products of NumPy (OpenBLAS, MKL, BLIS) run on one thread inside, and give the caller's numbers back after."""
    several = [(library, count) for library in _numpy_blas().lib_controllers if (count := library.get_num_threads()) != 1]
    for library, _ in several:  # `limit` does the same, and reads all that can be known of a library each time
        library.set_num_threads(1)
    try:
        yield
    finally:
        for library, count in several:
            library.set_num_threads(count)
