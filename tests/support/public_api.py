"""The public surface of jsync as plain data: names, signatures and defaults.

`python -m tests.support.public_api` prints the surface of the imported jsync.
"""

from __future__ import annotations

import ast
import enum
import inspect
import json
import re
import sys
from dataclasses import is_dataclass
from pathlib import Path
from types import MethodDescriptorType, WrapperDescriptorType
from typing import TypeAlias

import msgspec

import jsync
from jsync import errors, headers, metrics, models, server

Surface: TypeAlias = dict[str, dict[str, str]]
"""The members of each public name, with their kinds or signatures."""

MODULES = (jsync, errors, headers, metrics, models, server)


def surface() -> Surface:
    stub = _stub()
    found: Surface = {}
    for module in MODULES:
        for name in dir(module):
            value = getattr(module, name)
            if name.startswith("_") or inspect.ismodule(value):
                continue
            owner = getattr(value, "__module__", "") or ""
            if owner and owner.split(".")[0] != "jsync":
                continue
            path = f"{module.__name__}.{name}"
            if owner == "jsync._fast" and name in stub:
                found[path] = stub[name]
            elif inspect.isclass(value):
                found[path] = _class(value)
            elif callable(value):
                found[path] = {"()": _signature(value)}
    return found


def _class(value: type) -> dict[str, str]:
    members = {}
    if _is_data(value):
        members["pickled as"] = f"{value.__module__}.{value.__qualname__}"
        if not issubclass(value, enum.Enum):
            members["()"] = _signature(value)
    if issubclass(value, Exception):
        kinds = (base.__name__ for base in value.__mro__[1:-1])
        members["caught as"] = ", ".join(sorted(kinds))
    for name in dir(value):
        if name.startswith("_") and name not in {"__enter__", "__iter__", "__next__"}:
            continue
        owner = next((kind for kind in value.__mro__ if name in vars(kind)), value)
        if owner.__module__.split(".")[0] != "jsync":
            continue  # a method of Python, which can differ between versions
        member = inspect.getattr_static(value, name)
        if isinstance(member, classmethod | staticmethod):
            members[name] = _signature(member.__func__)
        elif isinstance(member, property):
            members[name] = "property"
        elif isinstance(member, enum.Enum):
            members[name] = repr(member.value)
        elif isinstance(
            member, MethodDescriptorType | WrapperDescriptorType
        ) and name.startswith("__"):
            members[name] = "(self)"  # iteration in the extension, without a signature
        elif callable(member):
            members[name] = _signature(member)
        else:
            members[name] = "attribute"
    return members


def _is_data(value: type) -> bool:
    """Return whether users create and pickle the type. Calls of jsync create all other types."""
    made = (enum.Enum, Exception, msgspec.Struct)
    return issubclass(value, made) or is_dataclass(value)


def _signature(value: object) -> str:
    try:
        if isinstance(value, msgspec.StructMeta):
            # The `help` of models shows a signature without their private fields.
            signature = vars(msgspec.StructMeta)["__signature__"].__get__(value)
        else:
            signature = inspect.signature(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return "callable"
    bare = [
        parameter.replace(annotation=inspect.Parameter.empty)
        for parameter in signature.parameters.values()
    ]
    text = str(signature.replace(parameters=bare, return_annotation=inspect._empty))
    return re.sub(r" at 0x[0-9a-f]+", "", text)


def _stub() -> Surface:
    """Return the classes of the extension, whose signatures only the stub has."""
    path = Path(jsync.__file__).with_name("_fast.pyi")
    found: Surface = {}
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.ClassDef):
            found[node.name] = {}
            for member in node.body:
                match member:
                    case ast.FunctionDef(name=name, args=args, decorator_list=marks):
                        of = [ast.unparse(mark) for mark in marks]
                        if name.startswith("_") and name != "__init__":
                            continue
                        for arg in [*args.posonlyargs, *args.args, *args.kwonlyargs]:
                            arg.annotation = None
                        if args.kwarg is not None:
                            args.kwarg.annotation = None
                        called = (
                            "property" if "property" in of else f"({ast.unparse(args)})"
                        )
                        found[node.name][name] = called
                    case ast.AnnAssign(target=ast.Name(id=name)) if name[0] != "_":
                        found[node.name][name] = "attribute"
    return found


if __name__ == "__main__":
    lines = (
        f"{json.dumps(name)}: {json.dumps(members, sort_keys=True)}"
        for name, members in sorted(surface().items())
    )
    sys.stdout.write("{\n" + ",\n".join(lines) + "\n}\n")
