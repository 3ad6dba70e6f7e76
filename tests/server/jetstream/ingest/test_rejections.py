"""Tests of the calls that a fast ingest rejects, and of messages that its stream rejects."""

from __future__ import annotations

import time
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Literal

import numpy
import pytest

import jsync
from jsync import errors

from ....support.servers import wait_for
from ....support.threads import LONG, SOON, Recorder

if TYPE_CHECKING:
    from jsync import FastIngest, JetStream, Stream

    from ....conftest import StartServer

from .test_ingest import held, numbers, run, stored, stream as stream

pytestmark = pytest.mark.server


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
        {"ack_timeout": None},
        {"ack_timeout": "1"},
        {"on_error": 5},
        {"resume_bytes": 0},
        {"resume_bytes": 10**400},
    ],
    ids=str,
)
def test_invalid_options_are_rejected(js: JetStream, options: dict[str, Any]) -> None:
    with pytest.raises(errors.ConfigError, match=next(iter(options))):
        js.fast_ingest(**options)


def test_options_may_be_of_any_kind_of_number(js: JetStream, stream: Stream) -> None:
    options: dict[str, Any] = {
        "flow": numpy.int64(3),
        "outstanding": numpy.uint8(3),
        "ack_timeout": timedelta(seconds=LONG),
        "resume_bytes": numpy.int64(9999),
    }
    with js.fast_ingest(**options) as ingest:
        for _ in range(10):
            ingest.add(f"{stream.name}.a", b"1")
    assert stream.info().state.messages == 10


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
def test_the_ingest_continues_after_rejecting_a_bad_message(
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
def test_one_bad_message_keeps_many_from_being_sent(
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


def test_options_unfit_for_fast_ingest_raise_the_reason(
    js: JetStream, unique: str
) -> None:
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


def test_a_thousand_open_batches_are_the_limit(
    nc: jsync.Connection, js: JetStream, stream: Stream, unique: str
) -> None:
    with nc.subscribe(f"{unique}.inbox.>") as answers:
        for number in range(1000):
            reply = f"{unique}.inbox.{number}.10.fail.1.0.$FI"
            nc.publish(f"{unique}.a", b"", reply=reply)
        with pytest.raises(errors.BatchPublishTooManyInflightError):
            js.fast_ingest().add(f"{unique}.a")
        nc.publish(f"{unique}.a", b"", reply=f"{unique}.inbox.0.10.fail.2.2.$FI")
        assert any(b'"count":2' in msg.data for msg in answers)
    with js.fast_ingest() as ingest:
        ingest.add(f"{unique}.a")


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
    """Add a last message in one of two ways, and end the ingest."""
    if commit:
        ingest.commit(subject, **options)
    else:
        run(ingest, subject, options)


@pytest.mark.parametrize("commit", [True, False])
def test_fail_stops_at_a_refused_last_message(
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
def test_fail_raises_the_error_of_the_only_message(
    js: JetStream, stream: Stream, unique: str, commit: bool
) -> None:
    wrong: dict[str, Any] = {"expected_last_sequence": 5}
    with pytest.raises(errors.WrongLastSequenceError):
        end(js.fast_ingest(), f"{unique}.a", wrong, commit=commit)
    assert not held(js, unique)


def test_with_gaps_ok_an_ingest_reports_refused_messages(
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


@pytest.mark.parametrize("room", [0, 1, 499, 500, 700])
def test_with_gaps_ok_an_ingest_survives_refused_windows(
    js: JetStream, unique: str, room: int
) -> None:
    """The server sends no ack for rejected messages, so no ack makes room in the window."""
    js.create_stream(
        name=unique,
        subjects=[f"{unique}.>"],
        allow_batched=True,
        max_msgs=room + 1,
        discard="new",
    )
    js.publish(f"{unique}.a", b"of another")
    with js.fast_ingest(gaps="ok", on_error=Recorder(), ack_timeout=SOON) as ingest:
        ingest.add_many(f"{unique}.a", numbers(1500))
    assert stored(js, unique)[1:] == numbers(room)
    (lost,) = ingest.lost
    assert lost[:2] == (room + 1, 1500)
    assert isinstance(lost.error, errors.StreamStoreError)
    assert (ingest.pub_ack.count, ingest.unconfirmed_ranges) == (1500, ())
    js.delete_stream(unique)


def test_ok_stores_messages_again_once_there_is_room(
    js: JetStream, unique: str
) -> None:
    stream = js.create_stream(
        name=unique,
        subjects=[f"{unique}.>"],
        allow_batched=True,
        max_msgs=700,
        discard="new",
    )
    with js.fast_ingest(gaps="ok", on_error=Recorder(), ack_timeout=SOON) as ingest:
        ingest.add_many(f"{unique}.a", numbers(3000))
        wait_for(lambda: (ingest.add(f"{unique}.a"), ingest.lost_count > 2000)[1])
        stream.purge()
        added = ingest.added
        ingest.add_many(f"{unique}.a", numbers(10))
    # Messages on their way to the full stream may have been stored before these.
    assert stored(js, unique)[-10:] == numbers(10)
    assert ingest.lost[-1].last <= added
    js.delete_stream(unique)


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


def test_a_full_stream_error_counts_the_stored_messages(
    js: JetStream, unique: str
) -> None:
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


@pytest.mark.parametrize("gaps", ["fail", "ok"])
def test_a_full_store_raises_at_once(
    own_server: StartServer, unique: str, gaps: Literal["fail", "ok"]
) -> None:
    server = own_server(config="jetstream { max_file_store: 1MB }")
    with jsync.connect(server.url) as nc:
        js = nc.jetstream()
        js.create_stream(name=unique, subjects=[unique], allow_batched=True)
        for _ in range(4):  # the last message is above the limit
            js.publish(unique, bytes(300_000))
        with (
            pytest.raises(errors.InsufficientResourcesError),
            js.fast_ingest(gaps=gaps, ack_timeout=2 * SOON) as ingest,
        ):
            ingest.add(unique, bytes(300_000))
