"""Tests of the push consumers of ADR-37: `stream.push_consumer(name).consume(handler)`."""

from __future__ import annotations

import queue
import secrets
from typing import TYPE_CHECKING, Any

import pytest

import jsync
from jsync import errors

from ....support.servers import wait_for
from ....support.threads import SOON, Recorder, Thread

if TYPE_CHECKING:
    from collections.abc import Callable


@pytest.fixture
def pushed(stream: jsync.Stream) -> jsync.PushConsumer:
    return stream.create_push_consumer(
        durable_name="pushed",
        deliver_subject=f"to.{secrets.token_hex(4)}",
        ack_wait=60,
    )


def test_a_handler_gets_the_pushed_messages(
    js: jsync.JetStream,
    stream: jsync.Stream,
    pushed: jsync.PushConsumer,
    subject: str,
) -> None:
    got: queue.SimpleQueue[bytes] = queue.SimpleQueue()

    def handle(msg: jsync.JetStreamMsg) -> None:
        got.put(msg.data)
        msg.ack()

    with stream.push_consumer("pushed").consume(handle) as running:
        for number in range(50):
            js.publish(subject, b"%d" % number)
        assert [got.get(timeout=SOON) for _ in range(50)] == [
            b"%d" % number for number in range(50)
        ]
    assert running.closed
    wait_for(lambda: not pushed.info().num_ack_pending)
    assert pushed.info().name == "pushed"  # the consumer still exists on the server


def test_consuming_does_not_ack_for_the_handler(
    js: jsync.JetStream, pushed: jsync.PushConsumer, subject: str
) -> None:
    handler = Recorder()
    js.publish(subject, b"1")
    with pushed.consume(handler):
        assert handler.get().data == b"1"
    assert pushed.info().num_ack_pending == 1


def test_raising_handlers_are_reported_and_their_messages_returned(
    js: jsync.JetStream, pushed: jsync.PushConsumer, subject: str
) -> None:
    problems = Recorder()
    deliveries: queue.SimpleQueue[int] = queue.SimpleQueue()

    def handle(msg: jsync.JetStreamMsg) -> None:
        deliveries.put(msg.metadata.num_delivered)
        if msg.metadata.num_delivered == 1:
            raise ValueError("not yet")
        msg.ack()

    js.publish(subject, b"1")
    with pushed.consume(handle, on_exception="nak", on_error=problems):
        assert [deliveries.get(timeout=SOON) for _ in range(2)] == [1, 2]
    assert isinstance(problems.get(), errors.CallbackError)


def test_stop_returns_the_unhandled_messages(
    js: jsync.JetStream, pushed: jsync.PushConsumer, subject: str
) -> None:
    for _ in range(10):
        js.publish(subject)
    begun: queue.SimpleQueue[bool] = queue.SimpleQueue()
    release: queue.SimpleQueue[bool] = queue.SimpleQueue()

    def handle(msg: jsync.JetStreamMsg) -> None:
        begun.put(True)
        release.get(timeout=SOON)
        msg.ack()

    running = pushed.consume(handle)
    begun.get(timeout=SOON)
    wait_for(lambda: len(running._delivery.mailbox) == 9)
    stopping = Thread(running.stop)
    wait_for(lambda: not len(running._delivery.mailbox))
    release.put(True)
    assert stopping.result() == []
    again = Recorder()
    wait_for(lambda: not pushed.info().push_bound)
    with pushed.consume(again):
        # This must come long before the ack_wait of a minute.
        numbers = {again.get().metadata.num_delivered for _ in range(9)}
    assert numbers == {2}


