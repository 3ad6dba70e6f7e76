"""Tests that the map in docs/architecture.md matches the tree."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest

from .test_layers import TREE, arrows

# An installed jsync does not contain the map.
pytestmark = pytest.mark.tools

ROOT = Path(__file__).parents[2]
PACKAGES = ["jsync", "kombu_jetstream", "pyspark_jetstream", "pytest_jsync"]
AROUND = ["benchmarks/", "docs/", "examples/", "scripts/", "tests/"]


@cache
def rows() -> dict[str, str]:
    """Return the rows of the map, by folder or file."""
    return {
        found[1]: found[2]
        for found in re.finditer(
            r"^\| `([\w/.]+)` \| (.+) \|$",
            (ROOT / "docs/architecture.md").read_text(),
            re.MULTILINE,
        )
    }


def folders() -> set[str]:
    """Return the folders with sources below the packages, as the map writes them."""
    return {
        f"{path.parent.relative_to(ROOT).as_posix()}/"
        for package in PACKAGES
        for kind in ("*.py", "*.pxi")
        for path in (ROOT / package).rglob(kind)
    } - {"jsync/"}


def test_the_map_has_one_row_for_each_folder() -> None:
    assert {name for name in rows() if name.endswith("/")} == folders() | {*AROUND}


def test_the_map_lists_each_file_at_the_top() -> None:
    top = {
        f"jsync/{path.name}"
        for path in (ROOT / "jsync").glob("*.py")
        if not path.name.startswith("_")
    }
    assert {name for name in rows() if not name.endswith("/")} == top


@pytest.mark.parametrize("folder", sorted(folders()))
def test_the_files_that_a_row_names_are_there(folder: str) -> None:
    names = re.findall(r"`([a-z_]+)`", rows()[folder])
    there = {path.name.split(".")[0] for path in (ROOT / folder).iterdir()}
    below = {path.name for path in (ROOT / "jsync").iterdir()}
    assert {*names} <= there | below


def row_of(module: str) -> str | None:
    """Return the row that has a module, or None for a row with others inside it."""
    path = f"jsync/{module.replace('.', '/')}"
    own = f"{path}.py"
    above = [name for name in rows() if f"{path}/".startswith(name) or name == own]
    row = max(above, key=len, default="")
    inside = [name for name in rows() if row and name != row and name.startswith(row)]
    return None if inside or not row else row


def test_each_row_imports_only_from_rows_above() -> None:
    order = [*rows()]
    for name, target in arrows(TREE):
        row, other = row_of(name), row_of(target)
        if row and other:
            assert order.index(other) <= order.index(row), f"{name} imports {target}"
