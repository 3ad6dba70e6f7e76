"""Find the remains of crashes in a store, and remove them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import msgspec

from ...errors import MessageNotFoundError
from ..management import stream_info
from ..stored.get import get_message
from ..watching.driver import open_changes
from .watch import ObjectWatch

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .driver import Objects
    from .engine import ObjectInfo


class StoreCheck(msgspec.Struct, frozen=True, kw_only=True):
    """The remains that `ObjectStore.check` found, and removed unless `remove` is False."""

    orphans: dict[str, int]
    """The number of orphaned chunks, by the id of the put or object that left them."""
    uploads: dict[str, int]
    """The same for younger chunks. They stay, since a put may be on its way."""
    incomplete: list[str]
    """Names of objects that have fewer or more chunks than their info says."""
    renamed: list[str]
    """Former names of objects, left by a rename that was cut short."""


def read_infos(
    objects: Objects, timeout: float | None, *, deleted: bool
) -> Iterator[ObjectInfo]:
    """Iterate over the infos of a store.

    Raises:
        BadObjectInfoError: A message of the store is not a valid info.
    """
    changes = open_changes(
        objects.api, objects.layout, (), ignore_deletes=not deleted, timeout=timeout
    )
    with ObjectWatch(changes) as watch:
        yield from watch.initial()


def check_store(
    objects: Objects, older_than: float, remove: bool, timeout: float | None
) -> StoreCheck:
    """Do the work of `ObjectStore.check`.

    Chunks are counted before the infos are read: those of a put that ends in between are
    known by its info.
    """
    layout = objects.layout
    counts, now = _count(objects, layout.chunks + ">", timeout)
    limit = now - timedelta(seconds=older_than)
    newest: dict[str, ObjectInfo] = {}
    removed_ids: set[str] = set()
    renamed: list[ObjectInfo] = []
    for info in read_infos(objects, timeout, deleted=True):
        if info.deleted:
            # During a rename, the chunks pass from this object to another one.
            if info.renamed_to is None or info.modified <= limit:
                removed_ids.add(info.nuid)
        elif not info.is_link:
            other = newest.get(info.nuid, info)
            if other is not info:
                former = info if info.renamed_to == other.name else other
                renamed.append(former)
                info = other if former is info else info
            newest[info.nuid] = info
    orphans: dict[str, int] = {}
    uploads: dict[str, int] = {}
    for nuid, count in counts.items():
        if nuid in newest:
            continue
        is_old = nuid in removed_ids or _is_older(objects, nuid, limit, timeout)
        (orphans if is_old else uploads)[nuid] = count
    broken = [
        info
        for info in newest.values()
        if counts.get(info.nuid, 0) != info.chunks
        and not _is_whole(objects, info, timeout)
    ]
    # The new name has other chunks by now.
    renamed += [info for info in broken if info.renamed_to is not None]
    incomplete = [info.name for info in broken if info.renamed_to is None]
    if remove:
        for nuid in orphans:
            objects.remove_chunks(nuid, timeout)
        for info in renamed:
            objects.remove_info(info, timeout)
    return StoreCheck(
        orphans=orphans,
        uploads=uploads,
        incomplete=incomplete,
        renamed=[info.name for info in renamed],
    )


def _count(
    objects: Objects, subject: str, timeout: float | None
) -> tuple[dict[str, int], datetime]:
    """How many chunks there are of each id, and the time of the server."""
    layout = objects.layout
    info = stream_info(
        objects.api, layout.stream, timeout=timeout, subjects_filter=subject
    )
    counts = {
        name.removeprefix(layout.chunks): count
        for name, count in (info.state.subjects or {}).items()
    }
    return counts, info.ts or datetime.now(UTC)


def _is_older(
    objects: Objects, nuid: str, limit: datetime, timeout: float | None
) -> bool:
    """Whether the last chunk of an id was stored before `limit`."""
    try:
        message = get_message(
            *(objects.api, objects.layout.stream),
            last_by_subject=objects.layout.chunk_subject(nuid),
            direct=False,
            timeout=timeout,
        )
    except MessageNotFoundError:
        return False  # deleted in the meantime
    return message.timestamp <= limit


def _is_whole(objects: Objects, info: ObjectInfo, timeout: float | None) -> bool:
    """Whether an object has its chunks by now, or is another one."""
    counts, _ = _count(objects, objects.layout.chunk_subject(info.nuid), timeout)
    if counts.get(info.nuid, 0) == info.chunks:
        return True
    current = objects.last(info.name, timeout)
    return current is None or current.nuid != info.nuid
