"""Tests of getting and deleting messages of a stream: one, many, and the last of each subject."""

from __future__ import annotations

import itertools
import json
from datetime import UTC, datetime, timedelta
from time import monotonic
from typing import TYPE_CHECKING, Any, Literal

import pytest

import jsync
from jsync import errors
from jsync.jetstream.stored.engine import MAX_SUBJECTS

from ....support.connection_faults import FakeServer
from ....support.fake_jetstream import FakeReply, answer_requests
from ....support.servers import wait_for
from ....support.threads import LONG, SOON, Thread

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from jsync.server import LocalServer

    from ....conftest import StartServer
    from ....support.proxy import FaultProxy, Side

pytestmark = pytest.mark.server


@pytest.fixture
def stream(js: jsync.JetStream, unique: str) -> Iterator[jsync.Stream]:
    stream = js.create_stream(
        name=unique, subjects=[f"{unique}.>"], storage="memory", allow_direct=True
    )
    yield stream
    stream.delete()


@pytest.fixture(params=["direct get", "the leader"])
def direct(request: pytest.FixtureRequest, stream: jsync.Stream) -> bool:
    return bool(request.param == "direct get")


def fill(js: jsync.JetStream, stream: jsync.Stream, *tokens: str) -> None:
    for token in tokens:
        js.publish(f"{stream.name}.{token}", token.encode())


def fill_fast(nc: jsync.Connection, stream: jsync.Stream, count: int) -> None:
    """Publish many messages, each on another subject."""
    with nc.jetstream().publisher() as publisher:
        for number in range(1, count + 1):
            publisher.publish(f"{stream.name}.{number}", str(number).encode())
    assert stream.info().state.messages == count


def sequences(messages: Iterator[jsync.StoredMessage]) -> list[int]:
    return [message.sequence for message in messages]


# One message --------------------------------------------------------------------------


def test_a_message_comes_as_it_was_published(
    js: jsync.JetStream, stream: jsync.Stream, direct: bool
) -> None:
    before = datetime.now(UTC)
    headers = {"One": "ä", "Many": ["1", "2"]}
    js.publish(f"{stream.name}.a", b"\x00\xff", headers=headers)
    js.publish(f"{stream.name}.b")
    message = stream.get_message(1, direct=direct)
    assert message.subject == f"{stream.name}.a"
    assert message.sequence == 1
    assert message.data == b"\x00\xff"
    assert message.headers == headers
    assert message.stream == stream.name
    assert message.timestamp.tzinfo is UTC
    assert abs(message.timestamp - before) < timedelta(seconds=SOON)
    plain = stream.get_message(2, direct=direct)
    assert (plain.data, plain.headers) == (b"", None)
    assert repr(message) == (
        f"<StoredMessage 1 of {stream.name!r}, '{stream.name}.a', 2 bytes>"
    )


def test_both_ways_give_the_same_message(
    js: jsync.JetStream, stream: jsync.Stream
) -> None:
    js.publish(f"{stream.name}.a", b"data", headers={"A": "b"})
    assert stream.get_message(1) == stream.get_message(1, direct=False)


def test_a_message_republished_here_keeps_its_own_headers(
    js: jsync.JetStream, stream: jsync.Stream, direct: bool
) -> None:
    own = {
        "Nats-Stream": "ORIGIN",
        "Nats-Subject": "origin",
        "Nats-Sequence": "77",
        "Nats-Time-Stamp": "2020-01-01T00:00:00Z",
        "Nats-Num-Pending": "0",
        "Nats-Last-Sequence": "76",
    }
    js.publish(f"{stream.name}.a", b"", headers=own)
    message = stream.get_message(1, direct=direct)
    assert message.headers == own
    assert (message.sequence, message.stream) == (1, stream.name)
    assert message.subject == f"{stream.name}.a"
    (in_a_page,) = stream.get_messages()
    assert in_a_page == message


