"""The message ids of one task of an exactly-once write, each of which has to be unique.

The check compares the rows that Spark passes, and not the answers of the stream. It therefore
has the same result in each attempt of a task, in a speculative one, and when a restarted query
repeats the batch, although the stream then knows all ids.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ...errors import ConfigError
from ...terminal import printable

if TYPE_CHECKING:
    import pyarrow as pa

MAX_NAMED: Final = 3
"""An error names at most so many ids."""


MAX_BYTES: Final = 128 * 1024 * 1024
"""Ids that are kept, in bytes. A task of a batch query may have any number of rows."""


class MessageIds:
    """The ids of the rows of a task so far, or of as many last ones as `MAX_BYTES` permits."""

    def __init__(self) -> None:
        self._seen: list[pa.Array] = []
        self._bytes = 0

    def add(self, ids: pa.Array) -> None:
        """Add the ids of a record batch before any of its rows is published.

        Raises:
            ConfigError: Two of its rows have the same id.
        """
        ids = ids.drop_null()
        # A copy, because the column would keep the bytes of the whole batch.
        unique = ids.unique()
        if len(unique) < len(ids):
            raise repeated(ids)
        self._seen.append(unique)
        self._bytes += unique.nbytes
        if self._bytes > MAX_BYTES:
            self.check()
            self._seen, self._bytes = [], 0

    def check(self) -> None:
        """Compare the kept ids of the record batches with one another.

        Raises:
            ConfigError: Two rows of the task have the same id.
        """
        import pyarrow as pa  # noqa: PLC0415 (only to write rows)
        import pyarrow.compute as pc  # noqa: PLC0415

        if len(self._seen) < 2:
            return
        ids = pa.chunked_array(self._seen)
        if pc.count_distinct(ids).as_py() < len(ids):
            raise repeated(ids)


def repeated(ids: pa.Array | pa.ChunkedArray) -> ConfigError:
    """Return the error for ids of which some repeat. Pure."""
    import pyarrow.compute as pc  # noqa: PLC0415

    counts = ids.value_counts()
    values, numbers = counts.field("values"), counts.field("counts")
    again = pc.greater(numbers, 1)
    found = values.filter(again).to_pylist()
    named = ", ".join(repr(printable(str(one))[:100]) for one in found[:MAX_NAMED])
    more = f" and {len(found) - MAX_NAMED} others" if len(found) > MAX_NAMED else ""
    rows = pc.sum(numbers.filter(again)).as_py()
    return ConfigError(
        f"{rows} rows of a task repeat a msg_id: {named}{more}. The stream would keep only "
        "one row of each. Give each row a msg_id that no other row has, or drop repeated "
        "rows first, as by dropDuplicates(['msg_id'])"
    )
