from __future__ import annotations

import contextlib
import gc
import pickle
import re
import signal
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest

import jsync
from jsync import FastPubAck, errors

from ..faults import Events, connect
from ..servers import wait_for
from .support import LONG, SOON, Recorder, Thread, run_child

if TYPE_CHECKING:
    from collections.abc import Iterator

    from jsync import FastIngest, JetStream, Stream
    from jsync.core.connection import Connection
    from jsync.server import LocalServer

    from ..conftest import StartServer
    from ..proxy import FaultProxy, Side

pytestmark = pytest.mark.server


@pytest.fixture
def stream(js: JetStream, unique: str) -> Iterator[Stream]:
    yield js.create_stream(name=unique, subjects=[f"{unique}.>"], allow_batched=True)
    with contextlib.suppress(errors.APIError):
        js.delete_stream(unique)


def stored(js: JetStream, name: str) -> list[bytes]:
    """The payloads of all that the stream holds."""
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
    """Add messages, each with its options, and end it."""
    with ingest:
        for options in messages:
            ingest.add(subject, **options)


# What it does -------------------------------------------------------------------------


def test_what_is_added_is_stored_in_order(
    js: JetStream, stream: Stream, unique: str
) -> None:
    with js.fast_ingest() as ingest:
        add_all(ingest, f"{unique}.a", numbers(2500))
    assert stored(js, unique) == numbers(2500)
    ack = ingest.pub_ack
    assert (ack.stream, ack.seq, ack.count) == (unique, 2500, 2500)
    assert ingest.acked == ingest.added == 2500


