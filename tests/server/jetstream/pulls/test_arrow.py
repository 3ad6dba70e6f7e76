"""Tests of messages as columns from a real server, which must equal the messages as objects."""

from __future__ import annotations

import gc
import signal
import threading
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import duckdb
import polars
import pyarrow as pa
import pytest

import jsync
from jsync import errors
from jsync._fast import RowBuffer

from ....support.arrow_messages import Reader, Row, Sent, row_of, rows
from ....support.connection_faults import resident_bytes
from ....support.processes import run_child
from ....support.servers import wait_for
from ....support.threads import LONG, SOON, Thread
from .support import QUICK, Pulls, fill, settled

if TYPE_CHECKING:
    from collections.abc import Iterable

    from jsync.server import LocalServer

    from ....support.connection_faults import Events
    from ....support.proxy import FaultProxy

pytestmark = pytest.mark.server


def sequences(batches: Iterable[object]) -> list[int]:
    return [row["sequence"] for row in rows(*batches)]


def store(nc: jsync.Connection, stream: jsync.Stream) -> list[Row]:
    """Store messages of several kinds, delete some, and return the rows of the others."""
    for number in range(40):
        headers: Any = None
        if number % 3 == 0:
            headers = {"Kind": ["a", "b"], "Number": str(number), "Größe"[:2]: "é"}
        nc.publish(
            f"{stream.name}.{number % 4}.é", b"%d" % number * number, headers=headers
        )
    nc.flush()
    wait_for(lambda: stream.info().state.messages == 40)
    for sequence in (1, 7, 8, 40):
        stream.delete_message(sequence)
    reader = stream.create_consumer(ack_policy="none")
    expected = [row_of(msg) for msg in reader.fetch(36, timeout=SOON)]
    assert len(expected) == 36
    return expected


# Fetching -----------------------------------------------------------------------------


def test_columns_of_a_fetch_equal_its_messages(
    nc: jsync.Connection, stream: jsync.Stream, worker: jsync.Consumer
) -> None:
    expected = store(nc, stream)
    batch = worker.fetch(36, timeout=SOON).to_arrow()
    assert rows(batch) == expected
    assert batch.last_sequence == 39
    batch.ack()
    nc.flush()
    wait_for(lambda: settled(worker))


def test_a_fetch_ends_with_the_available_messages(
    nc: jsync.Connection, stream: jsync.Stream, worker: jsync.Consumer
) -> None:
    fill(nc, stream, 3)
    batch = worker.fetch_nowait(10).to_arrow(["sequence"])
    assert rows(batch) == [{"sequence": number} for number in (1, 2, 3)]
    assert len(worker.fetch(10, timeout=0.1).to_arrow()) == 0


def test_messages_that_were_read_before_are_no_rows(
    nc: jsync.Connection, stream: jsync.Stream, worker: jsync.Consumer
) -> None:
    fill(nc, stream, 5)
    batch = worker.fetch(5, timeout=SOON)
    assert next(iter(batch)).metadata.stream_sequence == 1
    assert sequences([batch.to_arrow()]) == [2, 3, 4, 5]
    with pytest.raises(errors.ConcurrentUseError):
        batch.to_arrow()


def test_a_consumer_that_is_deleted_ends_a_fetch(
    nc: jsync.Connection, stream: jsync.Stream, worker: jsync.Consumer
) -> None:
    fill(nc, stream, 2)
    batch = worker.fetch(5, timeout=LONG)
    waiting = Thread(batch.to_arrow)
    wait_for(lambda: worker.info().num_ack_pending == 2)
    worker.delete()
    # The received messages are not lost, and the batch has the error.
    assert len(waiting.result()) == 2
    assert isinstance(batch.error, errors.ConsumerDeletedError)
    with pytest.raises(errors.NoRespondersError):
        worker.fetch(5, timeout=SOON).to_arrow()


def test_a_silent_server_ends_a_fetch(
    far_worker: jsync.Consumer, proxy: FaultProxy
) -> None:
    proxy.deaf("server")
    with pytest.raises(errors.PullError, match="heartbeat"):
        far_worker.fetch(5, timeout=LONG, idle_heartbeat=0.5).to_arrow()
    proxy.hear()


def test_refusing_unknown_columns_loses_no_message(
    nc: jsync.Connection, stream: jsync.Stream, worker: jsync.Consumer
) -> None:
    fill(nc, stream, 2)
    batch = worker.fetch(2, timeout=SOON)
    with pytest.raises(errors.ConfigError):
        batch.to_arrow(["payload"])
    assert len(list(batch)) == 2
    with pytest.raises(errors.ConfigError):
        worker.arrow_batches(columns=["payload"])
    with pytest.raises(errors.ConfigError):
        stream.read_arrow(columns=["payload"])


