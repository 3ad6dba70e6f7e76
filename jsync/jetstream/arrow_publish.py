"""Tables as messages: what `publish_arrow` of publishers and fast ingests do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from .._fast import ArrowSource
    from ..core.requests import Data

    One = Callable[..., object]
    Many = Callable[[str | list[str], list[bytes], list[str | None] | None], object]

ROWS = 1000
"""How many are looked at before the first of them is sent."""


class ArrowTable(Protocol):
    """Any table of columns: of pyarrow, polars, DuckDB and others."""

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """A stream of record batches, as a capsule."""


def publish_table(source: ArrowSource, one: One, many: Many) -> int:
    """Publish all rows, in order; how many those were.

    An error says in its attribute `published` how many had been published before.
    """
    done = 0
    while (rows := source.take(ROWS)) is not None:
        subjects, payloads, msg_ids, headers = rows
        try:
            if headers is None:
                many(subjects, payloads, msg_ids)
                done += len(payloads)
                continue
            for message in _messages(subjects, payloads, msg_ids, headers):
                subject, data, options = message
                one(subject, data, **options)
                done += 1
        except BaseException as error:
            error.published = done + getattr(error, "published", 0)  # type: ignore[attr-defined]
            raise
    return done


def _messages(
    subjects: str | Sequence[str],
    payloads: Sequence[bytes],
    msg_ids: Sequence[str | None] | None,
    headers: Sequence[dict[str, list[str]] | None] | None,
) -> Iterator[tuple[str, Data, dict[str, Any]]]:
    for row, data in enumerate(payloads):
        options: dict[str, Any] = {}
        if msg_ids is not None and msg_ids[row] is not None:
            options["msg_id"] = msg_ids[row]
        if headers is not None and headers[row]:
            options["headers"] = headers[row]
        yield subjects if isinstance(subjects, str) else subjects[row], data, options


def each(one: One) -> Many:
    """Publish one after the other what cannot be published in columns."""

    def many(
        subjects: str | list[str],
        payloads: list[bytes],
        msg_ids: list[str | None] | None,
    ) -> None:
        for subject, data, options in _messages(subjects, payloads, msg_ids, None):
            one(subject, data, **options)

    return many
