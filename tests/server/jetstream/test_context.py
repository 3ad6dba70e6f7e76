"""Tests of streams, publishing with an ack, durable consumers, fetch and ack."""

from __future__ import annotations

import threading
from time import monotonic
from typing import TYPE_CHECKING, Any

import pytest

import jsync
from jsync import errors

from ...support.servers import monitor, wait_for

if TYPE_CHECKING:
    from jsync.server import LocalServer

    from ...conftest import StartServer
    from ...support.proxy import FaultProxy

pytestmark = [pytest.mark.server, pytest.mark.quick]


@pytest.fixture
def worker(stream: jsync.Stream) -> jsync.Consumer:
    return stream.create_consumer(durable_name="worker", ack_wait=30)


def fill(js: jsync.JetStream, stream: jsync.Stream, count: int, size: int = 4) -> None:
    for i in range(count):
        js.publish(f"{stream.name}.{i}", b"%0*d" % (size, i))


def numbers(batch: jsync.Batch) -> list[int]:
    return [int(msg.data) for msg in batch]


# Streams and publishing ---------------------------------------------------------------


def test_keywords_or_a_config_create_a_stream(js: jsync.JetStream, unique: str) -> None:
    config = jsync.StreamConfig(name=unique, subjects=[unique], max_age=60)
    stream = js.create_stream(config)
    assert stream.name == unique
    assert stream.config.max_age == 60
    again = js.create_stream(name=unique, subjects=[unique], max_age=60)
    assert again.info().state.messages == 0
    with pytest.raises(errors.StreamNameInUseError):
        js.create_stream(name=unique, subjects=[unique, f"{unique}.more"])
    js.delete_stream(unique)
    with pytest.raises(errors.StreamNotFoundError) as raised:
        js.stream(unique)
    assert raised.value.err_code == 10059
    assert raised.value.code == 404


def test_a_publish_returns_where_the_message_was_stored(
    js: jsync.JetStream, stream: jsync.Stream
) -> None:
    ack = js.publish(f"{stream.name}.a", b"1")
    assert (ack.stream, ack.seq, ack.duplicate) == (stream.name, 1, False)
    assert js.publish(f"{stream.name}.b", b"2").seq == 2


def test_a_publish_without_a_stream_raises(js: jsync.JetStream) -> None:
    with pytest.raises(errors.NoStreamResponseError, match="no stream takes 'nowhere'"):
        js.publish("nowhere", b"")


def test_a_server_without_jetstream_raises(own_server: StartServer) -> None:
    with jsync.connect(own_server(jetstream=False).url) as nc:
        with pytest.raises(errors.JetStreamNotEnabledError):
            nc.jetstream().stream("ANY")


def test_a_domain_without_a_server_raises_without_hanging(
    nc: jsync.Connection,
) -> None:
    with pytest.raises(errors.JetStreamNotEnabledError, match=r"\$JS\.hub\.API"):
        nc.jetstream(domain="hub").stream("ANY")


def test_domain_and_prefix_exclude_each_other(nc: jsync.Connection) -> None:
    with pytest.raises(errors.ConfigError):
        nc.jetstream(domain="hub", prefix="$JS.API")


@pytest.mark.parametrize("domain", [b"hub", 0, ["hub"], "a b", "*"])
def test_an_invalid_domain_is_rejected(nc: jsync.Connection, domain: Any) -> None:
    with pytest.raises(errors.ConfigError, match=r"domain|prefix"):
        nc.jetstream(domain=domain)


def test_a_prefix_may_end_with_a_dot(
    nc: jsync.Connection, stream: jsync.Stream
) -> None:
    found = nc.jetstream(prefix="$JS.API.").stream(stream.name)
    assert found.name == stream.name


@pytest.mark.parametrize("prefix", [b"$JS.API", 3, "a b", "a.*"])
def test_an_invalid_prefix_is_rejected(nc: jsync.Connection, prefix: Any) -> None:
    with pytest.raises(errors.ConfigError, match="prefix"):
        nc.jetstream(prefix=prefix)


# Fetch --------------------------------------------------------------------------------


def test_a_full_batch_ends_by_itself(
    js: jsync.JetStream, stream: jsync.Stream, worker: jsync.Consumer
) -> None:
    fill(js, stream, 20)
    with worker.fetch(10, timeout=30) as batch:
        got = []
        for msg in batch:
            got.append(int(msg.data))
            msg.ack()
    assert got == list(range(10))
    assert batch.error is None
    wait_for(lambda: worker.info().num_ack_pending == 0)
    assert worker.info().num_pending == 10


