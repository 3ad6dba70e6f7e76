"""Tests of a system that has no more threads for a while: what needs one starts later."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import msgspec
import pytest

import jsync
from jsync import errors

from ..support.connection_faults import Events
from ..support.servers import wait_for
from ..support.threads import LONG, Thread
from .services.support import Slow

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from jsync.server import LocalServer

CONTROL_ALONE = """
authorization {
  users: [{user: a, password: b, permissions: {subscribe: ["_INBOX.>", "$SRV.>"]}}]
}
"""

pytestmark = [pytest.mark.server, pytest.mark.quick]


class Shortage:
    """A connection on which the start of certain threads fails three times."""

    def __init__(self, nc: jsync.Connection, events: Events) -> None:
        self.nc, self._events = nc, events
        self.failed = 0
        self.kind = ""
        """A part of the names of these threads."""
        self._start = nc._session.thread_factory.start

    def start(self, name: str, run: Callable[[], object]) -> threading.Thread:
        if self.kind and self.kind in name and self.failed < 3:
            self.failed += 1
            raise RuntimeError("can't start new thread")
        return self._start(name, run)

    def check(self) -> None:
        """Check that `on_error` got the first failure alone."""
        assert self.failed == 3
        (error,) = self._events.of("error")
        assert isinstance(error, errors.CallbackError)
        assert "can't start new thread" in str(error)


@pytest.fixture
def shortage(
    server: LocalServer, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Shortage]:
    events = Events()
    with jsync.connect(server.url, **events.callbacks) as nc:
        shortage = Shortage(nc, events)
        monkeypatch.setattr(nc._session.thread_factory, "start", shortage.start)
        monkeypatch.setattr("jsync.core.session.NO_THREAD_SECONDS", 0.05)
        yield shortage


def test_a_callback_gets_messages_once_its_thread_starts(
    shortage: Shortage, nc: jsync.Connection, unique: str
) -> None:
    shortage.kind = "-pool-"
    got: list[bytes] = []
    sub = shortage.nc.subscribe(unique, callback=lambda msg: got.append(msg.data))
    shortage.nc.flush()
    for number in range(10):
        nc.publish(unique, b"%d" % number)
    nc.flush()
    sub.drain(LONG)
    assert got == [b"%d" % number for number in range(10)]
    shortage.check()


def test_push_consumers_get_messages_once_their_thread_starts(
    shortage: Shortage, stream: jsync.Stream, js: jsync.JetStream
) -> None:
    shortage.kind = "-pool-"
    for number in range(10):
        js.publish(f"{stream.name}.a", b"%d" % number)
    got: list[bytes] = []
    sub = shortage.nc.jetstream().subscribe(
        f"{stream.name}.a", callback=lambda msg: got.append(msg.data)
    )
    sub.drain(LONG)
    assert got == [b"%d" % number for number in range(10)]
    shortage.check()


def test_a_subscription_ends_although_its_thread_never_started(
    shortage: Shortage, nc: jsync.Connection, unique: str
) -> None:
    shortage.kind = "-pool-"
    got: list[bytes] = []
    with shortage.nc.subscribe(unique, callback=lambda msg: got.append(msg.data)):
        shortage.nc.flush()
        nc.publish(unique, b"dropped")
        nc.flush()
        shortage.nc.flush()
    shortage.nc.drain(LONG)
    assert got == []


def test_a_service_answers_pings_once_a_thread_starts(
    shortage: Shortage, nc: jsync.Connection, unique: str
) -> None:
    shortage.kind = "-control"
    with shortage.nc.service(unique, "1.0.0") as service:
        shortage.nc.flush()
        answer = nc.request(f"$SRV.PING.{unique}", timeout=LONG)
        assert msgspec.json.decode(answer.data)["id"] == service.id
        nc.request(f"$SRV.INFO.{unique}", timeout=LONG)
    shortage.check()


def test_a_service_rejects_requests_once_a_thread_starts(
    shortage: Shortage, nc: jsync.Connection, unique: str
) -> None:
    slow = Slow()
    with shortage.nc.service(unique, "1.0.0") as service:
        service.endpoint("slow", subject=unique, max_pending_messages=1)(slow)
        shortage.nc.flush()
        calls = [Thread(nc.request, unique, b"begun")]
        slow.wait_begun()
        calls.append(Thread(nc.request, unique, b"waits"))
        shortage.kind = "-full"
        wait_for(lambda: shortage.nc.stats().pending_messages == 1)
        with pytest.raises(errors.ServiceError, match="503: overloaded"):
            nc.services.call(unique, timeout=LONG)
        slow.go.set()
        assert [call.result().data for call in calls] == [b"begun", b"waits"]
    assert shortage.failed == 3


def test_a_stats_handler_runs_again_after_thread_shortage(
    shortage: Shortage, nc: jsync.Connection, unique: str
) -> None:
    shortage.kind = "jsync-stats_handler"
    with shortage.nc.service(unique, "1.0.0", stats_handler=lambda _: 1) as service:
        service.endpoint("a", subject=unique)(lambda request: b"")
        shortage.nc.flush()
        data = [
            msgspec.json.decode(nc.request(f"$SRV.STATS.{unique}", timeout=LONG).data)[
                "endpoints"
            ][0].get("data")
            for _ in range(4)
        ]
    assert data == [None, None, None, 1]


def test_services_without_permission_stop_once_a_thread_starts(
    own_server: Callable[..., LocalServer],
    monkeypatch: pytest.MonkeyPatch,
    unique: str,
) -> None:
    events = Events()
    server = own_server(config=CONTROL_ALONE)
    with jsync.connect(server.url, user="a", password="b", **events.callbacks) as nc:
        shortage = Shortage(nc, events)
        shortage.kind = "-stop"
        monkeypatch.setattr(nc._session.thread_factory, "start", shortage.start)
        monkeypatch.setattr("jsync.core.session.NO_THREAD_SECONDS", 0.05)
        service = nc.service(unique, "1.0.0")
        service.endpoint("a", subject=unique)(lambda request: b"")
        with pytest.raises(errors.PermissionsError):
            service.wait(LONG)
        assert shortage.failed == 3


def test_a_publish_callback_runs_once_its_thread_starts(
    server: LocalServer, stream: jsync.Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    called = threading.Event()
    with jsync.connect(server.url) as nc:  # no callback has run on it yet
        shortage = Shortage(nc, Events())
        shortage.kind = "-callbacks"
        monkeypatch.setattr(nc._session.thread_factory, "start", shortage.start)
        with nc.jetstream().publisher() as publisher:
            future = publisher.publish(f"{stream.name}.a", b"1")
            future.add_done_callback(lambda _: called.set())
        assert called.wait(LONG)
        assert shortage.failed == 3


def test_a_worker_stops_although_no_thread_can_start(
    shortage: Shortage, js: jsync.JetStream, stream: jsync.Stream
) -> None:
    handled: list[bytes] = []
    begun, go = threading.Event(), threading.Event()
    worker = jsync.Worker(stream=stream.name)

    @worker.handle(f"{stream.name}.a", consumer="w", max_messages=10)
    def handle(msg: jsync.JetStreamMsg) -> None:
        begun.set()
        assert go.wait(LONG)
        handled.append(msg.data)

    running = worker.start(shortage.nc)
    for number in range(10):
        js.publish(f"{stream.name}.a", b"%d" % number)
    assert begun.wait(LONG)
    wait_for(lambda: stream.consumer("w").info().num_ack_pending == 10)
    shortage.kind = "jsync-worker-drain"
    go.set()
    running.stop(LONG)
    assert shortage.failed == 1
    assert handled == [b"%d" % number for number in range(10)]