def test_messages_are_found_by_subject(
    js: jsync.JetStream, stream: jsync.Stream, direct: bool
) -> None:
    fill(js, stream, "a", "b", "a.x", "b", "a")
    name = stream.name

    def found(**which: Any) -> int:
        return stream.get_message(**which, direct=direct).sequence

    assert found(last_by_subject=f"{name}.a") == 5
    assert found(last_by_subject=f"{name}.b") == 4
    assert found(last_by_subject=f"{name}.*.*") == 3
    assert found(next_by_subject=f"{name}.b") == 2
    assert found(next_by_subject=f"{name}.b", sequence=3) == 4
    assert found(next_by_subject=f"{name}.*", sequence=3) == 4
    assert found(next_by_subject=f"{name}.a", sequence=5) == 5
    stream.delete_message(2)
    assert found(next_by_subject=">", sequence=2) == 3


def test_messages_are_found_by_time(
    js: jsync.JetStream, stream: jsync.Stream, direct: bool
) -> None:
    fill(js, stream, "a", "b", "a")
    third = stream.get_message(3).timestamp

    def found(**which: Any) -> int:
        return stream.get_message(**which, direct=direct).sequence

    assert found(start_time=third) == 3
    assert found(start_time=third - timedelta(days=1)) == 1
    assert (
        found(start_time=third - timedelta(days=1), next_by_subject=f"{stream.name}.b")
        == 2
    )
    with pytest.raises(errors.MessageNotFoundError):
        found(start_time=third + timedelta(seconds=1))


def test_impossible_times_are_before_or_after_all_messages(
    js: jsync.JetStream, stream: jsync.Stream, direct: bool
) -> None:
    fill(js, stream, "a", "b")

    def count_from(start: datetime) -> int:
        consumer = stream.create_consumer(
            deliver_policy="by_start_time", opt_start_time=start, ack_policy="none"
        )
        return len(list(consumer.fetch_nowait(10)))

    early, late = datetime(1500, 1, 1, tzinfo=UTC), datetime.max.replace(tzinfo=UTC)
    assert stream.get_message(start_time=early, direct=direct).sequence == 1
    with pytest.raises(errors.MessageNotFoundError):
        stream.get_message(start_time=late, direct=direct)
    assert (count_from(early), count_from(late)) == (2, 0)


def test_a_missing_message_raises_not_found(
    js: jsync.JetStream, stream: jsync.Stream, direct: bool
) -> None:
    fill(js, stream, "a")
    for which in (
        {"sequence": 2},
        {"last_by_subject": "other"},
        {"last_by_subject": "*"},
        {"next_by_subject": f"{stream.name}.b"},
        {"next_by_subject": ">", "sequence": 2},
    ):
        with pytest.raises(errors.MessageNotFoundError) as raised:
            stream.get_message(**which, direct=direct)
        assert raised.value.code == 404
        assert raised.value.err_code == 10037


@pytest.mark.parametrize(
    "which",
    [
        {},
        {"sequence": 0},
        {"sequence": -1},
        {"sequence": True},
        {"sequence": "1"},
        {"sequence": 1, "last_by_subject": "a"},
        {"next_by_subject": "a", "last_by_subject": "a"},
        {"sequence": 1, "start_time": datetime(2026, 1, 1, tzinfo=UTC)},
        {"start_time": datetime(2026, 1, 1)},  # noqa: DTZ001 (what is tested)
        {"last_by_subject": ""},
        {"next_by_subject": "a b"},
        {"last_by_subject": "a..b"},
    ],
    ids=str,
)
def test_invalid_get_message_arguments_are_rejected_before_sending(
    nc: jsync.Connection, stream: jsync.Stream, which: dict[str, Any]
) -> None:
    sent = nc.stats().out_messages
    with pytest.raises(errors.ConfigError):
        stream.get_message(**which)
    assert nc.stats().out_messages == sent


