"""Tests of fast ingest on a real server."""

from __future__ import annotations

import contextlib
import gc
import pickle
import time
from typing import TYPE_CHECKING, Any

import pytest

import jsync
from jsync import FastPubAck, errors

from ....support.connection_faults import Events, connect
from ....support.threads import SOON, Thread

if TYPE_CHECKING:
    from collections.abc import Iterator

    from jsync import FastIngest, JetStream, Stream
    from jsync.connection import Connection
    from jsync.server import LocalServer

    from ....support.proxy import FaultProxy

pytestmark = [pytest.mark.server, pytest.mark.quick]


@pytest.fixture
def stream(js: JetStream, unique: str) -> Iterator[Stream]:
    yield js.create_stream(name=unique, subjects=[f"{unique}.>"], allow_batched=True)
    with contextlib.suppress(errors.APIError):
        js.delete_stream(unique)


def stored(js: JetStream, name: str) -> list[bytes]:
    """Return the payloads of all messages of the stream."""
    count = held(js, name)
    if not count:
        return []
    consumer = js.create_consumer(
        name, ack_policy="none", inactive_threshold=30.0, mem_storage=True
    )
    with consumer.fetch(count, timeout=10) as batch:
        return [msg.data for msg in batch]


def held(js: JetStream, name: str) -> int:
    reply = js._api.request(f"STREAM.INFO.{name}")
    return int(reply["state"]["messages"])


def numbers(count: int, begin: int = 0) -> list[bytes]:
    return [b"%d" % number for number in range(begin, begin + count)]


def add_all(ingest: FastIngest, subject: str, payloads: list[bytes]) -> None:
    for payload in payloads:
        ingest.add(subject, payload)


def run(ingest: FastIngest, subject: str, *messages: dict[str, Any]) -> None:
    """Add messages, each with its options, and end the ingest."""
    with ingest:
        for options in messages:
            ingest.add(subject, **options)


# Storing messages ---------------------------------------------------------------------


def test_added_messages_are_stored_in_order(
    js: JetStream, stream: Stream, unique: str
) -> None:
    with js.fast_ingest() as ingest:
        add_all(ingest, f"{unique}.a", numbers(2500))
    assert stored(js, unique) == numbers(2500)
    ack = ingest.pub_ack
    assert (ack.stream, ack.seq, ack.count) == (unique, 2500, 2500)
    assert ingest.acked == ingest.added == 2500


def test_add_returns_its_place_and_the_last_ack(
    js: JetStream, stream: Stream, unique: str
) -> None:
    with js.fast_ingest(flow=10) as ingest:
        acks = [ingest.add(f"{unique}.a") for _ in range(100)]
        assert [ack.batch_sequence for ack in acks] == list(range(1, 101))
        confirmed = [ack.ack_sequence for ack in acks]
        assert confirmed == sorted(confirmed)
        assert all(ack.batch_sequence - ack.ack_sequence <= 20 for ack in acks)
        assert confirmed[-1] >= 80
        sequence, acked = acks[-1]
        assert (sequence, acked) == tuple(acks[-1]) == (acks[-1][0], acks[-1][1])
        assert (
            acks[-1] == FastPubAck(sequence, acked) != FastPubAck(sequence, acked + 1)
        )
        assert repr(acks[-1]) == (
            f"FastPubAck(batch_sequence={sequence}, ack_sequence={acked})"
        )


def test_many_are_added_to_one_subject_or_several(
    js: JetStream, stream: Stream, unique: str
) -> None:
    subjects = [f"{unique}.{number % 7}" for number in range(3000)]
    with js.fast_ingest() as ingest:
        first = ingest.add_many(f"{unique}.all", numbers(3000))
        second = ingest.add_many(subjects, iter(numbers(3000, 3000)))
        nothing = ingest.add_many([], [])
        assert (first.batch_sequence, second.batch_sequence) == (3000, 6000)
        assert nothing == second
    assert stored(js, unique) == numbers(6000)
    consumer = js.create_consumer(
        unique, ack_policy="none", filter_subject=f"{unique}.3"
    )
    wanted = [b"%d" % (3000 + n) for n in range(3000) if n % 7 == 3]
    with consumer.fetch(len(wanted), timeout=5) as batch:
        assert [msg.data for msg in batch] == wanted


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_a_payload_is_bytes_of_any_kind(
    js: JetStream, stream: Stream, unique: str, kind: type[Any]
) -> None:
    with js.fast_ingest() as ingest:
        ingest.add(f"{unique}.a", kind(b"one"))
        ingest.add_many(f"{unique}.a", [kind(b"two"), kind(b"three")])
    assert stored(js, unique) == [b"one", b"two", b"three"]


def test_a_payload_changed_after_add_is_stored_unchanged(
    js: JetStream, stream: Stream, unique: str
) -> None:
    payload = bytearray(b"before")
    with js.fast_ingest() as ingest:
        ingest.add(f"{unique}.a", payload)
        payload[:] = b"behind"
    assert stored(js, unique) == [b"before"]


