"""Tests of the effect of message options on a real stream."""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

import jsync
from jsync import errors

from ....support.proxy import frame_filter
from ....support.servers import RawClient, wait_for
from ....support.threads import LONG, Thread

if TYPE_CHECKING:
    from collections.abc import Iterator

    from jsync.models.publish import PublishOptions
    from jsync.server import LocalServer

    from ....support.proxy import FaultProxy

pytestmark = pytest.mark.server


@pytest.fixture
def stream(js: jsync.JetStream, unique: str) -> Iterator[jsync.Stream]:
    stream = js.create_stream(
        name=unique,
        subjects=[f"{unique}.>"],
        storage="memory",
        allow_msg_ttl=True,
        allow_msg_schedules=True,
        allow_rollup_hdrs=True,
    )
    yield stream
    stream.delete()


@pytest.fixture
def counters(js: jsync.JetStream, unique: str) -> Iterator[jsync.Stream]:
    stream = js.create_stream(
        name=f"{unique}C", subjects=[f"{unique}C.>"], allow_msg_counter=True
    )
    yield stream
    stream.delete()


def published_to(stream: jsync.Stream, subject: str, count: int) -> list[jsync.Msg]:
    """Wait for the first messages on `subject`, and return them."""
    reader = stream.create_consumer(
        filter_subjects=[f"{stream.name}.{subject}"], ack_policy="none"
    )
    return list(reader.fetch(count, timeout=LONG))


def last_headers(stream: jsync.Stream, subject: str) -> jsync.Headers:
    """Return the headers of the last message on `subject`."""
    (msg,) = stream.create_consumer(
        filter_subjects=[f"{stream.name}.{subject}"],
        ack_policy="none",
        deliver_policy="last",
    ).fetch(1, timeout=LONG)
    assert msg.headers is not None
    return msg.headers


def test_messages_are_stored_only_after_the_expected_one(
    js: jsync.JetStream, stream: jsync.Stream
) -> None:
    name = stream.name
    js.publish(f"{name}.a", b"1", msg_id="one", expected_last_sequence=0)
    rejections: list[PublishOptions] = [
        {"expected_last_sequence": 7},
        {"expected_last_subject_sequence": 7},
        {"expected_last_subject_sequence": 7, "expected_last_subject": f"{name}.*"},
    ]
    for refused in rejections:
        with pytest.raises(errors.WrongLastSequenceError):
            js.publish(f"{name}.a", b"2", **refused)
    with pytest.raises(errors.WrongLastMsgIDError):
        js.publish(f"{name}.a", b"2", expected_last_msg_id="two")
    with pytest.raises(errors.StreamMismatchError):
        js.publish(f"{name}.a", b"2", expected_stream="OTHER")
    assert stream.info().state.messages == 1
    ack = js.publish(
        f"{name}.b",
        b"2",
        expected_stream=name,
        expected_last_sequence=1,
        expected_last_subject_sequence=1,
        expected_last_subject=f"{name}.a",
        expected_last_msg_id="one",
    )
    assert ack.seq == 2


def test_a_message_with_known_id_is_a_duplicate(
    js: jsync.JetStream, stream: jsync.Stream
) -> None:
    first = js.publish(f"{stream.name}.a", b"1", msg_id="x")
    second = js.publish(f"{stream.name}.a", b"2", msg_id="x")
    assert (first.duplicate, second.duplicate) == (False, True)
    assert second.seq == first.seq
    assert stream.info().state.messages == 1


def test_a_message_expires_after_its_time_to_live(
    js: jsync.JetStream, stream: jsync.Stream
) -> None:
    js.publish(f"{stream.name}.a", b"kept", ttl="never")
    js.publish(f"{stream.name}.a", b"gone", ttl=3)
    assert last_headers(stream, "a")["Nats-TTL"] == "3s"
    wait_for(lambda: stream.info().state.messages == 1)
    assert last_headers(stream, "a")["Nats-TTL"] == "never"


def test_a_message_never_expiring_outlives_its_streams_age(
    js: jsync.JetStream, unique: str
) -> None:
    stream = js.create_stream(
        name=unique, subjects=[f"{unique}.>"], max_age=0.5, allow_msg_ttl=True
    )
    js.publish(f"{unique}.a", b"kept", ttl="never")
    js.publish(f"{unique}.a", b"gone")
    wait_for(lambda: stream.info().state.messages == 1)
    assert [msg.data for msg in published_to(stream, "a", 1)] == [b"kept"]
    stream.delete()


def test_time_to_live_needs_a_stream_allowing_it(
    js: jsync.JetStream, counters: jsync.Stream
) -> None:
    with pytest.raises(errors.APIError) as caught:
        js.publish(f"{counters.name}.a", incr=1, ttl=5)
    assert caught.value.err_code == 10166