def test_direct_gets_are_used_where_they_are_allowed(
    nc: jsync.Connection, js: jsync.JetStream, stream: jsync.Stream
) -> None:
    fill(js, stream, "a")
    asked = nc.subscribe("$JS.API.*.>")
    nc.flush()

    def api() -> list[str]:
        nc.flush()
        found = []
        while asked.pending:
            words = asked.next().subject.removeprefix("$JS.API.")
            found.append(words.replace(stream.name, "S"))
        return found

    stream.get_message(1)
    stream.get_message(last_by_subject=f"{stream.name}.a")
    stream.get_message(last_by_subject=f"{stream.name}.*")
    assert api() == ["DIRECT.GET.S", "DIRECT.GET.S.S.a", "DIRECT.GET.S"]
    stream.get_message(1, direct=False)
    assert api() == ["STREAM.MSG.GET.S"]
    # If a replica or mirror does not have the message, jsync asks the leader.
    with pytest.raises(errors.MessageNotFoundError):
        stream.get_message(2)
    assert api() == ["DIRECT.GET.S", "STREAM.MSG.GET.S"]


def test_streams_that_stop_direct_gets_are_still_read(
    nc: jsync.Connection, js: jsync.JetStream, stream: jsync.Stream
) -> None:
    fill(js, stream, "a")
    # This handle does not know about the update.
    js.update_stream(name=stream.name, allow_direct=False)
    sent = nc.stats().out_messages
    assert stream.get_message(1).data == b"a"
    assert nc.stats().out_messages == sent + 2
    stream.info()
    assert stream.get_message(1).data == b"a"
    assert nc.stats().out_messages == sent + 4


def test_a_deleted_streams_message_raises_not_found(
    js: jsync.JetStream, unique: str
) -> None:
    stream = js.create_stream(name=unique, allow_direct=True)
    js.delete_stream(unique)
    with pytest.raises(errors.StreamNotFoundError):
        stream.get_message(1)
    with pytest.raises(errors.StreamNotFoundError):
        list(stream.get_messages())
    with pytest.raises(errors.StreamNotFoundError):
        list(stream.get_last_messages(">"))


def test_a_stream_created_again_ends_no_read_silently(
    js: jsync.JetStream, unique: str
) -> None:
    stream = js.create_stream(name=unique, allow_direct=True)
    for _ in range(10):
        js.publish(unique, b"old")
    found = stream.get_messages(batch=5, timeout=1)
    for _ in range(5):
        next(found)
    js.delete_stream(unique)
    js.create_stream(name=unique, allow_direct=True)
    js.publish(unique, b"new")
    with pytest.raises(
        errors.DirectGetError, match="ends at sequence 1, but message 5"
    ):
        list(found)


def test_a_leader_behind_its_follower_ends_no_read() -> None:
    # A new leader may still be storing what a follower has stored already.
    ends = [1, 1, 2]
    asked: list[int] = []

    def answer(subject: str, _: bytes) -> list[FakeReply]:
        if subject.endswith("INFO.S"):
            config = {"name": "S", "allow_direct": True}
            asked.append(ends[min(len(asked), len(ends) - 1)])
            state = {"messages": asked[-1], "first_seq": 1, "last_seq": asked[-1]}
            return [FakeReply(json.dumps({"config": config, "state": state}).encode())]
        if not subject.endswith("DIRECT.GET.S"):
            return []
        messages = [
            FakeReply(
                b"x",
                b"NATS/1.0\r\nNats-Stream: S\r\nNats-Subject: a\r\n"
                b"Nats-Time-Stamp: 2026-01-01T00:00:00Z\r\n"
                b"Nats-Sequence: %d\r\nNats-Last-Sequence: %d\r\nNats-Num-Pending: %d\r\n\r\n"
                % (sequence, sequence - 1, 2 - sequence),
            )
            for sequence in (1, 2)
        ]
        end = (
            b"NATS/1.0 204 EOB\r\nNats-Num-Pending: 0\r\nNats-Last-Sequence: 2\r\n\r\n"
        )
        return [*messages, FakeReply(b"", end)]

    with FakeServer(answer_requests(answer)) as fake, jsync.connect(fake.url) as nc:
        stream = nc.jetstream().stream("S")
        asked.clear()
        found = [msg.sequence for msg in stream.get_messages(timeout=LONG)]
        assert found == [1, 2]
        assert asked == ends


