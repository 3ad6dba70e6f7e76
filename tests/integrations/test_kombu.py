"""The transport of kombu against a real server, without Celery."""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING, Any

import pytest
from amqp.exceptions import NotFound
from kombu import Connection, Consumer, Exchange, Producer, Queue
from kombu.common import Broadcast

import jsync
from jsync import errors
from jsync.errors import ConfigError
from jsync.integrations.kombu import delivery
from jsync.integrations.kombu.transient import TransientQueue

from ..support.accounts import MAX_BYTES_REQUIRED
from ..support.servers import free_port, wait_for
from .conftest import SECONDS, url
from .kombu_support import JOBS, Reading, another, publish
from .tasks import make_app

if TYPE_CHECKING:
    from collections.abc import Iterator

    from jsync.server import LocalServer

    from ..conftest import StartServer

pytestmark = pytest.mark.server


@pytest.fixture
def connection(broker: LocalServer) -> Iterator[Connection]:
    with Connection(url(broker), transport_options={"ack_wait": 2}) as connection:
        yield connection


def test_a_message_stays_until_it_is_acknowledged(
    connection: Connection, broker: LocalServer
) -> None:
    publish(connection, JOBS, {"a": 1}, {"a": 2})
    reading = Reading(connection, JOBS)
    assert reading.until(2) == [{"a": 1}, {"a": 2}]
    for message in reading.messages:
        message.ack()
    with jsync.connect(broker.url) as nc:
        stream = nc.jetstream().stream("kombu-jobs")
        wait_for(lambda: stream.info().state.messages == 0)


def test_a_queue_exists_where_streams_need_limits(own_server: StartServer) -> None:
    broker = own_server(config=MAX_BYTES_REQUIRED)
    with another(broker, max_bytes=2000) as connection:
        publish(connection, JOBS, {"a": 1})
        with pytest.raises(errors.StreamStoreError, match="maximum bytes"):
            publish(connection, JOBS, *[{"a": 2}] * 20)
        assert Reading(connection, JOBS).until(1) == [{"a": 1}]
    app = make_app(url(broker))
    app.conf.result_backend_transport_options = {"max_bytes": 2000}
    app.backend.set("a", b"1")
    assert app.backend.get("a") == b"1"
    app.backend.close()
    app.close()