def test_a_message_can_be_published_at_a_time(
    js: jsync.JetStream, stream: jsync.Stream
) -> None:
    js.publish(
        f"{stream.name}.plan",
        b"later",
        headers={"Kind": "reminder"},
        schedule=datetime.now(UTC) + timedelta(seconds=1),
        schedule_target=f"{stream.name}.do",
        schedule_ttl="never",
    )
    (msg,) = published_to(stream, "do", 1)
    assert msg.data == b"later"
    assert msg.headers is not None
    assert msg.headers["Kind"] == "reminder"
    assert msg.headers["Nats-TTL"] == "never"
    assert msg.headers["Nats-Scheduler"] == f"{stream.name}.plan"


def test_a_message_can_be_published_again_and_again(
    js: jsync.JetStream, stream: jsync.Stream
) -> None:
    schedules: list[timedelta | str] = [
        timedelta(seconds=1),
        "@every 1s",
        "* * * * * *",
    ]
    for number, schedule in enumerate(schedules):
        js.publish(
            f"{stream.name}.plan.{number}",
            b"tick",
            schedule=schedule,
            schedule_target=f"{stream.name}.do.{number}",
        )
    for number in range(3):
        ticks = published_to(stream, f"do.{number}", 2)
        assert [msg.data for msg in ticks] == [b"tick", b"tick"]


def test_a_schedule_can_publish_another_subjects_message(
    js: jsync.JetStream, stream: jsync.Stream
) -> None:
    name = stream.name
    js.publish(f"{name}.state", b"latest")
    js.publish(
        f"{name}.plan",
        schedule=datetime(2020, 1, 1, tzinfo=UTC),
        schedule_target=f"{name}.do",
        schedule_source=f"{name}.state",
    )
    assert [msg.data for msg in published_to(stream, "do", 1)] == [b"latest"]


def test_a_schedules_message_can_replace_the_previous_one(
    js: jsync.JetStream, stream: jsync.Stream
) -> None:
    name = stream.name
    js.publish(f"{name}.do", b"old")
    js.publish(
        f"{name}.plan",
        b"new",
        schedule=datetime(2020, 1, 1, tzinfo=UTC),
        schedule_target=f"{name}.do",
        schedule_rollup=True,
    )
    wait_for(lambda: stream.info().state.last_seq == 3)
    assert [msg.data for msg in published_to(stream, "do", 1)] == [b"new"]


def test_a_cron_pattern_has_the_given_zone(
    js: jsync.JetStream, stream: jsync.Stream
) -> None:
    plan, target = f"{stream.name}.plan", f"{stream.name}.do"
    for zone in ("Europe/Prague", "UTC"):
        js.publish(
            plan,
            schedule="0 30 14 * * *",
            schedule_target=target,
            schedule_time_zone=zone,
        )
        assert last_headers(stream, "plan")["Nats-Schedule-Time-Zone"] == zone
    with pytest.raises(errors.APIError) as caught:
        js.publish(
            plan,
            schedule="@daily",
            schedule_target=target,
            schedule_time_zone="Mars/Base",
        )
    assert caught.value.err_code == 10223


def test_an_unknown_pattern_raises_the_servers_error(
    js: jsync.JetStream, stream: jsync.Stream
) -> None:
    with pytest.raises(errors.APIError) as caught:
        js.publish(
            f"{stream.name}.plan",
            schedule="now and then",
            schedule_target=f"{stream.name}.do",
        )
    assert caught.value.err_code == 10189


def test_a_counter_adds_up_however_large(
    js: jsync.JetStream, counters: jsync.Stream
) -> None:
    subject = f"{counters.name}.hits"
    assert js.publish(subject, incr=5).value == 5
    assert js.publish(subject, incr=-7).value == -2
    assert js.publish(subject, incr=10**30).value == 10**30 - 2
    with js.publisher() as publisher:
        futures = publisher.publish_many(subject, (b"" for _ in range(2)), incr=1)  # type: ignore[arg-type]
        assert [future.result(LONG).value for future in futures] == [
            10**30 - 1,
            10**30,
        ]


def test_a_counter_rejects_a_message_without_an_increment(
    js: jsync.JetStream, counters: jsync.Stream, stream: jsync.Stream
) -> None:
    with pytest.raises(errors.APIError) as caught:
        js.publish(f"{counters.name}.hits", b"payload")
    assert caught.value.err_code == 10169
    with pytest.raises(errors.APIError) as caught:
        js.publish(f"{stream.name}.hits", incr=1)
    assert caught.value.err_code == 10168


def test_nothing_is_sent_when_an_option_cannot_be(
    js: jsync.JetStream, stream: jsync.Stream
) -> None:
    with pytest.raises(errors.ConfigError):
        js.publish(f"{stream.name}.a", b"1", ttl=0.5)
    with pytest.raises(TypeError, match="not an option of a message"):
        js.publish(f"{stream.name}.a", b"1", id="x")  # type: ignore[call-arg]
    with pytest.raises(errors.InvalidHeaderError):
        js.publish(f"{stream.name}.a", b"1", headers={"A": "1\r\nNats-TTL: 1s"})
    assert stream.info().state.messages == 0


