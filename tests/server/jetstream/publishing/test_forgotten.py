"""Tests of publishers that are never closed, and of those made on a closed connection."""

from __future__ import annotations

import gc
import logging
import weakref
from typing import TYPE_CHECKING, Any

import pytest

import jsync
from jsync import errors

from ....support.servers import wait_for
from ....support.threads import LONG, Recorder

if TYPE_CHECKING:
    from jsync.connection import Connection
    from jsync.server import LocalServer

    from ....support.proxy import FaultProxy

pytestmark = pytest.mark.server


def test_a_dropped_publisher_gets_acks_and_leaves_nothing(
    server: LocalServer, proxy: FaultProxy, unique: str
) -> None:
    with jsync.connect(proxy.url) as nc:
        js = nc.jetstream()
        js.create_stream(name=unique, subjects=[unique])
        js.publish(unique)  # opens the inbox for replies
        before = set(nc._session.interests)
        proxy.deaf("server")
        future = js.publisher().publish(unique, b"x")
        gc.collect()
        assert set(nc._session.interests) != before
        proxy.hear("server")
        assert future.result(LONG).seq == 2
        wait_for(lambda: set(nc._session.interests) == before)
        js.delete_stream(unique)


def test_forgotten_publishers_do_not_keep_the_connection_alive(
    server: LocalServer,
) -> None:
    def forget() -> tuple[weakref.ref[Connection], Any]:
        nc = jsync.connect(server.url)
        nc.jetstream().publisher()
        found = weakref.ref(nc), nc._session
        del nc
        gc.collect()
        return found

    with pytest.warns(ResourceWarning):
        there, session = forget()
    assert there() is None
    wait_for(lambda: session.state.name == "CLOSED")


def test_failures_of_a_forgotten_publisher_are_reported(
    server: LocalServer, unique: str
) -> None:
    told = Recorder()
    with jsync.connect(server.url, on_error=told) as nc:
        nc.jetstream().publisher().publish(unique, b"x")
        error = told.get()
    assert isinstance(error, errors.PublisherError)
    (failure,) = error.failures
    assert isinstance(failure, errors.FailedMessage)
    assert isinstance(failure.error, errors.NoStreamResponseError)


def test_messages_failed_by_the_connections_end_are_logged(
    server: LocalServer, unique: str, caplog: pytest.LogCaptureFixture
) -> None:
    told = Recorder()
    nc = jsync.connect(server.url, on_error=told)
    # receives the message and never replies
    nc.subscribe(unique, callback=lambda _: None)
    nc.flush()
    publisher = nc.jetstream().publisher(ack_timeout=LONG)
    for _ in range(3):
        publisher.publish(unique, b"x")
    session = weakref.ref(nc._session)
    nc.close()
    with caplog.at_level(logging.WARNING, "jsync.connection"):
        del publisher, nc
        gc.collect()
    assert "3 messages were not acknowledged" in caplog.text
    assert told.waiting == 0
    wait_for(lambda: gc.collect() >= 0 and session() is None)


@pytest.mark.parametrize("what", ["publisher", "fast_ingest", "atomic_batch"])
def test_a_closed_connection_refuses_it_at_once(server: LocalServer, what: str) -> None:
    with jsync.connect(server.url) as nc:
        js = nc.jetstream()
    with pytest.raises(errors.ConnectionClosedError):
        getattr(js, what)()


@pytest.mark.parametrize("timeout", ["1", float("nan"), []])
def test_a_dropped_publishers_futures_reject_an_invalid_timeout(
    server: LocalServer, unique: str, timeout: Any
) -> None:
    with jsync.connect(server.url) as nc:
        js = nc.jetstream()
        js.create_stream(name=unique, subjects=[unique])
        with js.publisher() as publisher:
            future = publisher.publish(unique)
            for wait in (future.result, future.exception):
                with pytest.raises(errors.ConfigError, match="timeout"):
                    wait(timeout)
        # `next` would return an existing message.
        consumer = js.create_consumer(unique, ack_policy="none", deliver_policy="new")
        with consumer.messages() as messages:
            with pytest.raises(errors.ConfigError, match="timeout"):
                messages.next(timeout)
        js.delete_stream(unique)


@pytest.mark.parametrize("resend", ["no", 1, None])
def test_whether_to_send_again_is_a_bool(server: LocalServer, resend: Any) -> None:
    with jsync.connect(server.url) as nc:
        with pytest.raises(errors.ConfigError, match="resend has to be True or False"):
            nc.jetstream().publisher(resend=resend)


def test_records_of_errors_have_public_names() -> None:
    error = errors.IngestError("x", lost=(errors.LostRange(1, 2, None),))
    assert error.lost[0].last == 2
