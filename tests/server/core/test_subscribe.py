"""Tests of core subscriptions: reading, callbacks, slow readers and permissions."""

from __future__ import annotations

import itertools
import threading
from time import monotonic
from typing import TYPE_CHECKING

import pytest

import jsync
from jsync import errors
from jsync.core.session import Session

from ...support.accounts import Permissions, password_config
from ...support.servers import monitor, threads_since, wait_for
from ...support.threads import LONG, SOON, Recorder, Thread

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from jsync.server import LocalServer

    from ...conftest import StartServer

pytestmark = [pytest.mark.server, pytest.mark.quick]


@pytest.fixture
def reported() -> Recorder:
    """The errors that `on_error` of `nc` got."""
    return Recorder()


@pytest.fixture
def nc(server: LocalServer, reported: Recorder) -> Iterator[jsync.Connection]:
    with jsync.connect(server.url, on_error=reported) as nc:
        yield nc


def subjects_on_server(server: LocalServer, nc: jsync.Connection) -> list[str]:
    """Return the subjects of our subscriptions on the server."""
    nc.flush()
    page = monitor(server, f"connz?cid={nc.client_id}&subs=1")
    return list(page["connections"][0].get("subscriptions_list", []))


# Reading ------------------------------------------------------------------------------


def test_iterating_gives_the_messages_in_order(
    nc: jsync.Connection, unique: str
) -> None:
    sub = nc.subscribe(unique)
    for i in range(1000):
        nc.publish(unique, b"%d" % i)
    seen = [int(msg.data) for msg in itertools.islice(sub, 1000)]
    assert seen == list(range(1000))


def test_an_iteration_may_be_left_and_resumed(
    nc: jsync.Connection, unique: str
) -> None:
    sub = nc.subscribe(unique)
    for i in range(10):
        nc.publish(unique, b"%d" % i)
    seen = []
    for _ in range(2):
        for msg in sub:
            seen.append(int(msg.data))
            if len(seen) % 5 == 0:
                break
    assert seen == list(range(10))


def test_next_waits_for_a_message_yet_to_come(
    nc: jsync.Connection, unique: str
) -> None:
    sub = nc.subscribe(unique)
    waiting = Thread(sub.next, LONG)
    waiting.wait_until_blocked()
    nc.publish(unique, b"at last")
    assert waiting.result().data == b"at last"


def test_next_without_a_timeout_waits_for_a_message(
    nc: jsync.Connection, unique: str
) -> None:
    sub = nc.subscribe(unique)
    waiting = Thread(sub.next, None)
    waiting.wait_until_blocked()
    nc.publish(unique, b"at last")
    assert waiting.result().data == b"at last"


@pytest.mark.parametrize("timeout", [0, 0.05])
def test_the_subscription_continues_after_next_timed_out(
    nc: jsync.Connection, unique: str, timeout: float
) -> None:
    sub = nc.subscribe(unique)
    with pytest.raises(errors.TimeoutError) as caught:
        sub.next(timeout=timeout)
    assert isinstance(caught.value, TimeoutError)
    nc.publish(unique, b"later")
    assert sub.next().data == b"later"


def test_next_with_timeout_zero_takes_a_waiting_message(
    nc: jsync.Connection, unique: str
) -> None:
    sub = nc.subscribe(unique)
    nc.publish(unique, b"here")
    wait_for(lambda: sub.pending == 1)
    assert sub.next(timeout=0).data == b"here"


@pytest.mark.parametrize(
    ("pattern", "matches", "misses"),
    [
        ("{}.*", ["{}.a"], ["{}.a.b", "{}"]),
        ("{}.>", ["{}.a", "{}.a.b"], ["{}"]),
        ("{}.*.c", ["{}.a.c"], ["{}.a.b"]),
    ],
)
def test_wildcards_match_by_the_rules_of_nats(
    nc: jsync.Connection,
    unique: str,
    pattern: str,
    matches: list[str],
    misses: list[str],
) -> None:
    sub = nc.subscribe(pattern.format(unique))
    for subject in misses + matches:
        nc.publish(subject.format(unique))
    seen = [sub.next().subject for _ in matches]
    assert seen == [subject.format(unique) for subject in matches]
    assert sub.pending == 0


