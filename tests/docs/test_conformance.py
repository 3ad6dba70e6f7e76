"""Tests that the tests named in the documentation exist, and that every clause has one."""

from __future__ import annotations

import ast
import re
from functools import cache
from typing import TYPE_CHECKING

import pytest

from .markdown import PAGES, ROOT, name_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

CONFORMANCE = {
    "conformance.md": {
        "ADR-37": 40,
        "ADR-50": 40,
        "ADR-15": 40,
        "ADR-20": 31,
        "ADR-32": 40,
    },
    "conformance-steering.md": {"ADR-21": 8, "ADR-49": 7, "ADR-51": 9, "ADR-41": 6},
    "conformance-key-value.md": {
        "ADR-8": 50,
        "ADR-48": 10,
        "ADR-54": 13,
        "ADR-57": 8,
        "ADR-58": 12,
    },
    "conformance-groups.md": {"pcgroups": 35},
}
"""The documents of each page, with the minimum number of clauses of each."""
GUARANTEES = ("guarantees.md", "guarantees-programs.md")
NODE = re.compile(r"`((?:[\w./-]+/)?test_\w+\.py)::(\w+)`")
FOOTNOTE = re.compile(
    r"\[([^\[\]]+)\]\(https://github\.com/[^/]+/[^/]+/blob/main/tests/([\w./]+\.py)\)"
)
"""A link of a footnote: the words of the test's name, and its file."""


@cache
def tests_of(path: str) -> set[str]:
    """Return the tests in a file below `tests/`, by their pytest names without parameters."""
    tree = ast.parse((ROOT / "tests" / path).read_text())
    return {
        node.name
        for node in tree.body
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
    }


def rows(text: str) -> Iterator[list[str]]:
    """Yield the cells of each table row, without headings and rules."""
    for line in text.splitlines():
        if line.startswith("| ") and not line.startswith("| clause |"):
            yield [cell.strip() for cell in line.strip("|").split(" | ")]


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_each_test_that_a_page_names_exists(page: Path) -> None:
    named = NODE.findall(page.read_text())
    assert [
        f"{path}::{name}" for path, name in named if name not in tests_of(path)
    ] == []


@pytest.mark.parametrize("page", GUARANTEES)
def test_each_footnote_of_the_guarantees_names_tests(page: str) -> None:
    text = (ROOT / "docs" / page).read_text()
    body, _, notes = text.partition("\n[^1]:")
    named = FOOTNOTE.findall(notes)
    wanted = [(f"test_{words.replace(' ', '_')}", path) for words, path in named]
    assert [each for each in wanted if each[0] not in tests_of(each[1])] == []
    assert len(named) == notes.count("](")
    used = {int(number) for number in re.findall(r"\[\^(\d+)\]", body)}
    assert used == set(range(1, len(used) + 1))
    assert re.findall(r"^\[\^(\d+)\]:", f"[^1]:{notes}", re.MULTILINE) == [
        str(number) for number in sorted(used)
    ]


@pytest.mark.parametrize("page", GUARANTEES)
def test_each_fault_of_the_guarantees_has_a_footnote(page: str) -> None:
    text = (ROOT / "docs" / page).read_text()
    for table in text.split("\n\n"):
        _, _, *lines = table.splitlines() if "| promise |" in table else ["", ""]
        assert [line for line in lines if not line.endswith("] |")] == []


@pytest.mark.parametrize("page", CONFORMANCE)
def test_every_clause_has_a_test_or_stated_departure(page: str) -> None:
    for clause, does, *shown in rows((ROOT / "docs" / page).read_text()):
        assert clause
        assert does
        assert len(shown) == 1, f"a bar too many: {clause}"
        assert NODE.search(shown[0]) or "Departs" in does, f"nothing shows: {clause}"


@pytest.mark.parametrize("page", CONFORMANCE)
def test_the_documents_exist(page: str) -> None:
    text = (ROOT / "docs" / page).read_text()
    parts = re.split(r"^## ", text, flags=re.MULTILINE)[1:]
    assert [part.split()[0] for part in parts] == [*CONFORMANCE[page]]
    for part in parts:
        assert len(list(rows(part))) >= CONFORMANCE[page][part.split()[0]]
