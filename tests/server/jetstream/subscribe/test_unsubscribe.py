"""Tests of ADR-15, Unsubscribe and Drain: the client that created the consumer deletes it."""

from __future__ import annotations

import gc
import queue
import warnings
from typing import TYPE_CHECKING, Any

import pytest

import jsync
from jsync import errors

from ....support.push_traffic import publish, sequences, take
from ....support.servers import wait_for
from ....support.threads import LONG, SOON, Recorder, Thread

if TYPE_CHECKING:
    from jsync.server import LocalServer

    from ....support.proxy import FaultProxy
    from ....support.subscribe_requests import Wire


def there(stream: jsync.Stream) -> list[str]:
    return list(stream.consumer_names())


@pytest.fixture
def undeletable(own_server: Any) -> LocalServer:
    """A server on which no user may delete consumers."""
    server: LocalServer = own_server(
        config="""
        authorization {
          users: [{user: u, password: p, permissions: {
            publish: {deny: ["$JS.API.CONSUMER.DELETE.>"]}}}]
        }
        jetstream {}
        """
    )
    return server


# Unsubscribe --------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["ephemeral", "durable"])
def test_a_consumer_that_was_created_is_deleted(
    js: jsync.JetStream, stream: jsync.Stream, subject: str, how: str
) -> None:
    durable = "made" if how == "durable" else None
    sub = js.subscribe(subject, durable=durable)
    assert there(stream) == [sub.consumer_name]
    sub.unsubscribe()
    assert there(stream) == []
    assert not sub.is_active
    sub.unsubscribe()  # does nothing


def test_a_consumer_that_was_there_is_left_alone(
    js: jsync.JetStream, stream: jsync.Stream, subject: str, unique: str
) -> None:
    stream.create_push_consumer(durable_name="old", deliver_subject=f"to.{unique}")
    for end in ("unsubscribe", "drain"):
        wait_for(lambda: not stream.push_consumer("old").cached_info.push_bound)
        sub = js.subscribe(subject, durable="old")
        getattr(sub, end)()
        assert there(stream) == ["old"]


def test_a_durable_to_be_deleted_is_announced(
    js: jsync.JetStream, stream: jsync.Stream, subject: str
) -> None:
    for subscribe in (js.subscribe, js.pull_subscribe):
        with pytest.warns(RuntimeWarning, match="'new', .* keep=True") as told:
            sub = subscribe(subject, durable="new")
        assert told[0].filename == __file__
        sub.unsubscribe()
        assert there(stream) == []
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            with pytest.raises(RuntimeWarning, match="deletes it"):
                subscribe(subject, durable="new")
            assert there(stream) == []
            subscribe(subject, durable="new", keep=False).unsubscribe()
            subscribe(subject).unsubscribe()
    with pytest.warns(RuntimeWarning, match="'workers', .* keep=True"):
        js.subscribe(subject, queue="workers").drain()


@pytest.mark.parametrize("end", ["unsubscribe", "drain", "connection", "collected"])
def test_keep_outlasts_the_subscription(
    server: LocalServer, stream: jsync.Stream, subject: str, end: str
) -> None:
    with jsync.connect(server.url) as nc:
        js = nc.jetstream()
        for name, subscribe in (("a", js.subscribe), ("b", js.pull_subscribe)):
            sub = subscribe(subject, durable=name, keep=True)
            if end == "collected":
                del sub
            elif end != "connection":
                getattr(sub, end)()
        gc.collect()
    assert there(stream) == ["a", "b"]


def test_keep_is_for_consumers_with_a_name(js: jsync.JetStream, subject: str) -> None:
    for arguments in ({"keep": True}, {"keep": "yes", "durable": "a"}):
        for subscribe in (js.subscribe, js.pull_subscribe):
            with pytest.raises(errors.ConfigError, match="keep"):
                subscribe(subject, **arguments)
    with pytest.raises(errors.ConfigError, match="keep: not with an ordered consumer"):
        js.subscribe(subject, ordered=True, keep=True)


def test_the_subscription_ends_before_the_consumers_deletion(
    stream: jsync.Stream, far: jsync.JetStream, wire: Wire, subject: str
) -> None:
    sub = far.subscribe(subject)
    sub.unsubscribe()
    gone = wire.place("UNSUB", str(sub._mailbox.sid))
    assert gone < wire.place("PUB", "$JS.API.CONSUMER.DELETE.")


