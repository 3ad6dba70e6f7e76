"""All problems of a pipeline's file, each with its line. Pure."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING

from ...errors import PipelineFileError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from .toml_lines import Key, KeyLines


class Diagnostics:
    """The problems found so far. Every check adds to them, and none stops at the first."""

    def __init__(self, path: Path, positions: KeyLines) -> None:
        self._path = path
        self._positions = positions
        self._found: set[tuple[int, str]] = set()

    def __bool__(self) -> bool:
        return bool(self._found)

    def __repr__(self) -> str:
        return f"<Diagnostics of {self._path}, {len(self._found)} problems>"

    def add(self, key: Key, message: str, *, text_line: int | None = None) -> None:
        """Add a problem at `key`, or at a line of the text that is its value."""
        if text_line is None:
            line = self._positions.line(key)
        else:  # a step is its SQL text, or a table with it
            line = self._positions.text_line((*key, "sql"), text_line)
        self._found.add((line, f"{dotted(key)}: {message}" if key else message))

    def raise_any(self) -> None:
        """Raise `PipelineFileError` with all problems, unless there are none."""
        if self._found:
            raise file_error(self._path, sorted(self._found))


def file_error(path: Path, problems: Sequence[tuple[int, str]]) -> PipelineFileError:
    return PipelineFileError(
        "\n".join(f"{path}:{line}: {message}" for line, message in problems),
        problems=problems,
    )


def dotted(key: Key) -> str:
    """Return a key as the file spells it."""
    return ".".join(
        part if part.replace("_", "a").replace("-", "a").isalnum() else f'"{part}"'
        for part in key
    )


def nearest(name: str, known: Iterable[str]) -> str:
    """Return a suggestion for an unknown name, as the end of a sentence."""
    names = {name.lower(): name for name in known}
    near = difflib.get_close_matches(name.lower(), names, n=1)
    if near:
        return f": did you mean {names[near[0]]!r}?"
    return f"; there are {', '.join(names.values())}" if names else ""
