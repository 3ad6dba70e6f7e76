"""Tests that reading continues by itself after a reconnect."""

from __future__ import annotations

from time import monotonic
from typing import TYPE_CHECKING

import pytest

import jsync
from jsync import errors

from ....support.connection_faults import Events, connect
from ....support.servers import wait_for
from ....support.threads import Recorder
from .support import (
    CALM,
    Handler,
    Pulls,
    at_work,
    both_faces,
    fill,
    take,
)

if TYPE_CHECKING:
    from ....conftest import StartServer
    from ....support.proxy import FaultProxy

pytestmark = pytest.mark.server


@both_faces
def test_messages_continue_by_themselves_after_a_cut(
    nc: jsync.Connection,
    stream: jsync.Stream,
    far_worker: jsync.Consumer,
    proxy: FaultProxy,
    pulls: Pulls,
    events: Events,
    face: str,
) -> None:
    told, handler = Recorder(), Handler()
    with at_work(face, far_worker, handler, on_error=told):
        for round_ in range(1, 4):
            wait_for(lambda wanted=round_: pulls.count == wanted)  # type: ignore[misc]
            proxy.cut()
            events.wait("reconnect", round_)
        fill(nc, stream, 5)
        wait_for(lambda: handler.numbers == list(range(5)))
        # There is one pull for each connection, and no request for the info of the consumer.
        # After a loss, the first message tells how many fit.
        assert pulls.batches[:4] == [500, 1, 1, 1]
        assert b"CONSUMER.INFO" not in b"".join(pulls._seen).partition(b"MSG.NEXT")[2]
    assert told.waiting == 0


def test_disconnected_consumers_pull_nothing_and_miss_no_heartbeat(
    nc: jsync.Connection,
    stream: jsync.Stream,
    far_worker: jsync.Consumer,
    proxy: FaultProxy,
    pulls: Pulls,
    events: Events,
) -> None:
    told = Recorder()
    with far_worker.messages(**CALM, on_error=told) as messages:
        wait_for(lambda: pulls.count == 1)
        proxy.refuse()
        proxy.cut()
        events.wait("disconnect")
        until = monotonic() + 4
        wait_for(lambda: monotonic() > until or told.waiting > 0)
        assert pulls.count == 1
        proxy.accept()
        events.wait("reconnect")
        fill(nc, stream, 3)
        assert take(messages, 3) == [0, 1, 2]
    assert told.waiting == 0


def test_messages_may_begin_while_disconnected(
    nc: jsync.Connection,
    stream: jsync.Stream,
    far_worker: jsync.Consumer,
    proxy: FaultProxy,
    pulls: Pulls,
    events: Events,
) -> None:
    proxy.refuse()
    proxy.cut()
    events.wait("disconnect")
    told = Recorder()
    with far_worker.messages(**CALM, on_error=told) as messages:
        proxy.accept()
        fill(nc, stream, 3)
        assert take(messages, 3) == [0, 1, 2]
        wait_for(lambda: pulls.count >= 2)
    assert told.waiting == 0


@both_faces
def test_consuming_continues_after_an_orderly_server_shutdown(
    own_server: StartServer, unique: str, events: Events, face: str
) -> None:
    server = own_server()
    with connect(server.url, events) as nc:
        stream = nc.jetstream().create_stream(name=unique, subjects=[f"{unique}.>"])
        consumer = stream.create_consumer(durable_name="worker")
        told, handler = Recorder(), Handler()
        with at_work(face, consumer, handler, on_error=told):
            wait_for(lambda: consumer.info().num_waiting == 1)
            server.restart()
            events.wait("reconnect")
            fill(nc, stream, 5)
            wait_for(lambda: handler.numbers == list(range(5)))
        while told.waiting:
            assert isinstance(told.get(), (errors.PullError, errors.NoRespondersError))
