"""Tests of push subscriptions over a connection that fails in every way, at random."""

from __future__ import annotations

import queue
import threading
from typing import TYPE_CHECKING, Any

import pytest

from ....support.campaign import seeded
from ....support.connection_faults import Events, connect
from ....support.proxy import frame_filter
from ....support.push_traffic import publish
from ....support.threads import LONG, Thread

if TYPE_CHECKING:
    from collections.abc import Callable

    import jsync

    from ....support.proxy import FaultProxy, Side

pytestmark = pytest.mark.fault

TOTAL = 3000
QUICK: dict[str, Any] = {"idle_heartbeat": 0.3, "flow_control": True}


class BadLine:
    """A connection that loses frames in both directions and breaks, until it is told to stop."""

    def __init__(self, proxy: FaultProxy, seed: int) -> None:
        self._proxy = proxy
        self._rng = seeded(seed)
        self.stopped = False
        self._keeps: Callable[[bytes, Side], bytes] = frame_filter(self._is_kept)
        proxy.rewrite(self._pass)

    def _pass(self, data: bytes, to: Side) -> bytes:
        if to == "client" and data.startswith(b"INFO "):
            self._keeps = frame_filter(self._is_kept)
        return self._keeps(data, to)

    def _is_kept(self, frame: bytes, to: Side) -> bool:
        if self.stopped:
            return True
        if to == "client":
            pushed = b"$JS.ACK." in frame[:200] or b"NATS/1.0 100" in frame[:300]
            return not pushed or self._rng.random() > 0.005
        return not frame.startswith(b"PUB $JS.FC.") or self._rng.random() > 0.3

    def break_often(self, until: threading.Event) -> None:
        while not until.wait(self._rng.uniform(0.05, 0.5)):
            self._proxy.cut(self._rng.choice(["reset", "fin"]))


@pytest.mark.parametrize("seed", range(3))
def test_an_ordered_one_is_exact(
    nc: jsync.Connection, proxy: FaultProxy, subject: str, seed: int
) -> None:
    line = BadLine(proxy, seed)
    ended = threading.Event()
    with connect(proxy.url, Events()) as far:
        js = far.jetstream(timeout=2)
        sub = js.subscribe(subject, ordered=True, timeout=LONG, **QUICK)
        breaking = Thread(line.break_often, ended)
        publishing = Thread(publish, nc, subject, TOTAL, 2000)
        try:
            seen: list[int] = []
            while len(seen) < TOTAL:
                seen.append(sub.next(LONG).metadata.stream_sequence)
        finally:
            ended.set()
            line.stopped = True
            breaking.result()
            publishing.result()
        assert seen == list(range(1, TOTAL + 1))
        assert not sub.pending


@pytest.mark.parametrize("seed", range(2))
def test_every_message_that_needs_an_ack_is_handled(
    nc: jsync.Connection,
    proxy: FaultProxy,
    subject: str,
    seed: int,
) -> None:
    line = BadLine(proxy, seed)
    ended = threading.Event()
    handled: queue.SimpleQueue[int] = queue.SimpleQueue()
    with connect(proxy.url, Events()) as far:
        sub = far.jetstream().subscribe(
            subject,
            durable="lasting",
            callback=lambda msg: handled.put(msg.metadata.stream_sequence),
            ack_wait=1,
            **QUICK,
        )
        breaking = Thread(line.break_often, ended)
        publish(nc, subject, TOTAL, 2000)
        try:
            seen: set[int] = set()
            while len(seen) < TOTAL:
                seen.add(handled.get(timeout=LONG))
        finally:
            ended.set()
            line.stopped = True
            breaking.result()
        assert seen == set(range(1, TOTAL + 1))
        assert sub.is_active
