"""Tests of reading a stream in order up to its end."""

from __future__ import annotations

import json
from time import monotonic
from typing import TYPE_CHECKING, Any

import pytest

from jsync import errors

from ....support.proxy import Frames
from ....support.servers import wait_for
from ....support.threads import SOON
from .support import QUICK, delete_consumers, fill, numbers, take

if TYPE_CHECKING:
    import jsync
    from jsync.models import DeliverPolicy

    from ....support.proxy import FaultProxy

pytestmark = pytest.mark.server

POLICIES: tuple[DeliverPolicy, ...] = ("all", "new", "last", "last_per_subject")


def test_reading_an_empty_stream_ends_at_once(
    stream: jsync.Stream,
) -> None:
    begun = monotonic()
    for policy in POLICIES:
        consumer = stream.ordered_consumer(deliver_policy=policy)
        assert numbers(consumer.messages(until_end=True)) == []
        assert numbers(consumer.messages(until_end=True)) == []
        with consumer.consume(print, until_end=True) as work:
            assert work.wait(SOON)
    assert monotonic() - begun < SOON


def test_reading_to_the_end_ends_without_any_match(
    nc: jsync.Connection, stream: jsync.Stream
) -> None:
    fill(nc, stream, 50)
    begun = monotonic()
    for policy in POLICIES:
        consumer = stream.ordered_consumer(
            deliver_policy=policy,
            filter_subjects=f"{stream.name}.none",
        )
        assert numbers(consumer.messages(until_end=True)) == []
    assert monotonic() - begun < SOON


@pytest.mark.parametrize("options", [{}, {"max_messages": 1}, {"max_bytes": 200}])
def test_reading_again_takes_the_messages_stored_since(
    nc: jsync.Connection, stream: jsync.Stream, options: dict[str, Any]
) -> None:
    consumer = stream.ordered_consumer(
        filter_subjects=[f"{stream.name}.a", f"{stream.name}.c"]
    )
    for start in range(0, 90, 30):
        fill(nc, stream, 30)
        expected = [n for n in range(start, start + 30) if n % 3 != 1]
        with consumer.messages(until_end=True, **options) as messages:
            assert numbers(messages) == expected
            with pytest.raises(errors.SubscriptionClosedError):
                messages.next(0)
    got: list[int] = []
    fill(nc, stream, 3)
    with consumer.consume(lambda m: got.append(int(m.data)), until_end=True) as work:
        assert work.wait(SOON)
    assert got == [90, 92]


def test_reading_to_the_end_ends_despite_ongoing_publishing(
    nc: jsync.Connection, stream: jsync.Stream
) -> None:
    fill(nc, stream, 500)
    consumer = stream.ordered_consumer()
    with consumer.messages(until_end=True, max_messages=10) as messages:
        for number, msg in enumerate(messages):
            assert int(msg.data) == number
            nc.publish(f"{stream.name}.a", b"%d" % (500 + number))
            nc.publish(f"{stream.name}.a", b"more")
    assert number == 499


@pytest.mark.parametrize("what", ["purge", "purge a subject", "delete the last"])
def test_reading_ends_when_the_rest_is_deleted(
    nc: jsync.Connection, stream: jsync.Stream, what: str
) -> None:
    fill(nc, stream, 90)
    consumer = stream.ordered_consumer(
        filter_subjects=f"{stream.name}.c" if "subject" in what else None
    )
    begun = monotonic()
    with consumer.messages(until_end=True, max_messages=4) as messages:
        got = take(messages, 1)
        if what == "delete the last":
            for sequence in range(41, 91):
                request = json.dumps({"seq": sequence}).encode()
                nc.request(f"$JS.API.STREAM.MSG.DELETE.{stream.name}", request)
        else:
            options = {"filter": f"{stream.name}.c"} if "subject" in what else {}
            request = json.dumps(options).encode()
            nc.request(f"$JS.API.STREAM.PURGE.{stream.name}", request)
        got += numbers(messages)
    assert got == sorted(got)
    if what == "delete the last":
        assert got[:40] == list(range(40))
    assert len(got) < 60
    assert monotonic() - begun < SOON


def test_reading_ends_when_the_rest_expires(nc: jsync.Connection, unique: str) -> None:
    js = nc.jetstream()
    stream = js.create_stream(
        name=unique, subjects=[f"{unique}.>"], storage="memory", max_age=3.0
    )
    fill(nc, stream, 50)
    with stream.ordered_consumer().messages(until_end=True, max_messages=4) as messages:
        take(messages, 1)
        wait_for(lambda: not stream.info().state.messages)
        assert len(numbers(messages)) < 10
    stream.delete()


def test_reading_to_the_end_survives_losses(
    nc: jsync.Connection,
    stream: jsync.Stream,
    far_stream: jsync.Stream,
    proxy: FaultProxy,
) -> None:
    fill(nc, stream, 300)
    with far_stream.ordered_consumer().messages(
        until_end=True, max_messages=20
    ) as messages:
        got = take(messages, 50)
        delete_consumers(nc, stream)
        got += take(messages, 50)
        proxy.cut()
        got += take(messages, 50)
        proxy.cut_after(500, "client")
        got += numbers(messages)
    assert got == list(range(300))


def test_reading_to_the_end_finds_lost_last_messages(
    nc: jsync.Connection,
    stream: jsync.Stream,
    far_stream: jsync.Stream,
    proxy: FaultProxy,
) -> None:
    fill(nc, stream, 10)
    lost: list[bytes] = []

    def passes(frame: bytes) -> bool:
        if frame.startswith(b"MSG") and frame.endswith(b"\r\n9\r\n") and not lost:
            lost.append(frame)
            return False
        return True

    proxy.rewrite(Frames(passes))
    with far_stream.ordered_consumer().messages(until_end=True, **QUICK) as messages:
        assert numbers(messages) == list(range(10))
    assert lost


def test_reading_a_deleted_stream_to_its_end_raises(
    nc: jsync.Connection, stream: jsync.Stream
) -> None:
    fill(nc, stream, 100)
    consumer = stream.ordered_consumer()
    with consumer.messages(until_end=True, max_messages=2) as messages:
        take(messages, 1)
        stream.delete()
        with pytest.raises(errors.StreamNotFoundError):
            numbers(messages)
    with pytest.raises(errors.StreamNotFoundError):
        consumer.messages(until_end=True)
