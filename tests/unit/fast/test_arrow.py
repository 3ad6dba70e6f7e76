"""Tests of messages as columns, and of their use by libraries that read Arrow."""

from __future__ import annotations

import gc
import threading
from typing import Any

import duckdb
import polars
import pyarrow as pa
import pytest
from hypothesis import example, given, strategies as st

from jsync._fast import ArrowBatch, Event, RowBuffer, SequenceChecker
from jsync.errors import ConcurrentUseError, ConfigError

from ...support.arrow_messages import Reader, Sent, row_of, rows

SCHEMA = pa.schema(
    [
        pa.field("subject", pa.utf8(), nullable=False),
        pa.field("data", pa.binary(), nullable=False),
        pa.field("sequence", pa.uint64(), nullable=False),
        pa.field("timestamp", pa.timestamp("ns", "UTC"), nullable=False),
        pa.field(
            "headers",
            pa.map_(
                pa.utf8(),
                pa.field(
                    "value",
                    pa.list_(pa.field("item", pa.utf8(), nullable=False)),
                    nullable=False,
                ),
            ),
        ),
    ]
)

blocks = st.sampled_from(
    [
        *(b"", b"", b"NATS/1.0\r\n\r\n", b"NATS/1.0\r\nA: 1\r\n\r\n"),
        b"NATS/1.0\r\nA: 1\r\nB:2\r\nA:  3 \r\na: \xff\r\n\r\n",
        *(b"NATS/1.0 503\r\nX: \xc3\xa9\r\n\r\n", b"no header block\r\n\r\n"),
        b"NATS/1.0\r\n" + b"".join(b"N%d: %d\r\n" % (i % 70, i) for i in range(90)),
        b"NATS/1.0\r\nno colon\r\n: no name\r\nK:\r\n\r\nbehind: it\r\n",
    ]
)
sent = st.builds(
    Sent,
    subject=st.sampled_from([b"s.a", b"s." + b"t" * 120, b"s.\xc3\xa9", b"s.\xff.b"]),
    data=st.binary(max_size=40) | st.just(b"d" * 3000),
    block=blocks,
    sequence=st.integers(1, (1 << 64) - 1),
    timestamp=st.integers(0, (1 << 63) - 1),
    delivered=st.integers(1, 3),
    consumer_sequence=st.integers(1, 1 << 40),
    pending=st.integers(0, 1 << 40),
)


def read(messages: list[Sent], columns: RowBuffer | None = None) -> list[ArrowBatch]:
    reader = Reader(columns or RowBuffer())
    reader.bring(b"".join(message.wire for message in messages))
    return reader.batches()


def one(*messages: Sent, **options: Any) -> ArrowBatch:
    (batch,) = read(list(messages), RowBuffer(**options))
    return batch


# The same as by objects ---------------------------------------------------------------


@given(
    st.lists(sent, max_size=30),
    st.lists(st.integers(1, 400), min_size=1, max_size=20),
    st.integers(0, 7),
    st.sampled_from([64, 1000, 1 << 20]),
)
@example([Sent()], [1], 0, 64)
def test_columns_have_the_fields_of_messages(
    messages: list[Sent], cuts: list[int], max_rows: int, limit: int
) -> None:
    stream = b"".join(message.wire for message in messages)
    objects = Reader()
    objects.bring(stream)
    expected = [row_of(msg) for msg in objects.messages()]
    # Read in pieces: some messages are complete in one read, others are not.
    reader = Reader(RowBuffer(max_rows=max_rows, limit=limit))
    at = turn = 0
    while at < len(stream):
        cut = cuts[turn % len(cuts)]
        reader.bring(stream[at : at + cut])
        at, turn = at + cut, turn + 1
    size = reader.mailbox.bytes
    batches = reader.batches()
    assert rows(*batches) == expected
    assert sum(batch.size for batch in batches) == size
    assert (len(reader.mailbox), reader.mailbox.bytes) == (0, 0)
    if max_rows:
        assert all(len(batch) <= max_rows for batch in batches)


@given(st.lists(sent, min_size=1, max_size=12), st.integers(0, 12))
def test_messages_that_arrived_before_become_rows(
    messages: list[Sent], before: int
) -> None:
    reader = Reader()
    reader.bring(b"".join(message.wire for message in messages[:before]))
    reader.mailbox.use_columns(RowBuffer())
    reader.bring(b"".join(message.wire for message in messages[before:]))
    assert len(reader.mailbox) == len(messages)
    found = rows(*reader.batches())
    assert [row["sequence"] for row in found] == [one.sequence for one in messages]


@pytest.mark.parametrize("end", [b"\n\n", b"\r\r", b"xx"])
def test_a_row_ends_like_a_message(end: bytes) -> None:
    wire = Sent(data=b"hi").wire
    assert wire.endswith(b"hi\r\n")
    reader = Reader(RowBuffer())
    reader.bring(wire[:-2] + end)
    assert reader.events == [Event.BROKEN]
    assert len(reader.mailbox) == 0


