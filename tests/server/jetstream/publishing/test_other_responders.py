"""Tests of publishes to subjects where a service answers beside the stream."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import pytest

import jsync
from jsync import errors

from ....support.threads import LONG, Recorder

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from jsync.server import LocalServer

ANSWERS = [
    *(b"ok", b"", b"{", b"[]", b"null", b"5", b'"seq"', b'{"ok":true}', b'{"seq":5}'),
    *(b'{"error":"bad"}', b'{"error":{"message":"bad"}}', b'{"error":{"code":500}}'),
    *(b'{"stream":"other"}', b'{"stream":"x"}', b'{"type":"ok"}'),
]
"""None looks like an ack or an error of a stream, which could not be told from one."""


@pytest.fixture
def answered(server: LocalServer, stream: jsync.Stream) -> Iterator[Recorder]:
    """Answer each message for the stream, mostly before the stream; record its errors."""
    told: Recorder = Recorder()
    answers = itertools.cycle(ANSWERS)

    def answer(msg: jsync.Msg) -> None:
        if msg.reply is not None:
            for _ in range(2):
                msg.respond(next(answers))

    with (
        jsync.connect(server.url, on_error=told) as other,
        other.subscribe(f"{stream.name}.>", callback=answer),
    ):
        other.flush()
        yield told


def publish(js: jsync.JetStream, subject: str, count: int) -> None:
    for number in range(count):
        assert js.publish(subject, b"%d" % number, timeout=LONG).seq == number + 1


def publish_ahead(js: jsync.JetStream, subject: str, count: int) -> None:
    with js.publisher(ack_timeout=LONG) as publisher:
        futures = [publisher.publish(subject, b"%d" % n) for n in range(count)]
        assert [f.result(LONG).seq for f in futures] == [*range(1, count + 1)]


def publish_again(js: jsync.JetStream, subject: str, count: int) -> None:
    with js.publisher(ack_timeout=LONG, resend=True) as publisher:
        for number in range(count):
            publisher.publish(subject, b"%d" % number, msg_id=f"{number}")


def publish_batch(js: jsync.JetStream, subject: str, count: int) -> None:
    batch = [(subject, b"%d" % number) for number in range(count)]
    assert js.publish_batch(batch).count == count


def ingest(js: jsync.JetStream, subject: str, count: int) -> None:
    with js.fast_ingest() as ingest:
        for number in range(count):
            ingest.add(subject, b"%d" % number)


@pytest.mark.parametrize(
    "way", [publish, publish_ahead, publish_again, publish_batch, ingest]
)
def test_an_answer_of_another_responder_is_no_ack(
    way: Callable[[jsync.JetStream, str, int], None],
    js: jsync.JetStream,
    stream: jsync.Stream,
    answered: Recorder,
) -> None:
    stream.update(allow_direct=True, allow_atomic=True, allow_batched=True)
    count = 3 * len(ANSWERS)
    way(js, f"{stream.name}.a", count)
    assert [m.data for m in stream.get_messages()] == [b"%d" % n for n in range(count)]
    assert answered.waiting == 0


def test_an_answer_merely_resembling_an_ack_leaves_doubt(
    nc: jsync.Connection, js: jsync.JetStream, unique: str
) -> None:
    answer = b'{"stream":5,"seq":"x"}'
    with nc.subscribe(unique, callback=lambda msg: msg.respond(answer)):
        nc.flush()
        with pytest.raises(errors.TimeoutError, match="may have been stored") as caught:
            js.publish(unique, b"1", timeout=LONG)
        assert repr(answer) in str(caught.value)
        with js.publisher(ack_timeout=0.2) as publisher:
            error = publisher.publish(unique, b"2").exception(LONG)
        assert isinstance(error, errors.TimeoutError)
        assert repr(answer) in str(error)


def test_the_error_contains_another_responders_answer(
    nc: jsync.Connection, js: jsync.JetStream, unique: str
) -> None:
    with nc.subscribe(unique, callback=lambda msg: msg.respond(b"ok")):
        nc.flush()
        with pytest.raises(errors.TimeoutError, match=r"another responder .* b'ok'"):
            js.publish(unique, b"1", timeout=0.2)
        with js.publisher(ack_timeout=0.2) as publisher:
            error = publisher.publish(unique, b"2").exception(LONG)
        assert isinstance(error, errors.TimeoutError)
        assert "may have been stored" in str(error)
        assert "another responder answered b'ok'" in str(error)
        with pytest.raises(
            errors.AmbiguousCommitError, match=r"another responder .* b'ok'"
        ):
            js.publish_batch([(unique, b"3")], timeout=0.2)
