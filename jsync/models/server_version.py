"""The server versions that introduced the fields of configurations.

`SinceVersion` in the annotation of a field marks one that the oldest supported server does
not know, so that jsync can name the fields that a server is too old for.
"""

from typing import Any, Final, TypeAlias

ServerVersion: TypeAlias = tuple[int, int]
"""A minor version of nats-server: `(2, 12)` for 2.12."""

MIN_VERSION: Final[ServerVersion] = (2, 10)
"""The oldest version that jsync supports."""


class SinceVersion:
    """The version of a field and of its values.

    `SinceVersion("2.11")` is for a field. `SinceVersion("2.11", prioritized="2.12")` has
    another version for a value. A value that means the behavior of older servers has their version.
    """

    def __init__(self, version: str = "2.10", **words: str) -> None:
        self.version = parse_version(version)
        self.words = {word: parse_version(version) for word, version in words.items()}

    def for_value(self, value: Any) -> ServerVersion:
        """Return the version that introduced the field with that value."""
        if isinstance(value, str):
            return self.words.get(value, self.version)
        return self.version


def parse_version(version: str) -> ServerVersion:
    """Return `(2, 12)` for `2.12` and `2.12.8`. Raises `ValueError` for other texts."""
    major, minor, *_ = version.split(".")
    return int(major), int(minor)