def test_an_unfilled_batch_ends_at_its_timeout(
    js: jsync.JetStream, stream: jsync.Stream, worker: jsync.Consumer
) -> None:
    fill(js, stream, 3)
    with worker.fetch(10, timeout=1.0) as batch:
        assert numbers(batch) == [0, 1, 2]
    assert batch.error is None


def test_an_empty_stream_gives_an_empty_batch(worker: jsync.Consumer) -> None:
    with worker.fetch(1, timeout=0.2) as batch:
        assert numbers(batch) == []
    with worker.fetch(10, timeout=0.2) as batch:
        assert numbers(batch) == []


def test_fetch_nowait_returns_the_available_messages(
    js: jsync.JetStream, stream: jsync.Stream, worker: jsync.Consumer
) -> None:
    with worker.fetch_nowait(10) as batch:
        assert numbers(batch) == []
    fill(js, stream, 3)
    with worker.fetch_nowait(10) as batch:
        assert numbers(batch) == [0, 1, 2]


def test_batches_by_bytes_end_when_nothing_more_fits(
    js: jsync.JetStream, stream: jsync.Stream, worker: jsync.Consumer
) -> None:
    fill(js, stream, 20, size=100)
    with worker.fetch(max_bytes=1000, timeout=5) as batch:
        msgs = list(batch)
    assert 0 < len(msgs) < 20
    assert sum(msg.size for msg in msgs) <= 1000
    assert batch.error is None


def test_a_message_over_max_bytes_causes_no_loop(
    js: jsync.JetStream, stream: jsync.Stream, worker: jsync.Consumer
) -> None:
    js.publish(f"{stream.name}.a", bytes(5000))
    with pytest.raises(errors.PullError, match="larger than max_bytes"):
        list(worker.fetch(max_bytes=1000, timeout=5))


def test_next_gives_one_message_or_a_timeout(
    js: jsync.JetStream, stream: jsync.Stream, worker: jsync.Consumer
) -> None:
    fill(js, stream, 1)
    msg = worker.next(timeout=5)
    assert msg.data == b"0000"
    msg.ack()
    with pytest.raises(TimeoutError):
        worker.next(timeout=0.2)


def test_a_batch_left_early_returns_the_rest_immediately(
    js: jsync.JetStream, stream: jsync.Stream, worker: jsync.Consumer
) -> None:
    fill(js, stream, 50)
    with worker.fetch(100, timeout=30) as batch:
        for msg in batch:
            msg.ack()
            break
    # This must come well before the ack_wait of 30 s.
    with worker.fetch(49, timeout=10) as rest:
        redelivered = sorted(numbers(rest))
    assert redelivered == list(range(1, 50))


def test_a_batch_without_acks_returns_the_rest_too(
    js: jsync.JetStream, stream: jsync.Stream
) -> None:
    reader = stream.create_consumer(name="reader", ack_policy="none")
    fill(js, stream, 50)
    batch = reader.fetch(100, timeout=30)
    first = next(iter(batch))
    rest = batch.close()
    assert [int(first.data), *(int(msg.data) for msg in rest)] == list(range(50))
    assert batch.close() == []


def test_an_exception_of_the_body_is_not_masked(
    js: jsync.JetStream, stream: jsync.Stream, worker: jsync.Consumer
) -> None:
    fill(js, stream, 5)

    def fail_in_the_middle() -> None:
        with worker.fetch(5, timeout=5) as batch:
            for _ in batch:
                raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail_in_the_middle()


def test_an_abandoned_fetch_swallows_nothing(
    js: jsync.JetStream, stream: jsync.Stream, worker: jsync.Consumer
) -> None:
    worker.fetch(100, timeout=30).close()
    fill(js, stream, 10)
    with worker.fetch(10, timeout=10) as batch:
        assert numbers(batch) == list(range(10))
        assert batch.error is None


def test_a_consumer_deleted_during_fetch_is_an_error(
    js: jsync.JetStream, stream: jsync.Stream, worker: jsync.Consumer
) -> None:
    fill(js, stream, 1)
    batch = worker.fetch(10, timeout=30)
    iterator = iter(batch)
    assert int(next(iterator).data) == 0
    worker.delete()
    with pytest.raises(errors.ConsumerDeletedError):
        next(iterator)
    assert isinstance(batch.error, errors.ConsumerDeletedError)


