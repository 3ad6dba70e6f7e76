"""The watch that `ObjectStore.watch` returns: objects and their changes (ADR-20)."""

from __future__ import annotations

from ...hints import explain_attributes
from ..watching.watch import BaseWatch
from .engine import ObjectInfo


@explain_attributes
class ObjectWatch(BaseWatch[ObjectInfo]):
    """The changes of objects, each once and in order, also over a server's restart.

    Iterate over the watch from one thread, or give `ObjectStore.watch` a `callback`.
    First come the infos of the existing objects. Then comes each change. Leaving the
    `with` block stops the watch. A watch without a callback also stops when you drop it.

    Example:
        ```python
        store.put("today.csv", b"id,total")
        with store.watch() as watch:
            for info in watch.initial():
                print(info.name)
        ```
    """