PARTS: list[tuple[dict[str, Any], dict[str, Any], int]] = [
    ({"filter_subject": "o.a"}, {}, 5),
    ({}, {}, 10),
    ({}, {"max_msgs": 9}, 9),
]


@pytest.mark.parametrize(("source", "limits", "count"), PARTS)
def test_a_mirror_hides_no_message_of_its_origin(
    own_server: StartServer, source: dict[str, Any], limits: dict[str, Any], count: int
) -> None:
    with jsync.connect(own_server().url) as nc:
        js = nc.jetstream()
        js.create_stream(name="ORIGIN", subjects=["o.*"], allow_direct=True)
        # It answers direct gets of the origin as well.
        source = {"name": "ORIGIN", **source}
        config = {"mirror_direct": True, "allow_direct": True, **limits}
        js.create_stream(name="MIRROR", mirror=source, **config)
        for number in range(10):
            js.publish(f"o.{'ba'[number % 2]}", b"%d" % number)
        mirror, origin = js.stream("MIRROR"), js.stream("ORIGIN")
        wait_for(lambda: mirror.info().state.messages == count)
        answers = {origin.get_message(2).stream for _ in range(50)}
        assert answers == {"ORIGIN", "MIRROR"}
        for _ in range(6):
            assert origin.get_message(1).data == b"0"
            assert origin.get_message(1, next_by_subject="o.*").data == b"0"
            assert origin.get_message(last_by_subject="o.*").data == b"9"
            assert numbers(origin.get_messages()) == list(range(10))
            assert numbers(origin.get_messages("o.b")) == [0, 2, 4, 6, 8]
            assert numbers(origin.get_messages(batch=3, sequence=2)) == list(
                range(1, 10)
            )
            assert numbers(origin.get_last_messages("o.*")) == [8, 9]
        assert len(numbers(mirror.get_messages())) == count


def test_a_mirror_with_other_gaps_hides_nothing(own_server: StartServer) -> None:
    with jsync.connect(own_server().url) as nc:
        js = nc.jetstream()
        js.create_stream(name="ORIGIN", subjects=["o.*"], allow_direct=True)
        config = {"mirror_direct": True, "allow_direct": True}
        js.create_stream(name="MIRROR", mirror={"name": "ORIGIN"}, **config)
        for number in range(10):
            js.publish(f"o.{'ba'[number % 2]}", b"%d" % number)
        mirror, origin = js.stream("MIRROR"), js.stream("ORIGIN")
        wait_for(lambda: mirror.info().state.messages == 10)
        # Both have lost as many messages, but not the same ones.
        origin.delete_message(4)
        mirror.delete_message(4)
        origin.delete_message(6)
        mirror.delete_message(8)
        answers = {origin.get_message(2).stream for _ in range(50)}
        assert answers == {"ORIGIN", "MIRROR"}
        for _ in range(20):
            assert numbers(origin.get_messages()) == [0, 1, 2, 4, 6, 7, 8, 9]
        # Now all that the mirror lacks is gone in the origin, too.
        origin.delete_message(8)
        answers = set()
        for _ in range(50):
            found = list(origin.get_messages())
            answers.update(message.stream for message in found)
            # The mirror still has a message that was deleted in the origin.
            left = [number for number in numbers(iter(found)) if number != 5]
            assert left == [0, 1, 2, 4, 6, 8, 9]
        assert answers == {"ORIGIN", "MIRROR"}


