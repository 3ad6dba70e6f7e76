"""Tests that the page of errors lists every error with the words of its docstring."""

from __future__ import annotations

import inspect
from collections import Counter

from jsync import errors

from .error_tables import PAGE, ROW, renewed


def test_each_error_has_one_row_on_the_page() -> None:
    rows = Counter(found[1] for found in ROW.finditer(PAGE.read_text()))
    kinds = {
        name
        for name, kind in vars(errors).items()
        if inspect.isclass(kind) and issubclass(kind, Exception)
    }
    assert rows == Counter(kinds)


def test_the_rows_agree_with_the_docstrings() -> None:
    page = PAGE.read_text()
    assert renewed(page) == page, "run python -m tests.docs.error_tables"


def test_every_error_has_a_docstring() -> None:
    for name in (found[1] for found in ROW.finditer(PAGE.read_text())):
        kind = getattr(errors, name)
        assert "__doc__" in vars(kind), name
