"""A rename: the info of an object moves to another name, and its chunks stay."""

from __future__ import annotations

import contextlib
from time import monotonic
from typing import TYPE_CHECKING

import msgspec

from ...errors import ObjectExistsError, WrongLastSequenceError
from .engine import is_former_name, missing_info, new_nuid
from .rename_marks import check_time, may_change, moved_to, remove_former
from .repository import VERIFY_AFTER

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from .engine import ObjectInfo
    from .repository import ObjectRepository


class Rename:
    """One rename, by the steps that `marks` describes. One thread uses it."""

    def __init__(
        self,
        objects: ObjectRepository,
        name: str,
        new_name: str,
        changes: Mapping[str, Any],
        seconds: float,
    ) -> None:
        self._objects = objects
        self._name = name
        self._new_name = new_name
        self._changes = changes
        self._seconds = seconds
        self._deadline = monotonic() + seconds
        self._mark = 0
        """The revision of the last mark that this rename has stored."""
        self._token: str | None = None
        """The last token of the new name's subject, see `ObjectInfo.subject_token`."""

    def run(self) -> ObjectInfo:
        """Rename the object. Blocks until the new name is stored."""
        objects, started_at = self._objects, monotonic()
        while True:
            current = objects.last_or_raise(self._name, self._seconds)
            if current.renamed_to is not None and current.revision != self._mark:
                moved = moved_to(objects, current, self._seconds)
                if moved is not None:
                    return self._completed(moved)
                if not self._may_change(current):
                    check_time(objects, self._name, self._deadline)
                    continue
            remove_former(objects, current, self._seconds)
            last, existing = self._check_new_name(current)
            if existing is not None:
                objects.remove_info(current, self._seconds)
                return self._completed(existing)
            with contextlib.suppress(WrongLastSequenceError):
                last = last or self._reserve_new_name()
                marked = self._marked(current)
                return self._moved(marked, last, started_at)
            check_time(objects, self._name, self._deadline)

    def _may_change(self, current: ObjectInfo) -> bool:
        return may_change(self._objects, current, self._seconds, self._deadline)

    def _check_new_name(self, current: ObjectInfo) -> tuple[int, ObjectInfo | None]:
        """Return the last revision of the new name, and its info if it is this object already.

        Raises:
            ObjectExistsError: Another object has the new name. The mark of this rename was
                removed.
        """
        objects = self._objects
        existing = objects.occupied(self._new_name, self._seconds)
        self._token = None if existing is None else existing.subject_token
        if existing is None:
            return 0, None
        if existing.deleted or is_former_name(existing, current):
            return existing.revision, None
        if is_former_name(current, existing):
            return existing.revision, existing
        if current.revision == self._mark:
            with contextlib.suppress(WrongLastSequenceError):
                unmarked = msgspec.structs.replace(current, renamed_to=None)
                objects.put_info(unmarked, current.revision, self._seconds)
        raise object_exists(objects, self._new_name)

    def _reserve_new_name(self) -> int:
        """Give a new name without an info the info of a deleted object. Return its revision.

        Raises `WrongLastSequenceError` if another program was quicker.
        """
        objects = self._objects
        gone = missing_info(objects.layout.bucket, self._new_name)
        return objects.put_info(gone, 0, self._seconds)

    def _marked(self, current: ObjectInfo) -> ObjectInfo:
        """Mark the old name.

        Raises `WrongLastSequenceError` if another program has changed it.
        """
        marked = msgspec.structs.replace(
            current,
            renamed_to=self._new_name,
            renamed_from=None,
            nuid=current.nuid or new_nuid(),
        )
        revision = self._objects.put_info(marked, current.revision, self._seconds)
        self._mark = revision
        return self._objects.stored(marked, revision)

    def _moved(self, marked: ObjectInfo, last: int, started_at: float) -> ObjectInfo:
        """Store the new name, and remove the old one.

        Raises `WrongLastSequenceError` if the new name is not at the revision `last` any more.
        """
        objects = self._objects
        info = msgspec.structs.replace(
            marked,
            name=self._new_name,
            renamed_to=None,
            renamed_from=self._name,
            subject_token=self._token,
            **self._changes,
        )
        revision = objects.put_info(info, last, self._seconds)
        info = objects.stored(info, revision)
        if monotonic() - started_at > VERIFY_AFTER and not objects.has_chunks(
            info, self._seconds
        ):
            # Another client has deleted or replaced the object in between.
            objects.roll_back(info, None, self._seconds)
            raise objects.layout.object_not_found_error(self._name, deleted=True)
        objects.remove_info(marked, self._seconds)
        return info

    def _completed(self, existing: ObjectInfo) -> ObjectInfo:
        """Complete a rename that was cut short after it had stored the new name."""
        if existing.name != self._new_name:
            raise self._objects.layout.object_not_found_error(self._name, deleted=False)
        if not self._changes:
            return existing

        def make() -> tuple[ObjectInfo, int]:
            now = self._objects.last_or_raise(self._new_name, self._seconds)
            return msgspec.structs.replace(now, **self._changes), now.revision

        return self._objects.compare_and_set(make, self._seconds)

    def __repr__(self) -> str:
        return f"<Rename of {self._name!r} to {self._new_name!r}>"


def object_exists(objects: ObjectRepository, name: str) -> ObjectExistsError:
    """Make the error for a name that another object has."""
    return ObjectExistsError(
        f"object exists: {name!r} in store {objects.layout.bucket!r}; delete it first, or "
        "choose another name"
    )
