"""Tests of missing heartbeats, and of cases that need no heartbeat."""

from __future__ import annotations

import contextlib
from time import monotonic
from typing import TYPE_CHECKING, Any

import pytest

import jsync
from jsync import errors

from ....support.servers import wait_for
from ....support.threads import SOON, Recorder
from .support import (
    CALM,
    QUICK,
    Handler,
    Pulls,
    at_work,
    both_faces,
    fill,
)

if TYPE_CHECKING:
    from ....support.connection_faults import Events
    from ....support.proxy import FaultProxy

pytestmark = pytest.mark.server


@both_faces
def test_missing_heartbeats_are_reported_and_pulling_continues(
    nc: jsync.Connection,
    stream: jsync.Stream,
    far_worker: jsync.Consumer,
    proxy: FaultProxy,
    pulls: Pulls,
    face: str,
) -> None:
    told, handler = Recorder(), Handler()
    with at_work(face, far_worker, handler, **QUICK, on_error=told):
        wait_for(lambda: pulls.count == 1)
        proxy.deaf("server")
        for _ in range(2):
            assert isinstance(told.get(), errors.MissedHeartbeatError)
        wait_for(lambda: pulls.count >= 3)
        proxy.hear()
        fill(nc, stream, 20)
        wait_for(lambda: len(handler.numbers) == 20)
    assert sorted(handler.numbers) == list(range(20))


def test_after_a_reconnect_heartbeats_are_watched_again(
    far_worker: jsync.Consumer, proxy: FaultProxy, pulls: Pulls, events: Events
) -> None:
    told = Recorder()
    with far_worker.messages(**CALM, on_error=told):
        wait_for(lambda: pulls.count == 1)
        proxy.cut()
        events.wait("reconnect")
        wait_for(lambda: pulls.count == 2)
        assert told.waiting == 0
        proxy.deaf("server")
        assert isinstance(told.get(), errors.MissedHeartbeatError)
        proxy.hear()


@both_faces
def test_heartbeats_of_a_quiet_stream_prevent_error_reports(
    far_worker: jsync.Consumer, pulls: Pulls, face: str
) -> None:
    told = Recorder()
    with at_work(face, far_worker, print, **CALM, on_error=told):
        # Each pull ends after three seconds.
        wait_for(lambda: pulls.count >= 2)
        assert pulls.count <= 3
    assert told.waiting == 0


def test_a_full_unread_buffer_is_no_missed_heartbeat(
    nc: jsync.Connection, stream: jsync.Stream, worker: jsync.Consumer
) -> None:
    fill(nc, stream, 20)
    told, handler = Recorder(), Handler()
    handler.open.clear()
    with contextlib.ExitStack() as running:
        both: list[dict[str, Any]] = [{"max_messages": 4}, {"max_bytes": 500}]
        for options in both:
            consuming = worker.consume(handler, **options, **CALM, on_error=told)
            running.enter_context(consuming)
        until = monotonic() + 4.5
        wait_for(lambda: monotonic() > until or told.waiting > 0)
        assert told.waiting == 0
        handler.open.set()
        wait_for(lambda: len(handler.numbers) == 20)
    assert sorted(handler.numbers) == list(range(20))


def test_a_slow_handler_starves_nothing(
    nc: jsync.Connection,
    stream: jsync.Stream,
    far: jsync.Connection,
    far_worker: jsync.Consumer,
    pulls: Pulls,
) -> None:
    stream.create_consumer(durable_name="swift")
    swift = far.jetstream().stream(stream.name).consumer("swift")
    fill(nc, stream, 10)
    told, slow, quick = Recorder(), Handler(), Handler()
    slow.open.clear()
    with (
        far_worker.consume(slow, max_messages=100, **CALM, on_error=told),
        swift.consume(quick, max_messages=100, **CALM, on_error=told),
    ):
        assert slow.entered.wait(SOON)
        # Pulling, pings and other consumers continue. Each consumer pulls every 3 s.
        before = pulls.count
        wait_for(lambda: pulls.count >= before + 2)
        far.rtt()
        fill(nc, stream, 10)
        wait_for(lambda: len(quick.numbers) == 20)
        assert slow.numbers == []
        slow.open.set()
    assert told.waiting == 0
    assert slow.numbers == quick.numbers == list(range(20))