def test_a_second_listener_outside_a_group_is_refused(
    stream: jsync.Stream, pushed: jsync.PushConsumer, unique: str
) -> None:
    shared = stream.create_push_consumer(
        durable_name="shared", deliver_subject=f"to.{unique}.shared", deliver_group="g"
    )
    with pushed.consume(Recorder()):
        wait_for(lambda: pushed.info().push_bound)
        with pytest.raises(errors.DuplicateSubscriptionError):
            pushed.consume(Recorder())
    with shared.consume(Recorder()):
        wait_for(lambda: shared.info().push_bound)
        with shared.consume(Recorder()):
            pass


def test_a_group_shares_the_messages(
    js: jsync.JetStream, stream: jsync.Stream, subject: str, unique: str
) -> None:
    shared = stream.create_push_consumer(
        durable_name="shared", deliver_subject=f"to.{unique}", deliver_group="g"
    )
    problems = Recorder()
    got: queue.SimpleQueue[tuple[str, int]] = queue.SimpleQueue()

    def member(name: str) -> Callable[[jsync.JetStreamMsg], None]:
        def handle(msg: jsync.JetStreamMsg) -> None:
            msg.ack()
            got.put((name, msg.metadata.stream_sequence))

        return handle

    with (
        shared.consume(member("one"), on_error=problems),
        shared.consume(member("other"), on_error=problems),
    ):
        for _ in range(100):
            js.publish(subject)
        handled = [got.get(timeout=SOON) for _ in range(100)]
    assert sorted(sequence for _, sequence in handled) == list(range(1, 101))
    assert {name for name, _ in handled} == {"one", "other"}
    # a message that one member does not get has reached the other member
    assert not problems.waiting


def test_pull_consumers_and_missing_deliver_subjects_are_rejected(
    stream: jsync.Stream,
) -> None:
    stream.create_consumer(durable_name="pulled")
    with pytest.raises(errors.PullRequiredError):
        stream.push_consumer("pulled")
    with pytest.raises(errors.ConsumerNotFoundError):
        stream.push_consumer("nobody")
    with pytest.raises(errors.ConfigError, match="deliver_subject"):
        stream.create_push_consumer(durable_name="new")
    assert list(stream.consumer_names()) == ["pulled"]


def test_a_push_consumer_can_be_changed(
    stream: jsync.Stream, pushed: jsync.PushConsumer, unique: str
) -> None:
    assert stream.update_push_consumer(name="pushed", ack_wait=7).config.ack_wait == 7
    other = stream.create_or_update_push_consumer(
        durable_name="pushed", deliver_subject=f"to.{unique}.other"
    )
    assert other.config.deliver_subject == f"to.{unique}.other"
    pushed.delete()
    assert not list(stream.consumer_names())


def test_the_context_makes_and_finds_them_without_streams(
    js: jsync.JetStream, stream: jsync.Stream, unique: str
) -> None:
    made = js.create_push_consumer(
        stream.name, durable_name="pushed", deliver_subject=f"to.{unique}"
    )
    assert isinstance(made, jsync.PushConsumer)
    assert js.push_consumer(stream.name, "pushed").config == made.config
    changed = js.update_push_consumer(stream.name, name="pushed", ack_wait=7)
    assert changed.config.ack_wait == 7
    again = js.create_or_update_push_consumer(
        stream.name, durable_name="pushed", deliver_subject=f"to.{unique}"
    )
    assert again.config.ack_wait == 30
    with pytest.raises(errors.ConfigError, match="deliver_subject"):
        js.create_push_consumer(stream.name, durable_name="pulled")


@pytest.mark.parametrize(
    "options",
    [
        {"on_exception": "ignore"},
        {"workers": 0},
        {"max_pending_messages": 0},
        {"max_pending_bytes": -1},
        {"heartbeat_timeout": 0},
        {"heartbeat_timeout": "5"},
        {"on_error": 1},
        {"handler": None},
    ],
    ids=str,
)
def test_invalid_options_are_rejected(
    pushed: jsync.PushConsumer, options: dict[str, Any]
) -> None:
    with pytest.raises(errors.ConfigError):
        pushed.consume(**{"handler": print, **options})
