"""Tests of reconnecting after a lost connection."""

from __future__ import annotations

import functools
import itertools
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest

import jsync
from jsync import errors
from jsync.core.io_thread import IOThread

from ...support.accounts import Operator, password_config
from ...support.connection_faults import (  # noqa: F401 (a fixture of every test here)
    Events,
    FakeServer,
    Peer,
    _no_crash,
    connect,
    leave,
    payloads,
    waiting,
)
from ...support.connections import refusing_url
from ...support.servers import wait_for
from ...support.threads import LONG, SOON, Thread
from ...support.windows import needs_signals

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from jsync.connection import Connection
    from jsync.server import LocalServer

    from ...conftest import StartServer
    from ...support.proxy import FaultProxy, Side

pytestmark = pytest.mark.server

# Subscriptions and publishes after a loss ---------------------------------------------


def test_subscriptions_are_restored_after_the_server_was_killed(
    own_server: StartServer,
) -> None:
    server = own_server(jetstream=False)
    events = Events()
    heard: list[bytes] = []
    with connect(server.url, events) as nc:
        read = nc.subscribe("read.>")
        nc.subscribe("heard", callback=lambda msg: heard.append(msg.data))
        ended = nc.subscribe("ended")
        nc.publish("read.a", b"1")
        nc.publish("heard", b"1")
        nc.flush()
        server.kill()
        events.wait("disconnect")
        ended.unsubscribe()
        late = nc.subscribe("late")
        server.start()
        events.wait("reconnect")
        for subject in ("read.b", "heard", "ended", "late"):
            nc.publish(subject, b"2")
        assert payloads(read, 2) == [b"1", b"2"]
        assert payloads(late, 1) == [b"2"]
        wait_for(lambda: heard == [b"1", b"2"])
        assert nc.stats().reconnects == 1
        assert ended.delivered == 0


def test_a_message_read_while_leaving_reaches_its_callback(
    nc: Connection, monkeypatch: pytest.MonkeyPatch, server: LocalServer
) -> None:
    """A thread that waits for a reply reads the socket while the I/O thread gives it up."""
    heard: list[bytes] = []
    leave, armed = IOThread._maybe_reconnect, threading.Event()
    with connect(server.url, Events()) as reader:
        reader.subscribe("silent")
        sub = reader.subscribe("heard", callback=lambda msg: heard.append(msg.data))
        reader.flush()

        def leave_late(io: IOThread) -> None:
            if io is not reader._session.io or not armed.is_set():
                leave(io)
                return
            armed.clear()
            nc.publish("heard", b"1")
            wait_for(lambda: sub.delivered == 1)
            raise errors.ConnectionLostError("moved")

        monkeypatch.setattr(IOThread, "_maybe_reconnect", leave_late)
        asking = Thread(lambda: reader.request("silent", timeout=LONG))
        asking.wait_until_blocked()
        armed.set()
        reader._session.io_loop.interrupt()
        assert isinstance(asking.error(), errors.ConnectionLostError)
        wait_for(lambda: heard == [b"1"])


def test_queue_groups_are_made_again(own_server: StartServer) -> None:
    server = own_server(jetstream=False)
    events = Events()
    with connect(server.url, events) as nc:
        members = [nc.subscribe("work", queue="workers") for _ in range(2)]
        nc.flush()
        server.kill()
        server.start()
        events.wait("reconnect")
        for number in range(200):
            nc.publish("work", b"%d" % number)
        nc.flush()
        shares = [payloads(member, member.pending) for member in members]
        assert all(shares)
        assert sorted(int(data) for share in shares for data in share) == [*range(200)]


def test_auto_unsubscribe_continues_its_count_after_a_reconnect(
    proxy: FaultProxy, unique: str
) -> None:
    sent = bytearray()

    def record(data: bytes, to: Side) -> bytes:
        if to == "server":
            sent.extend(data)
        return data

    events = Events()
    with connect(proxy.url, events) as nc:
        subscription = nc.subscribe(unique)
        subscription.unsubscribe(after=5)
        for number in range(2):
            nc.publish(unique, b"%d" % number)
        nc.flush()
        proxy.rewrite(record)
        proxy.cut()
        events.wait("reconnect")
        for number in range(2, 9):
            nc.publish(unique, b"%d" % number)
        nc.flush()
        assert b"UNSUB 1 3\r\n" in sent
        assert [msg.data for msg in subscription] == [b"%d" % n for n in range(5)]
        proxy.cut()
        events.wait("reconnect", 2)
        nc.flush()
        assert sent.count(b"SUB %s 1\r\n" % unique.encode()) == 1


# Waiting calls ------------------------------------------------------------------------