def test_ctrl_c_ends_a_fetch_returning_received_messages(
    nc: jsync.Connection, stream: jsync.Stream, worker: jsync.Consumer
) -> None:
    fill(nc, stream, 3)
    main = threading.main_thread().ident
    assert main is not None

    reading = threading.Event()

    def interrupt() -> None:
        # Wait until the test is inside the block that expects the interrupt.
        reading.wait()
        wait_for(lambda: worker.info().num_ack_pending == 3)
        signal.pthread_kill(main, signal.SIGINT)

    interrupter = threading.Thread(target=interrupt)
    with worker.fetch(10, timeout=LONG) as batch:
        interrupter.start()

        def read() -> None:
            reading.set()
            batch.to_arrow()

        with pytest.raises(KeyboardInterrupt):
            read()
    interrupter.join(SOON)
    again = worker.fetch(3, timeout=SOON).to_arrow(["sequence"])
    assert sorted(sequences([again])) == [1, 2, 3]


# Without end --------------------------------------------------------------------------


def test_batches_are_full_until_the_end(
    nc: jsync.Connection, stream: jsync.Stream, worker: jsync.Consumer
) -> None:
    expected = store(nc, stream)
    found = []
    with worker.arrow_batches(
        max_rows=10, max_wait=LONG * 10, stop_after=36
    ) as batches:
        for batch in batches:
            found.append(batch)
            batch.ack()
    assert [len(batch) for batch in found] == [10, 10, 10, 6]
    assert rows(*found) == expected
    wait_for(lambda: settled(worker))


def test_a_partial_batch_is_delivered_after_a_while(
    nc: jsync.Connection, stream: jsync.Stream, worker: jsync.Consumer
) -> None:
    fill(nc, stream, 3)
    seen: list[int] = []
    with worker.arrow_batches(columns=["sequence"], max_wait=0.01) as batches:
        while len(seen) < 3:
            seen += sequences([batches.next(SOON)])
    assert seen == [1, 2, 3]


def test_batches_end_after_the_idle_timeout(
    nc: jsync.Connection, stream: jsync.Stream, worker: jsync.Consumer
) -> None:
    with worker.arrow_batches(idle_timeout=0.05) as batches:
        assert list(batches) == []


def test_no_batch_exceeds_the_servers_unacknowledged_limit(
    nc: jsync.Connection, stream: jsync.Stream
) -> None:
    fill(nc, stream, 12)
    narrow = stream.create_consumer(durable_name="narrow", max_ack_pending=4)
    # A wait for more than four messages would last until the end of this test.
    with narrow.arrow_batches(max_wait=LONG * 10, stop_after=12) as batches:
        found = []
        for batch in batches:
            found.append(len(batch))
            batch.ack()
    assert found == [4, 4, 4]


def test_small_pulls_fill_their_half_and_continue(
    nc: jsync.Connection, stream: jsync.Stream, worker: jsync.Consumer
) -> None:
    fill(nc, stream, 100)
    with worker.arrow_batches(
        columns=["sequence"], max_messages=10, max_wait=LONG * 10, stop_after=100
    ) as batches:
        found = list(batches)
    assert sequences(found) == list(range(1, 101))
    assert all(5 <= len(batch) <= 10 for batch in found)


def test_one_ack_stands_for_all_before_it(
    nc: jsync.Connection, stream: jsync.Stream
) -> None:
    fill(nc, stream, 30)
    worker = stream.create_consumer(durable_name="all", ack_policy="all")
    with worker.arrow_batches(max_rows=10, max_wait=LONG * 10) as batches:
        first, second, third = (batches.next(SOON) for _ in range(3))
        second.ack()
        nc.flush()
        wait_for(lambda: worker.info().ack_floor.stream_seq == 20)
        assert worker.info().num_ack_pending == 10
        first.ack()  # already below the ack floor
        third.ack()
        wait_for(lambda: worker.info().ack_floor.stream_seq == 30)


def test_ack_all_mistakes_no_redelivery_for_the_last(
    nc: jsync.Connection, stream: jsync.Stream
) -> None:
    fill(nc, stream, 6)
    worker = stream.create_consumer(durable_name="all", ack_policy="all", ack_wait=60)
    early = list(worker.fetch(3, timeout=SOON))
    early[1].nak()
    nc.flush()

    def delivered(batch: jsync.ArrowBatch) -> list[int]:
        return sequences([batch])

    batch = worker.fetch(4, timeout=SOON).to_arrow(["sequence"])
    assert sorted(delivered(batch)) == [2, 4, 5, 6]
    batch.ack()
    wait_for(lambda: settled(worker))
    assert worker.info().ack_floor.stream_seq == 6


