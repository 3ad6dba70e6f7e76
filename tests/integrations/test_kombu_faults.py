"""The transport of kombu while connections break, and while others change its queues."""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING, Any, cast

import pytest
from amqp.exceptions import NotFound, PreconditionFailed, RecoverableConnectionError
from kombu import Connection, Exchange, Producer, Queue

import jsync
from jsync.errors import ConfigError, Error

from ..support.connection_faults import FakeServer, Peer
from ..support.proxy import FaultProxy, frame_changer, frame_filter
from ..support.servers import wait_for
from .conftest import SECONDS, url
from .kombu_support import JOBS, Once, Reading, another, publish

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from jsync.server import LocalServer

    from ..support.proxy import Side

pytestmark = pytest.mark.server

POLICY = {"max_retries": 5, "interval_start": 0, "interval_step": 0.05}
NEWS = Exchange("news", type="topic")
WORLD = Queue("world", NEWS, routing_key="world.#")


@pytest.fixture
def connection(broker: LocalServer) -> Iterator[Connection]:
    with Connection(url(broker), transport_options={"ack_wait": 2}) as connection:
        yield connection


@pytest.fixture
def proxy(broker: LocalServer) -> Iterator[FaultProxy]:
    with FaultProxy("127.0.0.1", broker.port) as proxy:
        yield proxy


def through(proxy: FaultProxy, **options: Any) -> Connection:
    """A connection of kombu that reconnects at once, and to which the proxy is the server."""
    connect = {"reconnect_wait": 0.05, "reconnect_jitter": 0.0}
    return Connection(
        f"jetstream://127.0.0.1:{proxy.port}",
        transport_options={"ack_wait": 2, "connect": connect, **options},
    )


def messages(broker: LocalServer, queue: str) -> int:
    with jsync.connect(broker.url) as nc:
        return nc.jetstream().stream(f"kombu-{queue}").info().state.messages


def pulls(broker: LocalServer, queue: str) -> int:
    """The requests of workers that wait at the server."""
    with jsync.connect(broker.url) as nc:
        stream = nc.jetstream().stream(f"kombu-{queue}")
        return sum(consumer.info().num_waiting for consumer in stream.consumers())


# A connection that breaks --------------------------------------------------------------


@pytest.mark.parametrize(
    "text", [b"STREAM.INFO.kombu-world", b"STREAM.CREATE.kombu-world", b" $KV."]
)
def test_a_declaration_that_breaks_is_repeated(
    broker: LocalServer, proxy: FaultProxy, text: bytes
) -> None:
    with through(proxy) as connection:
        publish(connection, JOBS, "first")
        broken = Once(text, proxy.cut, "server")
        proxy.rewrite(broken)
        publish(connection, WORLD, "stored", retry=True, retry_policy=POLICY)
        assert broken.happened.is_set()
    assert messages(broker, "world") == 1


def test_a_publish_is_stored_once_despite_lost_ack(
    broker: LocalServer, proxy: FaultProxy
) -> None:
    with through(proxy, timeout=1) as connection:
        publish(connection, JOBS, "first")
        for act in (proxy.cut, lambda: None):
            lost = Once(b'"stream":"kombu-jobs"', act, "client")
            proxy.rewrite(lost)
            publish(connection, JOBS, "second", retry=True, retry_policy=POLICY)
            assert lost.happened.is_set()
    assert messages(broker, "jobs") == 3


def test_a_publish_that_celery_repeats_is_stored_once(
    broker: LocalServer, proxy: FaultProxy
) -> None:
    """Celery repeats the publish of a callback itself, and keeps nothing but the headers."""
    headers = {"task": "add"}
    with through(proxy, timeout=1) as connection:
        producer = Producer(connection)

        def send(body: str) -> None:
            producer.publish(
                body, routing_key="jobs", declare=[JOBS], headers=headers, priority=1
            )

        send("first")
        lost = Once(b'"stream":"kombu-jobs"', lambda: None, "client")
        proxy.rewrite(lost)
        with pytest.raises(TimeoutError):
            send("second")
        send("second")
        send("second")  # this is another message
        assert headers == {"task": "add"}
    assert messages(broker, "jobs") == 3