def test_requests_and_pings_in_flight_fail_at_once(own_server: StartServer) -> None:
    server = own_server(jetstream=False)
    events = Events()
    with connect(server.url, events) as nc:
        nc.subscribe("silent")
        many = nc.request_many("silent", timeout=60)
        calls: list[Thread[Any]] = [
            Thread(functools.partial(nc.request, "silent", timeout=60)),
            Thread(lambda: next(many)),
        ]
        wait_for(lambda: waiting(nc) == 2)
        server.pause()
        calls.append(Thread(functools.partial(nc.flush, 60)))
        calls.append(Thread(functools.partial(nc.rtt, 60)))
        for call in calls:
            call.wait_until_blocked()
        server.kill()
        for call in calls:
            assert type(call.error()) is errors.ConnectionLostError
        assert waiting(nc) <= 1  # the iterator of `request_many` is still open
        many.close()  # type: ignore[attr-defined]
        assert waiting(nc) == 0
        nc.close()


def test_a_request_while_reconnecting_waits_for_the_reconnect(
    own_server: StartServer,
) -> None:
    server = own_server(jetstream=False)
    events = Events()
    with connect(server.url, events) as nc:
        nc.subscribe("service", callback=lambda msg: msg.respond(b"yes"))
        server.kill()
        events.wait("disconnect")
        request = Thread(functools.partial(nc.request, "service", timeout=20))
        many = Thread(
            lambda: [
                msg.data
                for msg in nc.request_many("service", timeout=20, max_messages=1)
            ]
        )
        flush = Thread(functools.partial(nc.flush, 20))
        for call in (request, many, flush):
            call.wait_until_blocked()
        assert nc.stats().out_messages == 0
        server.start()
        assert request.result().data == b"yes"
        assert many.result() == [b"yes"]
        flush.result()
        assert nc.stats().out_messages == 4


def test_a_request_while_reconnecting_keeps_its_timeout(
    own_server: StartServer,
) -> None:
    server = own_server(jetstream=False)
    events = Events()
    with connect(server.url, events) as nc:
        server.kill()
        events.wait("disconnect")
        for call in (
            functools.partial(nc.request, "service", timeout=0.1),
            functools.partial(nc.request_many, "service", timeout=0.1),
            functools.partial(nc.flush, 0.1),
            functools.partial(nc.rtt, 0.1),
        ):
            with pytest.raises(errors.TimeoutError):
                call()
        assert waiting(nc) == 0
        nc.close()


def test_without_reconnect_a_loss_wakes_every_waiting_thread(
    own_server: StartServer,
) -> None:
    server = own_server(jetstream=False)
    events = Events()
    nc = connect(server.url, events, allow_reconnect=False)
    subscription = nc.subscribe("silent")
    nc.subscribe("called", callback=lambda msg: None)
    nc.subscribe("service")
    calls: list[Thread[Any]] = [
        Thread(functools.partial(nc.request, "service", timeout=60)),
        Thread(functools.partial(subscription.next, None)),
        Thread(functools.partial(list, nc.subscribe("iterated"))),
    ]
    for call in calls:
        call.wait_until_blocked()
    server.kill()
    assert type(calls[0].error()) is errors.ConnectionLostError
    for call in calls[1:]:
        error = call.error()
        assert type(error) is errors.ConnectionClosedError
        assert error.__cause__ is not None
    reason = events.wait("closed")
    assert isinstance(reason, Exception)
    assert events.names == ["connect", "disconnect", "closed"]
    assert nc.is_closed
    for closed in (
        functools.partial(nc.publish, "data"),
        functools.partial(nc.request, "data"),
        functools.partial(nc.subscribe, "data"),
        nc.flush,
    ):
        with pytest.raises(errors.ConnectionClosedError) as caught:
            closed()
        assert caught.value.__cause__ is reason
    nc.close()


def test_exhausted_attempts_raise_typed_errors_in_waiting_threads(
    own_server: StartServer,
) -> None:
    server = own_server(jetstream=False)
    events = Events()
    nc = connect(server.url, events, max_reconnects=3, reconnect_wait=0.1)
    handled = threading.Event()
    nc.subscribe("called", callback=lambda msg: handled.set())
    subscription = nc.subscribe("data")
    iterated = nc.subscribe("iterated")
    for subject in ("data", "called"):
        nc.publish(subject, b"last")
    nc.flush()
    assert handled.wait(60)
    server.kill()
    events.wait("disconnect")
    calls: list[Thread[Any]] = [
        Thread(functools.partial(nc.request, "silent", timeout=60)),
        Thread(functools.partial(nc.flush, 60)),
        Thread(functools.partial(list, iterated)),
        Thread(functools.partial(nc.drain, 60)),
    ]
    reason = events.wait("closed")
    for call in calls[:3]:
        error = call.error()
        assert type(error) is errors.ConnectionClosedError
        assert error.__cause__ is reason
    error = calls[3].error()
    assert error is None or isinstance(error, errors.Error)
    assert isinstance(reason, errors.ConnectionError)
    assert str(server.port) in str(reason)
    # Messages that have arrived stay readable.
    assert subscription.next(1).data == b"last"
    with pytest.raises(errors.ConnectionClosedError):
        subscription.next(1)
    assert events.names == ["connect", "disconnect", "closed"]
    nc.close()


