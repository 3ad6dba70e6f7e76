"""Tests of fast ingest with cut connections, killed servers and deleted streams."""

from __future__ import annotations

import contextlib
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest

from jsync import errors
from jsync.jetstream.ingest import driver as fast_ingest
from jsync.jetstream.ingest.engine import IngestState

from ....support.campaign import seeded
from ....support.connection_faults import Events, _no_crash as _no_crash, connect
from ....support.proxy import frame_filter
from ....support.servers import wait_for
from ....support.threads import LONG, SOON, Recorder, Thread
from .test_ingest import held, numbers, stored

if TYPE_CHECKING:
    from collections.abc import Iterator

    from jsync import FastIngest, JetStream
    from jsync.server import LocalServer

    from ....conftest import StartServer
    from ....support.proxy import FaultProxy, Side

pytestmark = pytest.mark.server


@pytest.fixture
def js(server: LocalServer, unique: str) -> Iterator[JetStream]:
    """A context through the proxy, with a stream for this test alone."""
    with connect(server.url, Events()) as nc:
        js = nc.jetstream()
        js.create_stream(name=unique, subjects=[f"{unique}.>"], allow_batched=True)
        yield js
        js.delete_stream(unique)


def check(ingest: FastIngest, found: list[bytes], sent: list[bytes]) -> None:
    """Compare the report of an ingest with the messages of the stream."""
    assert found == sent[: len(found)], "the stream does not hold a prefix"
    if ingest._engine.state is IngestState.ENDED:
        assert ingest.pub_ack.count == len(found) == len(sent)
        return
    error = ingest._engine.error()
    if not isinstance(error, errors.IngestError):
        assert not found, "the first message was refused"
    elif error.unconfirmed is None:
        assert error.acked == len(found)
    else:
        assert error.acked <= len(found) <= error.unconfirmed[1] <= len(sent)
        assert error.unconfirmed[0] == error.acked + 1


def pour(ingest: FastIngest, subject: str, payloads: list[bytes], size: int) -> None:
    """Add all payloads, one by one or `size` at once, and end the ingest.

    `pub_ack` has its errors.
    """
    try:
        with ingest:
            if size == 1:
                for payload in payloads:
                    ingest.add(subject, payload)
            else:
                for at in range(0, len(payloads), size):
                    ingest.add_many(subject, payloads[at : at + size])
    except errors.Error:
        pass


# Lost connections -------------------------------------------------------------------------


@pytest.mark.parametrize("size", [1, 700])
def test_cut_connections_neither_lose_nor_double_a_message(
    js: JetStream, proxy: FaultProxy, unique: str, size: int
) -> None:
    payloads = numbers(20_000)
    events = Events()
    with connect(proxy.url, events) as nc:
        ingest = nc.jetstream().fast_ingest()
        ingest.add(f"{unique}.a", payloads[0])  # the server knows the batch
        proxy.cut_after(50_000, "server", times=4)
        work = Thread(pour, ingest, f"{unique}.a", payloads[1:], size)
        work.result()
        assert len(events.of("disconnect")) == 4
        assert ingest.pub_ack.count == len(payloads)
        assert ingest.acked == len(payloads)
        check(ingest, stored(js, unique), payloads)


def cut_campaign(
    js: JetStream, proxy: FaultProxy, unique: str, seed: int, *, ids: bool
) -> int:
    """Cut the connection repeatedly after a number of bytes, in either direction."""
    rng = seeded(seed)
    payloads = numbers(1500)
    subject = f"{unique}.{seed}"
    # The last cut may come while the connection is being drained.
    lost = contextlib.suppress(errors.ConnectionLostError)
    with lost, connect(proxy.url, Events()) as nc:
        ingest = nc.jetstream().fast_ingest(flow=rng.choice([5, 50, 500]))

        def work() -> None:
            try:
                with ingest:
                    for payload in payloads:
                        options: Any = {"msg_id": f"{seed}-{payload!r}"} if ids else {}
                        ingest.add(subject, payload, **options)
            except errors.Error:
                pass

        thread = Thread(work)
        for _ in range(rng.choice([1, 1, 2, 5])):
            side: Any = rng.choice(["client", "server"])
            most = 150_000 if side == "server" else 4_000
            proxy.cut_after(rng.randrange(1, most), side, rng.choice(["reset", "fin"]))
            time.sleep(rng.random() * 0.1)
        thread._future.result(30)
    proxy.cut_after(1 << 40, "client")
    proxy.cut_after(1 << 40, "server")
    found = stored(js, unique)
    check(ingest, found, payloads)
    js._api.request(f"STREAM.PURGE.{unique}")
    return ingest._engine.state is IngestState.ENDED


