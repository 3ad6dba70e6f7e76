"""Tests of more requests than a service accepts: each gets a rejecting reply."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import jsync
from jsync import errors

from ...support.servers import wait_for
from ...support.threads import LONG, Thread
from .support import Slow

if TYPE_CHECKING:
    from ...support.connection_faults import Events

pytestmark = [pytest.mark.server, pytest.mark.quick]


def test_excess_requests_are_refused_immediately_and_reported_once(
    nc: jsync.Connection,
    host: jsync.Connection,
    service: jsync.Service,
    events: Events,
    unique: str,
) -> None:
    slow = Slow()
    service.endpoint("slow", subject=unique, max_pending_messages=2)(slow)
    host.flush()
    begun = Thread(nc.request, unique, b"begun")
    slow.wait_begun()
    waiting = [Thread(nc.request, unique, b"waits") for _ in range(2)]
    wait_for(lambda: host.stats().pending_messages == 2)
    for _ in range(5):
        with pytest.raises(errors.ServiceError, match="503: overloaded") as raised:
            nc.services.call(unique, timeout=LONG)
        assert raised.value.code == 503
    (stats,) = service.stats().endpoints
    assert (stats.num_requests, stats.num_errors) == (6, 5)
    assert stats.last_error.startswith("503:overloaded")
    error = events.wait("error")
    assert isinstance(error, errors.SlowConsumerError)
    assert error.subject == unique
    assert "messages are refused" in str(error)
    assert len(events.of("error")) == 1
    assert host.stats().slow_consumers == 1
    slow.go.set()
    assert begun.result().data == b"begun"
    assert [call.result().data for call in waiting] == [b"waits", b"waits"]
    assert nc.request(unique, b"again").data == b"again"
    assert service.stats().endpoints[0].num_requests == 9


def test_bytes_are_a_limit_too(
    nc: jsync.Connection, host: jsync.Connection, service: jsync.Service, unique: str
) -> None:
    slow = Slow()
    service.endpoint("slow", subject=unique, max_pending_bytes=10_000)(slow)
    host.flush()
    begun = Thread(nc.request, unique)
    slow.wait_begun()
    waiting = Thread(nc.request, unique, bytes(8_000))
    wait_for(lambda: host.stats().pending_messages == 1)
    with pytest.raises(errors.ServiceError, match="503: overloaded"):
        nc.services.call(unique, bytes(8_000))
    slow.go.set()
    assert len(waiting.result().data) == 8_000
    begun.result()


def test_a_flood_is_answered_request_by_request(
    nc: jsync.Connection, host: jsync.Connection, service: jsync.Service, unique: str
) -> None:
    slow = Slow()
    service.endpoint("slow", subject=unique, max_pending_messages=100)(slow)
    host.flush()
    with nc.subscribe(f"{unique}.replies") as replies:
        nc.flush()
        nc.publish(unique, b"x", reply=f"{unique}.replies")
        slow.wait_begun()
        for _ in range(199):
            nc.publish(unique, b"x", reply=f"{unique}.replies")
        refused = [replies.next(LONG) for _ in range(99)]
        assert all(msg.headers is not None for msg in refused)
        slow.go.set()
        answered = [replies.next(LONG) for _ in range(101)]
    assert sum(msg.data == b"x" for msg in answered) + len(refused) == 200
    (stats,) = service.stats().endpoints
    assert (stats.num_requests, stats.num_errors) == (200, 99)
