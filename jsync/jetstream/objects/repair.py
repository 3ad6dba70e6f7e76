"""Find the remains of crashes in a store, and remove them.

Other programs put, rename and delete during a check. So a check removes only what two listings
of the infos confirm, both made after the chunks were counted: chunks that no info refers to,
up to the last one that was old enough, and infos up to the revision that was seen. Messages
that are stored later stay, and a check may be cut short between any two steps.
"""

from __future__ import annotations

import math
from datetime import timedelta
from time import monotonic
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from ...errors import MessageNotFoundError
from ..stored.get import get_message
from .orphans import Listing, is_chunk_key

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from ...errors import InvalidObjectInfoError
    from ...models import StoredMessage
    from .engine import ObjectInfo
    from .repository import ObjectRepository

CONFIRM_SECONDS = 1.0
"""Seconds from the first listing to the second one, unless `older_than` is shorter.

In a rename, some clients remove the info of the old name before they store the info of the new
name, so that for a moment no info refers to the chunks."""
LISTING_SECONDS = 1.0
"""The age in seconds at which a listing is repeated before more is removed."""


class StoreCheck(msgspec.Struct, frozen=True, kw_only=True):
    """The remains that `ObjectStore.check` found, and removed unless `remove` is False.

    Example:
        ```python
        found = store.check(remove=False)
        print(found.incomplete, found.orphans)
        ```
    """

    orphans: dict[str, int]
    """The number of orphaned chunks, by the id of the put or object that left them."""
    uploads: dict[str, int]
    """The number of younger chunks that no info refers to, by id. They stay, because a put
    may be in progress."""
    incomplete: list[str]
    """Names of objects that have fewer or more chunks than their info says."""
    renamed: list[str]
    """Former names of objects, left by a rename that was cut short."""
    unreadable: list[str] = []
    """Names of objects whose info cannot be read, and the subjects of messages to which no
    name leads. They stay, as do all chunks that these messages mention."""


class Orphan(NamedTuple):
    """Chunks that no info refers to."""

    chunks: int
    last: int
    """The sequence of the last chunk."""


def check_store(
    objects: ObjectRepository, older_than: float, remove: bool, timeout: float
) -> StoreCheck:
    """Do the work of `ObjectStore.check`.

    Chunks are counted before the infos are read. So if a put ends in between, the listing has
    its info, and its chunks are not taken for orphans.
    """
    counts, now = objects.count_chunks(objects.layout.chunks + ">", timeout)
    check = _Check(objects, counts, now - timedelta(seconds=older_than), timeout)
    if check.needs_pause:
        objects.api.session.sleep(min(older_than, CONFIRM_SECONDS))
    return check.confirmed(remove)


class _Check:
    """One check: remains by the first listing, and their confirmation by the second one."""

    def __init__(
        self,
        objects: ObjectRepository,
        counts: Mapping[str, int],
        limit: datetime,
        timeout: float,
    ) -> None:
        self._objects = objects
        self._limit = limit
        self._timeout = timeout
        self._counts = {key: counts[key] for key in counts if is_chunk_key(key)}
        self._strange = [key for key in counts if not is_chunk_key(key)]
        self._listing = self._list()
        self._listed = -math.inf
        self._orphans: dict[str, Orphan] = {}
        self._uploads: dict[str, int] = {}
        self._sort_chunks()
        self._incomplete: list[ObjectInfo] = []
        self._moved: list[ObjectInfo] = []
        self._sort_objects()

    @property
    def needs_pause(self) -> bool:
        """True if chunks would be removed only because of their age."""
        return not self._listing.deleted.issuperset(self._orphans)

    def confirmed(self, remove: bool) -> StoreCheck:
        """Return the remains that a second listing confirms. Remove them if `remove`."""
        first = self._listing
        orphans: dict[str, int] = {}
        for nuid, orphan in self._orphans.items():
            if self._second().refers_to(nuid):
                continue
            last = self._last_chunk(nuid)
            if last is None:
                continue
            if last.sequence != orphan.last:
                self._uploads[nuid] = orphan.chunks
                continue
            orphans[nuid] = orphan.chunks
            if remove:
                self._objects.remove_old(nuid, orphan.last, self._timeout)
        renamed: list[str] = []
        for info in (*first.former, *self._moved):
            listing = self._second()
            if listing.confirms(info) or (info in self._moved and listing.has(info)):
                renamed.append(info.name)
                if remove:
                    self._objects.remove_info(info, self._timeout)
        return StoreCheck(
            orphans=orphans,
            uploads=self._uploads,
            incomplete=[info.name for info in self._incomplete],
            renamed=renamed,
            unreadable=self._unreadable(first),
        )

    # What there is --------------------------------------------------------------------

    def _list(self) -> Listing:
        unreadable: list[tuple[InvalidObjectInfoError, bytes]] = []
        infos = self._objects.infos(
            self._timeout,
            deleted=True,
            on_bad=lambda error, data: unreadable.append((error, data)),
        )
        return Listing(list(infos), unreadable, self._limit)

    def _second(self) -> Listing:
        """Return a listing later than the first one, at most `LISTING_SECONDS` old."""
        if monotonic() - self._listed > LISTING_SECONDS:
            started_at = monotonic()
            self._listing = self._list()
            self._listed = started_at
        return self._listing

    def _sort_chunks(self) -> None:
        for nuid, count in self._counts.items():
            if self._listing.refers_to(nuid):
                continue
            last = self._last_chunk(nuid)
            if last is None:
                continue  # another client has removed them since the count
            if nuid in self._listing.deleted or last.timestamp <= self._limit:
                self._orphans[nuid] = Orphan(count, last.sequence)
            else:
                self._uploads[nuid] = count

    def _sort_objects(self) -> None:
        for info in self._listing.objects:
            if self._counts.get(info.nuid, 0) == info.chunks:
                continue
            found = self._chunks_now(info)
            if found in (None, info.chunks):
                continue
            if info.renamed_to is not None and not found:
                # The object of its new name was replaced or deleted, with the chunks.
                self._moved.append(info)
            else:
                self._incomplete.append(info)

    def _chunks_now(self, info: ObjectInfo) -> int | None:
        """Count the chunks of an object again. None: it was replaced or deleted."""
        subject = self._objects.layout.chunk_subject(info.nuid)
        counts, _ = self._objects.count_chunks(subject, self._timeout)
        current = self._objects.occupied(info.name, self._timeout)
        if current is None or current.nuid != info.nuid or current.deleted:
            return None
        return counts.get(info.nuid, 0)

    def _last_chunk(self, nuid: str) -> StoredMessage | None:
        layout = self._objects.layout
        try:
            return get_message(
                *(self._objects.api, layout.stream),
                last_by_subject=layout.chunks + nuid,
                direct=False,
                timeout=self._timeout,
            )
        except MessageNotFoundError:
            return None

    def _unreadable(self, listing: Listing) -> list[str]:
        layout = self._objects.layout
        infos = [
            error.name or layout.infos + error.key for error, _ in listing.unreadable
        ]
        return [*infos, *(layout.chunks + key for key in self._strange)]

    def __repr__(self) -> str:
        return f"<Check of {self._objects.layout.bucket!r}>"