def test_rows_not_handed_over_are_given_back(
    nc: jsync.Connection, stream: jsync.Stream, worker: jsync.Consumer
) -> None:
    fill(nc, stream, 30)
    with worker.arrow_batches(max_rows=10, max_wait=LONG * 10) as batches:
        batches.next(SOON).ack()
        wait_for(lambda: batches.pending == 20)
    assert batches.closed
    assert batches.stop() == []
    again = worker.fetch(20, timeout=SOON).to_arrow(["sequence"])
    assert sorted(sequences([again])) == list(range(11, 31))


def test_without_acks_it_is_returned(
    nc: jsync.Connection, stream: jsync.Stream
) -> None:
    fill(nc, stream, 30)
    reader = stream.create_consumer(durable_name="reader", ack_policy="none")
    with reader.arrow_batches(
        columns=["sequence"], max_rows=10, max_wait=LONG * 10
    ) as batches:
        first = batches.next(SOON)
        wait_for(lambda: batches.pending == 20)
    assert sequences([first, *batches.stop()]) == list(range(1, 31))
    assert batches.stop() == []


def test_a_drain_hands_over_the_received_messages(
    nc: jsync.Connection, stream: jsync.Stream, worker: jsync.Consumer
) -> None:
    fill(nc, stream, 30)
    batches = worker.arrow_batches(columns=["sequence"], max_rows=20)
    wait_for(lambda: batches.pending == 30)
    batches.drain()
    assert sequences(batches) == list(range(1, 31))
    with pytest.raises(errors.SubscriptionClosedError):
        batches.next(SOON)


def test_nothing_to_read_is_a_timeout(worker: jsync.Consumer) -> None:
    with worker.arrow_batches() as batches:
        with pytest.raises(errors.TimeoutError):
            batches.next(0.05)


def test_batches_are_for_one_thread(worker: jsync.Consumer) -> None:
    with worker.arrow_batches() as batches:
        waiting = Thread(lambda: next(batches))
        waiting.wait_until_blocked()
        with pytest.raises(errors.ConcurrentUseError):
            batches.next(SOON)
    assert isinstance(waiting.error(), StopIteration)


def test_a_deleted_consumer_ends_iteration_after_received_messages(
    nc: jsync.Connection, stream: jsync.Stream, worker: jsync.Consumer
) -> None:
    fill(nc, stream, 3)
    found: list[jsync.ArrowBatch] = []
    batches = worker.arrow_batches(columns=["sequence"], max_wait=LONG * 10)
    wait_for(lambda: batches.pending == 3)
    worker.delete()
    with pytest.raises(errors.ConsumerDeletedError):
        found.extend(batches)
    assert [len(batch) for batch in found] == [3]


def test_a_reconnect_loses_nothing(
    nc: jsync.Connection,
    stream: jsync.Stream,
    far_worker: jsync.Consumer,
    proxy: FaultProxy,
    events: Events,
) -> None:
    fill(nc, stream, 20)
    seen: set[int] = set()
    with far_worker.arrow_batches(
        columns=["sequence"], max_rows=10, max_wait=LONG * 10, **QUICK
    ) as batches:
        for batch in batches:
            seen.update(sequences([batch]))
            if len(seen) == 10:
                proxy.cut()
                events.wait("reconnect")
            batch.ack()
            if len(seen) == 20:
                break
    assert seen == set(range(1, 21))


def test_closing_the_connection_ends_it(
    server: LocalServer, stream: jsync.Stream, worker: jsync.Consumer
) -> None:
    nc = jsync.connect(server.url)
    batches = nc.jetstream().stream(stream.name).consumer("worker").arrow_batches()
    waiting = Thread(lambda: next(batches))
    waiting.wait_until_blocked()
    nc.close()
    assert isinstance(waiting.error(), errors.ConnectionClosedError)


# A range of a stream ------------------------------------------------------------------


@pytest.mark.parametrize(
    "sizes",
    [
        pytest.param([400_000, 700_000, 10], id="does not fit beside the buffer"),
        pytest.param([10, 900_000, 10], id="larger than max_bytes"),
        pytest.param([900_000, 10, 900_000], id="at both ends"),
    ],
)
def test_read_arrow_stops_at_no_large_message(
    js: jsync.JetStream, stream: jsync.Stream, sizes: list[int]
) -> None:
    for size in sizes:
        js.publish(f"{stream.name}.a", bytes(size))
    most = 1_000_000 if sizes[0] == 400_000 else 500_000
    reading = Thread(lambda: sequences(stream.read_arrow(max_bytes=most)))
    assert reading.result() == [1, 2, 3]