def test_a_connection_may_be_cut_at_any_byte(
    js: JetStream, proxy: FaultProxy, unique: str
) -> None:
    survived = [cut_campaign(js, proxy, unique, seed, ids=False) for seed in range(12)]
    assert any(survived)


def test_with_message_ids_no_cut_ends_it(
    js: JetStream, proxy: FaultProxy, unique: str
) -> None:
    assert all(cut_campaign(js, proxy, unique, seed, ids=True) for seed in range(6))


@pytest.mark.fault
@pytest.mark.parametrize("ids", [True, False])
def test_many_connections_may_be_cut_at_any_byte(
    js: JetStream, proxy: FaultProxy, unique: str, ids: bool
) -> None:
    until = time.monotonic() + 40
    seed = 1000
    survived = 0
    while time.monotonic() < until:
        seed += 1
        survived += cut_campaign(js, proxy, unique, seed, ids=ids)
    assert survived == seed - 1000 if ids else survived


def check_ok(ingest: FastIngest, found: list[bytes], sent: list[bytes]) -> None:
    """Compare the report of an ingest that accepts gaps with the messages of the stream."""
    assert ingest.pub_ack.count == len(sent)
    places = {payload: number for number, payload in enumerate(sent)}
    there = {places[payload] for payload in found}
    assert [places[payload] for payload in found] == sorted(there), "moved, or twice"
    lost = numbers_in(ingest.lost)
    unsure = numbers_in(ingest.unconfirmed_ranges)
    assert not lost & unsure
    assert ingest.lost_count == len(lost)
    assert ingest.unconfirmed_count == len(unsure)
    assert not there & lost
    assert set(range(len(sent))) - there <= lost | unsure


def test_ok_names_each_message_cuts_may_have_lost(
    js: JetStream, proxy: FaultProxy, unique: str
) -> None:
    payloads = numbers(20_000)
    events = Events()
    with connect(proxy.url, events) as nc:
        ingest = nc.jetstream().fast_ingest(gaps="ok", on_error=Recorder())
        ingest.add(f"{unique}.a", payloads[0])  # the server knows the batch
        proxy.cut_after(20_000, "server", times=4)
        work = Thread(pour, ingest, f"{unique}.a", payloads[1:], 1)
        work.result()
        assert len(events.of("disconnect")) == 4
        check_ok(ingest, stored(js, unique), payloads)
        assert ingest.lost_count > 0
        # At most two windows of each connection were unacknowledged.
        assert ingest.unconfirmed_count <= 4 * 1000


def test_rejections_lost_with_the_connection_leave_a_doubt(
    js: JetStream, proxy: FaultProxy, unique: str
) -> None:
    payloads = numbers(2000)
    events, swallowed = Events(), 0

    def swallow(frame: bytes, to: Side) -> bool:
        nonlocal swallowed
        refused = to == "client" and b'"type":"err"' in frame
        swallowed += refused
        return not refused

    with connect(proxy.url, events) as nc:
        ingest = nc.jetstream().fast_ingest(gaps="ok", on_error=Recorder())
        ingest.add(f"{unique}.a", payloads[0])  # the server knows the batch
        proxy.rewrite(frame_filter(swallow))
        for number in range(1, 20):
            options: Any = {"expected_last_sequence": 99} if number in (3, 4, 9) else {}
            ingest.add(f"{unique}.a", payloads[number], **options)
        wait_for(lambda: swallowed == 3 and held(js, unique) == 17)
        proxy.refuse()
        proxy.cut()
        proxy.rewrite(None)
        proxy.accept()
        events.wait("reconnect")
        pour(ingest, f"{unique}.a", payloads[20:], 1)
        found = stored(js, unique)
        check_ok(ingest, found, payloads)
        assert set(payloads) - set(found) == {b"3", b"4", b"9"}
        assert not ingest.lost
        (unsure,) = ingest.unconfirmed_ranges
        assert (unsure.first, unsure.last) == (1, 20)
        assert isinstance(unsure.error, errors.ConnectionLostError)