def test_options_and_headers_go_along(
    js: JetStream, stream: Stream, unique: str
) -> None:
    with js.fast_ingest() as ingest:
        ingest.add(f"{unique}.a", b"1", msg_id="one", headers={"Own": "header"})
        ingest.add(f"{unique}.a", b"again", msg_id="one")
        ingest.add(f"{unique}.a", b"2", expected_last_subject_sequence=1)
    assert stored(js, unique) == [b"1", b"2"]
    assert ingest.pub_ack.count == 3  # a duplicate counts as stored
    consumer = js.create_consumer(unique, ack_policy="none")
    with consumer.fetch(1, timeout=5) as batch:
        (msg,) = batch
    assert msg.headers == {"Own": "header", "Nats-Msg-Id": "one"}


def test_large_messages_and_small_ones_mix(
    js: JetStream, stream: Stream, unique: str
) -> None:
    payloads = [bytes([n % 251]) * (n * 7919 % 300_000) for n in range(120)]
    with js.fast_ingest() as ingest:
        ingest.add_many(f"{unique}.a", payloads)
        add_all(ingest, f"{unique}.a", payloads)
    assert stored(js, unique) == payloads + payloads


def test_an_ingest_of_nothing_is_nothing(
    js: JetStream, stream: Stream, unique: str
) -> None:
    with js.fast_ingest() as ingest:
        assert ingest.add_many(f"{unique}.a", []).batch_sequence == 0
    assert ingest.pub_ack.count == 0
    assert not held(js, unique)


@pytest.mark.parametrize("gaps", ["fail", "ok"])
@pytest.mark.parametrize("before", [0, 1, 700])
def test_a_commit_adds_the_last_message_and_ends(
    js: JetStream, stream: Stream, unique: str, gaps: Any, before: int
) -> None:
    ingest = js.fast_ingest(gaps=gaps)
    add_all(ingest, f"{unique}.a", numbers(before))
    ack = ingest.commit(f"{unique}.a", b"last", msg_id="last")
    assert (ack.seq, ack.count) == (before + 1, before + 1)
    assert ingest.pub_ack == ack
    assert stored(js, unique) == [*numbers(before), b"last"]
    with pytest.raises(errors.IngestClosedError):
        ingest.add(f"{unique}.a")


def test_a_second_close_returns_the_same_result(
    js: JetStream, stream: Stream, unique: str
) -> None:
    ingest = js.fast_ingest()
    ingest.add(f"{unique}.a")
    with pytest.raises(errors.IngestClosedError):
        _ = ingest.pub_ack
    ack = ingest.close()
    assert ack == ingest.close() == ingest.pub_ack
    for add in (ingest.add, ingest.commit):
        with pytest.raises(errors.IngestClosedError):
            add(f"{unique}.a")
    with pytest.raises(errors.IngestClosedError):
        ingest.add_many(f"{unique}.a", [b"1"])
    assert held(js, unique) == 1


def test_its_repr_shows_how_far_it_is(
    js: JetStream, stream: Stream, unique: str
) -> None:
    with js.fast_ingest() as ingest:
        assert repr(ingest) == "<FastIngest idle, 0 added, 0 acknowledged, gaps='fail'>"
        ingest.add(f"{unique}.a")
        assert repr(ingest) == "<FastIngest open, 1 added, 0 acknowledged, gaps='fail'>"
    assert repr(ingest) == "<FastIngest ended, 1 added, 1 acknowledged, gaps='fail'>"


def test_tls_carries_it_too(
    tls_server: LocalServer, certificates: Any, unique: str
) -> None:
    with jsync.connect(tls_server.url, tls_ca=str(certificates.ca.cert)) as nc:
        js = nc.jetstream()
        js.create_stream(name=unique, subjects=[f"{unique}.>"], allow_batched=True)
        with js.fast_ingest() as ingest:
            ingest.add_many(f"{unique}.a", numbers(5000))
        assert stored(js, unique) == numbers(5000)
        js.delete_stream(unique)


def test_counters_count(js: JetStream, unique: str) -> None:
    js.create_stream(
        name=unique,
        subjects=[f"{unique}.>"],
        allow_batched=True,
        allow_msg_counter=True,
    )
    with js.fast_ingest() as ingest:
        for number in range(1, 101):
            ingest.add(f"{unique}.hits", incr=number)
    consumer = js.create_consumer(unique, ack_policy="none", deliver_policy="last")
    with consumer.fetch(1, timeout=5) as batch:
        (msg,) = batch
    assert b"5050" in msg.data
    js.delete_stream(unique)


def test_a_stream_that_persists_later_takes_it_too(js: JetStream, unique: str) -> None:
    # ADR-50: "Streams with `PersistMode: async` set are compatible with fast ingest".
    js.create_stream(
        name=unique,
        subjects=[f"{unique}.>"],
        allow_batched=True,
        persist_mode="async",
    )
    with js.fast_ingest() as ingest:
        ingest.add_many(f"{unique}.a", numbers(1000))
    assert stored(js, unique) == numbers(1000)
    js.delete_stream(unique)