# Times and callbacks ------------------------------------------------------------------


def test_the_callbacks_come_in_order_and_once(own_server: StartServer) -> None:
    server = own_server(jetstream=False)
    events = Events()
    with connect(server.url, events):
        for number in (1, 2):
            server.kill()
            loss = events.wait("disconnect", number)
            assert isinstance(loss, errors.ConnectionLostError)
            assert loss.__cause__ is not None
            server.start()
            events.wait("reconnect", number)
    assert events.wait("closed") is None
    assert events.names == [
        "connect",
        *("disconnect", "reconnect"),
        *("disconnect", "reconnect"),
        "closed",
    ]


def test_exceptions_of_callbacks_stop_nothing(own_server: StartServer) -> None:
    server = own_server(jetstream=False)
    events = Events()

    def fail(name: str, *args: object) -> None:
        events.note(name, args[0] if args else None)
        raise LookupError(name)

    names = ("connect", "disconnect", "reconnect", "closed", "error")
    callbacks = {f"on_{name}": functools.partial(fail, name) for name in names}
    with jsync.connect(server.url, reconnect_wait=0.02, **callbacks) as nc:  # type: ignore[arg-type]
        server.kill()
        server.start()
        events.wait("reconnect")
        nc.flush()
    events.wait("error", 4)
    assert events.names == [
        *("connect", "error"),
        *("disconnect", "error"),
        *("reconnect", "error"),
        *("closed", "error"),
    ]
    for error, name in zip(
        events.of("error"), [n for n in events.names if n != "error"], strict=True
    ):
        assert isinstance(error, errors.CallbackError)
        assert isinstance(error.__cause__, LookupError)
        assert error.__cause__.args == (name,)


def test_callbacks_may_use_the_connection(own_server: StartServer) -> None:
    server = own_server(jetstream=False)
    replies: list[bytes] = []
    made: list[Connection] = []

    def ask() -> None:
        replies.append(made[0].request("service", timeout=10).data)
        made[0].close()

    closed = threading.Event()
    with jsync.connect(
        server.url,
        reconnect_wait=0.02,
        on_reconnect=ask,
        on_closed=lambda error: closed.set(),
    ) as nc:
        made.append(nc)
        nc.subscribe("service", callback=lambda msg: msg.respond(b"yes"))
        server.kill()
        server.start()
        assert closed.wait(60)
        assert replies == [b"yes"]


def test_a_wait_follows_a_round_of_attempts() -> None:
    attempts: list[float] = []

    def refuse(peer: Peer) -> None:
        attempts.append(time.monotonic())
        peer.reset()

    with FakeServer(leave, refuse) as fake:
        options: dict[str, Any] = {"reconnect_wait": 0.2, "reconnect_jitter": 0.05}
        nc = jsync.connect(fake.url, max_reconnects=4, **options)
        nc.publish("leave")
        wait_for(lambda: nc.is_closed)
        nc.close()
    pauses = [b - a for a, b in itertools.pairwise(attempts)]
    assert len(pauses) == 3
    assert all(pause > 0.19 for pause in pauses)


def test_by_default_a_server_is_never_given_up() -> None:
    events = Events()

    def come_back(peer: Peer) -> None:
        if peer.number < 200:
            peer.reset()
        else:
            peer.handshake()
            peer.serve()

    with FakeServer(leave, come_back) as fake:
        nc = connect(fake.url, events, reconnect_wait=0.0)
        try:
            nc.publish("leave")
            events.wait("reconnect")
            assert len(fake.peers) == 201
        finally:
            nc.close()


def test_a_server_dropping_us_is_not_tried_faster() -> None:
    asked: list[int] = []

    def drop(peer: Peer) -> None:
        peer.handshake()
        peer.reset()

    def delay(number: int) -> float:
        asked.append(number)
        return 0.0

    events = Events()
    with FakeServer(leave, drop) as fake:
        nc = connect(fake.url, events, reconnect_wait=LONG, reconnect_delay=delay)
        try:
            nc.publish("leave")
            wait_for(lambda: len(asked) >= 5)
            assert asked[:5] == [1, 2, 3, 4, 5]
            assert events.names.count("closed") == 0
        finally:
            nc.close()


