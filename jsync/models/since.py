"""Since when servers know a field of a configuration, where not all that jsync works with do.

It stands in the field's annotation, so that what a server is too old for is told from the
configuration itself.
"""

from typing import Any, Final, TypeAlias

Line: TypeAlias = tuple[int, int]
"""A line of nats-server's releases: 2.12 is `(2, 12)`."""

OLDEST: Final[Line] = (2, 10)
"""The oldest line that jsync works with."""


class Since:
    """`Since("2.11")` for a field, `Since("2.11", prioritized="2.12")` for words of it.

    A word that says what older servers do anyway has their line.
    """

    def __init__(self, line: str = "2.10", **words: str) -> None:
        self.line = as_line(line)
        self.words = {word: as_line(line) for word, line in words.items()}

    def of(self, value: Any) -> Line:
        """The line that brought the field, with that value."""
        if isinstance(value, str):
            return self.words.get(value, self.line)
        return self.line


def as_line(version: str) -> Line:
    """`(2, 12)` for `2.12` and `2.12.8`. Raises `ValueError` for what is no version."""
    major, minor, *_ = version.split(".")
    return int(major), int(minor)