def test_a_subscription_shows_its_subject_and_its_counts(
    nc: jsync.Connection, unique: str
) -> None:
    sub = nc.subscribe(unique, queue="group")
    for _ in range(3):
        nc.publish(unique, b"12345")
    wait_for(lambda: sub.pending == 3)
    assert (sub.subject, sub.queue) == (unique, "group")
    assert sub.pending_bytes == 3 * (len(unique) + 5)
    assert (sub.delivered, sub.dropped) == (3, 0)
    assert sub.is_active
    assert repr(sub) == (
        f"<Subscription {unique!r} queue='group' active, 3 pending, 0 dropped>"
    )
    sub.unsubscribe()
    assert " ended, " in repr(sub)
    assert (sub.pending, sub.pending_bytes) == (0, 0)


def test_each_message_reaches_one_queue_group_member(
    nc: jsync.Connection, server: LocalServer, unique: str
) -> None:
    seen: list[list[int]] = [[], [], []]
    with jsync.connect(server.url) as other:
        for connection, mine in zip((nc, nc, other), seen, strict=True):

            def remember(msg: jsync.Msg, mine: list[int] = mine) -> None:
                mine.append(int(msg.data))

            connection.subscribe(unique, queue="group", callback=remember)
        everything = nc.subscribe(unique)
        other.flush()
        for i in range(300):
            nc.publish(unique, b"%d" % i)
        wait_for(lambda: sum(map(len, seen)) == 300)
        assert sorted(itertools.chain(*seen)) == list(range(300))
        assert all(seen)
        assert [int(everything.next().data) for _ in range(300)] == list(range(300))


def test_two_subscriptions_to_one_subject_each_get_all(
    nc: jsync.Connection, unique: str
) -> None:
    first, second = nc.subscribe(unique), nc.subscribe(unique)
    nc.publish(unique, b"twice")
    assert first.next().data == second.next().data == b"twice"


def test_subscriptions_may_number_many(
    nc: jsync.Connection, server: LocalServer, unique: str
) -> None:
    subs = [nc.subscribe(f"{unique}.{i}") for i in range(2000)]
    for i in range(2000):
        nc.publish(f"{unique}.{i}", b"%d" % i)
    assert [int(sub.next().data) for sub in subs] == list(range(2000))
    for sub in subs:
        sub.unsubscribe()
    assert subjects_on_server(server, nc) == []


# The end of a subscription ------------------------------------------------------------


def test_unsubscribe_ends_the_iteration_and_drops_the_backlog(
    nc: jsync.Connection, server: LocalServer, unique: str
) -> None:
    sub = nc.subscribe(unique)
    for _ in range(10):
        nc.publish(unique)
    wait_for(lambda: sub.pending == 10)
    sub.unsubscribe()
    sub.unsubscribe()
    assert list(sub) == []
    with pytest.raises(errors.SubscriptionClosedError):
        sub.next()
    assert subjects_on_server(server, nc) == []


def test_unsubscribe_wakes_the_reader(nc: jsync.Connection, unique: str) -> None:
    iterated, asked = nc.subscribe(unique), nc.subscribe(unique)
    iterating: Thread[list[jsync.Msg]] = Thread(list, iterated)
    asking = Thread(asked.next, LONG)
    iterating.wait_until_blocked()
    asking.wait_until_blocked()
    iterated.unsubscribe()
    asked.unsubscribe()
    assert iterating.result() == []
    assert isinstance(asking.error(), errors.SubscriptionClosedError)


def test_a_with_block_unsubscribes(
    nc: jsync.Connection, server: LocalServer, unique: str
) -> None:
    with nc.subscribe(unique) as sub:
        assert subjects_on_server(server, nc) == [unique]
    assert not sub.is_active
    assert subjects_on_server(server, nc) == []


