"""Tests of the names that `jsync` imports on first use."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import jsync

from ..support.imports import below, imported

SOURCE = Path(jsync.__file__)


def test_each_public_name_is_there() -> None:
    for name in jsync.__all__:
        assert getattr(jsync, name) is not None
        assert name in dir(jsync)


def test_table_agrees_with_checked_imports() -> None:
    checked = {}
    for node in ast.parse(SOURCE.read_text()).body:
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            for each in node.body:
                if isinstance(each, ast.ImportFrom):
                    checked.update({name.name: each.module for name in each.names})
    assert checked == jsync._NAMES


def test_unknown_name_is_attribute_error() -> None:
    with pytest.raises(AttributeError, match="'jsync' has no attribute 'Conection'"):
        _ = jsync.Conection  # type: ignore[attr-defined]


def test_import_of_jsync_loads_little() -> None:
    assert not below(imported("import jsync"), ("jsync.connection", "jsync.jetstream"))