def test_a_mirror_with_other_subjects_answers_nothing(
    own_server: StartServer,
) -> None:
    with jsync.connect(own_server().url) as nc:
        js = nc.jetstream()
        bucket = js.create_key_value(bucket="B", history=5)
        revision = bucket.put("prod.a", b"prod")
        moved = {"src": "$KV.B.prod.>", "dest": "$KV.B.test.>"}
        source = {"name": "KV_B", "subject_transforms": [moved]}
        config = {"mirror_direct": True, "allow_direct": True}
        js.create_stream(name="MIRROR", mirror=source, **config)
        wait_for(lambda: js.stream("MIRROR").info().state.messages == 1)
        for _ in range(50):
            assert bucket.get("prod.a", revision=revision).value == b"prod"
            with pytest.raises(errors.KeyNotFoundError):
                bucket.get("test.a")


def numbers(messages: Iterator[jsync.StoredMessage]) -> list[int]:
    return [int(message.data) for message in messages]


# Many messages ------------------------------------------------------------------------


def test_messages_come_in_order_page_by_page(
    nc: jsync.Connection, js: jsync.JetStream, stream: jsync.Stream
) -> None:
    fill(js, stream, *"abcdefghij")
    stream.delete_message(1)
    stream.delete_message(4)
    stream.delete_message(10)
    sent = nc.stats().out_messages
    messages = stream.get_messages(batch=3)
    assert nc.stats().out_messages == sent  # no request yet
    assert next(messages).data == b"b"
    assert nc.stats().out_messages == sent + 1
    assert sequences(messages) == [3, 5, 6, 7, 8, 9]
    assert nc.stats().out_messages == sent + 3


def test_messages_are_chosen_by_subject_sequence_and_time(
    js: jsync.JetStream, stream: jsync.Stream
) -> None:
    fill(js, stream, *"abcabcabc")
    name = stream.name
    get = stream.get_messages
    times = {message.sequence: message.timestamp for message in get()}
    assert sequences(get(f"{name}.b")) == [2, 5, 8]
    assert sequences(get(f"{name}.b", batch=1)) == [2, 5, 8]
    assert sequences(get(f"{name}.b", sequence=3)) == [5, 8]
    assert sequences(get(f"{name}.b", sequence=3, up_to_sequence=7)) == [5]
    assert sequences(get(sequence=3, up_to_sequence=5, batch=2)) == [3, 4, 5]
    assert sequences(get(sequence=5, up_to_sequence=3)) == []
    assert sequences(get(start_time=times[8])) == [8, 9]
    assert sequences(get(start_time=times[8], batch=1)) == [8, 9]
    assert sequences(get(start_time=times[4], up_to_time=times[6])) == [4, 5]
    assert sequences(get(max_messages=4, batch=3)) == [1, 2, 3, 4]
    assert sequences(get(sequence=10)) == []
    assert sequences(get("other")) == []
    assert sequences(get(start_time=times[9] + timedelta(days=1))) == []


def test_no_more_messages_are_requested_than_wanted(
    nc: jsync.Connection, js: jsync.JetStream, stream: jsync.Stream
) -> None:
    fill(js, stream, *"abcdefghij")
    for messages in (
        stream.get_messages(max_messages=4),
        stream.get_messages(up_to_sequence=4),
    ):
        received = nc.stats().in_messages
        assert len(list(messages)) == 4
        nc.flush()
        assert nc.stats().in_messages == received + 5  # including the end of the batch


def test_a_page_ends_at_max_bytes(
    nc: jsync.Connection, js: jsync.JetStream, stream: jsync.Stream
) -> None:
    for number in range(6):
        js.publish(f"{stream.name}.{number}", bytes(1000))
    sent = nc.stats().out_messages
    assert len(list(stream.get_messages(max_bytes=1500))) == 6
    assert nc.stats().out_messages == sent + 3
    assert len(list(stream.get_last_messages(">", max_bytes=1))) == 6
    assert nc.stats().out_messages == sent + 9


def test_messages_published_during_the_iteration_are_included(
    js: jsync.JetStream, stream: jsync.Stream
) -> None:
    fill(js, stream, "a", "b")
    messages = stream.get_messages(batch=1)
    assert next(messages).data == b"a"
    fill(js, stream, "c")
    assert [message.data for message in messages] == [b"b", b"c"]


