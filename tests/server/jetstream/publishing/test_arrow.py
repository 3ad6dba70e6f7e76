"""Tests of publishing tables that other libraries give as Arrow."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import duckdb
import polars
import pyarrow as pa
import pytest

import jsync
from jsync import errors

from ....support.arrow_messages import rows

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from jsync.server import LocalServer

pytestmark = pytest.mark.server

HEADERS = pa.map_(pa.utf8(), pa.list_(pa.utf8()))


@pytest.fixture
def js(server: LocalServer) -> Iterator[jsync.JetStream]:
    with jsync.connect(server.url) as nc:
        yield nc.jetstream()


@pytest.fixture
def stream(js: jsync.JetStream, unique: str) -> Iterator[jsync.Stream]:
    stream = js.create_stream(
        name=unique, subjects=[f"{unique}.>"], storage="memory", allow_batched=True
    )
    yield stream
    with contextlib.suppress(errors.StreamNotFoundError):
        stream.delete()


@pytest.fixture(params=["publisher", "fast_ingest"])
def publish(request: pytest.FixtureRequest, js: jsync.JetStream) -> Callable[..., int]:
    """Publish a table in one of two ways, and wait for its end."""

    def run(table: Any, **options: Any) -> int:
        with getattr(js, request.param)() as publisher:
            done: int = publisher.publish_arrow(table, **options)
        return done

    return run


def stored(stream: jsync.Stream, *columns: str) -> list[tuple[Any, ...]]:
    found = rows(stream.read_arrow(columns=columns))
    return [tuple(row[name] for name in columns) for row in found]


def table_of(stream: jsync.Stream, count: int) -> pa.Table:
    return pa.table(
        {
            "to": [f"{stream.name}.{number % 3}" for number in range(count)],
            "payload": [b"%d" % number * (number % 20) for number in range(count)],
        },
        pa.schema([("to", pa.utf8()), ("payload", pa.binary())]),
    )


def test_a_table_is_published_in_its_order(
    stream: jsync.Stream, publish: Callable[..., int]
) -> None:
    table = table_of(stream, 2500)
    assert publish(table, subject="to", data="payload") == 2500
    assert stored(stream, "subject", "data") == [
        (row["to"], row["payload"]) for row in table.to_pylist()
    ]


def test_all_may_go_to_one_subject(
    stream: jsync.Stream, publish: Callable[..., int]
) -> None:
    subject = f"{stream.name}.one"
    assert (
        publish(table_of(stream, 30).slice(7, 5), subject=subject, data="payload") == 5
    )
    found = stored(stream, "subject", "data")
    assert {name for name, _ in found} == {subject}
    assert found[0][1] == b"7" * 7


@pytest.mark.parametrize(
    "kind",
    [pa.utf8(), pa.large_utf8(), pa.string_view(), pa.dictionary(pa.int8(), pa.utf8())],
)
@pytest.mark.parametrize("data", [pa.binary(), pa.large_binary(), pa.binary_view()])
def test_text_may_lie_in_any_way(
    js: jsync.JetStream, stream: jsync.Stream, kind: pa.DataType, data: pa.DataType
) -> None:
    plain = table_of(stream, 40).slice(3)
    subjects = plain["to"].combine_chunks()
    if pa.types.is_dictionary(kind):
        subjects = subjects.dictionary_encode()
    table = pa.table(
        {
            "to": subjects.cast(kind),
            "payload": plain["payload"].combine_chunks().cast(data),
        }
    )
    with js.publisher() as publisher:
        publisher.publish_arrow(table.slice(2), subject="to", data="payload")
    assert stored(stream, "subject", "data") == [
        (row["to"], row["payload"]) for row in plain.slice(2).to_pylist()
    ]


def test_a_table_that_was_read_can_be_published(
    js: jsync.JetStream, stream: jsync.Stream, publish: Callable[..., int], unique: str
) -> None:
    for number in range(20):
        headers = {"A": ["1", "2"], "B": "é"} if number % 3 else None
        js.publish(f"{stream.name}.a.{number}", b"%d" % number, headers=headers)
    before = stored(stream, "subject", "data", "headers")
    taken = polars.DataFrame(stream.read_arrow())
    stream.purge()
    assert publish(taken, subject="subject", data="data", headers="headers") == 20
    assert stored(stream, "subject", "data", "headers") == before


def test_headers_and_ids_are_columns(
    stream: jsync.Stream, publish: Callable[..., int]
) -> None:
    table = pa.table(
        {
            "data": ["a", "b", "c", "d"],
            "id": ["1", "2", "1", None],
            "headers": pa.array([[("K", ["v", "w"])], None, [], [("K", [])]], HEADERS),
        }
    )
    subject = f"{stream.name}.x"
    publish(table, subject=subject, data="data", msg_id="id", headers="headers")
    assert stored(stream, "data", "headers") == [
        (b"a", [("K", ["v", "w"]), ("Nats-Msg-Id", ["1"])]),
        (b"b", [("Nats-Msg-Id", ["2"])]),
        (b"d", None),
    ]


def test_options_are_columns(
    js: jsync.JetStream, publish: Callable[..., int], unique: str
) -> None:
    stream = js.create_stream(
        name=unique,
        subjects=[f"{unique}.>"],
        storage="memory",
        allow_batched=True,
        allow_msg_ttl=True,
    )
    table = pa.table(
        {
            "to": [f"{unique}.a", f"{unique}.a", f"{unique}.b"],
            "data": ["a", "b", "c"],
            "ttl": pa.array([60, None, 3600]),
            "last": pa.array([0, 1, None], pa.uint32()),
            "whole": pa.array([None, None, 2], pa.int64()),
        }
    )
    publish(
        table,
        subject="to",
        data="data",
        ttl="ttl",
        expected_last_subject_sequence="last",
        expected_last_sequence="whole",
        expected_stream=unique,
    )
    assert stored(stream, "data") == [(b"a",), (b"b",), (b"c",)]
    (found,) = stored(stream, "headers")[:1]
    assert ("Nats-TTL", ["60s"]) in found[0]
    with pytest.raises((errors.PublisherError, errors.IngestError, errors.APIError)):
        publish(
            table.slice(0, 1), subject="to", data="data", expected_last_sequence="last"
        )
    assert len(stored(stream, "data")) == 3
    stream.delete()


def test_a_publisher_counts_its_acks(js: jsync.JetStream, stream: jsync.Stream) -> None:
    js.publish(f"{stream.name}.x", b"before", msg_id="n3")
    table = pa.table(
        {"data": ["x"] * 2000, "id": [f"n{number % 1500}" for number in range(2000)]}
    )
    with js.publisher() as publisher:
        publisher.publish_arrow(
            table, subject=f"{stream.name}.x", data="data", msg_id="id"
        )
        publisher.flush()
        assert publisher.published == publisher.acknowledged == 2000
        assert publisher.duplicates == 501
        assert publisher.stored_range == (2, 1500)
        assert publisher.failed == 0


def test_with_resend_each_row_needs_an_id(
    js: jsync.JetStream, stream: jsync.Stream
) -> None:
    table = pa.table({"data": ["x", "y"], "id": ["1", None]})
    with js.publisher(resend=True) as publisher:
        with pytest.raises(errors.ConfigError, match="needs a msg_id"):
            publisher.publish_arrow(
                table, subject=f"{stream.name}.x", data="data", msg_id="id"
            )
    assert stored(stream, "data") == []


def test_an_ingest_has_no_expectation_of_an_id(
    js: jsync.JetStream, stream: jsync.Stream
) -> None:
    with js.fast_ingest() as ingest:
        with pytest.raises(errors.ConfigError, match="expected_last_msg_id"):
            ingest.publish_arrow(
                pa.table({"data": ["x"], "id": ["1"]}),
                subject=f"{stream.name}.x",
                data="data",
                expected_last_msg_id="id",
            )


def test_duckdb_results_are_published(
    stream: jsync.Stream, publish: Callable[..., int]
) -> None:
    with duckdb.connect() as db:
        found = db.sql("SELECT 'n' || range AS text FROM range(3000)")
        assert publish(found, subject=f"{stream.name}.x", data="text") == 3000
    assert stored(stream, "data")[2999] == (b"n2999",)


def test_an_empty_table_is_nothing_to_publish(
    js: jsync.JetStream, stream: jsync.Stream
) -> None:
    with js.publisher() as publisher:
        table = table_of(stream, 0)
        assert publisher.publish_arrow(table, subject="to", data="payload") == 0


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"data": "pay"}, "no column 'pay'"),
        ({"data": "number"}, "neither text nor binary"),
        ({"subject": "number"}, "neither text nor binary"),
        ({"msg_id": "ids"}, "no column 'ids'"),
        ({"headers": "to"}, "neither a map"),
        ({"data": 5}, "not the name of a column"),
        ({"data": "gap"}, "row 1 is null"),
        ({"subject": "gap"}, "row 1 is null"),
    ],
)
def test_an_invalid_table_is_rejected_before_sending(
    js: jsync.JetStream, stream: jsync.Stream, change: dict[str, Any], what: str
) -> None:
    table = table_of(stream, 3)
    table = table.append_column("number", pa.array([1, 2, 3]))
    table = table.append_column("gap", pa.array([f"{stream.name}.x", None, "z"]))
    with js.publisher() as publisher:
        with pytest.raises(errors.ConfigError, match=what):
            publisher.publish_arrow(
                table, **{"subject": "to", "data": "payload", **change}
            )
        with pytest.raises(errors.InvalidSubjectError):
            publisher.publish_arrow(table, subject="no such", data="payload")
        with pytest.raises(errors.ConfigError, match="__arrow_c_stream__"):
            publisher.publish_arrow([b"x"], subject="to", data="payload")  # type: ignore[arg-type]
    assert stored(stream, "data") == []


def test_a_used_up_arrow_stream_raises(
    js: jsync.JetStream, stream: jsync.Stream
) -> None:
    class Once:
        def __init__(self, table: pa.Table) -> None:
            self.capsule = table.__arrow_c_stream__()

        def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
            return self.capsule

    table = Once(table_of(stream, 3))
    pa.table(table)
    with js.publisher() as publisher:
        with pytest.raises(errors.ConfigError, match="read already"):
            publisher.publish_arrow(table, subject="to", data="payload")


def test_an_error_midway_reports_the_published_rows(
    js: jsync.JetStream, stream: jsync.Stream
) -> None:
    def batches() -> Iterator[pa.RecordBatch]:
        yield from table_of(stream, 1500).to_batches(max_chunksize=700)
        raise LookupError("no more of them")

    table = pa.RecordBatchReader.from_batches(table_of(stream, 0).schema, batches())
    with js.publisher() as publisher:
        with pytest.raises(OSError, match="no more of them"):
            publisher.publish_arrow(table, subject="to", data="payload")
    assert len(stored(stream, "data")) == 1500
    bad = table_of(stream, 1500).to_pydict()
    bad["to"][1200] = "a subject that is none"
    with js.publisher() as publisher:
        with pytest.raises(errors.InvalidSubjectError) as caught:
            publisher.publish_arrow(pa.table(bad), subject="to", data="payload")
    assert caught.value.published == 1000  # type: ignore[attr-defined]
    bad["to"][1200] = None
    with js.publisher() as publisher:
        with pytest.raises(errors.ConfigError, match="row 1200 is null") as refused:
            publisher.publish_arrow(pa.table(bad), subject="to", data="payload")
    assert refused.value.published == 1000  # type: ignore[attr-defined]