def test_the_same_message_published_twice_is_two(connection: Connection) -> None:
    headers: dict[str, Any] = {}
    channel = connection.channel()
    JOBS(channel).declare()
    prepared = [channel.prepare_message(body, headers=headers) for body in "aab"]
    for message in [*prepared, prepared[0]]:
        channel.basic_publish(message, routing_key="jobs")
    assert JOBS(channel).queue_declare(passive=True).message_count == 4


def test_a_closed_channel_raises_what_kombu_repeats(connection: Connection) -> None:
    channel = connection.channel()
    channel.close()
    assert channel.connection is None
    message = channel.prepare_message("a")
    calls: list[Callable[[], object]] = [
        lambda: channel.basic_publish(message, routing_key="jobs"),
        lambda: channel.queue_declare("jobs"),
        lambda: channel.basic_ack("tag"),
    ]
    for call in calls:
        with pytest.raises(RecoverableConnectionError):
            call()
    channel.basic_cancel("tag")
    channel.close()
    errors = connection.recoverable_connection_errors
    assert issubclass(RecoverableConnectionError, errors)
    assert issubclass(NotFound, connection.channel_errors)


def test_an_ack_lost_with_its_connection_is_resent(
    broker: LocalServer, proxy: FaultProxy
) -> None:
    with through(proxy, ack_wait=10) as connection:
        publish(connection, JOBS, *range(20))
        reading = Reading(connection, JOBS)
        reading.until(20)
        proxy.rewrite(frame_filter(lambda frame, _: b"$JS.ACK." not in frame))
        for message in reading.messages:
            message.ack()
        shared = connection.transport.shared
        wait_for(lambda: shared.nc.stats().unsent_bytes == 0)
        proxy.refuse()  # the next connection comes without the hook
        proxy.cut()
        proxy.rewrite(None)
        proxy.accept()
        wait_for(lambda: messages(broker, "jobs") == 0)
        reading.nothing_more()
        assert len(reading.messages) == 20
        with jsync.connect(broker.url) as nc:
            consumer = nc.jetstream().stream("kombu-jobs").consumer("priority-0")
        assert consumer.config.ack_wait == 10
        assert consumer.cached_info.delivered.consumer_seq == 20


