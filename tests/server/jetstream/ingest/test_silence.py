"""Tests of a fast ingest whose acks are lost, or whose program adds nothing for a while."""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING, Any

import pytest

from jsync import errors

from ....support.connection_faults import Events, connect
from ....support.servers import wait_for
from ....support.threads import SOON

if TYPE_CHECKING:
    from jsync import JetStream, Stream

    from ....support.proxy import FaultProxy, Side
from .test_ingest import add_all, numbers, run, stored, stream as stream

pytestmark = pytest.mark.server


class Acks:
    """A `rewrite` hook that drops some of the flow acks of the server."""

    def __init__(self, drop: Any) -> None:
        self._drop = drop
        self._rest = b""
        self.dropped = 0

    def __call__(self, chunk: bytes, to: Side) -> bytes:
        if to != "client":
            return chunk
        data = self._rest + chunk
        passed = b""
        while (line_end := data.find(b"\r\n")) >= 0:
            line = data[:line_end]
            if not line.startswith((b"MSG ", b"HMSG ")):
                passed += data[: line_end + 2]
                data = data[line_end + 2 :]
                continue
            end = line_end + 2 + int(line.split()[-1]) + 2
            if len(data) < end:
                break
            frame, data = data[:end], data[end:]
            if b".$FI " in line and self._drop(frame):
                self.dropped += 1
            else:
                passed += frame
        self._rest = data
        return passed


def test_lost_acks_are_made_up_for(
    js: JetStream, proxy: FaultProxy, stream: Stream, unique: str
) -> None:
    count = iter(range(1 << 30))
    acks = Acks(
        lambda frame: (
            b'"type":"ack"' in frame
            and b'"seq":0' not in frame
            and next(count) % 3 != 2
        )
    )
    with connect(proxy.url, Events()) as nc:
        proxy.rewrite(acks)
        with nc.jetstream().fast_ingest(flow=50, ack_timeout=1) as ingest:
            add_all(ingest, f"{unique}.a", numbers(500))
        proxy.rewrite(None)
    assert acks.dropped
    assert stored(js, unique) == numbers(500)


def test_a_ping_finds_an_unanswered_start(
    js: JetStream, proxy: FaultProxy, stream: Stream, unique: str
) -> None:
    acks = Acks(lambda frame: b".1.0.$FI " in frame)
    with connect(proxy.url, Events()) as nc:
        proxy.rewrite(acks)
        with nc.jetstream().fast_ingest(ack_timeout=1) as ingest:
            add_all(ingest, f"{unique}.a", numbers(3))
        proxy.rewrite(None)
    assert acks.dropped == 1
    assert stored(js, unique) == numbers(3)


@pytest.mark.parametrize("part", ["start", "window", "end"])
def test_silence_is_an_error_in_time(
    js: JetStream, proxy: FaultProxy, stream: Stream, unique: str, part: str
) -> None:
    drop = {"start": b"", "window": b'"type":"ack","seq":1', "end": b".4.3.$FI "}[part]
    silent = Acks(
        lambda frame: drop in frame or (part == "window" and b".4.$FI" in frame)
    )
    with connect(proxy.url, Events()) as nc:
        proxy.rewrite(silent)
        flow = 1 if part == "window" else 500
        ingest = nc.jetstream().fast_ingest(flow=flow, outstanding=1, ack_timeout=1.0)
        began = time.monotonic()
        with pytest.raises(errors.IngestError) as caught:
            run(ingest, f"{unique}.a", *({"data": data} for data in numbers(3)))
        if part == "end":
            # The reply to a ping says that the batch has ended, but not how.
            assert isinstance(
                caught.value.__cause__, errors.BatchPublishUnknownBatchIDError
            )
        else:
            assert isinstance(caught.value, errors.IngestTimeoutError | TimeoutError)
        assert time.monotonic() - began < SOON
        proxy.rewrite(None)
    error = caught.value
    assert error.unconfirmed is not None
    first, last = error.unconfirmed
    assert first == error.acked + 1
    held_now = stored(js, unique)
    assert held_now == numbers(len(held_now))
    assert error.acked <= len(held_now) <= last


@pytest.mark.fault
def test_the_batch_outlives_the_pauses_of_its_user(
    js: JetStream, stream: Stream, unique: str
) -> None:
    with js.fast_ingest() as ingest:
        ingest.add(f"{unique}.a", b"0")
        time.sleep(13)
        ingest.add(f"{unique}.a", b"1")
        assert ingest._engine.base == 0
    assert stored(js, unique) == [b"0", b"1"]


def test_an_idle_ingest_pings(
    proxy: FaultProxy, stream: Stream, unique: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("jsync.jetstream.ingest.driver.KEEP_ALIVE", 0.05)
    pings = []

    def watch(chunk: bytes, to: Side) -> bytes:
        if to == "server":
            pings.extend(re.findall(rb"\.(\d+)\.4\.\$FI 0", chunk))
        return chunk

    with connect(proxy.url, Events()) as nc:
        proxy.rewrite(watch)
        with nc.jetstream().fast_ingest() as ingest:
            add_all(ingest, f"{unique}.a", numbers(3))
            wait_for(lambda: pings[-3:] == [b"3"] * 3)
            ingest.add(f"{unique}.a", b"3")
        before = len(pings)
        time.sleep(0.3)
        assert len(pings) == before
        proxy.rewrite(None)