def test_each_add_says_where_it_is_and_what_is_acknowledged(
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


def test_many_are_added_at_once_to_one_subject_or_to_one_each(
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


def test_a_payload_that_is_changed_after_add_was_stored_as_it_was(
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
    assert ingest.pub_ack.count == 3  # one that is there already counts as stored
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
def test_a_commit_is_the_last_message_and_the_end(
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


def test_close_ends_it_and_says_the_same_again(
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


# What it refuses ------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options",
    [
        {"gaps": "maybe"},
        {"flow": 0},
        {"flow": 65536},
        {"flow": 1.5},
        {"outstanding": 0},
        {"ack_timeout": 0},
        {"ack_timeout": float("nan")},
        {"resume_bytes": 0},
    ],
    ids=str,
)
def test_options_that_cannot_be_are_refused(
    js: JetStream, options: dict[str, Any]
) -> None:
    with pytest.raises(errors.ConfigError, match=next(iter(options))):
        js.fast_ingest(**options)


@pytest.mark.parametrize(
    ("arguments", "options", "kind"),
    [
        (("",), {}, errors.InvalidSubjectError),
        (("a.*",), {}, errors.InvalidSubjectError),
        (("{}.a", "text"), {}, TypeError),
        (("{}.a", b"x" * 1_048_577), {}, errors.MaxPayloadError),
        (("{}.a",), {"headers": {"a": "b\r\n"}}, errors.InvalidHeaderError),
        (("{}.a",), {"expected_last_msg_id": "1"}, errors.ConfigError),
        (("{}.a",), {"headers": {"Nats-Batch-Id": "1"}}, errors.ConfigError),
        (("{}.a",), {"msg_idd": "1"}, TypeError),
    ],
    ids=str,
)
@pytest.mark.parametrize("first", [True, False])
def test_a_bad_message_is_refused_and_the_ingest_goes_on(
    js: JetStream,
    stream: Stream,
    unique: str,
    arguments: tuple[Any, ...],
    options: dict[str, Any],
    kind: type[Exception],
    first: bool,
) -> None:
    subject, *data = arguments
    with js.fast_ingest() as ingest:
        if not first:
            ingest.add(f"{unique}.a", b"0")
        for add in (ingest.add, ingest.commit):
            with pytest.raises(kind):
                add(subject.format(unique), *data, **options)
        ingest.add(f"{unique}.a", b"last")
    assert stored(js, unique) == ([] if first else [b"0"]) + [b"last"]


@pytest.mark.parametrize(
    ("subjects", "payloads", "kind"),
    [
        ("{}.*", [b"1"], errors.InvalidSubjectError),
        (["{}.a", "{}."], [b"1", b"2"], errors.InvalidSubjectError),
        (["{}.a"], [b"1", b"2"], errors.ConfigError),
        ("{}.a", [b"1", "2"], TypeError),
        ("{}.a", [b"1", b"x" * 1_048_577], errors.MaxPayloadError),
    ],
    ids=["subject", "subjects", "lengths", "str", "too large"],
)
def test_of_many_none_is_sent_when_one_is_bad(
    js: JetStream,
    stream: Stream,
    unique: str,
    subjects: Any,
    payloads: Any,
    kind: type[Exception],
) -> None:
    with js.fast_ingest() as ingest:
        with pytest.raises(kind):
            ingest.add_many(
                subjects.format(unique)
                if isinstance(subjects, str)
                else [subject.format(unique) for subject in subjects],
                payloads,
            )
        ingest.add(f"{unique}.a", b"good")
    assert stored(js, unique) == [b"good"]


def test_an_option_that_it_cannot_carry_says_why(js: JetStream, unique: str) -> None:
    with pytest.raises(errors.ConfigError, match="expected_last_sequence"):
        js.fast_ingest().add(unique, expected_last_msg_id="1")


def test_a_stream_without_the_feature_refuses_the_first(
    js: JetStream, unique: str
) -> None:
    js.create_stream(name=unique, subjects=[f"{unique}.>"])
    with pytest.raises(errors.BatchPublishDisabledError):
        with js.fast_ingest() as ingest:
            ingest.add(f"{unique}.a")
    assert not held(js, unique)
    js.delete_stream(unique)


def test_no_stream_at_all_is_an_error_soon(js: JetStream, unique: str) -> None:
    began = time.monotonic()
    with pytest.raises(errors.NoStreamResponseError):
        with js.fast_ingest() as ingest:
            ingest.add(f"{unique}.a")
    assert time.monotonic() - began < SOON


@pytest.mark.parametrize("gaps", ["fail", "ok"])
def test_one_api_level_too_high_ends_it(
    js: JetStream, stream: Stream, unique: str, gaps: Any
) -> None:
    too_high = {"headers": {"Nats-Required-Api-Level": "99"}}
    with pytest.raises(errors.IngestError) as caught:
        run(js.fast_ingest(gaps=gaps), f"{unique}.a", {}, too_high)
    assert isinstance(caught.value.__cause__, errors.RequiredAPILevelError)


# Refused messages -----------------------------------------------------------------------


def test_fail_stops_at_the_message_that_is_refused(
    js: JetStream, stream: Stream, unique: str
) -> None:
    messages: list[dict[str, Any]] = [{"data": each} for each in numbers(3000)]
    messages[700]["expected_last_sequence"] = 5
    ingest = js.fast_ingest()
    with pytest.raises(errors.IngestError) as caught:
        run(ingest, f"{unique}.a", *messages)
    error = caught.value
    assert isinstance(error.__cause__, errors.WrongLastSequenceError)
    assert (error.acked, error.unconfirmed) == (700, None)
    (refused, *rest) = error.lost
    assert refused[:2] == (701, 701)
    assert refused[2] is error.__cause__
    assert [r[:2] for r in rest] in ([], [(702, ingest.added)])
    assert stored(js, unique) == numbers(700)
    with pytest.raises(errors.IngestError):
        ingest.add(f"{unique}.a")
    with pytest.raises(errors.IngestError):
        _ = ingest.pub_ack


def end(
    ingest: FastIngest, subject: str, options: dict[str, Any], *, commit: bool
) -> None:
    """Add a last message, in one of two ways, and end it."""
    if commit:
        ingest.commit(subject, **options)
    else:
        run(ingest, subject, options)


@pytest.mark.parametrize("commit", [True, False])
def test_fail_stops_at_a_last_message_that_is_refused(
    js: JetStream, stream: Stream, unique: str, commit: bool
) -> None:
    ingest = js.fast_ingest()
    ingest.add(f"{unique}.a", b"0")
    wrong: dict[str, Any] = {"expected_last_sequence": 5}
    with pytest.raises(errors.IngestError) as caught:
        end(ingest, f"{unique}.a", wrong, commit=commit)
    assert isinstance(caught.value.__cause__, errors.WrongLastSequenceError)
    assert caught.value.acked == 1
    assert [lost[:2] for lost in caught.value.lost] == [(2, 2)]
    assert stored(js, unique) == [b"0"]


@pytest.mark.parametrize("commit", [True, False])
def test_fail_raises_what_the_only_message_is_refused_for(
    js: JetStream, stream: Stream, unique: str, commit: bool
) -> None:
    wrong: dict[str, Any] = {"expected_last_sequence": 5}
    with pytest.raises(errors.WrongLastSequenceError):
        end(js.fast_ingest(), f"{unique}.a", wrong, commit=commit)
    assert not held(js, unique)


def test_ok_goes_on_and_tells_what_is_refused(
    js: JetStream, stream: Stream, unique: str
) -> None:
    told = Recorder()
    with js.fast_ingest(gaps="ok", on_error=told) as ingest:
        ingest.add(f"{unique}.a", b"0", expected_last_sequence=5)
        ingest.add(f"{unique}.a", b"1")
        ingest.add(f"{unique}.a", b"2", expected_last_sequence=5)
        ingest.add(f"{unique}.a", b"3", expected_last_sequence=5)
        ingest.add(f"{unique}.a", b"4")
    assert stored(js, unique) == [b"1", b"4"]
    assert [lost[:2] for lost in ingest.lost] == [(1, 1), (3, 4)]
    assert all(
        isinstance(lost.error, errors.WrongLastSequenceError) for lost in ingest.lost
    )
    assert ingest.lost_count == 3
    seen = [told.get() for _ in range(3)]
    assert [(error.first, error.last) for error in seen] == [(1, 1), (3, 3), (4, 4)]
    assert all(isinstance(error, errors.MessagesLostError) for error in seen)


@pytest.mark.parametrize("gaps", ["fail", "ok"])
def test_a_message_larger_than_the_stream_takes(
    js: JetStream, unique: str, gaps: Any
) -> None:
    js.create_stream(
        name=unique, subjects=[f"{unique}.>"], allow_batched=True, max_msg_size=100
    )
    ingest = js.fast_ingest(gaps=gaps, on_error=Recorder())
    messages = [{"data": data} for data in (b"0", b"x" * 1000, b"2")]
    if gaps == "fail":
        with pytest.raises(errors.IngestError) as caught:
            run(ingest, f"{unique}.a", *messages)
        assert isinstance(caught.value.__cause__, errors.MessageTooLargeError)
        assert (caught.value.acked, caught.value.unconfirmed) == (1, None)
        assert stored(js, unique) == [b"0"]
    else:
        run(ingest, f"{unique}.a", *messages)
        assert [lost[:2] for lost in ingest.lost] == [(2, 2)]
        assert stored(js, unique) == [b"0", b"2"]
    js.delete_stream(unique)


def test_a_full_stream_ends_it_with_what_it_has(js: JetStream, unique: str) -> None:
    js.create_stream(
        name=unique,
        subjects=[f"{unique}.>"],
        allow_batched=True,
        max_msgs=1234,
        discard="new",
    )
    with pytest.raises(errors.IngestError) as caught:
        with js.fast_ingest() as ingest:
            ingest.add_many(f"{unique}.a", numbers(5000))
    assert (caught.value.acked, caught.value.unconfirmed) == (1234, None)
    assert stored(js, unique) == numbers(1234)
    js.delete_stream(unique)


# Ends ---------------------------------------------------------------------------------


def test_a_body_that_raises_ends_the_batch_and_is_not_masked(
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
    """Whether no other batch is open: then the server grants more than one at once."""
    with js.fast_ingest() as other:
        other.add(f"{unique}.probe")
        granted = other._engine.msgs
    js._api.request(f"STREAM.PURGE.{unique}", {"filter": f"{unique}.probe"})
    return granted == 500


def test_another_batch_is_not_alone(js: JetStream, stream: Stream, unique: str) -> None:
    with js.fast_ingest() as ingest:
        ingest.add(f"{unique}.a")
        assert not is_alone(js, unique)
    assert is_alone(js, unique)


def test_one_that_was_forgotten_is_ended(
    js: JetStream, stream: Stream, unique: str
) -> None:
    js.fast_ingest().add(f"{unique}.a", b"0")
    gc.collect()
    assert is_alone(js, unique)
    assert stored(js, unique) == [b"0"]


def test_nothing_is_left_of_an_ingest_that_has_ended(
    nc: Connection, js: JetStream, stream: Stream, unique: str
) -> None:
    before = set(nc.session.interests)
    for how in ("close", "abandon"):
        ingest = js.fast_ingest()
        ingest.add(f"{unique}.a")
        assert set(nc.session.interests) != before
        getattr(ingest, how)()
        assert set(nc.session.interests) == before
        nc.flush()


def test_32_at_once_store_all_each_in_its_order(
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


def test_a_second_thread_is_told_while_the_first_one_waits(
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
def test_one_that_waits_is_woken(
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
            nc.session.close(0)
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


# Lost acks and silence --------------------------------------------------------------------


class Acks:
    """A `rewrite` hook that keeps some of the server's flow acks from the client."""

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


def test_a_start_whose_answer_is_lost_is_found_by_a_ping(
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
            # A ping has told that the batch is over, but nobody tells how it ended.
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
    monkeypatch.setattr("jsync.jetstream.fast_ingest.KEEP_ALIVE", 0.05)
    pings = []

    def watch(chunk: bytes, to: Side) -> bytes:
        if to == "server":
            pings.extend(re.findall(rb"\.(\d+)\.4\.\$FI 0", chunk))
        return chunk

    with connect(proxy.url, Events()) as nc:
        proxy.rewrite(watch)
        with nc.jetstream().fast_ingest() as ingest:
            add_all(ingest, f"{unique}.a", numbers(3))
            wait_for(lambda: len(pings) >= 3)
            ingest.add(f"{unique}.a", b"3")
        before = len(pings)
        time.sleep(0.3)
        assert len(pings) == before
        proxy.rewrite(None)
    assert set(pings[:3]) == {b"3"}


# Signals, forks, permissions ----------------------------------------------------------------


@pytest.mark.parametrize("part", ["start", "window", "end"])
def test_ctrl_c_ends_a_wait_and_frees_the_slot(
    js: JetStream, proxy: FaultProxy, stream: Stream, unique: str, part: str
) -> None:
    with connect(proxy.url, Events()) as nc:
        ingest = nc.jetstream().fast_ingest(ack_timeout=LONG)
        payloads = numbers(5000)
        if part != "start":
            ingest.add(f"{unique}.a", payloads[0])
        proxy.deaf("server")
        began = time.monotonic()
        timer = threading.Timer(0.2, signal.raise_signal, [signal.SIGINT])
        timer.start()
        rest = {"start": payloads[:1], "window": payloads[1:], "end": []}[part]
        with pytest.raises(KeyboardInterrupt), ingest:
            ingest.add_many(f"{unique}.a", rest)
        timer.join()
        assert time.monotonic() - began < SOON
        proxy.hear("server")
        nc.flush()
    assert is_alone(js, unique)
    found = stored(js, unique)
    assert found == payloads[: len(found)]


def test_an_ingest_goes_on_after_ctrl_c(
    js: JetStream, proxy: FaultProxy, stream: Stream, unique: str
) -> None:
    payloads = numbers(3000)
    with connect(proxy.url, Events()) as nc:
        with nc.jetstream().fast_ingest(ack_timeout=LONG) as ingest:
            proxy.delay(0.3, "client")
            timer = threading.Timer(0.1, signal.raise_signal, [signal.SIGINT])
            timer.start()
            added = 0
            try:
                for payload in payloads:
                    ingest.add(f"{unique}.a", payload)
                    added += 1
            except KeyboardInterrupt:
                proxy.delay(0, "client")
            timer.join()
            # What was interrupted was the wait, before or behind its message.
            for payload in payloads[ingest.added :]:
                ingest.add(f"{unique}.a", payload)
    assert stored(js, unique) == payloads


def test_a_forked_child_is_refused_and_the_parents_batch_goes_on(
    server: LocalServer, js: JetStream, stream: Stream, unique: str
) -> None:
    told = run_child(
        """
        import os, sys, warnings
        import jsync

        url, subject = sys.argv[1:]
        with jsync.connect(url) as nc:
            with nc.jetstream().fast_ingest() as ingest:
                ingest.add(subject, b"0")
                warnings.simplefilter("ignore")
                if not (child := os.fork()):
                    for call in (
                        lambda: ingest.add(subject, b"child"),
                        lambda: ingest.add_many(subject, [b"child"]),
                        ingest.close,
                        nc.jetstream().fast_ingest,
                    ):
                        try:
                            call()
                        except jsync.errors.ForkedProcessError:
                            print("refused", flush=True)
                    os._exit(0)
                os.waitpid(child, 0)
                ingest.add(subject, b"1")
        print(ingest.pub_ack.count)
        """,
        server.url,
        f"{unique}.a",
    )
    assert told.split() == ["refused"] * 4 + ["2"]
    assert stored(js, unique) == [b"0", b"1"]


@pytest.mark.parametrize("first", [True, False])
def test_a_subject_that_may_not_be_published_to_is_told_at_once(
    own_server: StartServer, unique: str, first: bool
) -> None:
    server = own_server(
        config=f"""
        accounts {{ A {{ jetstream: enabled, users: [
            {{ user: all, password: p }}
            {{ user: some, password: p, permissions: {{
                publish: ["$JS.API.>", "{unique}.may"], subscribe: ">" }} }} ] }} }}
        """
    )
    with (
        jsync.connect(server.url, user="all", password="p") as nc,
        jsync.connect(
            server.url, user="some", password="p", on_error=Recorder()
        ) as limited,
    ):
        js = nc.jetstream()
        js.create_stream(name=unique, subjects=[f"{unique}.>"], allow_batched=True)
        ingest = limited.jetstream().fast_ingest(ack_timeout=LONG)
        if not first:
            ingest.add(f"{unique}.may", b"0")
        began = time.monotonic()
        refused = errors.PermissionsError if first else errors.IngestError
        with pytest.raises(refused) as caught:
            run(ingest, f"{unique}.not", {})
        assert time.monotonic() - began < SOON
        if not first:
            assert isinstance(caught.value.__cause__, errors.PermissionsError)
        assert stored(js, unique) == ([] if first else [b"0"])
