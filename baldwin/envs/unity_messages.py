"""The official package mlagents_envs beside a current protobuf.

Its generated message classes need protobuf 3.20. The descriptors in the same files are of no version: from those the classes are made anew.
This file imports nothing of Baldwin, so that a stand-in for Unity can load it by its path and starts quickly.
"""

from __future__ import annotations

import ast
import importlib
import importlib.util
import logging
import sys
import warnings
from pathlib import Path
from types import ModuleType
from typing import Any

PACKAGE = "mlagents_envs"
MESSAGES = f"{PACKAGE}.communicator_objects"


def import_mlagents(name: str) -> ModuleType:
    """A module of mlagents_envs, such as `environment`, whatever the version of protobuf.

    Raises:
        ModuleNotFoundError: the package, grpcio, protobuf or pillow is not installed.
    """
    if not any(module.startswith(f"{MESSAGES}.") for module in sys.modules):
        package = importlib.import_module(MESSAGES)
        for path in package.__path__:
            make_messages(Path(path), package)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of distutils
        if sys.version_info >= (3, 12) and importlib.util.find_spec("setuptools"):
            importlib.import_module("setuptools")  # which brings the distutils that Python has no more
        found = importlib.import_module(f"{PACKAGE}.{name}")
    # It prints to the standard output, which is for results.
    importlib.import_module(f"{PACKAGE}.logging_util").set_log_level(logging.ERROR)
    return found


def make_messages(folder: Path, package: ModuleType) -> None:
    """Put modules with the message classes and enums of all generated files of a folder in the place of those files."""
    from google.protobuf import descriptor_pb2, descriptor_pool

    files: dict[str, tuple[str, bytes]] = {}  # name of the .proto -> module, serialized descriptor
    for path in sorted(folder.glob("*_pb2.py")):
        data = read_descriptor(path)
        files[descriptor_pb2.FileDescriptorProto.FromString(data).name] = (path.stem, data)
    pool = descriptor_pool.Default()
    added: set[str] = set()

    def add(name: str) -> None:
        """Add a file after those that it imports."""
        if name in added or name not in files:
            return
        added.add(name)
        module, data = files[name]
        for needed in descriptor_pb2.FileDescriptorProto.FromString(data).dependency:
            add(needed)
        pool.AddSerializedFile(data)
        full_name = f"{package.__name__}.{module}"
        sys.modules[full_name] = made = make_module(full_name, pool.FindFileByName(name))
        setattr(package, module, made)

    for name in files:
        add(name)


def read_descriptor(path: Path) -> bytes:
    """The serialized descriptor in a generated file, which is not executed.

    Raises:
        ValueError: there is none.
    """
    for node in ast.walk(ast.parse(path.read_text())):
        if not isinstance(node, ast.Call):
            continue
        for keyword in node.keywords:
            if keyword.arg == "serialized_pb" and isinstance(keyword.value, ast.Call):
                return str(ast.literal_eval(keyword.value.args[0])).encode("latin1")
        if isinstance(node.func, ast.Attribute) and node.func.attr == "AddSerializedFile":
            return bytes(ast.literal_eval(node.args[0]))
    raise ValueError(f"{path.name} has no serialized descriptor")


def make_module(name: str, file: Any) -> ModuleType:
    """What protobuf's compiler would generate for a file: its descriptor, messages, and enums with their values."""
    from google.protobuf import message_factory
    from google.protobuf.internal import enum_type_wrapper

    module = ModuleType(name)
    content: dict[str, Any] = {"DESCRIPTOR": file}
    for message, descriptor in file.message_types_by_name.items():
        content[message] = message_factory.GetMessageClass(descriptor)
    for enum, descriptor in file.enum_types_by_name.items():
        content[enum] = enum_type_wrapper.EnumTypeWrapper(descriptor)
        content |= {value.name: value.number for value in descriptor.values}
    vars(module).update(content)
    return module