def test_columns_of_a_stream_equal_its_messages(
    nc: jsync.Connection, stream: jsync.Stream
) -> None:
    expected = store(nc, stream)
    everything = stream.read_arrow()
    assert rows(everything) == expected
    assert rows(*everything) == expected
    part = stream.read_arrow(5, 20, max_rows=3)
    assert rows(part) == [row for row in expected if 5 <= row["sequence"] <= 20]
    assert [len(batch) for batch in part][:2] == [3, 3]


def test_a_range_holds_the_messages_at_call_time(
    nc: jsync.Connection, stream: jsync.Stream
) -> None:
    fill(nc, stream, 5)
    whole, tail = stream.read_arrow(), stream.read_arrow(4, 100)
    fill(nc, stream, 5)
    stream.delete_message(5)
    assert sequences(whole) == [1, 2, 3, 4]
    assert sequences(tail) == [4]
    assert sequences(stream.read_arrow(11)) == []
    assert sequences(stream.read_arrow(3, 2)) == []
    with pytest.raises(errors.ConfigError):
        stream.read_arrow(0)


def test_a_range_starts_at_a_time(nc: jsync.Connection, stream: jsync.Stream) -> None:
    js = nc.jetstream()
    for _ in range(5):
        js.publish(f"{stream.name}.a")
    third = stream.get_message(3).timestamp
    assert sequences(stream.read_arrow(start_time=third)) == [3, 4, 5]
    late = third + timedelta(days=1)
    assert sequences(stream.read_arrow(start_time=late)) == []
    with pytest.raises(errors.ConfigError, match="start and start_time"):
        stream.read_arrow(1, start_time=third)


def test_a_range_may_be_of_some_subjects(
    nc: jsync.Connection, stream: jsync.Stream
) -> None:
    expected = store(nc, stream)
    subjects = {f"{stream.name}.1.é", f"{stream.name}.3.é"}
    part = stream.read_arrow(columns=["data"], filter_subjects=subjects)
    assert rows(part) == [
        {"data": row["data"]} for row in expected if row["subject"] in subjects
    ]


def test_a_range_may_be_of_headers_without_payloads(
    nc: jsync.Connection, stream: jsync.Stream
) -> None:
    expected = store(nc, stream)
    found = rows(stream.read_arrow(columns=["data", "headers"], headers_only=True))
    assert len(found) == len(expected)
    for row, whole in zip(found, expected, strict=True):
        size = {"Nats-Msg-Size": [str(len(whole["data"]))]}
        assert row["data"] == b""
        assert dict(row["headers"]) == dict(whole["headers"] or {}) | size


def test_polars_and_duckdb_can_read_a_stream_repeatedly(
    nc: jsync.Connection, stream: jsync.Stream
) -> None:
    fill(nc, stream, 100)
    orders = stream.read_arrow(11, max_rows=7)
    with duckdb.connect() as db:
        db.register("orders", orders)
        for _ in range(2):
            found = db.sql("SELECT count(*), min(sequence), max(sequence) FROM orders")
            assert found.fetchall() == [(90, 11, 100)]
    assert polars.DataFrame(orders)["sequence"].to_list() == list(range(11, 101))
    wait_for(lambda: list(stream.consumer_names()) == [])


def test_leaving_a_read_early_gives_its_consumer_back(
    nc: jsync.Connection, stream: jsync.Stream
) -> None:
    fill(nc, stream, 50)
    reader = pa.RecordBatchReader.from_stream(
        stream.read_arrow(max_rows=10, max_bytes=2000, inactive_threshold=7)
    )
    assert reader.read_next_batch().num_rows == 10
    (consumer,) = stream.consumers()
    assert consumer.cached_info.config.inactive_threshold == 7
    reader.close()
    del reader
    wait_for(lambda: list(stream.consumer_names()) == [])
    with iter(stream.read_arrow(max_rows=10, max_bytes=2000)) as reading:
        assert len(next(reading)) == 10
    assert list(reading) == []
    wait_for(lambda: list(stream.consumer_names()) == [])


def test_reads_continue_in_order_after_a_lost_connection(
    nc: jsync.Connection,
    stream: jsync.Stream,
    far: jsync.Connection,
    proxy: FaultProxy,
    pulls: Pulls,
) -> None:
    fill(nc, stream, 2000)
    proxy.cut_after(40_000, "client")
    found = far.jetstream().stream(stream.name).read_arrow(columns=["sequence"])
    assert sequences(found) == list(range(1, 2001))
    assert proxy.connections > 1


