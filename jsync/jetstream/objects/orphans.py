"""References between the messages of a store, and the remains that nothing refers to.

Pure: no socket, thread or clock.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from ...errors import ConfigError
from ...models.name import check_literal

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

    from ...errors import InvalidObjectInfoError
    from .engine import ObjectInfo

_ESCAPE: Final = re.compile(rb"(?:\\u[0-9a-fA-F]{4})+|\\[\"\\/]")
"""JSON escapes of characters that may be in an id."""


class Listing:
    """The infos of a store at one moment, by the chunks that they refer to.

    Args:
        infos: All infos, including the infos of deleted objects, the oldest first.
        unreadable: Messages that are no infos: the error, and the payload.
        limit: Renames that were marked before this time are no longer in progress.
    """

    def __init__(
        self,
        infos: Iterable[ObjectInfo],
        unreadable: list[tuple[InvalidObjectInfoError, bytes]],
        limit: datetime,
    ) -> None:
        self.objects: list[ObjectInfo] = []
        """The objects, without links."""
        self.former: list[ObjectInfo] = []
        """Infos of former names, whose chunks now belong to another name."""
        self.deleted: set[str] = set()
        """The ids of deleted objects, whose chunks are removed at any age."""
        self.unreadable = unreadable
        self._by_id: dict[str, list[ObjectInfo]] = {}
        for info in infos:
            if info.deleted:
                # During a rename, the chunks move from this object to another one.
                if info.renamed_to is None or info.modified <= limit:
                    self.deleted.add(info.nuid)
            elif not info.is_link:
                self._by_id.setdefault(info.nuid, []).append(info)
        for group in self._by_id.values():
            former = _former_of(group)
            self.former += former
            self.objects += [info for info in group if info not in former]

    def refers_to(self, nuid: str) -> bool:
        """Return whether chunks of that id may belong to an object."""
        return nuid in self._by_id or any(
            mentions(data, nuid) for _, data in self.unreadable
        )

    def confirms(self, former: ObjectInfo) -> bool:
        """Return whether an info still exists and still belongs to a former name."""
        return any(_are_one(former, other) for other in self.former)

    def has(self, info: ObjectInfo) -> bool:
        """Return whether an info still exists at this revision."""
        return any(_are_one(info, other) for other in self._by_id.get(info.nuid, ()))

    def __repr__(self) -> str:
        return f"<Listing of {len(self.objects)} objects>"


def is_chunk_key(key: str) -> bool:
    """Return whether the end of a chunk's subject is literal. Servers store wildcards, too."""
    try:
        check_literal(key, "subject")
    except ConfigError:
        return False
    return "*" not in key and ">" not in key


def mentions(data: bytes, nuid: str) -> bool:
    """Return whether a message that cannot be read may refer to the chunks of an id."""
    return nuid.encode() in data or nuid.encode() in _ESCAPE.sub(_unescaped, data)


def _unescaped(escape: re.Match[bytes]) -> bytes:
    text = escape[0]
    if not text.startswith(b"\\u"):
        return text[1:]
    codes = bytes.fromhex(text.replace(b"\\u", b"").decode())
    return codes.decode("utf-16-be", "replace").encode()


def _former_of(group: list[ObjectInfo]) -> list[ObjectInfo]:
    """Select those infos with one id that belong to former names.

    Other clients leave no mark, because they store the new name and then remove the old one.
    """
    *older, newest = sorted(group, key=lambda info: info.revision)
    marked = [info for info in older if info.renamed_to is not None]
    if not marked and len(older) == 1 and _are_alike(older[0], newest):
        return older
    return marked


def _are_alike(info: ObjectInfo, other: ObjectInfo) -> bool:
    """Return whether two infos with one id describe the same bytes."""
    return (info.size, info.chunks, info.digest) == (
        other.size,
        other.chunks,
        other.digest,
    )


def _are_one(info: ObjectInfo, other: ObjectInfo) -> bool:
    return (info.name, info.revision) == (other.name, other.revision)
