"""Tests of ADR-15, JSAck and Ack Handling, for push subscriptions."""

from __future__ import annotations

import queue
from typing import TYPE_CHECKING, Any

import pytest

import jsync
from jsync import errors

from ....support.push_traffic import publish, take
from ....support.servers import wait_for
from ....support.threads import SOON, Recorder

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def acks(nc: jsync.Connection, unique: str) -> Iterator[jsync.Subscription]:
    """A subscription to the acks for the stream of this test."""
    with nc.subscribe(f"$JS.ACK.{unique}.>") as sub:
        yield sub


def payloads(acks: jsync.Subscription, nc: jsync.Connection) -> list[bytes]:
    nc.flush()
    nc.flush()
    return [acks.next(0).data for _ in range(acks.pending)]


def test_a_message_shows_its_stream_and_consumer(
    nc: jsync.Connection, js: jsync.JetStream, stream: jsync.Stream, subject: str
) -> None:
    with js.subscribe(subject) as sub:
        publish(nc, subject, 2)
        _, msg = take(sub, 2)
        metadata = msg.metadata
        assert (metadata.stream, metadata.consumer) == (stream.name, sub.consumer_name)
        assert (metadata.stream_sequence, metadata.consumer_sequence) == (2, 2)
        assert (metadata.num_delivered, metadata.num_pending) == (1, 0)
        assert metadata.domain is None
        assert (msg.reply or "").startswith("$JS.ACK.")


ACKS: list[tuple[str, tuple[Any, ...], bytes]] = [
    ("ack", (), b"+ACK"),
    ("nak", (), b"-NAK"),
    ("term", (), b"+TERM"),
    ("in_progress", (), b"+WPI"),
]


@pytest.mark.parametrize(("name", "args", "payload"), ACKS, ids=str)
def test_an_ack_publishes_its_type_to_the_reply(
    nc: jsync.Connection,
    js: jsync.JetStream,
    acks: jsync.Subscription,
    subject: str,
    name: str,
    args: tuple[Any, ...],
    payload: bytes,
) -> None:
    with js.subscribe(subject, ack_wait=60) as sub:
        publish(nc, subject, 1)
        (msg,) = take(sub, 1)
        getattr(msg, name)(*args)
        sent = acks.next(SOON)
        assert (sent.subject, sent.data) == (msg.reply, payload)


@pytest.mark.parametrize("first", ["ack", "nak", "term", "ack_sync"])
def test_after_a_terminal_ack_every_other_is_ignored(
    nc: jsync.Connection,
    js: jsync.JetStream,
    acks: jsync.Subscription,
    subject: str,
    first: str,
) -> None:
    with js.subscribe(subject, ack_wait=60, max_deliver=1) as sub:
        publish(nc, subject, 1)
        (msg,) = take(sub, 1)
        getattr(msg, first)()
        acks.next(SOON)
        for again in ("ack", "nak", "term", "in_progress", "ack_sync"):
            getattr(msg, again)()
        assert payloads(acks, nc) == []
        assert msg.is_acked


def test_progress_is_not_terminal(
    nc: jsync.Connection, js: jsync.JetStream, acks: jsync.Subscription, subject: str
) -> None:
    with js.subscribe(subject, ack_wait=60) as sub:
        publish(nc, subject, 1)
        (msg,) = take(sub, 1)
        for _ in range(2):
            msg.in_progress()
        msg.ack()
        assert [acks.next(SOON).data for _ in range(3)] == [b"+WPI", b"+WPI", b"+ACK"]


@pytest.mark.parametrize("callback", [False, True], ids=["iterator", "callback"])
def test_with_ack_policy_none_every_ack_is_ignored(
    nc: jsync.Connection,
    js: jsync.JetStream,
    acks: jsync.Subscription,
    subject: str,
    callback: bool,
) -> None:
    publish(nc, subject, 1)
    handler = Recorder()
    with js.subscribe(
        subject, ack_policy="none", callback=handler if callback else None
    ) as sub:
        msg = handler.get() if callback else take(sub, 1)[0]
        for name in ("in_progress", "ack", "nak", "term", "ack_sync"):
            getattr(msg, name)()
        assert payloads(acks, nc) == []
        assert not msg.is_acked