def test_unsubscribe_after_ends_with_that_message(
    nc: jsync.Connection, server: LocalServer, unique: str
) -> None:
    sub = nc.subscribe(unique)
    sub.unsubscribe(after=3)
    for i in range(5):
        nc.publish(unique, b"%d" % i)
    assert [int(msg.data) for msg in sub] == [0, 1, 2]
    with pytest.raises(errors.SubscriptionClosedError):
        sub.next()
    assert not sub.is_active
    assert subjects_on_server(server, nc) == []


def test_unsubscribe_after_counts_the_received_messages(
    nc: jsync.Connection, server: LocalServer, unique: str
) -> None:
    sub = nc.subscribe(unique)
    for i in range(5):
        nc.publish(unique, b"%d" % i)
    wait_for(lambda: sub.pending == 5)
    assert sub.next().data == b"0"
    sub.unsubscribe(after=3)
    # Messages that have arrived are kept, even if they are more than requested.
    assert [int(msg.data) for msg in sub] == [1, 2, 3, 4]
    assert subjects_on_server(server, nc) == []


def test_unsubscribe_after_wakes_a_reader_that_waits_already(
    nc: jsync.Connection, unique: str
) -> None:
    sub = nc.subscribe(unique)
    reading: Thread[list[jsync.Msg]] = Thread(list, sub)
    reading.wait_until_blocked()
    sub.unsubscribe(after=2)
    nc.publish(unique)
    nc.publish(unique)
    assert len(reading.result()) == 2


def test_drain_ends_a_subscription_after_its_received_messages(
    nc: jsync.Connection, server: LocalServer, unique: str
) -> None:
    sub = nc.subscribe(unique)
    for i in range(1000):
        nc.publish(unique, b"%d" % i)
    sub.drain()
    assert subjects_on_server(server, nc) == []
    assert [int(msg.data) for msg in sub] == list(range(1000))
    with pytest.raises(errors.SubscriptionClosedError):
        sub.next()
    sub.drain()
    assert nc.is_connected


def test_drain_of_a_subscription_waits_for_its_callback(
    nc: jsync.Connection, unique: str
) -> None:
    handled = []
    begun = threading.Event()

    def handle(msg: jsync.Msg) -> None:
        begun.wait(SOON)
        handled.append(int(msg.data))

    sub = nc.subscribe(unique, callback=handle)
    for i in range(100):
        nc.publish(unique, b"%d" % i)
    draining = Thread(sub.drain)
    draining.wait_until_blocked()
    assert not draining.ended
    begun.set()
    draining.result()
    assert handled == list(range(100))


def test_drain_of_a_subscription_is_bounded(nc: jsync.Connection, unique: str) -> None:
    released = threading.Event()
    sub = nc.subscribe(unique, callback=lambda msg: released.wait(LONG))
    try:
        nc.publish(unique)
        nc.publish(unique)
        with pytest.raises(errors.DrainTimeoutError):
            sub.drain(timeout=0.1)
    finally:
        released.set()


def test_drain_without_any_message_received_does_not_wait(
    nc: jsync.Connection, unique: str
) -> None:
    nc.subscribe(unique, callback=lambda msg: None).drain(timeout=SOON)


# Slow readers -------------------------------------------------------------------------


def test_a_full_message_backlog_drops_and_reports_once(
    nc: jsync.Connection, reported: Recorder, unique: str
) -> None:
    sub = nc.subscribe(unique, max_pending_messages=10)
    for i in range(100):
        nc.publish(unique, b"%d" % i)
    nc.flush()
    error = reported.get()
    assert isinstance(error, errors.SlowConsumerError)
    assert error.subject == unique
    assert error.dropped >= 1
    assert reported.waiting == 0
    assert (sub.pending, sub.dropped, sub.delivered) == (10, 90, 100)
    assert [int(sub.next().data) for _ in range(10)] == list(range(10))


def test_a_full_byte_backlog_drops_and_reports_once(
    nc: jsync.Connection, reported: Recorder, unique: str
) -> None:
    size = len(unique) + 1000
    sub = nc.subscribe(unique, max_pending_bytes=10 * size)
    for _ in range(100):
        nc.publish(unique, b"x" * 1000)
    nc.flush()
    assert isinstance(reported.get(), errors.SlowConsumerError)
    assert reported.waiting == 0
    assert (sub.pending, sub.dropped) == (10, 90)
    assert sub.pending_bytes == 10 * size