def test_reading_holds_only_one_page_in_memory(
    nc: jsync.Connection, stream: jsync.Stream
) -> None:
    fill_fast(nc, stream, 20_000)
    received = nc.stats().in_messages
    messages = stream.get_messages(batch=100)
    for number, message in enumerate(itertools.islice(messages, 5000), 1):
        assert message.sequence == number
        if number % 100 == 1:
            nc.flush()
            # 100 messages and the end of their batch for each request.
            assert nc.stats().in_messages <= received + (number // 100 + 1) * 101
    assert sequences(messages) == list(range(5001, 20_001))


def test_an_abandoned_iteration_leaves_no_subscription(
    nc: jsync.Connection, js: jsync.JetStream, stream: jsync.Stream
) -> None:
    fill(js, stream, *"abc")
    messages = stream.get_messages()
    next(messages)
    assert len(nc._session.reply_mux) == 1
    messages.close()  # type: ignore[attr-defined]
    assert len(nc._session.reply_mux) == 0
    for _ in stream.get_last_messages(">"):
        break
    assert len(nc._session.reply_mux) == 0


def test_the_last_message_of_each_subject_comes_once(
    nc: jsync.Connection, js: jsync.JetStream, stream: jsync.Stream
) -> None:
    fill(js, stream, *"abcab", "d.x")
    name = stream.name
    get = stream.get_last_messages
    assert sequences(get(f"{name}.*")) == [3, 4, 5]
    assert sequences(get([f"{name}.a", f"{name}.d.>"])) == [4, 6]
    assert sequences(get(">", batch=1)) == [3, 4, 5, 6]
    assert sequences(get(f"{name}.*", up_to_sequence=4)) == [2, 3, 4]
    assert sequences(get(f"{name}.*", up_to_sequence=4, batch=1)) == [2, 3, 4]
    fifth = stream.get_message(5).timestamp
    assert sequences(get(f"{name}.*", up_to_time=fifth)) == [2, 3, 4]
    assert sequences(get(f"{name}.*", up_to_time=fifth, batch=2)) == [2, 3, 4]
    assert sequences(get(f"{name}.*", up_to_time=fifth - timedelta(days=1))) == []
    assert sequences(get("other")) == []


def test_a_subject_changing_during_the_read_comes_once(
    js: jsync.JetStream, unique: str
) -> None:
    stream = js.create_stream(
        name=unique,
        subjects=[f"{unique}.*"],
        max_msgs_per_subject=1,
        allow_direct=True,
    )
    fill(js, stream, *"abc")
    messages = stream.get_last_messages(">", batch=1)
    assert next(messages).data == b"a"
    # `a` was returned already, `b` was not.
    fill(js, stream, "a", "b")
    assert [message.data for message in messages] == [b"c", b"b"]
    stream.delete()


def test_too_many_subjects_raise(nc: jsync.Connection, stream: jsync.Stream) -> None:
    fill_fast(nc, stream, MAX_SUBJECTS)
    assert len(list(stream.get_last_messages(">"))) == MAX_SUBJECTS
    nc.jetstream().publish(f"{stream.name}.more")
    with pytest.raises(errors.TooManyResultsError, match="more than 1024") as raised:
        list(stream.get_last_messages(">"))
    assert raised.value.status == 413


def test_a_stream_without_direct_gets_raises_with_advice(
    js: jsync.JetStream, stream: jsync.Stream
) -> None:
    fill(js, stream, "a")
    stream.update(allow_direct=False)
    for read in (stream.get_messages(), stream.get_last_messages(">")):
        with pytest.raises(errors.DirectGetNotAllowedError, match="allow_direct"):
            list(read)


NAIVE = datetime(2020, 1, 1)  # noqa: DTZ001 (what is tested)
NOW = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("method", "options"),
    [
        ("get_messages", {"subject": "a b"}),
        ("get_messages", {"sequence": 0}),
        ("get_messages", {"sequence": 1, "start_time": NOW}),
        ("get_messages", {"start_time": NAIVE}),
        ("get_messages", {"up_to_time": NAIVE}),
        ("get_messages", {"up_to_sequence": 0}),
        ("get_messages", {"max_messages": 0}),
        ("get_messages", {"batch": 0}),
        ("get_messages", {"batch": 1.5}),
        ("get_messages", {"max_bytes": 0}),
        ("get_messages", {"timeout": "soon"}),
        ("get_last_messages", {"subjects": []}),
        ("get_last_messages", {"subjects": ["a", "b c"]}),
        ("get_last_messages", {"subjects": "a", "up_to_sequence": 0}),
        (
            "get_last_messages",
            {"subjects": "a", "up_to_sequence": 1, "up_to_time": NOW},
        ),
        ("delete_message", {"sequence": 0}),
        ("secure_delete_message", {"sequence": -1}),
    ],
    ids=str,
)
def test_invalid_read_arguments_are_rejected_at_the_call(
    nc: jsync.Connection, stream: jsync.Stream, method: str, options: dict[str, Any]
) -> None:
    sent = nc.stats().out_messages
    with pytest.raises(errors.ConfigError):
        getattr(stream, method)(**options)
    assert nc.stats().out_messages == sent


