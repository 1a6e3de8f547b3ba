"""Nested state as plain files: arrays go to safetensors, the rest to JSON. No pickle, ever."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

FlatArrays = dict[str, NDArray[Any]]


def split(tree: Any, tensors: FlatArrays, path: str = "") -> Any:
    """The JSON part of a tree; its arrays are put into `tensors` under their paths."""
    if isinstance(tree, np.ndarray):
        tensors[path] = np.ascontiguousarray(tree).reshape(tree.shape)  # it makes a row of a single number
        return {"$array": path}
    if isinstance(tree, dict):
        return {str(k): split(v, tensors, f"{path}/{k}") for k, v in tree.items()}
    if isinstance(tree, list | tuple):
        return [split(v, tensors, f"{path}/{n}") for n, v in enumerate(tree)]
    if isinstance(tree, np.generic):
        return tree.item()
    return tree


def join(tree: Any, tensors: FlatArrays) -> Any:
    """The inverse of `split`."""
    if isinstance(tree, dict):
        return tensors[tree["$array"]] if "$array" in tree else {k: join(v, tensors) for k, v in tree.items()}
    if isinstance(tree, list):
        return [join(v, tensors) for v in tree]
    return tree
