"""Find the methods of jsync that the code on the pages calls, by the types of its variables."""

from __future__ import annotations

import ast
import inspect
import re
from typing import TYPE_CHECKING, NamedTuple

import jsync

from .markdown import PAGES, blocks

if TYPE_CHECKING:
    from pathlib import Path

CLASSES = {
    name: each
    for name in jsync.__all__
    if inspect.isclass(each := getattr(jsync, name))
}
CONNECTING = ("connect", "shared_connection")
MESSAGE = "msg"
"""The variable of a loop that is a message on every page."""


class Method(NamedTuple):
    """A method of an object whose class is known."""

    of: type
    name: str

    @property
    def owner(self) -> type | None:
        """The class of the package that defines the method."""
        for owner in self.of.__mro__:
            if owner.__module__.startswith("jsync") and self.name in vars(owner):
                return owner
        return None

    @property
    def returned(self) -> type | None:
        """The class of the result, by its annotation."""
        method = inspect.getattr_static(self.of, self.name)
        text = getattr(method, "__annotations__", {}).get("return", "")
        if text == "Self":
            return self.of
        words = re.findall(r"\w+", text if isinstance(text, str) else text.__name__)
        return next((CLASSES[word] for word in words if word in CLASSES), None)


class Reader(ast.NodeVisitor):
    """Follow the types of the variables of a page, and note the methods that it calls."""

    def __init__(self) -> None:
        self.types: dict[str, type] = {}
        self.called: set[Method] = set()

    def kind(self, node: ast.expr | None) -> type | Method | None:
        """Return the class of an expression, if it is one of jsync, or the method it names."""
        match node:
            case ast.Name(id=name):
                return self.types.get(name)
            case ast.Attribute(value=ast.Name(id="jsync"), attr=name):
                return jsync.Connection if name in CONNECTING else CLASSES.get(name)
            case ast.Attribute(value=value, attr=name):
                of = self.kind(value)
                method = Method(of, name) if isinstance(of, type) else None
                return method if method and method.owner else None
            case ast.Call(func=func):
                called = self.kind(func)
                return called.returned if isinstance(called, Method) else called
        return None

    def name(self, target: ast.expr | None, node: ast.expr | None) -> None:
        kind = self.kind(node)
        if isinstance(target, ast.Name) and isinstance(kind, type):
            self.types[target.id] = kind

    def visit_Assign(self, node: ast.Assign) -> None:
        self.name(node.targets[0], node.value)
        self.generic_visit(node)

    def visit_withitem(self, node: ast.withitem) -> None:
        self.name(node.optional_vars, node.context_expr)
        self.generic_visit(node)

    def visit_For(self, node: ast.For) -> None:
        if isinstance(node.target, ast.Name) and node.target.id == MESSAGE:
            self.types[MESSAGE] = jsync.JetStreamMsg
        self.generic_visit(node)

    def visit_arg(self, node: ast.arg) -> None:
        self.name(ast.Name(node.arg), node.annotation)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        method = self.kind(node)
        if isinstance(method, Method) and inspect.isroutine(
            inspect.getattr_static(method.of, method.name)
        ):
            self.called.add(method)
        self.generic_visit(node)


def called_by(page: Path) -> set[Method]:
    """Return the methods that the code of a page calls."""
    reader = Reader()
    for block in blocks(page):
        if block.language == "python":
            reader.visit(ast.parse(block.text))
    return reader.called


def named_methods() -> dict[str, object]:
    """Return the methods that pages call, by their name with the class that defines them."""
    methods = {method for page in PAGES for method in called_by(page)}
    return {
        f"{method.owner.__name__}.{method.name}": vars(method.owner)[method.name]
        for method in methods
        if method.owner is not None
    }
