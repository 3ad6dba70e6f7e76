"""A rename: the info of an object passes to another name, and its chunks stay."""

from __future__ import annotations

import contextlib
from time import monotonic
from typing import TYPE_CHECKING

import msgspec

from ... import errors
from ...core.deadline import deadline_after
from ...errors import ObjectExistsError, WrongLastSequenceError
from .driver import DOUBT_SECONDS, PAUSE_SECONDS, SURE_SECONDS
from .engine import gone_info, is_same, new_nuid

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from .driver import Objects
    from .engine import ObjectInfo


class Rename:
    """One rename.

    A store changes one info at a time, and only if its revision is the expected one. So the
    object of the old name is marked first with the new name. Who puts over a marked object, or
    deletes it, leaves the chunks alone: they may be those of the new name by then. The object of
    the new name is stored after a look at the mark, which is after the look at the new name. So
    another rename that replaces the mark, and then changes the new name, keeps this one out.
    """

    def __init__(
        self,
        objects: Objects,
        name: str,
        wanted: str,
        changes: Mapping[str, Any],
        seconds: float,
    ) -> None:
        self._objects = objects
        self._name = name
        self._wanted = wanted
        self._changes = changes
        self._seconds = seconds
        self._deadline = deadline_after(seconds)
        self._has_marked = False

    def run(self) -> ObjectInfo:
        """Rename the object; blocks."""
        while True:
            current = self._objects.existing(self._name, self._seconds)
            if current.renamed_to is not None and (moved := self._moved(current)):
                return moved
            self._last_of_wanted(current)
            if not self._may_mark(current):
                continue
            with contextlib.suppress(WrongLastSequenceError):
                marked = self._mark(current)
                if (moved := self._store(marked)) is not None:
                    return moved
            self._check_time()

    # The old name ---------------------------------------------------------------------

    def _mark(self, current: ObjectInfo) -> ObjectInfo:
        marked = msgspec.structs.replace(
            current, renamed_to=self._wanted, nuid=current.nuid or new_nuid()
        )
        revision = self._objects.put_info(marked, current.revision, self._seconds)
        marked = msgspec.structs.replace(marked, revision=revision)
        if current.renamed_to not in (None, self._wanted):
            self._keep_out(current.renamed_to or "", marked)
        self._has_marked = True
        return marked

    def _may_mark(self, current: ObjectInfo) -> bool:
        """Wait for another rename of the object. False: something has changed."""
        if current.renamed_to is None or self._has_marked:
            return True
        given_up = min(monotonic() + DOUBT_SECONDS, self._deadline)
        while monotonic() < given_up:
            self._objects.api.session.sleep(PAUSE_SECONDS)
            later = self._objects.last(self._name, self._seconds)
            if later is None or later.revision != current.revision:
                return False
        return True

    def _keep_out(self, other_name: str, marked: ObjectInfo) -> None:
        """Have a rename to another name fail, which may still be on its way."""
        objects = self._objects
        while True:
            there = objects.occupied(other_name, self._seconds)
            if there is not None and not there.deleted:
                if is_same(there, marked):  # it was quicker
                    objects.remove_info(marked, self._seconds)
                    raise objects.layout.missing(self._name, deleted=False)
                return
            last = 0 if there is None else there.revision
            gone = there or gone_info(objects.layout.bucket, other_name)
            with contextlib.suppress(WrongLastSequenceError):
                objects.put_info(gone, last, self._seconds)
                return
            self._check_time()

    def _moved(self, current: ObjectInfo) -> ObjectInfo | None:
        """Complete a rename that was cut short after the new name was stored.

        Returns:
            The info of the new name, if that is the wanted one. None: it was not stored.
        """
        objects = self._objects
        there = objects.occupied(current.renamed_to or "", self._seconds)
        if there is None or not is_same(there, current):
            return None
        objects.remove_info(current, self._seconds)
        if current.renamed_to != self._wanted:
            raise objects.layout.missing(self._name, deleted=False)
        return self._completed(there)

    def _completed(self, there: ObjectInfo) -> ObjectInfo:
        """The info of the new name, with the changes."""
        if not self._changes:
            return there

        def make() -> tuple[ObjectInfo, int]:
            now = self._objects.existing(self._wanted, self._seconds)
            return msgspec.structs.replace(now, **self._changes), now.revision

        return self._objects.change(make, self._seconds)

    # The new name ---------------------------------------------------------------------

    def _store(self, marked: ObjectInfo) -> ObjectInfo | None:
        """Store the info by the new name. None: the old name has changed meanwhile."""
        objects, began = self._objects, monotonic()
        while True:
            last = self._last_of_wanted(marked)
            current = objects.last(self._name, self._seconds)
            if current is None or current.revision != marked.revision:
                return None
            info = self._as_wanted(marked)
            if last is None:  # another rename to that name was quicker
                objects.remove_info(marked, self._seconds)
                return self._completed(objects.existing(self._wanted, self._seconds))
            with contextlib.suppress(WrongLastSequenceError):
                revision = objects.put_info(info, last, self._seconds)
                break
            self._check_time()
        info = objects.stored(info, revision)
        if monotonic() - began > SURE_SECONDS and not objects.has_chunks(
            info, self._seconds
        ):
            # The object was deleted or replaced after the look at it, and a check has
            # removed its chunks.
            objects.take_back(info, None, self._seconds)
            raise objects.layout.missing(self._name, deleted=True)
        objects.remove_info(marked, self._seconds)
        return self._with_last_notes(info)

    def _with_last_notes(self, info: ObjectInfo) -> ObjectInfo:
        """Take over what somebody has changed at the old name while it was moved."""
        objects = self._objects
        while True:
            left = objects.occupied(self._name, self._seconds)
            if (
                left is None
                or not is_same(left, info)
                or left.renamed_to != self._wanted
            ):
                return info
            with contextlib.suppress(WrongLastSequenceError):
                changed = self._as_wanted(left)
                revision = objects.put_info(changed, info.revision, self._seconds)
                info = objects.stored(changed, revision)
            objects.remove_info(left, self._seconds)

    def _as_wanted(self, info: ObjectInfo) -> ObjectInfo:
        return msgspec.structs.replace(
            info,
            name=self._wanted,
            renamed_to=None,
            subject_token=None,
            **self._changes,
        )

    def _last_of_wanted(self, current: ObjectInfo) -> int | None:
        """The last revision of the new name. None: it is this object already.

        Raises:
            ObjectExistsError: It is another object. The mark of this one is removed.
        """
        objects = self._objects
        there = objects.occupied(self._wanted, self._seconds)
        if there is None:
            return 0
        if there.deleted:
            return there.revision
        if is_same(there, current):
            return None
        if self._has_marked and current.renamed_to == self._wanted:
            with contextlib.suppress(WrongLastSequenceError):
                unmarked = msgspec.structs.replace(current, renamed_to=None)
                objects.put_info(unmarked, current.revision, self._seconds)
        raise object_exists(objects, self._wanted)

    def _check_time(self) -> None:
        if monotonic() >= self._deadline:
            raise errors.TimeoutError(
                f"others change {self._name!r} and {self._wanted!r} in store "
                f"{self._objects.layout.bucket!r} all the time; rename it again"
            )

    def __repr__(self) -> str:
        return f"<Rename of {self._name!r} to {self._wanted!r}>"


def object_exists(objects: Objects, name: str) -> ObjectExistsError:
    """The error for a name that is taken."""
    return ObjectExistsError(
        f"object exists: {name!r} in store {objects.layout.bucket!r}; delete it first, or "
        "choose another name"
    )
