"""Classes that a config names as package.module:Class. What is not of the expected kind is refused before anything is called."""

from __future__ import annotations

import importlib
import os
import sys
from types import ModuleType
from typing import TypeVar

from baldwin.errors import UserError, describe_exception, nearest

T = TypeVar("T")


def import_module(name: str, where: str, error: type[UserError]) -> ModuleType:
    """Import a user's module; packages in the working directory are found too. `where` it was named is for the message.

    The working directory is searched last, and only from here on: looking at a run must not import what lies beside it.

    Raises:
        UserError: of the given class; it cannot be imported.
    """
    if os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())
    try:
        return importlib.import_module(name)
    except Exception as problem:
        raise error(
            f"{where}: cannot import {name!r} ({describe_exception(problem)}). Expected package.module:Name; "
            "run from the folder that holds the package, or install it."
        ) from problem


def find_class(module: ModuleType, name: str, base: type[T], where: str, error: type[UserError]) -> type[T]:
    """The class of that name in a module.

    Raises:
        UserError: of the given class; there is none, or it is not derived from `base`.
    """
    found = getattr(module, name, None)
    if isinstance(found, type) and issubclass(found, base):
        return found
    known = [n for n, value in vars(module).items() if isinstance(value, type) and issubclass(value, base)]
    wanted = {"torch": "torch.nn"}.get(top := base.__module__.partition(".")[0], top) + f".{base.__name__}"
    problem = f"has no {name!r}" if found is None else f"has {name!r}, which is none"
    raise error(f"{where}: expected a class derived from {wanted}; {module.__name__!r} {problem}.{nearest(name, known)}")