def test_a_failed_resend_of_an_ack_is_repeated(
    broker: LocalServer, proxy: FaultProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    with through(proxy, ack_wait=10) as connection:
        publish(connection, JOBS, 1)
        reading = Reading(connection, JOBS)
        reading.until(1)
        shared = connection.transport.shared
        shared.extender.stop()
        proxy.rewrite(frame_filter(lambda frame, _: b"$JS.ACK." not in frame))
        reading.messages[0].ack()
        shared.nc.flush()
        proxy.rewrite(None)
        tracker = shared.tracker
        monkeypatch.setattr(tracker, "_failed", True)
        with monkeypatch.context() as patch:
            patch.setattr(tracker, "_nc", Refusing(shared.nc))
            with pytest.raises(jsync.errors.TimeoutError):
                tracker.confirm(SECONDS)
        tracker.confirm(SECONDS)
        wait_for(lambda: messages(broker, "jobs") == 0)


class Refusing:
    """A connection whose buffer has no room."""

    def __init__(self, nc: jsync.Connection) -> None:
        self.stats = nc.stats

    def publish(self, subject: str, payload: bytes) -> None:
        raise jsync.errors.TimeoutError("no room")


def test_a_flush_confirms_no_ack_sent_after_it(connection: Connection) -> None:
    publish(connection, JOBS, 1)
    reading = Reading(connection, JOBS)
    reading.until(1)
    shared = connection.transport.shared
    shared.extender.stop()
    tracker = shared.tracker
    (msg,) = tracker._unacked.values()

    class Slow:
        """The message, while another thread confirms and this one is about to ack."""

        metadata, reply = msg.metadata, msg.reply

        def ack(self) -> None:
            tracker.confirm(SECONDS)
            assert tracker._confirmed == 0
            msg.ack()

    tracker._send_ack(cast("jsync.JetStreamMsg", Slow()), b"+ACK")
    tracker.confirm(SECONDS)
    assert tracker._confirmed == 1


def test_outages_above_ack_wait_cause_no_second_delivery(
    broker: LocalServer, proxy: FaultProxy
) -> None:
    with through(proxy, ack_wait=1) as connection:
        publish(connection, JOBS, "long")
        reading = Reading(connection, JOBS)
        reading.until(1)
        proxy.refuse()
        proxy.cut()
        threading.Event().wait(1.5)  # the server puts it up for delivery again
        proxy.accept()
        publish(connection, JOBS, "next", retry=True, retry_policy=POLICY)
        assert reading.until(2) == ["long", "next"]
        reading.nothing_more()
        for message in reading.messages:
            message.ack()
        wait_for(lambda: messages(broker, "jobs") == 0)


def test_a_message_that_was_asked_for_is_kept(
    broker: LocalServer, connection: Connection
) -> None:
    publish(connection, JOBS, 1)
    message = JOBS(connection.channel()).get()
    with another(broker, timeout=4) as other:
        reading = Reading(other, JOBS)
        threading.Event().wait(4)  # twice ack_wait
        reading.nothing_more()
        message.ack()
    wait_for(lambda: messages(broker, "jobs") == 0)


def test_a_shorter_ack_wait_elsewhere_takes_no_message(broker: LocalServer) -> None:
    with another(broker, ack_wait=60) as slow, another(broker, ack_wait=1) as hasty:
        publish(slow, JOBS, 1)
        reading = Reading(slow, JOBS)
        reading.until(1)
        Reading(hasty, JOBS)
        threading.Event().wait(2.5)  # twice the shorter one
        with jsync.connect(broker.url) as nc:
            consumer = nc.jetstream().stream("kombu-jobs").consumer("priority-0")
            info = consumer.info()
        assert (info.num_redelivered, info.config.ack_wait) == (0, 60)


def test_a_longer_ack_wait_elsewhere_counts(broker: LocalServer) -> None:
    for ack_wait in (2, 60, 2):
        with another(broker, ack_wait=ack_wait) as connection:
            publish(connection, JOBS, 1)
            Reading(connection, JOBS).until(1)
    with jsync.connect(broker.url) as nc:
        consumer = nc.jetstream().stream("kombu-jobs").consumer("priority-0")
    assert consumer.config.ack_wait == 60


def test_threads_share_an_attempt_to_connect() -> None:
    threads = 6
    begun, failures = threading.Barrier(threads), []

    def connect(address: str) -> None:
        options = {"connect": {"connect_timeout": 0.5}}
        with Connection(address, transport_options=options) as connection:
            begun.wait(SECONDS)
            try:
                connection.transport.establish_connection()
            except Error as error:
                failures.append(error)

    with FakeServer(Peer.hang) as silent:
        address = silent.url.replace("nats://", "jetstream://")
        waiting = [threading.Thread(target=connect, args=(address,)) for _ in range(6)]
        for thread in waiting:
            thread.start()
        for thread in waiting:
            thread.join(SECONDS)
        assert len(failures) == threads
        assert len(silent.peers) < threads


def test_a_forked_child_publishes_through_what_it_inherits(
    broker: LocalServer, connection: Connection
) -> None:
    producer = Producer(connection)

    def send(body: str) -> None:
        producer.publish(
            body, routing_key="jobs", declare=[JOBS], retry=True, retry_policy=POLICY
        )

    send("parent")
    child = os.fork()
    if not child:
        code = 1
        try:
            send("child")
            connection.release()
            code = 0
        finally:
            os._exit(code)
    assert os.waitpid(child, 0)[1] == 0
    send("parent")
    assert messages(broker, "jobs") == 3


# Exchanges and bindings ----------------------------------------------------------------


def test_a_queue_of_interest_is_refused(broker: LocalServer) -> None:
    """Its stream would drop each message that comes before the first worker."""
    with jsync.connect(broker.url) as nc, another(broker) as connection:
        nc.jetstream().create_stream(
            name="kombu-jobs", subjects=["kombu.queue.jobs.0"], retention="interest"
        )
        with pytest.raises(ConfigError, match="workqueue"):
            publish(connection, JOBS, "lost")


def test_arguments_without_effect_are_named(
    broker: LocalServer, caplog: pytest.LogCaptureFixture
) -> None:
    arguments = {
        "x-dead-letter-exchange": "dead",
        "x-expires": 60_000,
        "x-message-ttl": 60_000,
    }
    queue = Queue("jobs", routing_key="jobs", queue_arguments=arguments)
    with another(broker) as connection:
        publish(connection, queue, "first", "second")
    told = [each for each in caplog.messages if "without effect" in each]
    assert told == ["queue jobs: without effect: x-dead-letter-exchange, x-expires"]


def test_a_passive_exchange_has_to_exist(broker: LocalServer) -> None:
    with another(broker) as first, another(broker, timeout=4) as second:
        passive = Exchange("news", passive=True)
        with pytest.raises(NotFound, match="no exchange 'news'"):
            passive(first.channel()).declare()
        NEWS(first.channel()).declare()
        passive(second.channel()).declare()
        queue = Queue("world", passive, routing_key="world.#")
        queue(second.channel()).declare()
        Producer(first, exchange=NEWS).publish("b", routing_key="world.cup")
    assert messages(broker, "world") == 1


def test_the_type_of_the_last_declaration_counts(broker: LocalServer) -> None:
    with another(broker) as first, another(broker, timeout=4) as second:
        channel = first.channel()
        channel.queue_declare("world")
        channel.queue_bind("world", "news", "world.#")  # nobody has declared it
        WORLD(second.channel()).declare()
        for connection in (first, second):
            channel = connection.channel()
            message = channel.prepare_message("a")
            channel.basic_publish(message, exchange="news", routing_key="world.cup")
    assert messages(broker, "world") == 2


def test_declarations_by_turns_count_in_their_order(broker: LocalServer) -> None:
    with (
        another(broker) as one,
        another(broker, timeout=4) as other,
        another(broker, timeout=3) as third,
    ):
        first, second = one.channel(), other.channel()
        bindings = third.channel().connection.shared.bindings
        for _ in range(60):
            first.exchange_declare("turns", "direct")
            second.exchange_declare("turns", "topic")
            first.exchange_declare("turns", "direct")
            assert bindings.type_of("turns") == "direct"
            second.exchange_delete("turns")
            first.exchange_declare("turns", "direct")
            assert bindings.type_of("turns") == "direct"


def test_a_later_declaration_of_another_process_counts(broker: LocalServer) -> None:
    with another(broker) as first, another(broker, timeout=4) as second:
        channel = first.channel()
        channel.exchange_declare("news", "direct")
        WORLD(second.channel()).declare()
        message = channel.prepare_message("a")
        channel.basic_publish(message, exchange="news", routing_key="world.cup")
    assert messages(broker, "world") == 1


def test_an_exchange_that_another_just_bound_is_kept(broker: LocalServer) -> None:
    with another(broker) as first, another(broker, timeout=4) as second:
        channel, other = first.channel(), second.channel()
        other.queue_declare("world")
        for number in range(60):
            name = f"news-{number}"
            channel.exchange_declare(name, "topic")
            other.queue_bind("world", name, "world.#")
            with pytest.raises(PreconditionFailed):
                channel.exchange_delete(name, if_unused=True)


def test_a_binding_stored_during_a_deletion_stays(
    broker: LocalServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    with another(broker) as first, another(broker, timeout=4) as second:
        channel, other = first.channel(), second.channel()
        channel.exchange_declare("news", "topic")
        other.queue_declare("world")
        bindings, looks = channel._broker.bindings, 0
        catch_up = bindings._catch_up

        def look(*exchange: str) -> None:
            nonlocal looks
            looks += 1
            if looks == 2:
                other.queue_bind("world", "news", "world.#")
            catch_up(*exchange)

        monkeypatch.setattr(bindings, "_catch_up", look)
        with pytest.raises(PreconditionFailed):
            channel.exchange_delete("news", if_unused=True)
        message = other.prepare_message("a")
        other.basic_publish(message, exchange="news", routing_key="world.cup")
        assert bindings.exists("news")
    assert messages(broker, "world") == 1


def test_an_exchange_deleted_elsewhere_is_not_found(broker: LocalServer) -> None:
    with another(broker) as first, another(broker, timeout=4) as second:
        channel = first.channel()
        NEWS(channel).declare()
        NEWS(second.channel()).delete()
        with pytest.raises(NotFound, match="no exchange 'news'"):
            channel.exchange_declare("news", passive=True)
        channel.exchange_declare("amq.direct", passive=True)


def test_bindings_stored_elsewhere_are_listed(broker: LocalServer) -> None:
    with another(broker) as first, another(broker, timeout=4) as second:
        channel, other = first.channel(), second.channel()
        other.queue_declare("world")
        for number in range(60):
            other.queue_bind("world", "news", f"world.{number}")
            assert len(list(channel.list_bindings())) == number + 1


def test_the_exchanges_of_every_broker_have_their_types(
    broker: LocalServer, connection: Connection
) -> None:
    queue = Queue("world", Exchange("amq.topic", type="topic"), routing_key="world.#")
    queue(connection.channel()).declare()
    producer = Producer(connection, exchange=queue.exchange)
    producer.publish("a", routing_key="world.cup")
    assert messages(broker, "world") == 1


@pytest.mark.parametrize(
    "value", [b"{", b"null", b"\xff", b"[1, 2, 3, 4]", b'["news", "headers", "#", "x"]']
)
def test_a_record_that_is_no_binding_hides_none(
    broker: LocalServer, connection: Connection, value: bytes
) -> None:
    WORLD(connection.channel()).declare()
    with jsync.connect(broker.url) as nc:
        nc.jetstream().key_value("kombu-bindings").put("news.other", value)
    with another(broker, timeout=4) as other:
        Producer(other, exchange=NEWS).publish("a", routing_key="world.cup")
    assert messages(broker, "world") == 1


def test_an_operators_bucket_of_bindings_stays_unchanged(
    broker: LocalServer, connection: Connection
) -> None:
    with jsync.connect(broker.url) as nc:
        js = nc.jetstream()
        js.create_key_value(bucket="kombu-bindings", history=5, max_value_size=9999)
        WORLD(connection.channel()).declare()
        config = js.key_value("kombu-bindings").status().config
    assert (config.history, config.max_value_size) == (5, 9999)


def test_bindings_that_were_deleted_are_stored_again(
    broker: LocalServer, connection: Connection
) -> None:
    WORLD(connection.channel()).declare()
    with jsync.connect(broker.url) as nc:
        js = nc.jetstream()
        js.delete_key_value("kombu-bindings")
        shared = connection.transport.shared

        def stored() -> bool:
            WORLD(connection.channel()).declare()
            names = set(js.stream_names())
            return "KV_kombu-bindings" in names and bool(shared.bindings.all())

        wait_for(stored)
    with another(broker, timeout=4) as other:
        Producer(other, exchange=NEWS).publish("a", routing_key="world.cup")
    assert messages(broker, "world") == 1


@pytest.mark.parametrize("exclusive", [False, True])
def test_a_binding_that_is_removed_brings_no_more(
    connection: Connection, exclusive: bool
) -> None:
    queue = Queue("here", NEWS, routing_key="world.#", exclusive=exclusive)
    bound = queue(connection.channel())
    bound.declare()
    producer = Producer(connection, exchange=NEWS)
    producer.publish("a", routing_key="world.cup")
    wait_for(lambda: bound.queue_declare(passive=True).message_count == 1)
    bound.unbind_from(NEWS, "world.#")
    producer.publish("b", routing_key="world.cup")
    connection.transport.shared.nc.flush()
    assert bound.queue_declare(passive=True).message_count == 1


# Queues that others delete -------------------------------------------------------------


@pytest.mark.parametrize("exchange", ["", "news"])
def test_a_publish_makes_a_deleted_queue_again(
    broker: LocalServer, connection: Connection, exchange: str
) -> None:
    WORLD(connection.channel()).declare()
    with another(broker, timeout=4) as other:
        WORLD(other.channel()).delete()
    key = "world.cup" if exchange else "world"
    Producer(connection).publish("a", exchange=exchange, routing_key=key)
    assert messages(broker, "world") == 1


def test_a_binding_that_another_removed_stays_removed(
    broker: LocalServer, connection: Connection
) -> None:
    WORLD(connection.channel()).declare()
    with another(broker, timeout=4) as other:
        WORLD(other.channel()).unbind_from(NEWS, "world.#")
    shared = connection.transport.shared
    wait_for(lambda: not shared.bindings.all())
    Producer(connection, exchange=NEWS).publish("a", routing_key="world.cup")
    assert messages(broker, "world") == 0


def test_a_publish_during_a_deletion_keeps_the_binding(
    broker: LocalServer, connection: Connection
) -> None:
    """The bindings go first, so for a moment the queue looks as if it was unbound."""
    WORLD(connection.channel()).declare()
    producer = Producer(connection, exchange=NEWS)
    with another(broker, timeout=4) as other:
        WORLD(other.channel()).unbind_from(NEWS, "world.#")
        producer.publish("with the queue", routing_key="world.cup")
        WORLD(other.channel()).delete()
    producer.publish("after it", routing_key="world.cup")
    assert messages(broker, "world") == 1


def test_a_queue_recreated_without_its_binding_is_bound(
    broker: LocalServer, connection: Connection
) -> None:
    """A worker that starts declares its queue first, and binds it after that."""
    WORLD(connection.channel()).declare()
    with another(broker, timeout=4) as other:
        WORLD(other.channel()).delete()
        other.channel().queue_declare("world")
    Producer(connection, exchange=NEWS).publish("a", routing_key="world.cup")
    assert messages(broker, "world") == 1


def test_a_queue_deleted_while_recreated_is_bound(
    broker: LocalServer, proxy: FaultProxy
) -> None:
    deleted = threading.Event()
    with through(proxy) as worker, another(broker, timeout=4) as other:
        channel = other.channel()

        def is_bound() -> bool:
            return bool(list(channel.list_bindings()))

        def delete() -> None:
            wait_for(is_bound)
            WORLD(channel).delete()
            deleted.set()

        Reading(worker, WORLD)
        proxy.rewrite(Once(b"STREAM.CREATE.kombu-world", delete, "server", keep=True))
        WORLD(channel).delete()
        wait_for(deleted.is_set)
        wait_for(is_bound)


class Late:
    """A hook of the proxy: changes of the bindings come late to the client.

    They come once the client has asked the server for the last one.
    """

    def __init__(self, text: bytes) -> None:
        self.held: list[bytes] = []
        self._text = text
        self._changer = frame_changer(self._change)

    def _change(self, frame: bytes, to: Side) -> bytes:
        if to == "client" and self._text in frame:
            self.held.append(frame)
            return b""
        if b"stream_msg_get_response" in frame:
            frame += b"".join(self.held)
            self.held.clear()
        return frame

    def __call__(self, data: bytes, to: Side) -> bytes:
        return self._changer(data, to)


def test_a_late_removal_does_not_remove_a_binding(
    broker: LocalServer, proxy: FaultProxy
) -> None:
    with through(proxy) as slow, another(broker, timeout=4) as other:
        WORLD(slow.channel()).declare()
        late = Late(b"KV-Operation: DEL")
        proxy.rewrite(late)
        WORLD(other.channel()).unbind_from(NEWS, "world.#")
        wait_for(lambda: bool(late.held))
        WORLD(slow.channel()).declare()
        Producer(other, exchange=NEWS).publish("a", routing_key="world.cup")
    assert messages(broker, "world") == 1


def test_late_bindings_go_with_their_queue(
    broker: LocalServer, proxy: FaultProxy
) -> None:
    with through(proxy) as slow, another(broker, timeout=4) as other:
        NEWS(slow.channel()).declare()
        late = Late(b"world.#")
        proxy.rewrite(late)
        WORLD(other.channel()).declare()
        wait_for(lambda: bool(late.held))
        WORLD(slow.channel()).delete()
        wait_for(lambda: not list(other.channel().list_bindings()))


def test_a_queue_recreated_with_fewer_priorities_loses_nothing(
    broker: LocalServer,
) -> None:
    ranked, plain = Queue("jobs", max_priority=9), Queue("jobs")
    with another(broker) as first, another(broker, timeout=4) as second:
        channel = first.channel()
        ranked(channel).declare()
        plain(second.channel()).delete()
        plain(second.channel()).declare()
        message = channel.prepare_message('"urgent"', 9, "application/json", "utf-8")
        channel.basic_publish(message, routing_key="jobs")
        assert Reading(second, plain).until(1) == ["urgent"]


def test_a_purge_leaves_the_messages_that_workers_hold(broker: LocalServer) -> None:
    with another(broker, timeout=4) as worker, another(broker) as operator:
        publish(operator, JOBS, *range(600))
        reading = Reading(worker, JOBS, prefetch=1)
        held = reading.until(1)
        assert JOBS(operator.channel()).purge() == 599
        worker.release()
        assert Reading(operator, JOBS).until(1) == held


def test_a_used_or_nonempty_queue_is_kept(broker: LocalServer) -> None:
    with another(broker, timeout=4) as worker, another(broker) as operator:
        queue = JOBS(operator.channel())
        publish(operator, JOBS, 1)
        with pytest.raises(PreconditionFailed, match="has 1 messages"):
            queue.delete(if_empty=True)
        Reading(worker, JOBS).until(1)[0]
        with pytest.raises(PreconditionFailed, match="has consumers"):
            queue.delete(if_unused=True)
        assert messages(broker, "jobs") == 1


# Queues that go away -------------------------------------------------------------------


def test_auto_delete_queues_take_messages_before_their_consumer(
    broker: LocalServer,
) -> None:
    queue = Queue("passing", auto_delete=True)
    with another(broker) as reader, another(broker, timeout=4) as writer:
        queue(reader.channel()).declare()
        Producer(writer).publish("early", routing_key="passing")
        assert Reading(reader, queue).until(1) == ["early"]


def test_a_cancelled_consumers_messages_wait_for_the_next(
    connection: Connection,
) -> None:
    queue = Queue("here", routing_key="here", exclusive=True)
    first = Reading(connection, queue)
    publish(connection, queue, *range(5))
    wait_for(lambda: first.channel.buffer.is_readable)
    connection.transport.shared.nc.flush()
    first.consumer.cancel()
    second = Reading(connection, queue)
    assert second.until(5) == list(range(5))


def test_exclusive_queues_end_with_the_connections_declaring_them(
    broker: LocalServer,
) -> None:
    queue = Queue("here", exclusive=True)
    with another(broker) as other:
        with another(broker) as first, another(broker) as second:
            for connection in (first, second):
                queue(connection.channel()).declare()
            first.release()
            transient = other.connect().shared.transient
            assert transient.get("here") is not None
        assert transient.get("here") is None


# The prefetch count --------------------------------------------------------------------


def test_a_busy_consumer_leaves_all_queues_to_others(
    broker: LocalServer,
) -> None:
    queues = [Queue("a"), Queue("b", max_priority=3)]
    with another(broker) as first, another(broker, timeout=4) as second:
        for queue in queues:
            queue(first.channel()).declare()
        producer = Producer(second)
        busy = Reading(first, *queues, prefetch=1)

        def waiting() -> int:
            return pulls(broker, "a") + pulls(broker, "b")

        wait_for(lambda: waiting() == 5)  # one for each priority of each queue
        producer.publish("long", routing_key="a")
        assert busy.until(1) == ["long"]
        # Far less than the time after which the server ends a pull.
        wait_for(lambda: waiting() == 0, 10)
        for number, queue in enumerate(queues * 3):
            producer.publish(number, routing_key=queue.name, priority=number % 4)
        idle = Reading(second, *queues)
        assert sorted(idle.until(6)) == list(range(6))
        busy.nothing_more()
        assert not any(m.delivery_info["redelivered"] for m in idle.messages)


def test_a_free_consumer_gets_the_highest_priority_first(broker: LocalServer) -> None:
    ranked = Queue("ranked", routing_key="ranked", max_priority=9)
    with another(broker) as connection:
        publish(connection, ranked, "long", priority=0)
        reading = Reading(connection, ranked, prefetch=1)
        reading.until(1)
        threading.Event().wait(0.1)
        for priority in (0, 5, 9, 3):
            publish(connection, ranked, priority, priority=priority)
        for count in range(2, 6):
            reading.messages[-1].ack()
            reading.until(count)
        assert [m.decode() for m in reading.messages] == ["long", 9, 5, 3, 0]
