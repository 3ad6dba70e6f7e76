"""The keys in a configuration of nats-server.

Only the server parses the configuration in full. This module finds its keys, so that
`LocalServer` adds missing settings and changes none.
"""

from __future__ import annotations

import contextlib
import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_STRING: Final = r'"(?:\\.|[^"\\])*"|\'[^\']*\''
_COMMENT: Final = r"(?:\#|//)[^\n]*"
_KEY: Final = re.compile(
    rf"""(?:[\s,;{{}}]|{_COMMENT})*  # also the brackets of a configuration like JSON
    (?:"(?P<double>[^"]*)"|'(?P<single>[^']*)'|(?P<bare>[^\s=:,;{{}}\[\]"']+))
    [\s=:]*""",
    re.VERBOSE,
)
_SCALAR: Final = re.compile(rf"{_STRING}|[^\n,;}}]*")
_BLOCK: Final = re.compile(r"\((?:.*?)\n\)(?=\n|\Z)", re.DOTALL)
_NESTED: Final = re.compile(
    rf"""(?P<open>[\[{{])|(?P<close>[\]}}])|{_STRING}
    |(?<![^\s,;{{}}\[\]]){_COMMENT}  # not the // of a URL
    |.""",
    re.VERBOSE | re.DOTALL,
)
_MAX_DEPTH: Final = 10
"""The deepest nesting of includes. It ends a circle of them, which the server rejects."""


def entries_of(text: str, folder: Path) -> dict[str, str]:
    """Return the keys of a configuration in lower case, with their values as written.

    The keys of maps are joined with dots, for example `jetstream.store_dir`.

    Args:
        text: The configuration.
        folder: The directory of relative includes. Unreadable includes have no keys.
    """
    return dict(_entries(text, folder, "", 0))


def _entries(
    text: str, folder: Path, prefix: str, depth: int
) -> Iterator[tuple[str, str]]:
    at = 0
    while found := _KEY.match(text, at):
        start, at = found.end(), _value_end(text, found.end())
        key = (found["double"] or found["single"] or found["bare"] or "").lower()
        value = text[start:at]
        if _is_include(text, found, key):
            yield from _included(folder, value, prefix, depth)
            continue
        yield f"{prefix}{key}", value
        if value.startswith("{"):
            yield from _entries(value[1:-1], folder, f"{prefix}{key}.", depth)


def _is_include(text: str, found: re.Match[str], key: str) -> bool:
    end = found.end("bare")  # -1 for a key in quotes
    return key == "include" and text[end : end + 1].isspace()


def _included(
    folder: Path, value: str, prefix: str, depth: int
) -> Iterator[tuple[str, str]]:
    path = folder / value.strip().strip("\"'")
    if depth < _MAX_DEPTH:
        with contextlib.suppress(OSError, UnicodeDecodeError):
            text = path.read_text("utf-8")
            yield from _entries(text, path.parent, prefix, depth + 1)


def _value_end(text: str, at: int) -> int:
    """Return the position after the value that begins at `at`."""
    if text[at : at + 1] not in ("{", "["):
        block = _BLOCK.match(text, at)
        scalar = block or _SCALAR.match(text, at)
        return scalar.end() if scalar else len(text)
    depth = 0
    for token in _NESTED.finditer(text, at):
        depth += (token["open"] is not None) - (token["close"] is not None)
        if depth == 0:
            return token.end()
    return len(text)