def test_a_failed_deletion_raises_and_may_be_repeated(
    undeletable: LocalServer,
) -> None:
    url = undeletable.url.replace("://", "://u:p@")
    with jsync.connect(url, on_error=Recorder()) as nc:
        js = nc.jetstream()
        stream = js.create_stream(name="S", subjects=["s"], storage="memory")
        sub = js.subscribe("s")
        for _ in range(2):
            with pytest.raises(errors.PermissionsError):
                sub.unsubscribe()
        assert not sub.is_active
        assert there(stream) == [sub.consumer_name]


def test_an_already_gone_consumer_is_no_failure(
    js: jsync.JetStream, stream: jsync.Stream, subject: str
) -> None:
    sub = js.subscribe(subject)
    stream.delete_consumer(sub.consumer_name)
    sub.unsubscribe()
    sub = js.subscribe(subject)
    stream.delete()
    sub.unsubscribe()


def test_unsubscribe_drops_unread_messages_and_further_reads_raise(
    nc: jsync.Connection, js: jsync.JetStream, subject: str
) -> None:
    publish(nc, subject, 3)
    sub = js.subscribe(subject)
    wait_for(lambda: sub.pending == 3)
    waiting = iter(sub)
    sub.unsubscribe()
    assert sub.pending == 0
    assert list(waiting) == []
    with pytest.raises(errors.SubscriptionClosedError):
        sub.next(SOON)


def test_unsubscribe_wakes_a_waiting_reader(js: jsync.JetStream, subject: str) -> None:
    sub = js.subscribe(subject)
    waiting = Thread(sub.next, LONG)
    waiting.wait_until_blocked()
    sub.unsubscribe()
    assert isinstance(waiting.error(), errors.SubscriptionClosedError)


def test_a_callback_may_unsubscribe(
    nc: jsync.Connection, js: jsync.JetStream, stream: jsync.Stream, subject: str
) -> None:
    subs: queue.SimpleQueue[jsync.PushSubscription] = queue.SimpleQueue()
    done = Recorder()

    def handle(msg: jsync.JetStreamMsg) -> None:
        subs.get(timeout=SOON).unsubscribe()
        done(msg)

    sub = js.subscribe(subject, callback=handle)
    publish(nc, subject, 3)
    subs.put(sub)
    assert done.get().metadata.stream_sequence == 1
    assert there(stream) == []


def test_leaving_the_block_unsubscribes(
    js: jsync.JetStream, stream: jsync.Stream, subject: str
) -> None:
    with js.subscribe(subject) as sub:
        assert there(stream) == [sub.consumer_name]
    assert there(stream) == []


def test_leaving_the_block_hides_no_body_exception(
    undeletable: LocalServer,
) -> None:
    url = undeletable.url.replace("://", "://u:p@")
    with jsync.connect(url, on_error=Recorder()) as nc:
        js = nc.jetstream()
        js.create_stream(name="S", subjects=["s"], storage="memory")
        with (
            pytest.raises(ValueError, match="of the body") as caught,
            js.subscribe("s"),
        ):
            raise ValueError("of the body")
        assert "Permissions" in caught.value.__notes__[0]
        with pytest.raises(errors.PermissionsError), js.subscribe("s"):
            pass


def test_leaving_the_block_after_the_connection_is_quiet(
    server: LocalServer, stream: jsync.Stream, subject: str
) -> None:
    with jsync.connect(server.url) as other, other.jetstream().subscribe(subject):
        other.close()


@pytest.mark.parametrize("callback", [False, True], ids=["iterator", "callback"])
def test_unsubscribing_after_some_messages(
    nc: jsync.Connection,
    js: jsync.JetStream,
    stream: jsync.Stream,
    subject: str,
    callback: bool,
) -> None:
    handler = Recorder()
    sub = js.subscribe(subject, callback=handler if callback else None, durable="made")
    sub.unsubscribe(3)
    publish(nc, subject, 5)
    if callback:
        messages = [handler.get() for _ in range(3)]
    else:
        messages = list(sub)
    assert sequences(messages) == [1, 2, 3]
    wait_for(lambda: there(stream) == [])
    assert not sub.is_active
    assert not handler.waiting
    with pytest.raises(errors.ConfigError):
        sub.unsubscribe(-1)


