"""Tests of the public names, their signatures and their docstrings."""

from __future__ import annotations

import ast
import builtins
import contextlib
import inspect
import pkgutil
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import jsync
from jsync import errors, metrics, server, testing

from .test_layers import parsed

if TYPE_CHECKING:
    from collections.abc import Iterator

MODULES = {
    module.name
    for module in pkgutil.iter_modules(jsync.__path__)
    if not module.name.startswith("_")
}

MADE = "_@"
"""The first characters of private names, and of names that pytest adds to a plugin's package."""


def test_all_lists_the_public_names_of_the_package() -> None:
    assert len(set(jsync.__all__)) == len(jsync.__all__)
    names = {*vars(jsync), *jsync._NAMES}
    public = {name for name in names if name[0] not in MADE}
    assert public - MODULES - {"TYPE_CHECKING", "import_module"} == set(
        jsync.__all__
    ) - {"__version__"}


def test_help_shows_each_extension_class_with_its_methods() -> None:
    classes = [getattr(jsync, name) for name in jsync.__all__ if name != "__version__"]
    for kind in classes:
        if getattr(kind, "__module__", None) != "jsync._fast":
            continue
        assert kind.__doc__, kind
        for name, method in vars(kind).items():
            if callable(method) and not name.startswith("_"):
                assert method.__doc__, f"{kind.__name__}.{name}"
                # `help` prints the signature by itself.
                assert not method.__doc__.startswith(f"{name}("), name
                assert "self" in inspect.signature(method).parameters


def test_help_shows_configuration_fields_with_plain_types() -> None:
    shown = inspect.signature(jsync.ConsumerConfig)
    assert "_read" not in shown.parameters
    assert shown.parameters["ack_wait"].annotation == float | None
    assert shown.parameters["ack_policy"].default == "explicit"
    assert "SinceVersion" not in str(shown)


def public_calls() -> Iterator[tuple[str, inspect.Signature]]:
    """Yield every public function and method with a signature that `help` shows."""
    for name in jsync.__all__:
        thing = getattr(jsync, name)
        members = dict(inspect.getmembers(thing)) if inspect.isclass(thing) else {}
        calls = [(f"{name}.{key}", call) for key, call in members.items()]
        for path, call in [(name, thing), *calls]:
            if callable(call) and not path.rpartition(".")[2].startswith("_"):
                # classes that only jsync creates have no signature
                with contextlib.suppress(ValueError):
                    yield path, inspect.signature(call)


def test_help_shows_no_private_arguments_or_memory_addresses() -> None:
    signatures = dict(public_calls())
    assert len(signatures) > 300
    hidden = [
        path
        for path, signature in signatures.items()
        if any(name.startswith("_") for name in signature.parameters)
        or " object at 0x" in str(signature)
    ]
    assert hidden == []


def test_models_export_the_names_of_all() -> None:
    public = {name for name in vars(jsync.models) if name[0] not in MADE}
    modules = {module.name for module in pkgutil.iter_modules(jsync.models.__path__)}
    # The first three of these names are only for the package.
    inner = {"check_filter", "check_name", "decode_pub_ack"}
    assert public - modules - inner == set(jsync.models.__all__) - inner


def test_every_public_error_is_a_jsync_error() -> None:
    modules = {module.name for module in pkgutil.iter_modules(errors.__path__)}
    for name, value in vars(errors).items():
        if name[0] not in MADE and name not in modules:
            assert value.__module__ == "jsync.errors", name
            record = name in {"FailedMessage", "LostRange", "UnconfirmedRange"}
            assert record or issubclass(value, errors.Error), name


def offered() -> set[str]:
    """Return the names that a user can import from a public module."""
    modules = (jsync, errors, jsync.headers, jsync.models, metrics, server, testing)
    # `jsync` loads its names when they are first used.
    names = {*jsync.__all__, *(name for module in modules for name in vars(module))}
    return {name for name in names if name[0] not in MADE}


def test_types_that_public_calls_return_have_public_names() -> None:
    root = Path(jsync.__file__).parent
    parts = [root / "core", root / "jetstream", root / "models"]
    files = [path for part in parts for path in part.rglob("*.py")]
    trees = [parsed(path.read_text()) for path in [*files, root / "_fast.pyi"]]
    classes = [
        node for tree in trees for node in tree.body if isinstance(node, ast.ClassDef)
    ]
    ours = {node.name for node in classes}
    inner = {
        *("session", "required_versions"),  # for parts that build on the connection
    }
    for node in classes:
        if node.name not in jsync.__all__:
            continue
        for call in node.body:
            if not isinstance(call, ast.FunctionDef) or call.name in inner:
                continue
            if call.name[0] == "_" or call.returns is None:
                continue
            names = {
                name.id for name in ast.walk(call.returns) if isinstance(name, ast.Name)
            }
            hidden = names & ours - offered()
            assert not hidden, f"{node.name}.{call.name} returns {hidden}"


def test_names_that_shadow_builtins_live_in_errors_alone() -> None:
    assert "TimeoutError" not in jsync.__all__
    assert "ConnectionError" not in jsync.__all__


def test_importing_is_light() -> None:
    code = (
        "import sys, threading, os; before = set(os.listdir('/dev/fd'));there = set(sys.modules);"
        "import jsync;"
        "heavy = {'asyncio', 'pyspark', 'pyarrow', 'nats', 'nkeys', 'concurrent.futures',"
        "'http', 'email', 'typer', 'rich', 'ssl', 'json', 'difflib'} & set(sys.modules) - there;"
        "assert not heavy, heavy;"
        "assert threading.active_count() == 1;"
        "assert len(os.listdir('/dev/fd')) == len(before)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.tools
def test_docstrings_name_errors_that_exist() -> None:
    root = Path(jsync.__file__).parent
    files = [*root.rglob("*.py"), root / "_fast.pyi"]
    nodes = [
        (path, node)
        for path in files
        for node in ast.walk(parsed(path.read_text()))
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef)
    ]
    defined = {node.name for _, node in nodes if isinstance(node, ast.ClassDef)}
    known = {*vars(errors), *vars(builtins), *defined}
    for path, node in nodes:
        words = re.findall(r"`(\w+Error)`", ast.get_docstring(node) or "")
        assert set(words) <= known, f"{path.name}: {set(words) - known}"