def test_the_order_of_a_consumer_is_kept() -> None:
    order = SequenceChecker(2, last=5)
    reader = Reader(RowBuffer(["sequence"]), order)
    for number, sequence in enumerate([1, 2, 3, 5, 6], 1):
        reader.bring(Sent(sequence=sequence, consumer_sequence=number, pending=9).wire)
    assert rows(*reader.batches()) == [{"sequence": 3}, {"sequence": 5}]
    assert order.stopped == "last"
    assert reader.events == ["ORDER"]
    assert order.take_passed_over()[0] == 2


def test_a_gap_stops_it() -> None:
    order = SequenceChecker(0)
    reader = Reader(RowBuffer(["sequence"]), order)
    for number in (1, 3, 2):
        reader.bring(Sent(sequence=number, pending=9).wire)
    assert rows(*reader.batches()) == [{"sequence": 1}]
    assert order.stopped == "gap"


def test_statuses_are_no_rows() -> None:
    reader = Reader(RowBuffer())
    reader.bring(b"HMSG s.a 7 28 28\r\nNATS/1.0 404 No Messages\r\n\r\n\r\n")
    assert reader.events == ["STATUS"]
    assert len(reader.mailbox) == 0


def test_columns_end_after_the_requested_number_of_messages() -> None:
    reader = Reader(RowBuffer())
    reader.mailbox.end_after(2)
    reader.bring(*(Sent(sequence=number).wire for number in (1, 2, 3)))
    assert reader.mailbox.closed
    assert reader.events == ["ENDED"]
    assert [row["sequence"] for row in rows(*reader.batches())] == [1, 2]


def test_rows_are_not_read_again_as_messages() -> None:
    reader = Reader(RowBuffer())
    reader.bring(Sent().wire)
    with pytest.raises(ConcurrentUseError):
        reader.mailbox.get(0)
    with pytest.raises(ConcurrentUseError):
        reader.mailbox.use_columns(RowBuffer())
    assert len(reader.batches()) == 1


# The schema ---------------------------------------------------------------------------


def test_the_schema_is_as_documented() -> None:
    batch = one(Sent())
    assert pa.schema(batch) == SCHEMA
    assert pa.record_batch(batch).schema == SCHEMA
    assert pa.table(batch).schema == SCHEMA
    assert batch.columns == tuple(SCHEMA.names)


def test_columns_come_in_the_order_they_are_named() -> None:
    batch = one(Sent(data=b"d", sequence=9), columns=["sequence", "data"])
    assert pa.record_batch(batch).schema.names == ["sequence", "data"]
    assert rows(batch) == [{"sequence": 9, "data": b"d"}]
    assert batch.last_sequence == 9


@pytest.mark.parametrize(
    "columns", [[], ["subject", "time"], ["data", "data"], ["Subject"]], ids=str
)
def test_columns_that_there_are_not_are_refused(columns: list[str]) -> None:
    with pytest.raises(ConfigError, match="columns"):
        RowBuffer(columns)


def test_an_empty_batch_has_its_schema() -> None:
    batch = Reader(RowBuffer()).mailbox.take_rows()
    assert len(batch) == 0
    assert batch.last_sequence is None
    assert pa.record_batch(batch).schema == SCHEMA
    assert rows(batch) == []
    assert polars.DataFrame(batch).height == 0


def test_no_batch_is_made_by_hand() -> None:
    with pytest.raises(TypeError):
        ArrowBatch()


# Other libraries ----------------------------------------------------------------------


def test_polars_reads_a_batch() -> None:
    batch = one(
        Sent(block=b"NATS/1.0\r\nA: 1\r\nA: 2\r\n\r\n"), Sent(sequence=2, data=b"\xff")
    )
    frame = polars.DataFrame(batch)
    assert frame["data"].to_list() == [b"x", b"\xff"]
    assert frame["sequence"].to_list() == [1, 2]
    assert frame["headers"].null_count() == 1
    assert frame.schema["timestamp"] == polars.Datetime("ns", "UTC")


def test_duckdb_takes_it_as_often_as_it_asks() -> None:
    batch = one(
        Sent(block=b"NATS/1.0\r\nA: 1\r\nA: 2\r\n\r\n"), Sent(sequence=2, data=b"\xff")
    )
    for _ in range(2):
        found = (
            duckdb.connect()
            .register("batch", batch)
            .sql("SELECT sequence, data, headers['A'], epoch_ns(timestamp) FROM batch")
            .fetchall()
        )
        assert found == [
            (1, b"x", ["1", "2"], Sent.timestamp),
            (2, b"\xff", None, Sent.timestamp),
        ]


def test_pyarrow_uses_the_memory_holding_the_messages() -> None:
    batch = one(*(Sent(sequence=n, data=b"d" * 1000) for n in range(1, 50)))
    addresses = [pa.record_batch(batch)["data"].buffers()[2].address for _ in range(2)]
    assert addresses[0] == addresses[1]
    assert pa.table(batch)["data"].chunk(0).buffers()[2].address == addresses[0]


