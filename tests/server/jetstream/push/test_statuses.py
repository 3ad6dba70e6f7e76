"""Tests of ADR-15, Automatic Status Management: statuses are never delivered as messages."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import jsync
from jsync import errors

from ....support.push_traffic import FLOW, IDLE, publish, say, sequences, take
from ....support.servers import wait_for
from ....support.threads import SOON, Recorder, Thread

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def sub(js: jsync.JetStream, subject: str) -> Iterator[jsync.PushSubscription]:
    with js.subscribe(subject) as sub:
        yield sub


KINDS = [
    (409, "Exceeded MaxAckPending", errors.PushError),
    (503, "No Responders", errors.NoRespondersError),
    (777, "Never Heard Of", errors.PushError),
]


@pytest.mark.parametrize("status", [404, 408])
def test_pull_mode_statuses_are_not_surfaced(
    nc: jsync.Connection, sub: jsync.PushSubscription, subject: str, status: int
) -> None:
    say(nc, sub.subject, status, "No Messages")
    publish(nc, subject, 1)
    assert sequences(take(sub, 1)) == [1]
    assert sub.delivered == 1


@pytest.mark.parametrize(("status", "text", "kind"), KINDS, ids=str)
def test_next_raises_error_statuses_in_turn_and_continues(
    nc: jsync.Connection,
    sub: jsync.PushSubscription,
    subject: str,
    status: int,
    text: str,
    kind: type[Exception],
) -> None:
    publish(nc, subject, 1)
    assert sequences(take(sub, 1)) == [1]
    waiting = Thread(sub.next, SOON)
    waiting.wait_until_blocked()
    say(nc, sub.subject, status, text)
    assert isinstance(waiting.error(), kind)
    publish(nc, subject, 1)
    assert sequences(take(sub, 1)) == [2]


@pytest.mark.parametrize(("status", "text", "kind"), KINDS, ids=str)
def test_iteration_raises_error_statuses_after_the_received_messages(
    nc: jsync.Connection,
    sub: jsync.PushSubscription,
    subject: str,
    status: int,
    text: str,
    kind: type[Exception],
) -> None:
    publish(nc, subject, 2)
    seen: list[int] = []

    def read() -> None:
        for msg in sub:
            seen.append(msg.metadata.stream_sequence)
            if len(seen) == 2:
                say(nc, sub.subject, status, text)

    with pytest.raises(kind, match=text):
        read()
    assert seen == [1, 2]
    publish(nc, subject, 1)
    assert next(iter(sub)).metadata.stream_sequence == 3


@pytest.mark.parametrize(("status", "text", "kind"), KINDS, ids=str)
def test_error_statuses_beside_a_callback_are_reported(
    nc: jsync.Connection,
    js: jsync.JetStream,
    subject: str,
    status: int,
    text: str,
    kind: type[Exception],
) -> None:
    handler, problems = Recorder(), Recorder()
    with js.subscribe(subject, callback=handler, on_error=problems) as sub:
        say(nc, sub.subject, status, text)
        assert isinstance(problems.get(), kind)
        publish(nc, subject, 1)
        assert handler.get().metadata.stream_sequence == 1


def test_a_deleted_consumer_ends_iteration_after_received_messages(
    nc: jsync.Connection, sub: jsync.PushSubscription, subject: str
) -> None:
    publish(nc, subject, 2)
    wait_for(lambda: sub.pending == 2)
    assert sequences(take(sub, 1)) == [1]
    say(nc, sub.subject, 409, "Consumer Deleted")
    messages = iter(sub)
    assert next(messages).metadata.stream_sequence == 2
    for _ in range(2):
        with pytest.raises(errors.ConsumerDeletedError):
            next(messages)
    with pytest.raises(errors.ConsumerDeletedError):
        sub.next(SOON)
    assert not sub.is_active


def test_a_deleted_consumer_ends_callbacks_and_is_reported(
    nc: jsync.Connection, js: jsync.JetStream, subject: str
) -> None:
    handler, problems = Recorder(), Recorder()
    sub = js.subscribe(subject, callback=handler, on_error=problems)
    publish(nc, subject, 1)
    assert handler.get().metadata.stream_sequence == 1
    say(nc, sub.subject, 409, "Consumer Deleted")
    assert isinstance(problems.get(), errors.ConsumerDeletedError)
    assert not sub.is_active


def test_a_deleted_consumer_ends_consuming_and_wait_raises(
    nc: jsync.Connection, stream: jsync.Stream, unique: str
) -> None:
    pushed = stream.create_push_consumer(
        durable_name="pushed", deliver_subject=f"to.{unique}"
    )
    running = pushed.consume(Recorder())
    say(nc, f"to.{unique}", 409, "Consumer Deleted")
    with pytest.raises(errors.ConsumerDeletedError):
        running.wait(SOON)


def test_an_error_status_with_a_reply_is_raised(
    nc: jsync.Connection, js: jsync.JetStream, sub: jsync.PushSubscription, subject: str
) -> None:
    say(nc, sub.subject, 409, "With A Reply", reply="nobody.listens")
    with pytest.raises(errors.PushError, match="With A Reply"):
        sub.next(SOON)
    problems = Recorder()
    with js.subscribe(subject, callback=Recorder(), on_error=problems) as other:
        say(nc, other.subject, 409, "With A Reply", reply="nobody.listens")
        assert isinstance(problems.get(), errors.PushError)


def test_only_messages_come_out_of_a_mixture(
    nc: jsync.Connection, sub: jsync.PushSubscription, subject: str
) -> None:
    for number in range(20):
        publish(nc, subject, 1)
        say(nc, sub.subject, 100, IDLE)
        say(nc, sub.subject, 100, FLOW, reply=f"nobody.{number}")
        say(nc, sub.subject, 404, "No Messages")
        say(nc, sub.subject, 100, "Something New")
    messages = take(sub, 20)
    assert sequences(messages) == list(range(1, 21))
    assert {msg.status for msg in messages} == {None}
    assert (sub.delivered, sub.pending, sub.pending_bytes) == (20, 0, 0)