def test_direct_get_statuses_are_errors_of_their_own(
    nc: jsync.Connection, js: jsync.JetStream, stream: jsync.Stream
) -> None:
    """Tests the statuses that jsync's requests do not cause, by raw requests."""
    from jsync.jetstream.stored.engine import direct_error  # noqa: PLC0415

    fill(js, stream, "a")
    subject = f"$JS.API.DIRECT.GET.{stream.name}"

    def answer(wanted: Any, **options: Any) -> Exception:
        data = b"" if wanted is None else json.dumps(wanted).encode()
        msg = nc.request(subject, data, **options)
        assert msg.status is not None
        error = direct_error(msg.status, msg.status_text)
        assert str(msg.status_text) in str(error)
        return error

    assert isinstance(answer(None), errors.InvalidRequestError)
    assert isinstance(answer("no object"), errors.InvalidRequestError)
    assert isinstance(
        answer({"seq": 1, "last_by_subj": "a"}), errors.InvalidRequestError
    )
    assert isinstance(answer({"seq": 9}), errors.MessageNotFoundError)
    assert isinstance(answer({"multi_last": ["no"]}), errors.MessageNotFoundError)
    level = {"Nats-Required-Api-Level": "9999"}
    assert isinstance(answer({"seq": 1}, headers=level), errors.RequiredAPILevelError)


# Deleting -----------------------------------------------------------------------------


def test_messages_are_deleted_one_by_one(
    js: jsync.JetStream, stream: jsync.Stream
) -> None:
    fill(js, stream, *"abc")
    stream.delete_message(1)
    stream.secure_delete_message(2)
    assert [message.data for message in stream.get_messages()] == [b"c"]


@pytest.mark.parametrize("storage", ["file", "memory"])
def test_deleting_a_missing_message_raises(
    js: jsync.JetStream, unique: str, storage: Literal["file", "memory"]
) -> None:
    stream = js.create_stream(name=unique, storage=storage)
    for _ in range(3):
        js.publish(unique)
    stream.purge(sequence=2)
    stream.delete_message(2)
    for gone in (1, 2, 4, 99):
        for delete in (stream.delete_message, stream.secure_delete_message):
            with pytest.raises(errors.MessageNotFoundError, match=f"{gone} not found"):
                delete(gone)
    stream.delete()


def test_a_secure_delete_leaves_no_bytes_on_disk(
    own_server: StartServer, tmp_path: Path
) -> None:
    server = own_server(store_dir=tmp_path)
    with jsync.connect(server.url) as nc:
        js = nc.jetstream()
        stream = js.create_stream(name="S", subjects=["s"], storage="file")
        js.publish("s", b"deleted, but there")
        js.publish("s", b"deleted and gone")
        js.publish("s", b"the last")
        stream.delete_message(1)
        stream.secure_delete_message(2)
        found = b"".join(path.read_bytes() for path in tmp_path.rglob("*.blk"))
        assert b"the last" in found
        assert b"deleted and gone" not in found


