"""Threads of products: one inside, what there was before afterwards."""

from __future__ import annotations

import contextlib

import pytest

from baldwin.ops.threads import _numpy_blas, one_numpy_thread


@pytest.mark.parametrize("fails", [False, True])
def test_numpy_computes_on_one_thread_inside_only(fails: bool) -> None:
    blas = _numpy_blas()

    def counts() -> set[int]:
        return {library.get_num_threads() for library in blas.lib_controllers}

    with blas.limit(limits=2):
        before = counts()
        with contextlib.suppress(ZeroDivisionError), one_numpy_thread():
            assert counts() == {1}
            with one_numpy_thread():
                assert counts() == {1}
            assert counts() == {1}
            if fails:
                raise ZeroDivisionError
        assert counts() == before