# Ends ---------------------------------------------------------------------------------


def test_a_raising_body_ends_the_batch_unmasked(
    js: JetStream, stream: Stream, unique: str
) -> None:
    ingest = js.fast_ingest()
    add_all(ingest, f"{unique}.a", numbers(10))
    with pytest.raises(ZeroDivisionError), ingest:
        assert 1 // 0
    assert is_alone(js, unique)
    assert stored(js, unique) == numbers(10)
    with pytest.raises(errors.IngestClosedError):
        ingest.add(f"{unique}.a")


def is_alone(js: JetStream, unique: str) -> bool:
    """Return whether no other batch is open, since the server then grants more messages at once."""
    with js.fast_ingest() as other:
        other.add(f"{unique}.probe")
        granted = other._engine.msgs
    js._api.request(f"STREAM.PURGE.{unique}", {"filter": f"{unique}.probe"})
    return granted == 500


def test_batches_beside_an_open_ingest_are_not_alone(
    js: JetStream, stream: Stream, unique: str
) -> None:
    with js.fast_ingest() as ingest:
        ingest.add(f"{unique}.a")
        assert not is_alone(js, unique)
    assert is_alone(js, unique)


def test_a_forgotten_ingest_is_ended(
    js: JetStream, stream: Stream, unique: str
) -> None:
    js.fast_ingest().add(f"{unique}.a", b"0")
    gc.collect()
    assert is_alone(js, unique)
    assert stored(js, unique) == [b"0"]


def test_an_ended_ingest_leaves_nothing(
    nc: Connection, js: JetStream, stream: Stream, unique: str
) -> None:
    before = set(nc._session.interests)
    for how in ("close", "abandon"):
        ingest = js.fast_ingest()
        ingest.add(f"{unique}.a")
        assert set(nc._session.interests) != before
        getattr(ingest, how)()
        assert set(nc._session.interests) == before
        nc.flush()


def test_32_ingests_at_once_store_all_in_order(
    js: JetStream, stream: Stream, unique: str
) -> None:
    def work(number: int) -> int:
        with js.fast_ingest() as ingest:
            for start in range(0, 2000, 250):
                ingest.add_many(f"{unique}.{number}", numbers(250, start))
        return ingest.pub_ack.count or 0

    threads = [Thread(work, number) for number in range(32)]
    assert [thread._future.result(60) for thread in threads] == [2000] * 32
    assert held(js, unique) == 32 * 2000
    for number in (0, 17, 31):
        consumer = js.create_consumer(
            unique, ack_policy="none", filter_subject=f"{unique}.{number}"
        )
        with consumer.fetch(2000, timeout=10) as batch:
            assert [msg.data for msg in batch] == numbers(2000)


def test_a_second_thread_beside_a_waiting_one_raises(
    js: JetStream, proxy: FaultProxy, stream: Stream, unique: str
) -> None:
    with connect(proxy.url, Events()) as nc:
        ingest = nc.jetstream().fast_ingest()
        proxy.deaf("server")
        first = Thread(ingest.add, f"{unique}.a", b"0")
        first.wait_until_blocked()
        for call in (ingest.close, lambda: ingest.add(f"{unique}.a")):
            with pytest.raises(errors.ConcurrentUseError):
                call()
        with pytest.raises(errors.ConcurrentUseError):
            ingest.add_many(f"{unique}.a", [b"1"])
        proxy.hear("server")
        assert first.result().batch_sequence == 1
        assert ingest.close().count == 1
    assert stored(js, unique) == [b"0"]


@pytest.mark.parametrize("how", ["abandon", "close the connection"])
def test_a_waiting_ingest_is_woken(
    proxy: FaultProxy, stream: Stream, unique: str, how: str
) -> None:
    nc = connect(proxy.url, Events())
    with nc:
        ingest = nc.jetstream().fast_ingest()
        ingest.add(f"{unique}.a", b"0")
        proxy.deaf("server")
        waiting = Thread(ingest.add_many, f"{unique}.a", numbers(5000))
        waiting.wait_until_blocked()
        began = time.monotonic()
        if how == "abandon":
            ingest.abandon()
        else:
            nc._session.close(0)
        error = waiting.error()
        assert time.monotonic() - began < SOON
        if how == "abandon":
            assert isinstance(error, errors.IngestClosedError)
        else:
            assert isinstance(error, errors.IngestConnectionError)
            assert isinstance(error.__cause__, errors.ConnectionClosedError)
        proxy.hear("server")


def test_errors_survive_pickling(js: JetStream, stream: Stream, unique: str) -> None:
    with pytest.raises(errors.IngestError) as caught:
        run(js.fast_ingest(), f"{unique}.a", {}, {"expected_last_sequence": 5})
    again = pickle.loads(pickle.dumps(caught.value))
    assert type(again) is type(caught.value)
    assert (again.acked, str(again)) == (1, str(caught.value))
    assert again.lost[0][:2] == (2, 2)