def test_a_reader_that_lags_again_is_reported_again(
    nc: jsync.Connection, reported: Recorder, unique: str
) -> None:
    sub = nc.subscribe(unique, max_pending_messages=10)
    for dropped in (5, 10):
        for _ in range(15):
            nc.publish(unique)
        nc.flush()
        assert isinstance(reported.get(), errors.SlowConsumerError)
        assert sub.dropped == dropped
        for _ in range(10):
            sub.next()
    assert reported.waiting == 0


def test_the_limits_of_connect_are_the_default(
    server: LocalServer, unique: str
) -> None:
    reported = Recorder()
    with jsync.connect(server.url, max_pending_messages=5, on_error=reported) as nc:
        sub = nc.subscribe(unique)
        roomy = nc.subscribe(unique, max_pending_messages=50)
        for _ in range(20):
            nc.publish(unique)
        nc.flush()
        assert isinstance(reported.get(), errors.SlowConsumerError)
        assert (sub.pending, roomy.pending) == (5, 20)


def test_a_slow_reader_does_not_hold_up_others(
    nc: jsync.Connection, unique: str
) -> None:
    slow = nc.subscribe(f"{unique}.slow", max_pending_messages=1)
    quick = nc.subscribe(f"{unique}.quick")
    for i in range(1000):
        nc.publish(f"{unique}.slow")
        nc.publish(f"{unique}.quick", b"%d" % i)
    assert [int(quick.next().data) for _ in range(1000)] == list(range(1000))
    nc.flush()
    assert slow.dropped == 999


# One reader at a time -----------------------------------------------------------------


def test_a_second_thread_on_one_subscription_is_refused(
    nc: jsync.Connection, unique: str
) -> None:
    sub = nc.subscribe(unique)
    reading = Thread(sub.next, LONG)
    reading.wait_until_blocked()
    with pytest.raises(errors.ConcurrentUseError):
        sub.next(timeout=LONG)
    with pytest.raises(errors.ConcurrentUseError):
        next(iter(sub))
    nc.publish(unique, b"for the first")
    assert reading.result().data == b"for the first"


def test_readers_may_take_turns(nc: jsync.Connection, unique: str) -> None:
    sub = nc.subscribe(unique)
    for i in range(10):
        nc.publish(unique, b"%d" % i)
        assert Thread(sub.next).result().data == b"%d" % i


# Callbacks ----------------------------------------------------------------------------


def test_callbacks_get_messages_one_after_the_other(
    nc: jsync.Connection, unique: str
) -> None:
    seen: list[int] = []
    threads: set[threading.Thread] = set()
    busy = threading.Lock()

    def handle(msg: jsync.Msg) -> None:
        assert busy.acquire(blocking=False)
        threads.add(threading.current_thread())
        seen.append(int(msg.data))
        busy.release()

    other = Recorder()
    nc.subscribe(unique, callback=handle)
    nc.subscribe(unique, callback=other)
    for i in range(1000):
        nc.publish(unique, b"%d" % i)
    wait_for(lambda: len(seen) == 1000)
    assert seen == list(range(1000))
    assert threading.current_thread() not in threads
    assert not any(thread.name.endswith("-io") for thread in threads)
    assert other.thread() is not threading.current_thread()


def test_a_callback_without_a_message_has_no_thread(
    nc: jsync.Connection, unique: str
) -> None:
    before = set(threading.enumerate())
    for i in range(100):
        nc.subscribe(f"{unique}.{i}", callback=lambda msg: None)
    nc.flush()
    assert not threads_since(before)


@pytest.mark.parametrize("kind", [RuntimeError, SystemExit, KeyboardInterrupt])
def test_a_raising_callback_is_reported_and_continues(
    nc: jsync.Connection, reported: Recorder, unique: str, kind: type[BaseException]
) -> None:
    handled = Recorder()

    def handle(msg: jsync.Msg) -> None:
        if msg.data == b"bad":
            raise kind("out of my callback")
        handled(msg.data)

    nc.subscribe(unique, callback=handle)
    for data in (b"bad", b"good", b"bad", b"better"):
        nc.publish(unique, data)
    assert handled.get() == b"good"
    assert handled.get() == b"better"
    for _ in range(2):
        error = reported.get()
        assert isinstance(error, errors.CallbackError)
        assert isinstance(error.__cause__, kind)
        assert unique in str(error)


