"""The line of a key in a TOML file, which `tomllib` does not report.

Pure, and without a grammar of TOML. A file that is cut off after a line is valid TOML if a
statement ends there, so the shortest valid beginning that has the key ends with the key's
statement. The search parses the file once for each line, so use it only for error messages.
"""

from __future__ import annotations

import tomllib
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

Key = tuple[str, ...]


class _Statement(NamedTuple):
    first: int
    last: int
    document: dict[str, Any]
    """The content of the file up to the statement's end."""


class KeyLines:
    """The lines of the keys in `text`, which must be TOML. Lines count from 1."""

    def __init__(self, text: str) -> None:
        self._lines = text.replace("\r\n", "\n").split("\n")

    def line(self, key: Sequence[str]) -> int:
        """Return the first line of the statement of `key`, or of the nearest table above it."""
        statement = self._statement(key)
        return statement.first if statement else 1

    def text_line(self, key: Sequence[str], line: int) -> int:
        """Return the line in the file of the given line of the text at `key`."""
        statement = self._statement(key)
        if statement is None:
            return 1
        # TOML drops the line break that follows the opening quotes.
        opening = self._lines[statement.first - 1].rstrip()
        first = statement.first + opening.endswith(('"""', "'''"))
        return min(first + line - 1, statement.last)

    def _statement(self, key: Sequence[str]) -> _Statement | None:
        for length in range(len(key), 0, -1):
            for statement in self._statements:
                if _holds(statement.document, key[:length]):
                    return statement
        return None

    @cached_property
    def _statements(self) -> list[_Statement]:
        statements: list[_Statement] = []
        first = 1
        for last in range(1, len(self._lines) + 1):
            try:
                document = tomllib.loads("\n".join(self._lines[:last]))
            except tomllib.TOMLDecodeError:
                continue  # inside an array or a multi-line string
            statements.append(_Statement(first, last, document))
            first = last + 1
        return statements


def _holds(document: object, key: Sequence[str]) -> bool:
    for part in key:
        if not isinstance(document, dict) or part not in document:
            return False
        document = document[part]
    return True