def test_a_deleted_stream_raises_in_the_reader(
    nc: jsync.Connection, stream: jsync.Stream
) -> None:
    fill(nc, stream, 5)
    orders = stream.read_arrow()
    stream.delete()
    with pytest.raises(errors.StreamNotFoundError):
        list(orders)
    with pytest.raises(OSError, match="StreamNotFoundError"):
        pa.table(orders)


def test_memory_is_given_back() -> None:
    block = b"NATS/1.0\r\nA: 1\r\n\r\n"
    wire = b"".join(
        Sent(sequence=n, data=b"d" * 1000, block=block).wire for n in range(1, 1001)
    )

    def cycle() -> None:
        reader = Reader(RowBuffer(acks=True))
        reader.bring(wire)
        (batch,) = reader.batches()
        assert pa.table(batch).num_rows == pa.record_batch(batch).num_rows == 1000
        reader.bring(wire)  # these messages are never read
        del reader, batch
        gc.collect()

    # What earlier tests have imported need not be looked at in each cycle.
    gc.freeze()
    for _ in range(10):
        cycle()
    before = resident_bytes()
    for _ in range(60):
        cycle()
    assert resident_bytes() - before < 40 << 20  # 150 MB in total


# The process --------------------------------------------------------------------------

INTERRUPTED = """
    import signal, sys, threading, time
    import jsync, pyarrow as pa

    nc = jsync.connect(sys.argv[1])
    consumer = nc.jetstream().consumer(*sys.argv[2:4])
    class Endless:
        def __arrow_c_stream__(self, requested_schema=None):
            from jsync._fast import RowBuffer, arrow_stream
            return arrow_stream(RowBuffer(["data"]), batches)
    with consumer.arrow_batches(columns=["data"]) as batches:
        reader = pa.RecordBatchReader.from_stream(Endless())
        main = threading.main_thread().ident
        reading = threading.Event()
        def interrupt():
            reading.wait()
            time.sleep(0.3)
            signal.pthread_kill(main, signal.SIGINT)
        threading.Thread(target=interrupt).start()
        try:
            reading.set()
            reader.read_all()
        except (KeyboardInterrupt, OSError) as error:
            try:
                time.sleep(0)
            except KeyboardInterrupt:
                pass
            print("interrupted")
    nc.close()
"""

FORKED = """
    import os, sys, warnings
    import jsync, pyarrow as pa
    from jsync import errors
    warnings.simplefilter("ignore", DeprecationWarning)
    nc = jsync.connect(sys.argv[1])
    stream = nc.jetstream().stream(sys.argv[2])
    consumer = stream.consumer(sys.argv[3])
    reading = iter(stream.read_arrow(max_rows=2))
    batch = next(reading)
    fetched = consumer.fetch(2, timeout=10).to_arrow()
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            assert pa.record_batch(batch).num_rows == 2
            for call in (lambda: next(reading), fetched.ack):
                try:
                    call()
                except errors.ForkedProcessError:
                    status += 1
            del batch
        finally:
            os._exit(status)
    print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
    assert len(list(reading)) == 2
    fetched.ack()
    nc.close()
"""

LEFT_OPEN = """
    import sys
    import jsync, pyarrow as pa
    nc = jsync.connect(sys.argv[1])
    reader = pa.RecordBatchReader.from_stream(
        nc.jetstream().stream(sys.argv[2]).read_arrow(max_rows=2)
    )
    batch = reader.read_next_batch()
    sys.modules["kept"] = (reader, batch)
    print("left open")
"""


def test_ctrl_c_ends_reads_inside_an_arrow_library(
    server: LocalServer, stream: jsync.Stream, worker: jsync.Consumer
) -> None:
    assert "interrupted" in run_child(INTERRUPTED, server.url, stream.name, "worker")


def test_a_forked_child_has_rows_but_no_connection(
    server: LocalServer,
    nc: jsync.Connection,
    stream: jsync.Stream,
    worker: jsync.Consumer,
) -> None:
    fill(nc, stream, 5)
    assert run_child(FORKED, server.url, stream.name, "worker").split() == ["3"]


def test_an_interpreter_ends_with_a_stream_left_open(
    server: LocalServer, nc: jsync.Connection, stream: jsync.Stream
) -> None:
    fill(nc, stream, 10)
    assert "left open" in run_child(LEFT_OPEN, server.url, stream.name)