# Drain --------------------------------------------------------------------------------


def test_a_drained_iterator_ends_before_its_consumers_deletion(
    nc: jsync.Connection, js: jsync.JetStream, stream: jsync.Stream, subject: str
) -> None:
    publish(nc, subject, 10)
    sub = js.subscribe(subject, durable="made")
    wait_for(lambda: sub.pending == 10)
    sub.drain()
    publish(nc, subject, 1)
    seen = []
    for msg in sub:
        assert there(stream) == ["made"]
        msg.ack_sync()
        seen.append(msg.metadata.stream_sequence)
    assert seen == list(range(1, 11))
    assert there(stream) == []


def test_a_drain_without_messages_deletes_the_consumer_itself(
    js: jsync.JetStream, stream: jsync.Stream, subject: str
) -> None:
    for callback in (None, Recorder()):
        sub = js.subscribe(subject, callback=callback)
        sub.drain()
        assert there(stream) == []
        sub.drain()


def test_a_drained_callback_handles_all_before_the_deletion(
    nc: jsync.Connection, js: jsync.JetStream, stream: jsync.Stream, subject: str
) -> None:
    release: queue.SimpleQueue[bool] = queue.SimpleQueue()
    seen: list[tuple[int, list[str]]] = []

    def handle(msg: jsync.JetStreamMsg) -> None:
        release.get(timeout=LONG)
        seen.append((msg.metadata.stream_sequence, there(stream)))

    sub = js.subscribe(subject, callback=handle, durable="made")
    publish(nc, subject, 5)
    wait_for(lambda: sub.delivered == 5)
    draining = Thread(sub.drain)
    wait_for(lambda: not sub.is_active)
    for _ in range(5):
        release.put(True)
    draining.result()
    assert seen == [(sequence, ["made"]) for sequence in range(1, 6)]
    assert there(stream) == []


def test_a_callback_may_drain_its_own_subscription(
    nc: jsync.Connection, js: jsync.JetStream, stream: jsync.Stream, subject: str
) -> None:
    subs: queue.SimpleQueue[jsync.PushSubscription] = queue.SimpleQueue()
    seen: queue.SimpleQueue[int] = queue.SimpleQueue()

    def handle(msg: jsync.JetStreamMsg) -> None:
        if msg.metadata.stream_sequence == 1:
            subs.get(timeout=SOON).drain()
        seen.put(msg.metadata.stream_sequence)

    sub = js.subscribe(subject, callback=handle, durable="made")
    publish(nc, subject, 3)
    wait_for(lambda: sub.delivered == 3)
    subs.put(sub)
    assert [seen.get(timeout=SOON) for _ in range(3)] == [1, 2, 3]
    wait_for(lambda: there(stream) == [])


def test_a_drain_that_takes_too_long_raises(
    nc: jsync.Connection, js: jsync.JetStream, subject: str
) -> None:
    release: queue.SimpleQueue[bool] = queue.SimpleQueue()
    begun: queue.SimpleQueue[bool] = queue.SimpleQueue()

    def handle(_: object) -> None:
        begun.put(True)
        release.get(timeout=LONG)

    sub = js.subscribe(subject, callback=handle)
    publish(nc, subject, 1)
    begun.get(timeout=SOON)
    with pytest.raises(errors.DrainTimeoutError):
        sub.drain(0.2)
    release.put(True)
    sub.drain()


@pytest.mark.parametrize("callback", [False, True], ids=["iterator", "callback"])
def test_a_failed_deletion_after_drain_reaches_on_error(
    undeletable: LocalServer, callback: bool
) -> None:
    problems = Recorder()
    url = undeletable.url.replace("://", "://u:p@")
    with jsync.connect(url, on_error=Recorder()) as nc:
        js = nc.jetstream()
        js.create_stream(name="S", subjects=["s"], storage="memory")
        publish(nc, "s", 2)
        sub = js.subscribe(
            "s", callback=Recorder() if callback else None, on_error=problems
        )
        wait_for(lambda: sub.delivered == 2)
        sub.drain()
        if not callback:
            assert not problems.waiting  # the buffered messages are read first
            assert len(list(sub)) == 2
        assert isinstance(problems.get(), errors.PermissionsError)