def test_an_ack_raises_only_when_publishing_it_fails(
    server: Any, nc: jsync.Connection, subject: str
) -> None:
    publish(nc, subject, 1)
    with jsync.connect(server.url) as other:
        sub = other.jetstream().subscribe(subject, durable="stays")
        (msg,) = take(sub, 1)
        other.close()
        with pytest.raises(errors.ConnectionClosedError):
            msg.ack()
        assert not msg.is_acked  # the program can try again


def test_a_message_is_acked_when_its_callback_returns(
    nc: jsync.Connection, js: jsync.JetStream, acks: jsync.Subscription, subject: str
) -> None:
    states: queue.SimpleQueue[bool] = queue.SimpleQueue()
    publish(nc, subject, 3)
    with js.subscribe(
        subject, callback=lambda msg: states.put(msg.is_acked), ack_wait=60
    ):
        assert [acks.next(SOON).data for _ in range(3)] == [b"+ACK"] * 3
    assert [states.get() for _ in range(3)] == [False] * 3


def test_a_callbacks_own_ack_replaces_the_automatic_one(
    nc: jsync.Connection, js: jsync.JetStream, acks: jsync.Subscription, subject: str
) -> None:
    publish(nc, subject, 1)
    with js.subscribe(subject, callback=lambda msg: msg.term(), durable="terms") as sub:
        assert acks.next(SOON).data == b"+TERM"
        wait_for(lambda: not sub.consumer_info().num_ack_pending)
        assert payloads(acks, nc) == []


def test_with_manual_ack_a_callback_acks_by_itself(
    nc: jsync.Connection, js: jsync.JetStream, acks: jsync.Subscription, subject: str
) -> None:
    handler = Recorder()
    publish(nc, subject, 2)
    with js.subscribe(subject, callback=handler, manual_ack=True, ack_wait=60) as sub:
        handler.get()
        second = handler.get()  # the first call has returned
        assert payloads(acks, nc) == []
        assert sub.consumer_info().num_ack_pending == 2
        second.ack()
        assert acks.next(SOON).data == b"+ACK"


def test_a_raising_callback_is_reported_and_acks_nothing(
    nc: jsync.Connection, js: jsync.JetStream, acks: jsync.Subscription, subject: str
) -> None:
    problems, handled = Recorder(), Recorder()

    def handle(msg: jsync.JetStreamMsg) -> None:
        if msg.metadata.stream_sequence == 2:
            raise ValueError("of the second")
        handled(msg)

    publish(nc, subject, 3)
    with js.subscribe(subject, callback=handle, on_error=problems, ack_wait=60) as sub:
        error = problems.get()
        assert isinstance(error, errors.CallbackError)
        assert isinstance(error.__cause__, ValueError)
        assert [handled.get().metadata.stream_sequence for _ in range(2)] == [1, 3]
        wait_for(lambda: sub.consumer_info().num_ack_pending == 1)
        assert payloads(acks, nc) == [b"+ACK"] * 2


def test_messages_without_consumers_have_neither_metadata_nor_acks(
    nc: jsync.Connection, js: jsync.JetStream, subject: str
) -> None:
    with js.subscribe(subject) as sub:
        nc.publish(
            sub.subject,
            b"of another client",
            reply="not.an.ack.subject.of.nine.tokens.at.all",
        )
        (msg,) = take(sub, 1)
        assert msg.data == b"of another client"
        with pytest.raises(errors.NotJetStreamMessageError):
            _ = msg.metadata
        nc.publish(sub.subject, b"without a reply")
        (msg,) = take(sub, 1)
        with pytest.raises(errors.NotJetStreamMessageError):
            msg.ack()
    problems = Recorder()
    with js.subscribe(subject, callback=Recorder(), on_error=problems) as sub:
        nc.publish(sub.subject, b"without a reply")
        assert isinstance(problems.get(), errors.NotJetStreamMessageError)