def test_control_sent_first_comes_first_despite_late_thread(
    broker: LocalServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    came: list[Any] = []
    control, may_go = Broadcast("control", unique=True), threading.Event()
    take_in = TransientQueue._arrived

    def late(self: TransientQueue, msg: jsync.Msg) -> None:
        may_go.wait(SECONDS)
        take_in(self, msg)

    with another(broker) as connection, another(broker) as sender:
        first, second = connection.channel(), connection.channel()
        for channel, queue in ((first, JOBS), (second, control)):
            read = Consumer(
                channel, [queue], on_message=lambda m: came.append(m.decode())
            )
            read.consume()
        monkeypatch.setattr(TransientQueue, "_arrived", late)
        Producer(sender, exchange=control.exchange).publish("revoke")
        publish(sender, JOBS, "task")
        wait_for(lambda: first.buffer.is_readable, SECONDS)
        threading.Timer(0.1, may_go.set).start()
        while len(came) < 2:
            connection.drain_events(timeout=SECONDS)
    assert came == ["revoke", "task"]


def test_prefetch_limits_the_messages_that_are_held(connection: Connection) -> None:
    publish(connection, JOBS, *range(10))
    reading = Reading(connection, JOBS, prefetch=3)
    reading.until(3)
    reading.nothing_more()
    reading.messages[0].ack()
    reading.until(4)
    reading.nothing_more()


def test_unacknowledged_messages_reach_another_connection_at_once(
    broker: LocalServer,
) -> None:
    with another(broker, ack_wait=600) as first:
        publish(first, JOBS, 1, 2, 3)
        Reading(first, JOBS, prefetch=1).until(1)
    with another(broker, ack_wait=600) as second:
        reading = Reading(second, JOBS)
        assert sorted(reading.until(3)) == [1, 2, 3]
        assert any(m.delivery_info["redelivered"] for m in reading.messages)


def test_a_message_stays_with_a_worker_that_lives(connection: Connection) -> None:
    publish(connection, JOBS, 1)
    reading = Reading(connection, JOBS)
    reading.until(1)
    held = threading.Event()
    held.wait(5)  # twice ack_wait: the message is kept in the background
    reading.nothing_more()


def test_rejected_messages_go_and_requeued_ones_come_again(
    connection: Connection,
) -> None:
    publish(connection, JOBS, "drop", "again")
    reading = Reading(connection, JOBS)
    reading.until(2)
    by_body = {message.decode(): message for message in reading.messages}
    by_body["drop"].reject()
    by_body["again"].requeue()
    assert reading.until(3)[2] == "again"
    assert reading.messages[2].delivery_info["redelivered"]
    reading.messages[2].ack()
    reading.nothing_more()


DEEP = "[" * 30_000 + "]" * 30_000


@pytest.mark.parametrize(
    "headers",
    [
        {"Kombu-Headers": f'{{"deep": {DEEP}}}'},
        {"Kombu-Headers": '{"raw": {"__type__": "bytes", "__value__": 5}}'},
        {"Kombu-Properties": '{"delivery_info": 5}'},
    ],
)
def test_senseless_headers_of_a_message_are_ignored(
    connection: Connection, broker: LocalServer, headers: dict[str, str]
) -> None:
    publish(connection, JOBS, 1)
    kind = {"Content-Type": "application/json", "Content-Encoding": "utf-8"}
    with jsync.connect(broker.url) as nc:
        nc.jetstream().publish("kombu.queue.jobs.0", b"2", headers=kind | headers)
    publish(connection, JOBS, 3)
    reading = Reading(connection, JOBS, prefetch=1)
    for count in (1, 2, 3):
        assert reading.until(count) == [1, 2, 3][:count]
        reading.messages[-1].ack()


def test_transient_queues_survive_deliveries_without_a_routing_key(
    connection: Connection, broker: LocalServer
) -> None:
    news = Exchange("news", type="topic")
    queue = Queue("passing", news, routing_key="#", exclusive=True)
    reading = Reading(connection, queue)
    headers = {
        "Content-Type": "application/json",
        "Content-Encoding": "utf-8",
        "Kombu-Properties": '{"delivery_info": "news"}',
    }
    with jsync.connect(broker.url) as nc:
        nc.publish("kombu.exchange.news.a.$", b'"hello"', headers=headers)
    assert reading.until(1) == ["hello"]


@pytest.mark.parametrize("no_ack", [False, True])
def test_a_message_that_cannot_be_read_is_dropped(
    connection: Connection, broker: LocalServer, no_ack: bool
) -> None:
    queue = JOBS(connection.channel())
    queue.declare()
    with jsync.connect(broker.url) as nc:
        stream = nc.jetstream().stream("kombu-jobs")

        def forge() -> None:
            """Store a message whose header block is not one, which servers allow."""
            frame = b"HPUB kombu.queue.jobs.0 7 8\r\ngarbagex\r\n"
            nc._session.write_buffer.command(frame)
            nc.flush()

        forge()
        publish(connection, JOBS, "asked for")
        message = queue.get(no_ack=no_ack)
        assert message.decode() == "asked for"
        if not no_ack:
            message.ack()
        forge()
        publish(connection, JOBS, "consumed")
        reading = Reading(connection, JOBS, prefetch=1, no_ack=no_ack)
        assert reading.until(1) == ["consumed"]
        if not no_ack:
            reading.messages[0].ack()
        wait_for(lambda: stream.info().state.messages == 0)


def test_higher_priorities_come_first(connection: Connection) -> None:
    queue = Queue("ranked", routing_key="ranked", max_priority=9)
    for priority in (0, 5, 9, 3, 9):
        publish(connection, queue, priority, priority=priority)
    channel = connection.channel()
    bound = queue(channel)
    found = [bound.get(no_ack=True).decode() for _ in range(5)]
    assert found == [9, 9, 5, 3, 0]
    assert bound.get() is None
    reading = Reading(connection, queue)
    publish(connection, queue, 1, priority=1)
    reading.until(1)


def test_a_queue_with_other_priorities_is_one_error(connection: Connection) -> None:
    JOBS(connection.channel()).declare()
    with pytest.raises(ConfigError, match="exists with max_priority 0, not 5"):
        Queue("jobs", max_priority=5)(connection.channel()).declare()


def test_a_topic_reaches_each_queue_that_matches_once(
    connection: Connection, broker: LocalServer
) -> None:
    news = Exchange("news", type="topic")
    stored = Queue("stored", news, routing_key="world.#")
    passing = Queue("passing", news, routing_key="world.*", exclusive=True)
    wide = passing(connection.channel())
    wide.declare()
    wide.bind_to(news, routing_key="world.#")
    stored(connection.channel()).declare()
    with another(broker) as other:  # it has declared neither queue
        producer = Producer(other, exchange=news(other.channel()))
        for key in ("world.cup", "world", "local"):
            producer.publish(key, routing_key=key)
    for queue in (stored, passing):
        reading = Reading(connection, queue)
        assert sorted(reading.until(2)) == ["world", "world.cup"]
        reading.nothing_more()


def test_a_broadcast_reaches_every_reader(broker: LocalServer) -> None:
    with another(broker) as first, another(broker) as second:
        readings = [Reading(c, Broadcast("all")) for c in (first, second)]
        producer = Producer(first, exchange=Exchange("all", type="fanout"))
        producer.publish("hello")
        assert [reading.until(1) for reading in readings] == [["hello"]] * 2
    with jsync.connect(broker.url) as nc:
        assert set(nc.jetstream().stream_names()) <= {"KV_kombu-bindings"}


def test_queues_are_counted_purged_and_deleted(
    connection: Connection, broker: LocalServer
) -> None:
    publish(connection, JOBS, *range(4))
    queue = JOBS(connection.channel())
    assert queue.queue_declare(passive=True).message_count == 4
    assert queue.purge() == 4
    assert queue.queue_declare(passive=True).message_count == 0
    queue.delete()
    with pytest.raises(NotFound, match="no queue 'jobs'"):
        queue.queue_declare(passive=True)
    with jsync.connect(broker.url) as nc:
        assert "kombu-jobs" not in set(nc.jetstream().stream_names())


def test_a_stream_that_somebody_deleted_is_made_again(
    connection: Connection, broker: LocalServer
) -> None:
    publish(connection, JOBS, 1)
    reading = Reading(connection, JOBS)
    reading.until(1)
    with jsync.connect(broker.url) as nc:
        nc.jetstream().delete_stream("kombu-jobs")
    made = {"again": False}

    def came() -> bool:
        if not made["again"]:
            with jsync.connect(broker.url) as nc:
                made["again"] = "kombu-jobs" in set(nc.jetstream().stream_names())
            return False
        return True

    wait_for(came, SECONDS)
    publish(connection, JOBS, 2)
    assert reading.until(2)[1] == 2


def test_each_process_has_one_connection_even_a_child(
    broker: LocalServer,
) -> None:
    with (
        another(broker) as first,
        another(broker) as second,
        Connection(url(broker, "/other")) as third,
    ):
        for connection in (first, second, third):
            publish(connection, JOBS, 1)
        assert first.transport.shared is second.transport.shared
        assert first.transport.shared is not third.transport.shared
        assert first.transport.shared.nc is third.transport.shared.nc
        reading = Reading(first, JOBS)
        reading.until(2)
        child = os.fork()
        if not child:
            code = 1
            try:
                first.collapse() if hasattr(first, "collapse") else first.release()
                with another(broker) as mine:
                    publish(mine, JOBS, "child")
                code = 0
            finally:
                os._exit(code)
        assert os.waitpid(child, 0)[1] == 0
        assert reading.until(3) == [1, 1, "child"]


def test_another_name_in_the_url_is_another_broker(broker: LocalServer) -> None:
    with Connection(url(broker, "/a")) as a, Connection(url(broker, "/b")) as b:
        publish(a, JOBS, "a")
        publish(b, JOBS, "b")
        assert JOBS(a.channel()).get(no_ack=True).decode() == "a"
        assert JOBS(b.channel()).get(no_ack=True).decode() == "b"


def test_a_consumer_continues_after_the_server_was_away(broker: LocalServer) -> None:
    port = broker.port
    with another(broker, connect={"reconnect_wait": 0.05}) as connection:
        publish(connection, JOBS, 1)
        reading = Reading(connection, JOBS)
        reading.until(1)[0]
        reading.messages[0].ack()
        broker.restart()
        assert broker.port == port
        connection.ensure(connection, lambda: publish(connection, JOBS, 2))()
        reading.until(2)


def test_a_missing_server_is_an_error_kombu_retries() -> None:
    connection = Connection(f"jetstream://127.0.0.1:{free_port()}")
    with pytest.raises(errors.ConnectionError):
        connection.connect()
    assert issubclass(errors.ConnectionError, connection.recoverable_connection_errors)


def test_a_headers_exchange_is_one_error(connection: Connection) -> None:
    with pytest.raises(ConfigError, match="direct, topic and fanout"):
        Exchange("h", type="headers")(connection.channel()).declare()


def test_refused_pulls_do_not_flood_the_server(
    own_server: StartServer,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(delivery, "PAUSE_SECONDS", SECONDS)
    deny = '{ publish: { deny: ["$JS.API.CONSUMER.MSG.NEXT.>"] } }'
    user = f"{{ user: a, password: a, permissions: {deny} }}"
    config = (
        f"jetstream {{}}\naccounts {{ A {{ users: [{user}], jetstream: {{}} }} }}\n"
    )
    broker = own_server(config=f"{config}no_auth_user: a\n")

    def rejections() -> list[str]:
        return [m for m in caplog.messages if "trying again" in m]

    with Connection(url(broker)) as connection:
        reading = Reading(connection, JOBS)
        wait_for(lambda: bool(rejections()))
        with pytest.raises(TimeoutError):
            connection.drain_events(timeout=1)
        assert len(rejections()) == len({*rejections()}) <= 4
        reading.channel.close()


def test_pulls_of_a_queue_keep_server_limits(own_server: StartServer) -> None:
    limits = "max_request_batch: 2"
    broker = own_server(config=f"jetstream {{ limits {{ {limits} }} }}")
    with Connection(url(broker)) as connection:
        publish(connection, JOBS, *range(10))
        assert Reading(connection, JOBS).until(10) == [*range(10)]