def test_a_missing_consumer_raises_at_once(
    stream: jsync.Stream, worker: jsync.Consumer
) -> None:
    worker.delete()
    begin = monotonic()
    with pytest.raises(errors.NoRespondersError):
        worker.next(timeout=30)
    assert monotonic() - begin < 15
    with pytest.raises(errors.ConsumerNotFoundError):
        stream.consumer("worker")


def test_a_limit_of_the_consumer_is_an_error(
    js: jsync.JetStream, stream: jsync.Stream
) -> None:
    limited = stream.create_consumer(durable_name="limited", max_batch=5)
    with pytest.raises(errors.PullError, match="MaxRequestBatch"):
        list(limited.fetch(10, timeout=5))


def test_heartbeats_that_stay_away_end_the_fetch(
    proxy: FaultProxy, js: jsync.JetStream, stream: jsync.Stream
) -> None:
    stream.create_consumer(durable_name="far")
    with jsync.connect(proxy.url) as far:
        consumer = far.jetstream().stream(stream.name).consumer("far")
        batch = consumer.fetch(10, timeout=60, idle_heartbeat=0.5)
        fill(js, stream, 1)
        iterator = iter(batch)
        assert int(next(iterator).data) == 0
        proxy.deaf("server")
        with pytest.raises(errors.PullError, match="no heartbeat"):
            next(iterator)
        proxy.hear()


def test_heartbeats_keep_a_quiet_fetch_alive(
    js: jsync.JetStream, stream: jsync.Stream, worker: jsync.Consumer
) -> None:
    with worker.fetch(10, timeout=2.0, idle_heartbeat=0.4) as batch:
        assert numbers(batch) == []
    assert batch.error is None


def test_a_connection_lost_during_fetch_is_an_error(
    proxy: FaultProxy, js: jsync.JetStream, stream: jsync.Stream
) -> None:
    worker = stream.create_consumer(durable_name="far")
    fill(js, stream, 1)
    with jsync.connect(proxy.url, reconnect_wait=0.05) as far:
        consumer = far.jetstream().stream(stream.name).consumer("far")
        iterator = iter(consumer.fetch(10, timeout=60))
        assert int(next(iterator).data) == 0
        proxy.cut()
        with pytest.raises(errors.ConnectionLostError):
            next(iterator)
        # The next read works after the reconnect. Messages that the server sent before it noticed
        # the cut would be redelivered only after ack_wait.
        wait_for(lambda: worker.info().num_waiting == 0)
        fill(js, stream, 1)
        assert int(consumer.next(timeout=20).data) == 0


def test_closing_the_connection_wakes_a_fetch(
    server: LocalServer, stream: jsync.Stream, worker: jsync.Consumer
) -> None:
    nc = jsync.connect(server.url)
    consumer = nc.jetstream().stream(stream.name).consumer("worker")
    raised: list[Exception] = []

    def wait() -> None:
        try:
            consumer.next(timeout=60)
        except errors.Error as error:
            raised.append(error)

    thread = threading.Thread(target=wait)
    thread.start()
    wait_for(lambda: worker.info().num_waiting == 1)
    nc.close()
    thread.join(20)
    assert [type(error) for error in raised] == [errors.ConnectionClosedError]


def test_fetches_leave_no_subscription(
    server: LocalServer,
    nc: jsync.Connection,
    js: jsync.JetStream,
    stream: jsync.Stream,
    worker: jsync.Consumer,
) -> None:
    def at_the_server() -> int:
        (connection,) = monitor(server, f"connz?cid={nc.client_id}")["connections"]
        return int(connection["subscriptions"])

    fill(js, stream, 5)
    worker.next().ack()
    list(worker.fetch(1))
    before = len(nc._session.interests)  # jsync keeps one subscription for each
    assert at_the_server() == before
    for _ in range(3):
        worker.next().ack()
    for _ in range(3):
        with worker.fetch(10, timeout=0.1) as batch:
            list(batch)
    wait_for(lambda: len(nc._session.interests) == before)
    wait_for(lambda: at_the_server() == before)


# Messages -----------------------------------------------------------------------------


def test_metadata_holds_the_place_of_a_message(
    js: jsync.JetStream, stream: jsync.Stream
) -> None:
    # The pending count of an existing consumer can be one message behind.
    fill(js, stream, 3)
    worker = stream.create_consumer(durable_name="worker")
    with worker.fetch(2) as batch:
        for place, msg in enumerate(batch, 1):
            metadata = msg.metadata
            assert metadata.stream == stream.name
            assert metadata.consumer == "worker"
            assert metadata.stream_sequence == metadata.consumer_sequence == place
            assert metadata.num_delivered == 1
            assert metadata.num_pending == 3 - place
            assert metadata.domain is None
            assert metadata.timestamp.utcoffset() is not None


