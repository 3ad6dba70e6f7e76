"""The mark of a rename in progress, and how other programs handle it.

A store changes one info at a time. So a rename from A to B reads the revision of B, marks the
info of A with the name B, stores the info of B if that revision is still the last one, and
removes the info of A. If B has no info, its revision would be 0, and 0 again after another
object had the name for a while. So the rename first stores the info of a deleted object there,
whose revision never comes back. A program that finds the mark and wants to change A waits for
`ABANDONED_AFTER`. If nothing happens, the renaming program has ended or is slow. Then the
waiting program gives B another revision, so that the rename cannot succeed any more, and only
then changes A.

If several infos have one id, the one with the highest revision belongs to the object. The
others are former names, left by a rename that was cut short.
"""

from __future__ import annotations

import contextlib
from time import monotonic
from typing import TYPE_CHECKING

from ... import errors
from ...errors import WrongLastSequenceError
from .engine import is_former_name, missing_info

if TYPE_CHECKING:
    from .engine import ObjectInfo
    from .repository import ObjectRepository

ABANDONED_AFTER = 2.0
"""Seconds without a change after which the rename of a marked info counts as abandoned."""
RETRY_INTERVAL = 0.05


def claim(
    objects: ObjectRepository, name: str, seconds: float, deadline: float
) -> ObjectInfo | None:
    """Get the last info of a name from the leader, free of renames, for a change of the name.

    Blocks until no rename in progress has marked it, and removes the former name that a rename
    may have left. The change must name the revision of the returned info. None: there is none.
    """
    while True:
        info = objects.occupied(name, seconds)
        if info is None or info.deleted:
            return info
        if info.renamed_to is None:
            remove_former(objects, info, seconds)
            return info
        if moved_to(objects, info, seconds) is not None:
            return missing_info(objects.layout.bucket, name)  # at revision 0
        if may_change(objects, info, seconds, deadline):
            return info
        check_time(objects, name, deadline)


def remove_former(objects: ObjectRepository, info: ObjectInfo, seconds: float) -> None:
    """Remove the former name of an object, if a rename has left it."""
    if info.renamed_from is not None:
        objects.remove_before(info.renamed_from, info.revision, seconds)


def moved_to(
    objects: ObjectRepository, marked: ObjectInfo, seconds: float
) -> ObjectInfo | None:
    """Return the info of the new name if the rename has stored it, else None.

    If it has, also remove the info of the former name, which completes the rename.
    """
    existing = objects.occupied(marked.renamed_to or "", seconds)
    if existing is None or not is_former_name(marked, existing):
        return None
    objects.remove_info(marked, seconds)
    return existing


def may_change(
    objects: ObjectRepository, marked: ObjectInfo, seconds: float, deadline: float
) -> bool:
    """Wait for a rename in progress, and block it if it seems abandoned.

    Returns:
        True if the marked info may be changed now. False: it has changed, so read it again.
    """
    given_up = min(monotonic() + ABANDONED_AFTER, deadline)
    while monotonic() < given_up:
        objects.api.session.sleep(RETRY_INTERVAL)
        later = objects.last(marked.name, seconds)
        if later is None or later.revision != marked.revision:
            return False
    return _block_rename(objects, marked, seconds)


def _block_rename(
    objects: ObjectRepository, marked: ObjectInfo, seconds: float
) -> bool:
    """Give the new name another revision, so that the rename fails. False: it was quicker."""
    name = marked.renamed_to or ""
    existing = objects.occupied(name, seconds)
    if existing is not None and not existing.deleted:
        if is_former_name(marked, existing):
            return False
        if not is_former_name(existing, marked):
            return True  # another object has the name, so the rename fails anyway
    last = 0 if existing is None else existing.revision
    gone = missing_info(objects.layout.bucket, name, existing)
    with contextlib.suppress(WrongLastSequenceError):
        objects.put_info(gone, last, seconds)
        return True
    return False


def check_time(objects: ObjectRepository, name: str, deadline: float) -> None:
    """Raise `TimeoutError` at the deadline of a change that others have kept from success."""
    if monotonic() >= deadline:
        raise errors.TimeoutError(
            f"others change {name!r} in store {objects.layout.bucket!r} all the time; try "
            "again"
        )