def test_gap_reports_lost_with_a_connection_leave_doubt(
    js: JetStream, proxy: FaultProxy, unique: str
) -> None:
    payloads = numbers(2000)
    events, swallowed = Events(), 0

    def swallow(frame: bytes, to: Side) -> bool:
        nonlocal swallowed
        gap = to == "client" and b'"type":"gap"' in frame
        swallowed += gap
        return not gap

    with connect(proxy.url, events) as nc:
        ingest = nc.jetstream().fast_ingest(gaps="ok", on_error=Recorder())
        ingest.add(f"{unique}.a", payloads[0])  # the server knows the batch
        proxy.deaf("client")
        for number in range(1, 20):
            ingest.add(f"{unique}.a", payloads[number])
        nc._session.write_buffer.flush()
        proxy.refuse()
        proxy.cut()
        proxy.rewrite(frame_filter(swallow))
        proxy.hear("client")
        proxy.accept()
        wait_for(lambda: swallowed == 1)
        ingest.add(f"{unique}.a", payloads[20])
        wait_for(lambda: held(js, unique) == 2)
        proxy.refuse()
        proxy.cut()
        proxy.rewrite(None)
        proxy.accept()
        events.wait("reconnect", 2)
        pour(ingest, f"{unique}.a", payloads[21:], 1)
        found = stored(js, unique)
        check_ok(ingest, found, payloads)
        assert set(payloads) - set(found) == set(payloads[1:20])
        assert not ingest.lost


def test_a_loss_while_nothing_is_added_is_mended(
    js: JetStream, proxy: FaultProxy, unique: str
) -> None:
    events = Events()
    with connect(proxy.url, events) as nc:
        with nc.jetstream().fast_ingest() as ingest:
            ingest.add_many(f"{unique}.a", numbers(100))
            proxy.deaf("client")
            for number in range(100, 200):
                ingest.add(f"{unique}.a", b"%d" % number)
            nc._session.write_buffer.flush()
            proxy.cut()
            proxy.hear("client")
            events.wait("reconnect")
            time.sleep(0.2)
            ingest.add(f"{unique}.a", b"200")
        assert ingest._engine.base > 0  # the ingest continued in another batch
    assert stored(js, unique) == numbers(201)
    assert ingest.pub_ack.count == 201


def test_a_new_connection_asks_without_waiting_for_adds(
    js: JetStream, proxy: FaultProxy, unique: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fast_ingest, "KEEP_ALIVE", LONG)
    events, seen = Events(), b""

    def watch(chunk: bytes, to: Side) -> bytes:
        nonlocal seen
        seen += chunk if to == "server" else b""
        return chunk

    with connect(proxy.url, events) as nc, nc.jetstream().fast_ingest() as ingest:
        ingest.add(f"{unique}.a", b"0")
        proxy.rewrite(watch)
        proxy.cut()
        wait_for(lambda: b".1.4.$FI 0" in seen, LONG)
        proxy.rewrite(None)
    assert stored(js, unique) == [b"0"]


def test_messages_beyond_the_resume_buffer_are_not_resent(
    js: JetStream, proxy: FaultProxy, unique: str
) -> None:
    events = Events()
    with connect(proxy.url, events) as nc:
        ingest = nc.jetstream().fast_ingest(resume_bytes=1000)
        ingest.add_many(f"{unique}.a", numbers(10))
        proxy.deaf("client")
        ingest.add_many(f"{unique}.a", [b"x" * 100] * 50)
        proxy.cut()
        proxy.hear("client")
        events.wait("reconnect")
        with pytest.raises(errors.IngestError, match="resume_bytes") as caught:
            ingest.close()
    assert (caught.value.acked, caught.value.unconfirmed) == (10, None)
    assert stored(js, unique) == numbers(10)


