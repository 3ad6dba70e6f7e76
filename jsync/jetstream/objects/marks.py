"""The mark of a rename that is on its way, and how others come past it.

A store changes one info at a time. So a rename from A to B looks which revision B has, marks the
info of A with the name B, stores the info of B if that revision is still the last one, and removes
the info of A. Whoever finds a mark and wants to change A waits a while. If nothing happens, the
program has ended, or is slow. Then B gets another revision, so that the rename cannot go on, and
only then A is changed.

Of several infos with one id, the one with the highest revision is that of the object. The others
are former names, which a rename that was cut short has left.
"""

from __future__ import annotations

import contextlib
from time import monotonic
from typing import TYPE_CHECKING

from ... import errors
from ...errors import WrongLastSequenceError
from .engine import gone_info, is_former

if TYPE_CHECKING:
    from .driver import Objects
    from .engine import ObjectInfo

DOUBT_SECONDS = 2.0
"""How long a marked info goes without a change before its rename is taken for abandoned."""
PAUSE_SECONDS = 0.05


def claim(
    objects: Objects, name: str, seconds: float, deadline: float
) -> ObjectInfo | None:
    """What the leader has last of a name, to be changed if it has that revision; blocks.

    No rename on its way has it, and the former name from which it came is gone.
    """
    while True:
        info = objects.occupied(name, seconds)
        if info is None or info.deleted:
            return info
        if info.renamed_to is None:
            forget_former(objects, info, seconds)
            return info
        if moved_to(objects, info, seconds) is not None:
            return gone_info(objects.layout.bucket, name)  # at revision 0
        if may_change(objects, info, seconds, deadline):
            return info
        check_time(objects, name, deadline)


def forget_former(objects: Objects, info: ObjectInfo, seconds: float) -> None:
    """Remove the former name of an object, which a rename may have left."""
    if info.renamed_from is not None:
        objects.remove_before(info.renamed_from, info.revision, seconds)


def moved_to(objects: Objects, marked: ObjectInfo, seconds: float) -> ObjectInfo | None:
    """The info of the new name if the rename has stored it; then removes the former one."""
    there = objects.occupied(marked.renamed_to or "", seconds)
    if there is None or not is_former(marked, there):
        return None
    objects.remove_info(marked, seconds)
    return there


def may_change(
    objects: Objects, marked: ObjectInfo, seconds: float, deadline: float
) -> bool:
    """Wait for a rename on its way, and keep it from going on. False: look again."""
    given_up = min(monotonic() + DOUBT_SECONDS, deadline)
    while monotonic() < given_up:
        objects.api.session.sleep(PAUSE_SECONDS)
        later = objects.last(marked.name, seconds)
        if later is None or later.revision != marked.revision:
            return False
    return _keeps_out(objects, marked, seconds)


def _keeps_out(objects: Objects, marked: ObjectInfo, seconds: float) -> bool:
    """Give the new name another revision. False: the rename was quicker."""
    name = marked.renamed_to or ""
    there = objects.occupied(name, seconds)
    if there is not None and not there.deleted:
        if is_former(marked, there):
            return False
        if not is_former(there, marked):
            return True  # another object: the rename ends by itself
    last = 0 if there is None else there.revision
    gone = gone_info(objects.layout.bucket, name, there)
    with contextlib.suppress(WrongLastSequenceError):
        objects.put_info(gone, last, seconds)
        return True
    return False


def check_time(objects: Objects, name: str, deadline: float) -> None:
    """Raise a timeout at the deadline of a change that others have kept from ending."""
    if monotonic() >= deadline:
        raise errors.TimeoutError(
            f"others change {name!r} in store {objects.layout.bucket!r} all the time; try "
            "again"
        )