@pytest.mark.parametrize(
    ("status", "err_code"), [("429 Too Many Requests", 10166), ("503", 10023)]
)
def test_a_status_with_an_error_is_that_error(
    server: LocalServer,
    js: jsync.JetStream,
    unique: str,
    status: str,
    err_code: int,
) -> None:
    block = f"NATS/1.0 {status}\r\n\r\n".encode()
    body = json.dumps({"stream": "S", "error": {"code": 429, "err_code": err_code}})
    with RawClient(server.url) as busy:
        busy.connect(headers=True)
        busy.send(f"SUB {unique} 1\r\nPING\r\n".encode())
        while busy.read_line() != "PONG":
            pass
        publisher = Thread(js.publish, unique, b"")
        _, _, _, reply, _ = busy.read_line().split()
        sizes = f"{len(block)} {len(block) + len(body)}"
        busy.send(f"HPUB {reply} {sizes}\r\n".encode() + block)
        busy.send(body.encode() + b"\r\n")
        error = publisher.error()
    assert isinstance(error, errors.APIError)
    assert error.err_code == err_code


def test_messages_without_a_stream_are_tried_twice_more(
    nc: jsync.Connection, js: jsync.JetStream, unique: str
) -> None:
    begin, before = time.monotonic(), nc.stats().out_messages
    with pytest.raises(errors.NoStreamResponseError, match="no stream takes"):
        js.publish(unique, b"")
    assert nc.stats().out_messages - before == 3
    assert time.monotonic() - begin >= 0.5


def test_the_retries_of_a_message_are_options(
    nc: jsync.Connection, js: jsync.JetStream, unique: str
) -> None:
    for attempts in (0, 4):
        before = nc.stats().out_messages
        with pytest.raises(errors.NoStreamResponseError):
            js.publish(unique, b"", retry_attempts=attempts, retry_wait=0.01)
        assert nc.stats().out_messages - before == 1 + attempts
    before = nc.stats().out_messages
    with pytest.raises((errors.NoStreamResponseError, errors.TimeoutError)) as caught:
        js.publish(unique, b"", retry_attempts=-1, retry_wait=0.01, timeout=1.0)
    if caught.type is errors.TimeoutError:  # it came before the last answer
        assert "within 1 s" in str(caught.value)
    assert nc.stats().out_messages - before > 4


def test_an_unanswered_retry_names_the_whole_timeout(
    nc: jsync.Connection, js: jsync.JetStream, unique: str
) -> None:
    before = nc.stats().out_messages

    def publish() -> None:
        js.publish(unique, b"", retry_attempts=-1, retry_wait=0.1, timeout=2.0)

    publisher = Thread(publish)
    wait_for(lambda: nc.stats().out_messages > before)
    nc.subscribe(unique)  # from here on the message is taken, and never acknowledged
    error = publisher.error()
    assert type(error) is errors.TimeoutError
    expected = f"no ack for the message to {unique!r} within 2 s"
    assert str(error) == f"{expected}: it may have been stored"


@pytest.mark.parametrize(
    "options",
    [
        {"retry_attempts": -2},
        {"retry_attempts": 1.0},
        {"retry_attempts": True},
        {"retry_wait": 0},
        {"retry_wait": float("nan")},
        {"retry_wait": "1"},
    ],
)
def test_invalid_retries_are_rejected_before_anything_is_sent(
    nc: jsync.Connection, js: jsync.JetStream, unique: str, options: dict[str, Any]
) -> None:
    before = nc.stats().out_messages
    with pytest.raises(errors.ConfigError, match=next(iter(options))):
        js.publish(unique, b"", **options)
    with pytest.raises(errors.ConfigError, match=next(iter(options))):
        js.publisher(**options)
    assert nc.stats().out_messages == before


def test_a_message_with_lost_ack_is_not_republished(
    stream: jsync.Stream, proxy: FaultProxy
) -> None:
    with jsync.connect(proxy.url, reconnect_wait=0.02) as nc:
        js = nc.jetstream()
        js.publish(f"{stream.name}.a", b"0")
        proxy.rewrite(frame_filter(lambda frame, _: b'"seq"' not in frame))
        with pytest.raises(errors.TimeoutError):
            js.publish(f"{stream.name}.a", b"1", timeout=0.7)
        publisher = Thread(lambda: js.publish(f"{stream.name}.a", b"2", timeout=LONG))
        wait_for(lambda: stream.info().state.messages == 3)
        proxy.cut()
        assert isinstance(publisher.error(), errors.ConnectionLostError)
        nc.flush()
    assert stream.info().state.messages == 3


def test_a_message_is_stored_once_its_stream_exists(
    js: jsync.JetStream, unique: str
) -> None:
    publisher = Thread(js.publish, f"{unique}.a", b"1")
    stream = js.create_stream(name=unique, subjects=[f"{unique}.>"])
    assert publisher.result().seq == 1
    assert stream.info().state.messages == 1
    stream.delete()


def test_a_pause_between_tries_ends_with_the_connection(
    nc: jsync.Connection,
    js: jsync.JetStream,
    unique: str,
) -> None:
    publisher = Thread(
        lambda: js.publish(unique, b"", timeout=LONG * 3, retry_wait=LONG)
    )
    publisher.wait_until_blocked()
    nc.close()
    assert isinstance(publisher.error(), errors.ConnectionClosedError)
