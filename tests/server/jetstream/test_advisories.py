"""Tests of advisories, the events that servers publish."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

import jsync
from jsync import errors, models

from ...support.threads import SOON, Recorder

if TYPE_CHECKING:
    from jsync.server import LocalServer


def test_streams_and_consumers_tell_of_themselves(
    js: jsync.JetStream, unique: str
) -> None:
    with js.advisories(stream=unique) as advisories:
        stream = js.create_stream(name=unique, subjects=[f"{unique}.>"])
        stream.create_consumer(durable_name="c")
        js.delete_consumer(unique, "c")
        stream.delete()
        found = [advisories.next(SOON) for _ in range(4)]
    assert [(type(each), getattr(each, "action", None)) for each in found] == [
        (models.StreamAction, "create"),
        (models.ConsumerAction, "create"),
        (models.ConsumerAction, "delete"),
        (models.StreamAction, "delete"),
    ]
    assert found[0].timestamp is not None
    assert found[0].id


def test_ended_messages_have_an_advisory_of_each_kind(
    js: jsync.JetStream, stream: jsync.Stream
) -> None:
    consumer = stream.create_consumer(durable_name="c", max_deliver=2)
    other = stream.create_consumer(durable_name="other")
    name = stream.name
    with (
        js.advisories(models.MaxDeliveries, stream=name, consumer="c") as stranded,
        js.advisories(models.MessageTerminated, models.MessageNaked) as ended,
    ):
        js.publish(f"{name}.a")
        for _ in range(2):
            consumer.next(SOON).nak()
        # The server notices the limit when a reader waits that would have got the message again.
        waiting = consumer.fetch(1, timeout=SOON)
        other.next(SOON).term("a reason")
        last = stranded.next(SOON)
        waiting.close()
        kinds: list[Any] = []
        while len(kinds) < 3:  # in any order, as they are of two consumers
            advisory = ended.next(SOON)
            if getattr(advisory, "stream", None) == name:
                kinds.append(advisory)
    assert (last.stream, last.consumer, last.stream_seq, last.deliveries) == (
        *(name, "c", 1, 2),
    )
    naks = [each for each in kinds if isinstance(each, models.MessageNaked)]
    assert [each.deliveries for each in naks] == [1, 2]
    (terminated,) = [x for x in kinds if isinstance(x, models.MessageTerminated)]
    assert terminated.reason == "a reason"


def test_a_callback_and_an_iterator_get_advisories(
    nc: jsync.Connection, js: jsync.JetStream, unique: str
) -> None:
    told = Recorder()
    wanted = models.ConsumerPinned
    with js.advisories(wanted, stream=unique, callback=told):
        for other in (f"{unique}X", unique):
            nc.publish(
                f"$JS.EVENT.ADVISORY.CONSUMER.PINNED.{other}.c",
                json.dumps(
                    {"type": f"a.{wanted.event}", "stream": other, "group": "g"}
                ).encode(),
            )
        assert told.get().stream == unique
    with js.advisories(stream=unique) as advisories:
        nc.publish(
            "$JS.EVENT.ADVISORY.NEW",
            b'{"type": "a.new", "stream": "%b"}' % unique.encode(),
        )
        for advisory in advisories:
            assert type(advisory) is models.Advisory
            break


def test_an_iteration_continues_after_a_bad_advisory(server: LocalServer) -> None:
    told = Recorder()
    with (
        jsync.connect(server.url, on_error=told) as nc,
        nc.jetstream().advisories() as advisories,
    ):
        for data in (b"garbage", b'{"type": "a.test_of_iteration"}'):
            nc.publish("$JS.EVENT.ADVISORY.NEW", data)
        for advisory in advisories:
            if advisory.type == "a.test_of_iteration":
                break
        assert isinstance(told.get(), errors.JetStreamError)


def test_reading_ends_with_a_timeout_or_a_close(
    js: jsync.JetStream, unique: str
) -> None:
    advisories = js.advisories(stream=unique)
    with pytest.raises(errors.TimeoutError):
        advisories.next(0.05)
    advisories.close()
    assert list(advisories) == []
    assert "ended" in repr(advisories)
    with pytest.raises(errors.SubscriptionClosedError):
        advisories.next(SOON)


@pytest.mark.parametrize(
    ("kinds", "options"),
    [
        ((), {"stream": "a.b"}),
        ((), {"consumer": "c"}),
        ((), {"callback": 7}),
        ((int,), {}),
        (("max_deliver",), {}),
    ],
)
def test_invalid_kinds_of_advisories_are_rejected(
    js: jsync.JetStream, kinds: Any, options: Any
) -> None:
    with pytest.raises(errors.ConfigError):
        js.advisories(*kinds, **options)