def test_reconnect_delay_chooses_the_wait_and_may_raise() -> None:
    asked: list[int] = []

    def delay(number: int) -> float:
        asked.append(number)
        if number == 2:
            raise LookupError("no such number")
        return float("nan") if number == 3 else 0.0

    events = Events()
    with FakeServer(leave, Peer.reset) as fake:
        nc = connect(fake.url, events, max_reconnects=5, reconnect_delay=delay)
        nc.publish("leave")
        events.wait("closed")
        nc.close()
    assert asked == [1, 2, 3, 4, 5]
    (error,) = events.of("error")
    assert isinstance(error, errors.CallbackError)
    assert isinstance(error.__cause__, LookupError)


# Servers that are not there yet -------------------------------------------------------


def test_a_refusing_server_is_tried_until_it_accepts(
    proxy: FaultProxy, unique: str
) -> None:
    events = Events()
    with connect(proxy.url, events) as nc:
        subscription = nc.subscribe(unique)
        nc.flush()
        proxy.refuse()
        proxy.cut()
        events.wait("disconnect")
        wait_for(lambda: "efused" in str(nc.last_error))
        nc.publish(unique, b"held")
        proxy.accept()
        events.wait("reconnect")
        assert subscription.next(SOON).data == b"held"


def test_a_refused_first_attempt_may_be_retried(
    own_server: StartServer,
) -> None:
    url = refusing_url()
    events = Events()
    nc = connect(url, events, retry_on_failed_connect=True, connect_timeout=0.3)
    try:
        assert not nc.is_connected
        subscription = nc.subscribe("data")
        nc.publish("data", b"early")
        own_server(jetstream=False, port=int(url.rpartition(":")[2]))
        events.wait("connect")
        assert subscription.next(SOON).data == b"early"
        assert "reconnect" not in events.names
    finally:
        nc.close()


def test_announced_servers_that_do_not_exist_delay_only() -> None:
    gone = refusing_url().partition("://")[2]
    announced = [gone, "no.invalid:4222", "[::1]:1", "a:b:c", "", "0.0.0.0:0", ":4222"]

    def script(peer: Peer) -> None:
        peer.handshake(connect_urls=announced)
        if not peer.number:
            peer.frame()
            peer.reset()
        peer.serve()

    events = Events()
    with FakeServer(script) as fake:
        with connect(fake.url, events) as nc:
            events.wait("discovered")
            assert len(nc.servers) == 4
            nc.publish("leave")
            events.wait("reconnect")
            assert nc.connected_url == fake.url
            assert "closed" not in events.names


# Credentials --------------------------------------------------------------------------


@pytest.mark.parametrize("fault", ["raises", "hangs"])
def test_a_secret_not_fetched_is_asked_for_again(
    own_server: StartServer, fault: str
) -> None:
    server = own_server(jetstream=False, config=password_config({"user": "secret"}))
    faulty, released = threading.Event(), threading.Event()
    asked: list[int] = []

    def password() -> str:
        asked.append(1)
        if faulty.is_set() and fault == "raises":
            raise LookupError("no secret now")
        if faulty.is_set():
            released.wait(60)
        return "secret"

    events = Events()
    with connect(
        server.url, events, user="user", password=password, connect_timeout=1.5
    ) as nc:
        faulty.set()
        server.kill()
        server.start()
        events.wait("disconnect")
        wait_for(lambda: len(asked) >= 4)
        assert isinstance(nc.last_error, errors.AuthenticationError)
        faulty.clear()
        events.wait("reconnect")
        nc.flush()
        released.set()


def test_expired_credentials_are_read_again(
    own_server: StartServer, tmp_path: Path
) -> None:
    account = Operator().account("APP")
    server = own_server(config=account.operator.config)
    user = account.user(expires_in=3)
    creds = user.write_creds(tmp_path / "user.creds")
    events = Events()
    with connect(server.url, events, creds=creds) as nc:
        subscription = nc.subscribe("data")
        user.expires_in = None
        user.write_creds(creds)
        loss = events.wait("disconnect")
        assert isinstance(loss.__cause__, errors.AuthenticationError)
        assert "expired" in str(loss).lower()
        events.wait("reconnect")
        nc.publish("data", b"1")
        assert subscription.next(SOON).data == b"1"