def test_draining_the_connection_drains_its_subscriptions(
    server: LocalServer, js: jsync.JetStream, stream: jsync.Stream, subject: str
) -> None:
    handled: list[int] = []
    with jsync.connect(server.url) as other:
        sub = other.jetstream().subscribe(
            subject,
            callback=lambda msg: handled.append(msg.metadata.stream_sequence),
            durable="made",
        )
        idle = other.jetstream().subscribe(
            subject, durable="idle", deliver_policy="new"
        )
        publish(other, subject, 50)
        wait_for(lambda: sub.delivered == 50)
        take(idle, 50)
    assert handled == list(range(1, 51))
    assert there(stream) == []


def test_draining_the_connection_leaves_consumers_with_unread_messages(
    server: LocalServer, stream: jsync.Stream, subject: str
) -> None:
    with jsync.connect(server.url) as other:
        sub = other.jetstream().subscribe(subject, durable="made")
        publish(other, subject, 5)
        wait_for(lambda: sub.pending == 5)
    assert there(stream) == ["made"]
    assert len(list(take(sub, 5))) == 5


# Without a reader ----------------------------------------------------------------------


def test_a_forgotten_iterator_is_unsubscribed(
    nc: jsync.Connection, js: jsync.JetStream, subject: str
) -> None:
    sub = js.subscribe(subject)
    sid = sub._mailbox.sid
    assert sid in nc._session.interests
    del sub
    wait_for(lambda: sid not in nc._session.interests)


def test_a_callback_continues_without_reference_to_its_subscription(
    nc: jsync.Connection, js: jsync.JetStream, subject: str
) -> None:
    handler = Recorder()
    js.subscribe(subject, callback=handler)
    gc.collect()
    publish(nc, subject, 1)
    assert handler.get().metadata.stream_sequence == 1
    gc.collect()
    publish(nc, subject, 1)
    assert handler.get().metadata.stream_sequence == 2


def test_a_subscription_cannot_end_through_a_lost_connection(
    proxy: FaultProxy, stream: jsync.Stream, subject: str
) -> None:
    with jsync.connect(proxy.url, allow_reconnect=False) as far:
        sub = far.jetstream().subscribe(subject, durable="made")
        proxy.cut()
        wait_for(lambda: far.is_closed)
        with pytest.raises(errors.ConnectionClosedError):
            sub.unsubscribe()
    assert there(stream) == ["made"]


def take_in(sub: Any) -> None:
    wait_for(lambda: sub.pending == 1)


@pytest.mark.parametrize("kind", ["push", "pull", "drained"])
def test_a_drain_deletes_a_dropped_subscriptions_durable_consumer(
    server: LocalServer, stream: jsync.Stream, subject: str, kind: str
) -> None:
    with jsync.connect(server.url) as nc:
        js = nc.jetstream()
        sub: Any
        if kind == "pull":
            sub = js.pull_subscribe(subject, "mine")
        else:
            sub = js.subscribe(subject, durable="mine")
        if kind == "drained":
            js.publish(subject, b"unread")
            take_in(sub)
            sub.drain()
        del sub
        gc.collect()
        assert there(stream) == ["mine"]
    assert there(stream) == []


def test_a_drain_leaves_consumers_that_dropped_subscriptions_read(
    server: LocalServer, stream: jsync.Stream, subject: str
) -> None:
    stream.create_consumer(durable_name="theirs")
    with jsync.connect(server.url) as nc:
        nc.jetstream().pull_subscribe(subject, "theirs")
        gc.collect()
    assert there(stream) == ["theirs"]


def test_an_unkept_subscription_delivers_all_before_the_end(
    server: LocalServer, stream: jsync.Stream, subject: str
) -> None:
    got: list[bytes] = []
    with jsync.connect(server.url) as nc:
        js = nc.jetstream()
        js.subscribe(subject, callback=lambda msg: got.append(msg.data))
        nc.subscribe(subject, callback=lambda msg: got.append(msg.data))
        gc.collect()
        for number in range(10):
            js.publish(subject, b"%d" % number)
            gc.collect()
    assert sorted(got) == sorted([b"%d" % number for number in range(10)] * 2)
    assert there(stream) == []
