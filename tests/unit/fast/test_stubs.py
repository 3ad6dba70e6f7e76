"""Tests that the stub of the extension matches it for readers. `make types` runs stubtest."""

from __future__ import annotations

import ast
import inspect
import re
from pathlib import Path
from typing import TYPE_CHECKING

import jsync
from jsync import _fast, testing

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[3]


def test_the_extension_lists_all_parts() -> None:
    source = (ROOT / "jsync/_fast.pyx").read_text()
    included = re.findall(r'^include "_fast_parts/(.*)\.pxi"$', source, re.MULTILINE)
    listed, folder = [], ""
    for indent, name in re.findall(
        r"^(    |        )(\w+/?) +\S", source, re.MULTILINE
    ):
        if name.endswith("/"):
            folder = name
        elif len(indent) == 8:
            listed.append(folder + name)
    assert sorted(listed) == sorted(included)
    root = ROOT / "jsync/_fast_parts"
    parts = {path.relative_to(root).with_suffix("") for path in root.rglob("*.pxi")}
    assert {path.as_posix() for path in parts} == set(included)


def docstrings_of_the_stub() -> Iterator[tuple[str, str, str]]:
    """Yield the class or function, the name, and the text of each docstring in the stub."""
    for top in ast.parse((ROOT / "jsync/_fast.pyi").read_text()).body:
        if not isinstance(top, ast.ClassDef | ast.FunctionDef):
            continue
        yield top.name, top.name, ast.get_docstring(top) or ""
        for member, behind in zip(top.body, [*top.body[1:], None], strict=True):
            match member, behind:
                case ast.FunctionDef(), _:
                    yield top.name, member.name, ast.get_docstring(member) or ""
                case (
                    ast.AnnAssign(target=ast.Name(id=name)),
                    ast.Expr(value=ast.Constant(value=str(text))),
                ):
                    yield top.name, name, inspect.cleandoc(text)


def docstring_of_the_extension(owner: str, name: str) -> str:
    found = getattr(_fast, owner)
    if name != owner:
        found = inspect.getattr_static(found, name)
    return inspect.cleandoc(found.__doc__ or "")


def test_stubs_repeat_only_docstrings_that_users_see() -> None:
    """Documentation and editors read the stub, and `help` reads the extension."""
    public = [testing.Ack, *(getattr(jsync, name) for name in jsync.__all__)]
    shown = {
        base.__name__
        for one in public
        if isinstance(one, type)
        for base in one.__mro__
        if base.__module__ == "jsync._fast"
    }
    assert {"JetStreamMsg", "CorePublisher"} <= shown
    again = {
        (owner, name): text
        for owner, name, text in docstrings_of_the_stub()
        if text
        and not name.startswith("__")
        and docstring_of_the_extension(owner, name)
    }
    assert again
    assert {owner for owner, _ in again} <= shown
    for (owner, name), text in again.items():
        assert text == docstring_of_the_extension(owner, name), f"{owner}.{name}"
