"""Tests of a deposed leader that reports fewer messages than the stream stores, by a proxy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from jsync import errors
from jsync.jetstream.ingest import driver as fast_ingest
from jsync.jetstream.ingest.engine import IngestState

from ....support.connection_faults import Events, _no_crash as _no_crash, connect
from ....support.proxy import frame_changer
from ....support.threads import LONG, Thread
from .test_faults import check, js as js
from .test_ingest import numbers, stored

if TYPE_CHECKING:
    from jsync import FastIngest, JetStream

    from ....support.proxy import FaultProxy, Side

pytestmark = pytest.mark.server

COUNT = 700
"""The number of stored messages that the old leader reports, when 1000 are stored."""
UNKNOWN = (
    b'{"error":{"code":400,"err_code":10208,"description":"unknown"},"stream":"S"}'
)
PAYLOADS = numbers(3000)


def frame(line: bytes, body: bytes) -> bytes:
    """Return a message with the subject and the subscription of another one."""
    _, subject, sid, *_ = line.split()
    return b"MSG %s %s %d\r\n%s\r\n" % (subject, sid, len(body), body)


class Deposed:
    """Ends the first batch after its first ack, as a deposed leader does."""

    def __init__(self, stream: str, *, forgotten: bool) -> None:
        self._final = (
            b'{"type":"gap","last_seq":%d,"seq":1001}' % (COUNT + 1),
            b'{"stream":"%s","seq":%d,"batch":"b","count":%d}'
            % (stream.encode(), COUNT, COUNT),
        )
        self._forgotten = forgotten  # no later leader knows the batch
        self.batch = b""

    def __call__(self, data: bytes, to: Side) -> bytes:
        line = data.split(b"\r\n", 1)[0]
        if self._forgotten and b'"num_replicas":1' in data:
            return data.replace(b'"num_replicas":1', b'"num_replicas":3')
        if to != "client" or b".$FI " not in line:
            return data
        batch, sequence, operation = line.rsplit(b".", 3)[0], *line.split(b".")[-3:-1]
        if not self.batch and sequence == b"500":
            self.batch = batch
            return data + b"".join(frame(line, body) for body in self._final)
        if batch == self.batch and operation == b"1":
            return b""  # the old leader sends nothing more
        if batch == self.batch and operation == b"4" and self._forgotten:
            return frame(line, UNKNOWN)
        return data


def pour(ingest: FastIngest, unique: str, payloads: list[bytes], *, ids: bool) -> None:
    for payload in payloads:
        options: Any = {"msg_id": payload.decode()} if ids else {}
        ingest.add(f"{unique}.a", payload, **options)


def ingest_through(
    proxy: FaultProxy, unique: str, deposed: Deposed, *, ids: bool = False
) -> FastIngest:
    """Run an ingest of `PAYLOADS`, whose leader is deposed after 1000 messages."""

    def work() -> None:
        with ingest:
            pour(ingest, unique, PAYLOADS[1:], ids=ids)

    with connect(proxy.url, Events()) as nc:
        ingest = nc.jetstream().fast_ingest(flow=500)
        pour(ingest, unique, PAYLOADS[:1], ids=ids)
        proxy.deaf("server")
        thread = Thread(work)
        thread.wait_until_blocked()
        assert ingest.added == 1000
        proxy.rewrite(frame_changer(deposed))
        proxy.hear("server")
        error = thread._future.exception(LONG)
        assert error is None or isinstance(error, errors.IngestError)
        assert deposed.batch
    return ingest


def test_a_complete_leader_outweighs_a_deposed_one(
    js: JetStream, proxy: FaultProxy, unique: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fast_ingest, "BLOCKED_SECONDS", LONG)  # jsync pings at once
    ingest = ingest_through(proxy, unique, Deposed(unique, forgotten=False))
    assert stored(js, unique) == PAYLOADS
    assert ingest._engine.state is IngestState.ENDED
    assert ingest._engine.base == 0  # the same batch continued


def test_a_batch_unknown_to_leaders_is_not_resent(
    js: JetStream, proxy: FaultProxy, unique: str
) -> None:
    ingest = ingest_through(proxy, unique, Deposed(unique, forgotten=True))
    found = stored(js, unique)
    assert found == PAYLOADS[:1000]
    check(ingest, found, PAYLOADS)
    error = ingest._engine.error()
    assert isinstance(error, errors.IngestError)
    assert (error.acked, error.unconfirmed) == (COUNT, (COUNT + 1, 1000))
    assert "message ids" in str(error)


def test_with_message_ids_an_unknown_batch_is_resent(
    js: JetStream, proxy: FaultProxy, unique: str
) -> None:
    ingest = ingest_through(proxy, unique, Deposed(unique, forgotten=True), ids=True)
    assert stored(js, unique) == PAYLOADS
    assert ingest.pub_ack.count == len(PAYLOADS)


def test_a_connection_loss_while_asking_is_survived(
    js: JetStream, proxy: FaultProxy, unique: str
) -> None:
    cuts = 0

    def lose(data: bytes, to: Side) -> bytes:
        nonlocal cuts
        if cuts < 2 and to == "client" and b'"num_replicas":1' in data:
            cuts += 1
            proxy.cut()
            return b""
        return data

    events = Events()
    with connect(proxy.url, events) as nc:
        with nc.jetstream().fast_ingest() as ingest:
            ingest.add_many(f"{unique}.a", PAYLOADS[:100])
            proxy.deaf("client")
            ingest.add_many(f"{unique}.a", PAYLOADS[100:200])
            nc._session.write_buffer.flush()
            proxy.cut()
            proxy.rewrite(lose)
            proxy.hear("client")
            events.wait("reconnect")
            ingest.add_many(f"{unique}.a", PAYLOADS[200:])
        proxy.rewrite(None)
    assert cuts == 2
    assert stored(js, unique) == PAYLOADS