def test_several_chunks_are_a_stream_and_no_array() -> None:
    reader = Reader(RowBuffer(limit=1000))
    reader.bring(*(Sent(sequence=n, data=b"d" * 300).wire for n in range(1, 11)))
    batch = reader.mailbox.take_rows(whole=True)
    assert len(batch) == 10
    table = pa.table(batch)
    assert table["data"].num_chunks == 4
    assert table["sequence"].to_pylist() == list(range(1, 11))
    with pytest.raises(AttributeError, match="stream"):
        batch.__arrow_c_array__()
    assert polars.DataFrame(batch).height == 10


# Lifetimes ----------------------------------------------------------------------------


def test_exported_columns_outlive_the_batch() -> None:
    batch = one(Sent(data=b"d" * 500, block=b"NATS/1.0\r\nA: 1\r\n\r\n"))
    column = pa.record_batch(batch)["headers"]
    data = pa.table(batch)["data"]
    stream = pa.RecordBatchReader.from_stream(batch)
    del batch
    gc.collect()
    assert column.to_pylist() == [[("A", ["1"])]]
    assert data.to_pylist() == [b"d" * 500]
    assert stream.read_all()["sequence"].to_pylist() == [1]


def test_unused_capsules_are_released() -> None:
    batch = one(Sent())
    batch.__arrow_c_schema__()
    batch.__arrow_c_array__()
    batch.__arrow_c_stream__()
    del batch
    gc.collect()


def test_any_thread_may_let_go() -> None:
    frame_of = polars.DataFrame
    messages = [Sent(sequence=n, data=b"d" * 100) for n in range(1, 200)]
    tables = [pa.table(one(*messages)) for _ in range(40)]

    def drop() -> None:
        while True:
            try:
                table = tables.pop()
            except IndexError:
                return
            # Without the GIL, worker threads of polars hold and drop the table, too.
            frame = frame_of(table)
            del table
            assert frame.lazy().select(polars.col("sequence").sum()).collect().item()

    threads = [threading.Thread(target=drop) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert not tables


# Acks ---------------------------------------------------------------------------------


def acked(batch: ArrowBatch, reader: Reader, data: bytes = b"+ACK") -> list[bytes]:
    """Return the reply subjects to which `data` was written, in order."""
    reader.write_buffer.set_max_payload(1 << 20)
    written = reader.write_buffer.take(1 << 20)
    found = []
    while written:
        head, _, rest = written.partition(b"\r\n")
        _, subject, size = head.split(b" ")
        assert rest[: int(size)] == data
        found.append(subject)
        written = rest[int(size) + 2 :]
    return found


def ackable(together: bool, *messages: Sent) -> tuple[ArrowBatch, Reader]:
    reader = Reader(RowBuffer(["data"], acks=True, together=together))
    reader.bring(*(message.wire for message in messages))
    (batch,) = reader.batches()
    reader.write_buffer.open(-1, b"", direct=False)
    return batch, reader


def test_each_message_is_acknowledged_once() -> None:
    messages = [Sent(sequence=number) for number in (5, 6, 9)]
    batch, reader = ackable(False, *messages)
    states = [batch.is_acked]
    batch.ack()
    assert acked(batch, reader) == [message.reply for message in messages]
    states.append(batch.is_acked)
    assert states == [False, True]
    batch.ack()
    batch.nak()
    assert acked(batch, reader) == []


def test_all_are_acknowledged_at_the_highest_sequence() -> None:
    messages = [
        Sent(sequence=sequence, delivered=delivered, consumer_sequence=number)
        for number, (sequence, delivered) in enumerate(
            [(5, 1), (6, 1), (3, 2), (4, 2)], 1
        )
    ]
    batch, reader = ackable(True, *messages)
    batch.ack()
    assert acked(batch, reader) == [messages[1].reply]


def test_other_answers_go_to_each() -> None:
    messages = [Sent(sequence=number) for number in (1, 2)]
    replies = [message.reply for message in messages]
    for together in (False, True):
        batch, reader = ackable(together, *messages)
        batch.in_progress()
        assert acked(batch, reader, b"+WPI") == replies
        batch.nak(1.5)
        assert acked(batch, reader, b'-NAK {"delay": 1500000000}') == replies
        batch.term("why")
        assert acked(batch, reader) == []
    batch, reader = ackable(False, *messages)
    batch.term("why")
    assert acked(batch, reader, b"+TERM why") == replies


def test_without_acks_nothing_is_written() -> None:
    reader = Reader(RowBuffer())
    reader.bring(Sent().wire)
    (batch,) = reader.batches()
    reader.write_buffer.open(-1, b"", direct=False)
    batch.ack()
    assert acked(batch, reader) == []
    assert not batch.is_acked


def test_unread_rows_can_be_returned() -> None:
    reader = Reader(RowBuffer(acks=True, max_rows=2))
    reader.bring(*(Sent(sequence=number).wire for number in (1, 2, 3)))
    reader.write_buffer.open(-1, b"", direct=False)
    rest = reader.mailbox.take_rest()
    for batch in rest:
        batch.nak()  # type: ignore[attr-defined]
    assert len(acked(rest[0], reader, b"-NAK")) == 3  # type: ignore[arg-type]
    assert reader.mailbox.take_rest() == []
