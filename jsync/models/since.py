"""The server versions that introduced the fields of configurations.

`Since` in a field's annotation marks a field that the oldest supported server does not
know, so that jsync can name the fields that a server is too old for.
"""

from typing import Any, Final, TypeAlias

Line: TypeAlias = tuple[int, int]
"""A minor version of nats-server: `(2, 12)` for 2.12."""

OLDEST: Final[Line] = (2, 10)
"""The oldest version that jsync supports."""


class Since:
    """The version of a field and of its values.

    `Since("2.11")` is for a field, and `Since("2.11", prioritized="2.12")` has another
    version for a value. A value that means the behavior of older servers has their version.
    """

    def __init__(self, line: str = "2.10", **words: str) -> None:
        self.line = as_line(line)
        self.words = {word: as_line(line) for word, line in words.items()}

    def of(self, value: Any) -> Line:
        """Return the version that introduced the field with that value."""
        if isinstance(value, str):
            return self.words.get(value, self.line)
        return self.line


def as_line(version: str) -> Line:
    """Return `(2, 12)` for `2.12` and `2.12.8`. Raises `ValueError` for other texts."""
    major, minor, *_ = version.split(".")
    return int(major), int(minor)