def test_a_nak_has_the_message_delivered_again(
    js: jsync.JetStream, stream: jsync.Stream, worker: jsync.Consumer
) -> None:
    fill(js, stream, 1)
    worker.next().nak()
    again = worker.next()
    assert again.metadata.num_delivered == 2
    again.nak(delay=0.1)
    last = worker.next()
    assert last.metadata.num_delivered == 3


def test_a_term_ends_a_message(
    js: jsync.JetStream, stream: jsync.Stream, worker: jsync.Consumer
) -> None:
    fill(js, stream, 1)
    worker.next().term(reason="cannot be read")
    wait_for(lambda: worker.info().num_ack_pending == 0)
    with pytest.raises(TimeoutError):
        worker.next(timeout=0.2)


def test_in_progress_puts_the_redelivery_off(
    js: jsync.JetStream, stream: jsync.Stream
) -> None:
    worker = stream.create_consumer(durable_name="slow", ack_wait=3)
    fill(js, stream, 1)
    msg = worker.next()
    until = monotonic() + 5
    while monotonic() < until:
        msg.in_progress()
        with worker.fetch(1, timeout=0.2) as batch:
            assert list(batch) == []
    msg.ack_sync()
    assert worker.info().num_ack_pending == 0


def test_a_second_ack_is_silent(
    nc: jsync.Connection,
    js: jsync.JetStream,
    stream: jsync.Stream,
    worker: jsync.Consumer,
) -> None:
    fill(js, stream, 1)
    msg = worker.next()
    before = msg.is_acked
    msg.ack()
    assert (before, msg.is_acked) == (False, True)
    sent = nc.stats().out_messages
    msg.ack()
    msg.nak()
    msg.term()
    msg.in_progress()
    msg.ack_sync()
    assert nc.stats().out_messages == sent


def test_ack_sync_after_close_is_a_typed_error(
    server: LocalServer, stream: jsync.Stream, worker: jsync.Consumer
) -> None:
    nc = jsync.connect(server.url)
    nc.jetstream().publish(f"{stream.name}.a")
    msg = nc.jetstream().consumer(stream.name, "worker").next()
    nc.close()
    for call in (msg.ack_sync, msg.in_progress, msg.ack):
        with pytest.raises(errors.ConnectionClosedError):
            call()
    assert not msg.is_acked


def test_ack_sync_to_deleted_consumers_raises_at_once(
    js: jsync.JetStream, stream: jsync.Stream, worker: jsync.Consumer
) -> None:
    fill(js, stream, 1)
    msg = worker.next()
    worker.delete()
    with pytest.raises(errors.NoRespondersError):
        msg.ack_sync(timeout=30)
    assert not msg.is_acked


def test_ack_sync_returns_once_the_server_has_it(
    js: jsync.JetStream, stream: jsync.Stream, worker: jsync.Consumer
) -> None:
    fill(js, stream, 1)
    worker.next().ack_sync(timeout=5)
    assert worker.info().num_ack_pending == 0


def test_a_lone_ack_is_sent_without_another_write(
    server: LocalServer,
    js: jsync.JetStream,
    stream: jsync.Stream,
    worker: jsync.Consumer,
) -> None:
    fill(js, stream, 1)
    with jsync.connect(server.url) as nc:
        msg = nc.jetstream().stream(stream.name).consumer("worker").next()
        msg.ack()
        # Ask on the other connection, so that nothing here sends the ack.
        wait_for(lambda: worker.info().num_ack_pending == 0)


def test_a_message_without_jetstream_cannot_be_acked(
    nc: jsync.Connection, unique: str
) -> None:
    msg = jsync.JetStreamMsg(unique, b"", reply="somewhere.else")
    with pytest.raises(errors.NotJetStreamMessageError):
        msg.ack()
    with pytest.raises(errors.NotJetStreamMessageError):
        msg.metadata  # noqa: B018 (the property raises)


def test_headers_come_back_as_they_were_published(
    js: jsync.JetStream, stream: jsync.Stream, worker: jsync.Consumer
) -> None:
    headers = {"One": "ä", "Many": ["1", "2"]}
    js.publish(f"{stream.name}.a", b"", headers=headers)
    msg = worker.next()
    assert msg.headers == headers
