"""Tests that the order is exact with lost messages, consumers, connections and servers."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest

from jsync import errors

from ....support.connection_faults import Events, connect
from ....support.proxy import Frames, frame_changer
from ....support.servers import wait_for
from ....support.threads import SOON
from .support import QUICK, delete_consumers, every_face, fill, numbers, take

if TYPE_CHECKING:
    from collections.abc import Callable

    import jsync

    from ....conftest import StartServer
    from ....support.proxy import FaultProxy, Side
    from ....support.threads import Recorder

pytestmark = pytest.mark.server


@pytest.mark.parametrize("face", ["messages", "consume", "fetch"])
def test_a_lost_message_is_read_in_its_place(
    nc: jsync.Connection,
    stream: jsync.Stream,
    far_stream: jsync.Stream,
    proxy: FaultProxy,
    told: Recorder,
    face: str,
) -> None:
    fill(nc, stream, 60)
    lost: list[bytes] = []

    def passes(frame: bytes) -> bool:
        number = frame.split(b"\r\n")[1]
        if number in {b"20", b"21", b"45"}.difference(lost):
            lost.append(number)
            return False
        return True

    proxy.rewrite(Frames(passes))
    consumer = far_stream.ordered_consumer()
    got: list[int] = []
    if face == "messages":
        with consumer.messages(stop_after=60, on_error=told) as messages:
            got = numbers(messages)
    elif face == "consume":
        with consumer.consume(
            lambda m: got.append(int(m.data)), stop_after=60, on_error=told
        ) as work:
            assert work.wait(SOON)
    else:
        with consumer.fetch(60, timeout=SOON, on_error=told) as batch:
            got = numbers(batch)
    assert got == list(range(60))
    assert len(lost) == 3
    reset = told.get()
    assert isinstance(reset, errors.OrderedConsumerResetError)
    assert "missing" in str(reset.__cause__)


def test_a_consumer_announced_late_is_pulled_again(
    nc: jsync.Connection,
    stream: jsync.Stream,
    far_stream: jsync.Stream,
    proxy: FaultProxy,
    told: Recorder,
) -> None:
    """A gateway may announce a new consumer after the answer to its creation."""
    fill(nc, stream, 10)
    misdirected: list[bytes] = []

    def change(frame: bytes, to: Side) -> bytes:
        command, end, payload = frame.partition(b"\r\n")
        if to == "server" and b".MSG.NEXT." in command and len(misdirected) < 3:
            misdirected.append(frame)
            command = command.replace(b"_1 ", b"_0 ")
        return command + end + payload

    proxy.rewrite(frame_changer(change))
    consumer = far_stream.ordered_consumer()
    with consumer.messages(stop_after=10, on_error=told) as messages:
        assert numbers(messages) == list(range(10))
    assert len(misdirected) == 3
    assert told.waiting == 0


def test_a_consumer_that_falls_silent_is_replaced(
    nc: jsync.Connection,
    stream: jsync.Stream,
    far_stream: jsync.Stream,
    proxy: FaultProxy,
    told: Recorder,
) -> None:
    fill(nc, stream, 10)
    silent = False

    def passes(frame: bytes) -> bool:
        return not (silent and b".pull." in frame.split(b"\r\n")[0])

    proxy.rewrite(Frames(passes))
    with far_stream.ordered_consumer().messages(**QUICK, on_error=told) as messages:
        assert take(messages, 10) == list(range(10))
        silent = True
        fill(nc, stream, 10)
        reset = told.get()
        silent = False
        assert take(messages, 10) == list(range(10, 20))
    assert isinstance(reset.__cause__, errors.MissedHeartbeatError)


@every_face
def test_a_consumer_that_is_deleted_is_replaced(
    nc: jsync.Connection, stream: jsync.Stream, face: Callable[..., list[int]]
) -> None:
    fill(nc, stream, 30)
    consumer = stream.ordered_consumer()
    assert face(consumer, 10) == list(range(10))
    delete_consumers(nc, stream)
    assert face(consumer, 20) == list(range(10, 30))


def test_a_consumer_is_replaced_after_each_deletion(
    nc: jsync.Connection, stream: jsync.Stream, told: Recorder
) -> None:
    with stream.ordered_consumer().messages(on_error=told) as messages:
        for start in range(0, 50, 10):
            fill(nc, stream, 10)
            assert take(messages, 10) == list(range(start, start + 10))
            delete_consumers(nc, stream)
            assert isinstance(told.get(), errors.OrderedConsumerResetError)


@every_face
def test_nothing_is_lost_with_the_connection(
    nc: jsync.Connection,
    stream: jsync.Stream,
    far_stream: jsync.Stream,
    proxy: FaultProxy,
    face: Callable[..., list[int]],
) -> None:
    fill(nc, stream, 30)
    consumer = far_stream.ordered_consumer()
    assert face(consumer, 10) == list(range(10))
    proxy.cut()
    assert face(consumer, 20) == list(range(10, 30))


def test_an_ordered_read_survives_cuts_at_any_place(
    nc: jsync.Connection,
    stream: jsync.Stream,
    far_stream: jsync.Stream,
    proxy: FaultProxy,
) -> None:
    rng = random.Random(1)
    fill(nc, stream, 5000)
    got: list[int] = []
    with far_stream.ordered_consumer().messages(stop_after=5000) as messages:
        for msg in messages:
            got.append(int(msg.data))
            if len(got) % 500 == 0:
                proxy.cut_after(rng.randrange(30_000), "client")
    assert got == list(range(5000))


def test_ordered_reads_continue_after_the_server_was_killed(
    own_server: StartServer, told: Recorder
) -> None:
    server = own_server()
    with connect(server.url, Events()) as nc:
        stream = nc.jetstream().create_stream(name="S", subjects=["S.>"])
        fill(nc, stream, 20)
        with stream.ordered_consumer().messages(on_error=told) as messages:
            assert take(messages, 10) == list(range(10))
            for start in (10, 20):
                server.kill()
                server.start()
                fill(nc, stream, 10)
                assert take(messages, 10) == list(range(start, start + 10))
        assert isinstance(told.get(), errors.OrderedConsumerResetError)


def test_messages_taken_while_disconnected_are_not_read_twice(
    nc: jsync.Connection,
    stream: jsync.Stream,
    far_stream: jsync.Stream,
    proxy: FaultProxy,
) -> None:
    fill(nc, stream, 20)
    consumer = far_stream.ordered_consumer()
    with consumer.messages() as messages:
        wait_for(lambda: messages.pending == 20)
        proxy.refuse()
        proxy.cut()
        assert take(messages, 5) == list(range(5))
    proxy.accept()
    assert numbers(consumer.messages(until_end=True)) == list(range(5, 20))
