"""Message ids of rows, by which the stream finds duplicates.

The default id is `FILE@SUM:LINE:CONTENT`: the file's name, a checksum of its path, the
line, and a checksum of the message. So a line of a file has the same id however often
it is sent, and a different line, file or content has a different id.
"""

from __future__ import annotations

import re
import zlib
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

if TYPE_CHECKING:
    from .files import Source
    from .rows import Row
    from .template import ColumnTemplate

_POSITION: Final = re.compile(r"(?s)(.+):([0-9]+):([0-9a-f]{8})")


class Ids(Protocol):
    """A maker of ids for the rows of a source."""

    def of(self, row: Row) -> str: ...


class RowPosition(NamedTuple):
    """The position and the checksum of a row, read from the id of its message."""

    identity: str
    number: int
    content: str


class PositionIds:
    """Ids from the file, the line and the content."""

    def __init__(self, source: Source) -> None:
        assert source.identity is not None
        self._prefix = source.identity

    def of(self, row: Row) -> str:
        return f"{self._prefix}:{row.number}:{zlib.crc32(row.data):08x}"


class TemplateIds:
    """Ids from columns."""

    def __init__(self, template: ColumnTemplate) -> None:
        self._template = template

    def of(self, row: Row) -> str:
        return self._template.fill(row.fields)


def position_of(msg_id: str) -> RowPosition | None:
    """Return the parts of a default id, or None for another kind of id."""
    match = _POSITION.fullmatch(msg_id)
    if match is None:
        return None
    return RowPosition(match[1], int(match[2]), match[3])
