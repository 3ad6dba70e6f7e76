"""Tests of `on_connect` and the other callbacks: arguments, threads, and allowed calls."""

from __future__ import annotations

import threading
import time
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

import jsync
from jsync import errors

from ...support.accounts import password_config
from ...support.connection_faults import Events, connect
from ...support.connections import refusing_url, works
from ...support.threads import LONG, SOON, Recorder

if TYPE_CHECKING:
    from jsync.server import LocalServer

    from ...conftest import StartServer

pytestmark = [pytest.mark.server, pytest.mark.quick]


def test_the_callbacks_tell_the_life_of_a_connection(
    own_server: StartServer, unique: str
) -> None:
    server = own_server()
    told: list[str] = []
    reconnected, closed = Recorder(), Recorder()

    def on_disconnect(error: Exception) -> None:
        told.append(f"disconnect {type(error).__name__}")

    def on_reconnect() -> None:
        told.append("reconnect")
        reconnected()

    def on_closed(error: Exception | None) -> None:
        told.append(f"closed {error}")
        closed()

    nc = jsync.connect(
        server.url,
        reconnect_wait=0.02,
        on_connect=partial(told.append, "connect"),
        on_disconnect=on_disconnect,
        on_reconnect=on_reconnect,
        on_closed=on_closed,
    )
    with nc:
        server.restart()
        reconnected.get()
        assert works(nc)
        assert nc.stats().reconnects == 1
    closed.get()
    assert told == [
        "connect",
        "disconnect ConnectionLostError",
        "reconnect",
        "closed None",
    ]


@pytest.mark.parametrize("end", ["close", "drain", "block"])
def test_a_requested_end_is_no_disconnect(server: LocalServer, end: str) -> None:
    events = Events()
    nc = connect(server.url, events)
    if end == "block":
        with nc:
            pass
    else:
        getattr(nc, end)()
    assert events.wait("closed") is None
    assert events.names == ["connect", "closed"]


def test_closing_while_the_server_hangs_is_no_disconnect(
    own_server: StartServer,
) -> None:
    server = own_server()
    events = Events()
    nc = connect(server.url, events)
    server.pause()
    nc.close()
    assert events.wait("closed") is None
    assert events.names == ["connect", "closed"]


def test_a_close_after_a_loss_is_one_disconnect(own_server: StartServer) -> None:
    server = own_server()
    events = Events()
    nc = connect(server.url, events)
    server.kill()
    assert isinstance(events.wait("disconnect"), errors.ConnectionLostError)
    nc.close()
    assert events.wait("closed") is None
    assert events.names == ["connect", "disconnect", "closed"]


@pytest.mark.parametrize(
    "options", [{"allow_reconnect": False}, {"max_reconnects": 1}], ids=str
)
def test_a_final_loss_is_a_disconnect_then_closed(
    own_server: StartServer, options: dict[str, Any]
) -> None:
    server = own_server()
    events = Events()
    nc = connect(server.url, events, **options)
    server.kill()
    assert isinstance(events.wait("closed"), Exception)
    assert events.names == ["connect", "disconnect", "closed"]
    assert isinstance(events.of("disconnect")[0], errors.ConnectionLostError)
    assert nc.is_closed


def test_a_connection_never_made_is_never_disconnected() -> None:
    events = Events()
    with pytest.raises(errors.ConnectionError):
        connect(refusing_url(), events)
    assert isinstance(events.wait("closed"), errors.ConnectionError)
    assert events.names == ["closed"]


def test_callbacks_run_on_one_thread_of_their_own(
    own_server: StartServer,
) -> None:
    server = own_server()
    callback = Recorder()
    with jsync.connect(
        server.url,
        reconnect_wait=0.02,
        on_connect=callback,
        on_disconnect=callback,
        on_reconnect=callback,
        on_closed=callback,
    ) as nc:
        server.restart()
        threads = [callback.thread() for _ in range(3)]
        assert works(nc)
    threads.append(callback.thread())
    assert len(set(threads)) == 1
    assert threads[0] is not threading.current_thread()
    assert not threads[0].name.endswith("-io")


@pytest.mark.parametrize("kind", [RuntimeError, SystemExit])
def test_callback_exceptions_reach_on_error_and_end_nothing(
    own_server: StartServer, unique: str, kind: type[BaseException]
) -> None:
    server = own_server()
    raised, reconnected, closed = Recorder(), Recorder(), Recorder()

    def fail(*args: object) -> None:
        raise kind("out of my callback")

    def fail_and_tell(*args: object) -> None:
        reconnected()
        fail()

    with jsync.connect(
        server.url,
        reconnect_wait=0.02,
        on_connect=fail,
        on_disconnect=fail,
        on_reconnect=fail_and_tell,
        on_closed=closed,
        on_error=raised,
    ) as nc:
        server.restart()
        reconnected.get()
        assert works(nc)
    closed.get()
    if kind is RuntimeError:
        for _ in range(3):
            error = raised.get()
            assert isinstance(error, errors.CallbackError)
            assert isinstance(error.__cause__, RuntimeError)


def test_a_raising_on_error_is_logged_and_harmless(
    server: LocalServer, unique: str, caplog: pytest.LogCaptureFixture
) -> None:
    closed = Recorder()

    def fail(*args: object) -> None:
        raise RuntimeError("out of on_error")

    with jsync.connect(
        server.url, on_connect=fail, on_error=fail, on_closed=closed
    ) as nc:
        assert works(nc)
    closed.get()
    assert "out of on_error" in caplog.text


def test_exceptions_of_callbacks_are_logged_without_on_error(
    server: LocalServer, caplog: pytest.LogCaptureFixture
) -> None:
    closed = Recorder()

    def fail() -> None:
        raise RuntimeError("nobody hears me")

    with jsync.connect(server.url, on_connect=fail, on_closed=closed):
        pass
    closed.get()
    assert "nobody hears me" in caplog.text


@pytest.mark.parametrize("name", ["on_connect", "on_disconnect", "on_error"])
def test_a_callback_may_close_the_connection(
    own_server: StartServer, unique: str, name: str
) -> None:
    server = own_server(config=password_config({"bob": "x"}))
    ready, closed = threading.Event(), Recorder()

    def close(*args: object) -> None:
        ready.wait(SOON)
        nc.close()

    callbacks: dict[str, Any] = {name: close}
    nc = jsync.connect(
        server.url, user="bob", password="x", on_closed=closed, **callbacks
    )
    ready.set()
    if name == "on_disconnect":
        server.kill()
    if name == "on_error":
        nc.subscribe(unique, callback=lambda msg: 1 // 0)
        nc.publish(unique)
    assert closed.get() is None
    assert nc.is_closed
    with pytest.raises(errors.ConnectionClosedError):
        nc.publish(unique)


def test_a_callback_may_make_blocking_calls(server: LocalServer, unique: str) -> None:
    asked = Recorder()
    ready = threading.Event()

    def ask() -> None:
        ready.wait(SOON)
        asked(nc.request(unique, b"?").data)

    with jsync.connect(server.url, on_connect=ask) as nc:
        nc.subscribe(unique, callback=lambda msg: msg.respond(b"!"))
        ready.set()
        assert asked.get() == b"!"


def test_a_stuck_callback_delays_neither_messages_nor_close(
    server: LocalServer,
) -> None:
    released = threading.Event()
    nc = jsync.connect(server.url, on_connect=lambda: released.wait(LONG))
    try:
        assert works(nc)
        begin = time.monotonic()
        nc.close()
        assert time.monotonic() - begin < SOON
    finally:
        released.set()
