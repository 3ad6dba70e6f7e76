"""The watch that `KeyValue.watch` returns: keys and their changes (ADR-8)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic

from ..._fast import EntryIterator
from ...hints import explain_attributes
from ..watching.watch import BaseWatch
from .codecs import Value
from .engine import Entry

if TYPE_CHECKING:
    from collections.abc import Iterator


@explain_attributes
class Watch(BaseWatch[Entry[Value]], Generic[Value]):
    """The changes of keys, each once and in order, whatever happens to the server.

    Iterate over it, from one thread, or give `KeyValue.watch` a `callback`. First come the
    initial entries, which are in the bucket already. Then each change comes as it happens.
    Leaving the `with` block stops the watch. So does dropping a watch without a callback.

    Example:
        ```python
        kv.put("limit", b"100")
        with kv.watch("limit") as watch:
            for entry in watch.initial():
                print(entry.key, entry.value)
            kv.put("limit", b"200")
            print(watch.next().value)
        ```
    """

    def _initial_keys(self) -> Iterator[str]:
        self._changes.entries.once = True
        return EntryIterator(
            self._changes.entries, self._next_initial, initial=True, keys=True
        )
