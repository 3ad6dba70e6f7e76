"""Message ids of rows, by which a stream knows what it has already.

Without any choice an id is `FILE@SUM:LINE:CONTENT`: the file's name, a sum of its path,
the line, and a sum of the message. So the same line of the same file is the same message
however often it is sent, and another line, file or content never is.
"""

from __future__ import annotations

import re
import zlib
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

if TYPE_CHECKING:
    from .files import Source
    from .rows import Row
    from .template import Template

_POSITION: Final = re.compile(r"(?s)(.+):([0-9]+):([0-9a-f]{8})")


class Ids(Protocol):
    """The ids of the rows of a source."""

    def of(self, row: Row) -> str: ...


class Place(NamedTuple):
    """Where a message comes from, as its id tells."""

    identity: str
    number: int
    content: str


class PositionIds:
    """From the file, the line and the content."""

    def __init__(self, source: Source) -> None:
        assert source.identity is not None
        self._prefix = source.identity

    def of(self, row: Row) -> str:
        return f"{self._prefix}:{row.number}:{zlib.crc32(row.data):08x}"


class TemplateIds:
    """From columns."""

    def __init__(self, template: Template) -> None:
        self._template = template

    def of(self, row: Row) -> str:
        return self._template.fill(row.fields)


def place_of(msg_id: str) -> Place | None:
    """Where the message with that id comes from; None for an id of another kind."""
    match = _POSITION.fullmatch(msg_id)
    if match is None:
        return None
    return Place(match[1], int(match[2]), match[3])