def test_a_callback_may_publish_request_subscribe_and_flush(
    nc: jsync.Connection, unique: str
) -> None:
    done = Recorder()
    nc.subscribe(f"{unique}.service", callback=lambda msg: msg.respond(b"answer"))

    def handle(msg: jsync.Msg) -> None:
        with nc.subscribe(f"{unique}.inner") as inner:
            nc.publish(f"{unique}.inner", nc.request(f"{unique}.service").data)
            nc.flush()
            done(inner.next().data)

    nc.subscribe(unique, callback=handle)
    nc.publish(unique)
    assert done.get() == b"answer"


@pytest.mark.parametrize("how", ["unsubscribe", "drain"])
def test_a_callback_may_end_its_own_subscription(
    nc: jsync.Connection, server: LocalServer, unique: str, how: str
) -> None:
    handled: list[int] = []
    ended = Recorder()

    def handle(msg: jsync.Msg) -> None:
        handled.append(int(msg.data))
        if len(handled) == 3:
            getattr(sub, how)()
            ended()

    sub = nc.subscribe(unique, callback=handle)
    for i in range(10):
        nc.publish(unique, b"%d" % i)
    ended.get()
    wait_for(lambda: subjects_on_server(server, nc) == [])
    if how == "drain":
        wait_for(lambda: len(handled) == 10)
    sub.drain()
    assert handled == list(range(3 if how == "unsubscribe" else 10))


@pytest.mark.parametrize("how", ["close", "drain"])
def test_a_callback_may_end_the_connection(
    server: LocalServer, unique: str, how: str
) -> None:
    closed, ended = Recorder(), Recorder()
    nc = jsync.connect(server.url, on_closed=closed)

    def handle(msg: jsync.Msg) -> None:
        getattr(nc, how)()
        ended()

    nc.subscribe(unique, callback=handle)
    nc.publish(unique)
    ended.get()
    assert closed.get() is None
    assert nc.is_closed


def test_a_subscription_with_a_callback_cannot_be_read(
    nc: jsync.Connection, unique: str
) -> None:
    sub = nc.subscribe(unique, callback=lambda msg: None)
    with pytest.raises(errors.ConfigError):
        iter(sub)
    with pytest.raises(errors.ConfigError):
        sub.next()


def test_unsubscribe_after_holds_for_a_callback(
    nc: jsync.Connection, unique: str
) -> None:
    handled: list[int] = []
    sub = nc.subscribe(unique, callback=lambda msg: handled.append(int(msg.data)))
    sub.unsubscribe(after=3)
    for i in range(6):
        nc.publish(unique, b"%d" % i)
    nc.flush()
    sub.drain()
    assert handled == [0, 1, 2]


# Permissions --------------------------------------------------------------------------


@pytest.fixture
def restricted(
    own_server: StartServer, reported: Recorder
) -> Iterator[jsync.Connection]:
    """A connection that may neither read nor write `secret.>`."""
    denied = ("secret.>",)
    permissions = Permissions(publish_deny=denied, subscribe_deny=denied)
    server = own_server(config=password_config({"bob": "x"}, bob=permissions))
    with jsync.connect(server.url, user="bob", password="x", on_error=reported) as nc:
        yield nc


def test_a_reader_without_permission_raises_at_once(
    restricted: jsync.Connection, reported: Recorder
) -> None:
    sub = restricted.subscribe("secret.plan")
    with pytest.raises(errors.PermissionsError) as caught:
        sub.next(timeout=LONG)
    assert (caught.value.subject, caught.value.operation) == (
        "secret.plan",
        "subscribe",
    )
    with pytest.raises(errors.PermissionsError):
        list(sub)
    assert isinstance(reported.get(), errors.PermissionsError)
    assert not sub.is_active