def test_a_connection_that_stays_away_ends_it(
    js: JetStream,
    proxy: FaultProxy,
    unique: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(fast_ingest, "RESUME_SECONDS", 0.5)
    with connect(proxy.url, Events()) as nc:
        ingest = nc.jetstream().fast_ingest()
        ingest.add(f"{unique}.a", b"0")
        proxy.refuse()
        proxy.cut()
        began = time.monotonic()
        with pytest.raises(errors.IngestConnectionError) as caught:
            pour_and_raise(ingest, unique)
        assert time.monotonic() - began < SOON
        assert isinstance(caught.value, ConnectionError)
        proxy.accept()
        check(ingest, stored(js, unique), numbers(10_000))


def pour_and_raise(ingest: FastIngest, unique: str) -> None:
    with ingest:
        for number in range(1, 10_000):
            ingest.add(f"{unique}.a", b"%d" % number)


# Servers and streams that go away ---------------------------------------------------------


@pytest.mark.parametrize("ids", [True, False])
def test_a_killed_server_keeps_every_message_reported_stored(
    own_server: StartServer, unique: str, ids: bool
) -> None:
    server = own_server()
    payloads = numbers(30_000)
    with connect(server.url, Events()) as nc:
        js = nc.jetstream()
        js.create_stream(name=unique, subjects=[f"{unique}.>"], allow_batched=True)
        ingest = js.fast_ingest()
        stopped = threading.Event()

        def work() -> None:
            try:
                with ingest:
                    for number, payload in enumerate(payloads):
                        if number == 15_000:
                            server.pause()
                            stopped.set()
                        options: Any = {"msg_id": f"{number}"} if ids else {}
                        ingest.add(f"{unique}.a", payload, **options)
            except errors.IngestError:
                pass

        thread = Thread(work)
        assert stopped.wait(LONG)
        thread.wait_until_blocked()  # with a full window
        server.kill()
        server.start()
        thread._future.result(30)
        found = stored(js, unique)
        check(ingest, found, payloads)
        if ids:
            assert len(found) == len(payloads)
        else:
            with pytest.raises(errors.IngestError) as caught:
                _ = ingest.pub_ack
            cause = caught.value.__cause__
            assert isinstance(cause, errors.BatchPublishUnknownBatchIDError)


def test_with_gaps_ok_an_ingest_outlives_its_server(
    own_server: StartServer, unique: str
) -> None:
    server = own_server()
    payloads = numbers(30_000)
    with connect(server.url, Events()) as nc:
        js = nc.jetstream()
        js.create_stream(name=unique, subjects=[f"{unique}.>"], allow_batched=True)
        events = Recorder()
        ingest = js.fast_ingest(gaps="ok", on_error=events)
        stopped = threading.Event()

        def work() -> None:
            with ingest:
                for number, payload in enumerate(payloads):
                    if number == 15_000:
                        server.pause()
                        stopped.set()
                    ingest.add(f"{unique}.a", payload)

        thread = Thread(work)
        assert stopped.wait(LONG)
        thread.wait_until_blocked()  # with a full window
        server.kill()
        server.start()
        thread._future.result(30)
        assert ingest.pub_ack.count == len(payloads)
        # the killed server may or may not have stored its messages
        assert not ingest.lost
        unsure = numbers_in(ingest.unconfirmed_ranges)
        found = stored(js, unique)
        said = {payload for n, payload in enumerate(payloads) if n not in unsure}
        assert said <= set(found)
        assert found == sorted(set(found), key=int)
        assert 0 < len(unsure) == ingest.unconfirmed_count <= 2000
        told = [events.get() for _ in ingest.unconfirmed_ranges]
        assert all(isinstance(e, errors.MessagesUnconfirmedError) for e in told)


def numbers_in(
    ranges: tuple[errors.LostRange | errors.UnconfirmedRange, ...],
) -> set[int]:
    """Return the indexes of messages in a list, from 0."""
    return {n - 1 for one in ranges for n in range(one.first, one.last + 1)}


def test_a_deleted_stream_ends_it_in_time(js: JetStream, unique: str) -> None:
    ingest = js.fast_ingest(ack_timeout=1.0)
    thread = Thread(pour, ingest, f"{unique}.a", numbers(1_000_000), 1)
    wait_for(lambda: ingest.acked > 1000)
    js.delete_stream(unique)
    thread.result()
    with pytest.raises(errors.IngestError) as caught:
        _ = ingest.pub_ack
    # A message that reaches the stream during the deletion finds no batch.
    assert isinstance(
        caught.value.__cause__,
        errors.NoStreamResponseError | errors.BatchPublishUnknownBatchIDError,
    )
    js.create_stream(name=unique, subjects=[f"{unique}.>"])


def test_a_stream_that_is_switched_off_ends_it(js: JetStream, unique: str) -> None:
    payloads = numbers(1_000_000)
    ingest = js.fast_ingest()
    thread = Thread(pour, ingest, f"{unique}.a", payloads, 1)
    wait_for(lambda: ingest.acked > 1000)
    js._api.request(
        f"STREAM.UPDATE.{unique}", {"name": unique, "subjects": [f"{unique}.>"]}
    )
    thread.result()
    with pytest.raises(errors.IngestError) as caught:
        _ = ingest.pub_ack
    # A message that reaches the stream while batches are being disabled finds no batch.
    assert isinstance(
        caught.value.__cause__,
        errors.BatchPublishDisabledError | errors.BatchPublishUnknownBatchIDError,
    )
    check(ingest, stored(js, unique), payloads)


def test_a_purge_does_not_disturb_it(js: JetStream, unique: str) -> None:
    ingest = js.fast_ingest()
    thread = Thread(pour, ingest, f"{unique}.a", numbers(20_000), 1)
    wait_for(lambda: ingest.acked > 1000)
    js._api.request(f"STREAM.PURGE.{unique}")
    thread.result()
    assert ingest.pub_ack.count == 20_000
    assert ingest.pub_ack.seq == 20_000
    assert held(js, unique) < 20_000