def test_a_stream_that_denies_deletes_raises(js: jsync.JetStream, unique: str) -> None:
    stream = js.create_stream(name=unique, deny_delete=True)
    js.publish(unique)
    with pytest.raises(errors.MessageDeleteError):
        stream.delete_message(1)
    stream.delete()


# Lost connections ---------------------------------------------------------------------


def test_reading_continues_at_its_place_after_a_loss(
    proxy: FaultProxy, nc: jsync.Connection, stream: jsync.Stream
) -> None:
    fill_fast(nc, stream, 5000)
    with jsync.connect(proxy.url, reconnect_wait=0.01) as far:
        there = far.jetstream().stream(stream.name)
        read = []
        for message in there.get_messages(batch=700):
            read.append(message.sequence)
            # Do not cut after the last message, because the end of the block drains the
            # connection.
            if message.sequence in (1000, 2000, 3000, 4000):
                proxy.cut()
        assert read == list(range(1, 5001))
        assert far.stats().reconnects >= 3


def test_the_last_messages_continue_after_a_lost_connection(
    proxy: FaultProxy, nc: jsync.Connection, stream: jsync.Stream
) -> None:
    fill_fast(nc, stream, 1000)
    with jsync.connect(proxy.url, reconnect_wait=0.01) as far:
        there = far.jetstream().stream(stream.name)
        read = []
        for message in there.get_last_messages(">", batch=90):
            read.append(message.sequence)
            if message.sequence % 300 == 0:
                proxy.cut()
        assert read == list(range(1, 1001))


def test_a_request_lost_with_its_server_is_repeated(
    proxy: FaultProxy, nc: jsync.Connection, stream: jsync.Stream
) -> None:
    fill_fast(nc, stream, 1000)
    requests: list[bytes] = []

    def lose_one(data: bytes, to: Side) -> bytes:
        if to != "server" or b"DIRECT.GET" not in data:
            return data
        requests.append(data)
        return b"" if len(requests) == 2 else data

    with jsync.connect(proxy.url) as far:
        there = far.jetstream().stream(stream.name)
        proxy.rewrite(lose_one)
        read = [
            message.sequence for message in there.get_messages(batch=400, timeout=3)
        ]
        assert read == list(range(1, 1001))
        assert len(requests) == 4
        assert b'"seq":401' in requests[1]
        assert b'"seq":401' in requests[2]


def test_closing_the_connection_wakes_a_reader(
    server: LocalServer, proxy: FaultProxy, stream: jsync.Stream
) -> None:
    nc = jsync.connect(proxy.url)
    there = nc.jetstream(timeout=LONG).stream(stream.name)
    proxy.deaf("server")
    reader = Thread(lambda: list(there.get_messages()))
    reader.wait_until_blocked()
    nc.close()
    assert isinstance(reader.error(), errors.ConnectionClosedError)


def test_a_server_that_is_silent_is_a_timeout(
    proxy: FaultProxy, stream: jsync.Stream
) -> None:
    with jsync.connect(proxy.url) as nc:
        there = nc.jetstream().stream(stream.name)
        proxy.deaf("server")
        began = monotonic()
        with pytest.raises(TimeoutError):
            list(there.get_messages(timeout=0.2))
        with pytest.raises(TimeoutError):
            there.get_message(1, timeout=0.2)
        assert monotonic() - began < SOON
        proxy.hear("server")


def test_a_slow_reader_is_no_timeout(js: jsync.JetStream, stream: jsync.Stream) -> None:
    fill(js, stream, *"abcd")
    read = []
    for message in stream.get_messages(batch=2, timeout=1.0):
        until = monotonic() + 0.6
        wait_for(lambda until=until: monotonic() > until)  # type: ignore[misc]
        read.append(message.data)
    assert len(read) == 4