def test_a_queue_reader_without_permission_raises_at_once(
    restricted: jsync.Connection,
) -> None:
    sub = restricted.subscribe("secret.plan", queue="group")
    with pytest.raises(errors.PermissionsError):
        sub.next(timeout=LONG)


def test_a_denied_subscription_leaves_the_others_alone(
    restricted: jsync.Connection, unique: str
) -> None:
    allowed = restricted.subscribe(unique)
    denied = restricted.subscribe("secret.plan")
    with pytest.raises(errors.PermissionsError):
        denied.next(timeout=LONG)
    restricted.publish(unique, b"still there")
    assert allowed.next().data == b"still there"


def test_a_denied_queue_leaves_other_subscriptions_alone(
    own_server: StartServer, reported: Recorder
) -> None:
    permissions = Permissions(subscribe_deny=("plans closed",))
    server = own_server(config=password_config({"bob": "x"}, bob=permissions))
    with jsync.connect(server.url, user="bob", password="x", on_error=reported) as nc:
        plain = nc.subscribe("plans")
        allowed = nc.subscribe("plans", queue="open")
        denied = nc.subscribe("plans", queue="closed")
        with pytest.raises(errors.PermissionsError):
            denied.next(timeout=LONG)
        nc.publish("plans", b"for two")
        assert plain.next(timeout=LONG).data == b"for two"
        assert allowed.next(timeout=LONG).data == b"for two"


def test_a_request_without_publish_permission_raises_at_once(
    restricted: jsync.Connection,
) -> None:
    with pytest.raises(errors.PermissionsError) as caught:
        restricted.request("secret.plan", timeout=LONG)
    assert caught.value.operation == "publish"


def test_request_many_without_publish_permission_raises_at_once(
    restricted: jsync.Connection,
) -> None:
    with pytest.raises(errors.PermissionsError):
        list(restricted.request_many("secret.plan", timeout=SOON))


def test_a_request_without_inbox_permission_raises_at_once(
    own_server: StartServer, unique: str
) -> None:
    permissions = Permissions(subscribe_deny=("_INBOX.>",))
    server = own_server(config=password_config({"bob": "x"}, bob=permissions))
    with jsync.connect(server.url, user="bob", password="x") as nc:
        nc.subscribe(unique, callback=lambda msg: None)
        for _ in range(2):
            with pytest.raises(errors.PermissionsError):
                nc.request(unique, timeout=LONG)


@pytest.mark.parametrize(
    "ask",
    [
        pytest.param(lambda nc, to: nc.request(to, timeout=SOON), id="request"),
        pytest.param(
            lambda nc, to: list(nc.request_many(to, timeout=SOON)), id="request_many"
        ),
        pytest.param(
            lambda nc, to: nc.jetstream().publish_batch([(to, b"")] * 2, timeout=SOON),
            id="publish_batch",
        ),
    ],
)
def test_a_request_with_inbox_denied_beforehand_raises_too(
    own_server: StartServer,
    unique: str,
    monkeypatch: pytest.MonkeyPatch,
    ask: Callable[[jsync.Connection, str], object],
) -> None:
    permissions = Permissions(subscribe_deny=("_INBOX.>",))
    server = own_server(config=password_config({"bob": "x"}, bob=permissions))
    open_replies = Session.open_replies
    waits = iter([True])

    def open_and_wait(session: Session) -> None:
        open_replies(session)
        if next(waits, False):
            session.ping(monotonic() + LONG)
            wait_for(lambda: not session.reply_mux.is_open)

    monkeypatch.setattr(Session, "open_replies", open_and_wait)
    with jsync.connect(server.url, user="bob", password="x") as nc:
        nc.subscribe(unique, callback=lambda msg: None)
        with pytest.raises(errors.PermissionsError):
            ask(nc, unique)


def test_a_denied_subscription_with_a_callback_is_reported(
    restricted: jsync.Connection, reported: Recorder
) -> None:
    restricted.subscribe("secret.plan", callback=lambda msg: None)
    assert isinstance(reported.get(), errors.PermissionsError)