def test_expired_credentials_that_stay_expired_close_the_connection(
    own_server: StartServer, tmp_path: Path
) -> None:
    account = Operator().account("APP")
    server = own_server(config=account.operator.config)
    creds = account.user(expires_in=3).write_creds(tmp_path / "user.creds")
    events = Events()
    nc = connect(server.url, events, creds=creds)
    subscription = nc.subscribe("data")
    reader = Thread(functools.partial(subscription.next, None))
    reason = events.wait("closed")
    assert isinstance(reason, errors.AuthenticationError)
    error = reader.error()
    assert isinstance(error, errors.ConnectionClosedError)
    assert error.__cause__ is reason
    nc.close()


@needs_signals
def test_each_other_password_is_tried_by_a_server(own_server: StartServer) -> None:
    def config(password: str) -> str:
        return password_config({"user": password})

    server = own_server(jetstream=False, config=config("password 0"))
    numbers = itertools.count()
    events = Events()
    with connect(
        server.url,
        events,
        user="user",
        password=lambda: f"password {next(numbers)}",
    ) as nc:
        server.reload(config("password 5"))
        events.wait("reconnect")
        assert next(numbers) == 6
        nc.flush()


@needs_signals
def test_a_given_up_server_names_the_option(
    own_server: StartServer, caplog: pytest.LogCaptureFixture
) -> None:
    server = own_server(jetstream=False, config=password_config({"user": "old"}))
    nc = jsync.connect(server.url, user="user", password="old", reconnect_wait=0.02)
    server.reload(password_config({"user": "new"}))
    wait_for(lambda: nc.is_closed)
    words = (
        f"Authorization Violation: {server.url} refused the same credentials twice in a "
        "row, so jsync gave it up. ignore_auth_error_abort=True keeps it"
    )
    with pytest.raises(errors.ConnectionClosedError) as caught:
        nc.publish("a")
    assert isinstance(caught.value.__cause__, errors.AuthenticationError)
    assert words in str(caught.value)
    told = [
        f"{nc._session.name}: the connection is closed, and is not made again: {words}"
    ]
    wait_for(
        lambda: (
            [r.getMessage() for r in caplog.records if r.levelname == "ERROR"] == told
        )
    )


def test_giving_up_before_any_connection_is_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    nc = jsync.connect(
        refusing_url(),
        retry_on_failed_connect=True,
        max_reconnects=2,
        reconnect_wait=0.02,
    )
    wait_for(lambda: nc.is_closed)
    wait_for(lambda: "is not made again" in caplog.text)
    assert "refused" in caplog.text
    nc.close()


@needs_signals
def test_waits_during_rejections_end_in_their_time(own_server: StartServer) -> None:
    config = "jetstream: enabled\n"
    server = own_server(config=config + password_config({"user": "old"}))
    events = Events()
    with connect(
        server.url, events, user="user", password="old", ignore_auth_error_abort=True
    ) as nc:
        js = nc.jetstream()
        stream = js.create_stream(name="S", subjects=["s"])
        consumer = stream.create_consumer(durable_name="C")
        server.reload(config + password_config({"user": "new"}))
        events.wait("disconnect")
        publisher = js.publisher(ack_timeout=1, stall_timeout=1)
        calls: dict[str, Callable[[], object]] = {
            "publish": functools.partial(js.publish, "s", b"", timeout=1),
            "publisher": lambda: publisher.publish("s", b"").result(LONG),
            "fetch": lambda: list(consumer.fetch(1, timeout=1)),
            "next": functools.partial(consumer.next, timeout=1),
            "request": functools.partial(nc.request, "x", timeout=1),
            "flush": functools.partial(nc.flush, 1),
        }
        threads = {name: Thread(call) for name, call in calls.items()}
        for name, thread in threads.items():
            error = thread.error()
            waited = isinstance(error, errors.TimeoutError | errors.ConnectionError)
            assert waited, (name, error)
        server.reload(config + password_config({"user": "old"}))
        events.wait("reconnect")
        assert js.publish("s", b"").seq == 1


@needs_signals
def test_a_revoked_users_connection_closes_with_an_error(
    own_server: StartServer, tmp_path: Path
) -> None:
    account = Operator().account("APP")
    server = own_server(config=account.operator.config)
    user = account.user()
    creds = user.write_creds(tmp_path / "user.creds")
    events = Events()
    nc = connect(server.url, events, creds=creds)
    try:
        nc.flush()
        account.revoke(user)
        server.reload(account.operator.config)
        loss = events.wait("disconnect")
        assert isinstance(loss.__cause__, errors.AuthenticationError)
        assert isinstance(events.wait("closed"), errors.AuthenticationError), (
            events.seen
        )
        assert events.names[-1] == "closed"
    finally:
        nc.close()
