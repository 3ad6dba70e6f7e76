"""Tests that an ordered consumer leaves nothing on the server, however its reading ends."""

from __future__ import annotations

import contextlib
import gc
import threading
from typing import TYPE_CHECKING, Any

import pytest

import jsync
from jsync import errors

from ....support.connection_faults import Events, connect
from ....support.processes import Child
from ....support.servers import wait_for
from ....support.threads import LONG, SOON, Thread
from .support import QUICK, consumers, fill, numbers, take

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from jsync.server import LocalServer

    from ....support.proxy import FaultProxy
    from ....support.threads import Recorder

    Way = Callable[[jsync.JetStream, jsync.Stream], object]

pytestmark = pytest.mark.server


@pytest.fixture
def small(nc: jsync.Connection, unique: str) -> Iterator[jsync.Stream]:
    """A stream with messages that allows three consumers."""
    stream = nc.jetstream().create_stream(
        name=unique, subjects=[f"{unique}.>"], storage="memory", max_consumers=3
    )
    fill(nc, stream, 50)
    yield stream
    stream.delete()


@pytest.fixture(autouse=True)
def _no_collector() -> Iterator[None]:
    """Disable the garbage collector: reference counts must free dropped readers at once."""
    gc.disable()
    yield
    gc.enable()


def one_of(messages: Any) -> None:
    for _ in messages:
        break


def in_a_block(js: jsync.JetStream, stream: jsync.Stream) -> None:
    with stream.ordered_consumer() as consumer:
        consumer.next()


def in_a_block_that_raises(js: jsync.JetStream, stream: jsync.Stream) -> None:
    with contextlib.suppress(ValueError), stream.ordered_consumer() as consumer:
        raise ValueError(consumer.next())


WAYS: dict[str, Way] = {
    "nothing": lambda js, s: s.ordered_consumer(),
    "next": lambda js, s: s.ordered_consumer().next(),
    "fetch": lambda js, s: list(s.ordered_consumer().fetch(5)),
    "a fetch of what is there": lambda js, s: list(
        s.ordered_consumer().fetch_nowait(99)
    ),
    "a fetch left early": lambda js, s: one_of(s.ordered_consumer().fetch(5)),
    "a fetch not read": lambda js, s: s.ordered_consumer().fetch(99),
    "messages": lambda js, s: list(s.ordered_consumer().messages(until_end=True)),
    "messages left early": lambda js, s: one_of(s.ordered_consumer().messages()),
    "messages not read": lambda js, s: s.ordered_consumer().messages(),
    "consume": lambda js, s: (
        s.ordered_consumer().consume(lambda m: None, until_end=True).wait(SOON)
    ),
    "a block": in_a_block,
    "a block that raises": in_a_block_that_raises,
    "columns": lambda js, s: list(s.read_arrow()),
    "columns left early": lambda js, s: one_of(s.read_arrow(max_rows=1)),
    "a subscription": lambda js, s: one_of(js.subscribe(stream=s.name, ordered=True)),
    "a subscription not read": lambda js, s: js.subscribe(stream=s.name, ordered=True),
    "a subscription that ends": lambda js, s: js.subscribe(
        stream=s.name, ordered=True
    ).unsubscribe(),
}


@pytest.mark.parametrize("way", WAYS)
def test_a_hundred_ordered_reads_fit_three_allowed_consumers(
    nc: jsync.Connection, small: jsync.Stream, way: str
) -> None:
    js = nc.jetstream()
    for _ in range(100):
        WAYS[way](js, small)
    wait_for(lambda: not consumers(nc, small))


# The end of the connection ------------------------------------------------------------

READINGS: dict[str, Way] = {
    "nothing": lambda js, s: s.ordered_consumer(),
    "next": lambda js, s: [consumer := s.ordered_consumer(), consumer.next()],
    "a fetch": lambda js, s: [batch := s.ordered_consumer().fetch(99), next(batch)],
    "messages": lambda js, s: [
        messages := s.ordered_consumer().messages(max_messages=4),
        messages.next(),
    ],
    "consume": lambda js, s: s.ordered_consumer().consume(lambda m: None),
    "columns": lambda js, s: [
        reading := iter(s.read_arrow(max_rows=1, max_bytes=400)),
        next(reading),
    ],
    "a subscription": lambda js, s: [
        messages := js.subscribe(stream=s.name, ordered=True),
        messages.next(),
    ],
    "a callback": lambda js, s: js.subscribe(
        stream=s.name, ordered=True, callback=lambda m: None
    ),
}


@pytest.mark.parametrize("end", ["close", "drain"])
@pytest.mark.parametrize("reading", READINGS)
def test_closing_the_connection_deletes_consumers_without_a_warning(
    server: LocalServer,
    nc: jsync.Connection,
    stream: jsync.Stream,
    told: Recorder,
    reading: str,
    end: str,
) -> None:
    fill(nc, stream, 50)
    ending = jsync.connect(server.url, on_error=told)
    js = ending.jetstream()
    kept = READINGS[reading](js, js.stream(stream.name))
    assert consumers(nc, stream)
    getattr(ending, end)()
    wait_for(lambda: not consumers(nc, stream))
    del kept
    assert not told.waiting


def test_a_program_ending_without_closing_leaves_no_consumer(
    server: LocalServer, nc: jsync.Connection, stream: jsync.Stream
) -> None:
    fill(nc, stream, 5)
    script = """
        import sys, jsync
        nc = jsync.connect(sys.argv[1])
        consumer = nc.jetstream().ordered_consumer(sys.argv[2])
        print(consumer.next().data.decode(), flush=True)
        sys.stdin.readline()
    """
    with Child(script, server.url, stream.name) as child:
        assert child.line() == "0"
        assert consumers(nc, stream)
        child.send_line()
        assert child.finish()[0] == 0
    wait_for(lambda: not consumers(nc, stream))


def test_a_killed_programs_consumer_ends_by_inactive_threshold(
    server: LocalServer, nc: jsync.Connection, stream: jsync.Stream
) -> None:
    script = """
        import sys, jsync
        nc = jsync.connect(sys.argv[1])
        stream = nc.jetstream().stream(sys.argv[2])
        kept = stream.ordered_consumer(), stream.ordered_consumer(inactive_threshold=1)
        print(kept[0].info().config.inactive_threshold, flush=True)
        sys.stdin.readline()
    """
    with Child(script, server.url, stream.name) as child:
        assert child.line() == "30.0"
        child.process.kill()
    assert len(consumers(nc, stream)) == 2
    wait_for(lambda: len(consumers(nc, stream)) == 1)


def test_the_server_makes_up_for_a_lost_deletion(
    nc: jsync.Connection, stream: jsync.Stream, proxy: FaultProxy
) -> None:
    with connect(proxy.url, Events()) as far:
        consumer = far.jetstream().ordered_consumer(stream.name, inactive_threshold=1)
        proxy.refuse()
        proxy.cut()
        wait_for(lambda: not far.is_connected)
        consumer.close()
        assert consumers(nc, stream)
        wait_for(lambda: not consumers(nc, stream))
        del consumer
        assert not far._session.close_commands
        proxy.accept()


def test_a_forked_child_deletes_nothing_of_its_parent(
    nc: jsync.Connection, server: LocalServer, stream: jsync.Stream
) -> None:
    script = """
        import os, sys, warnings, jsync
        warnings.simplefilter("ignore", DeprecationWarning)
        nc = jsync.connect(sys.argv[1])
        consumer = nc.jetstream().ordered_consumer(sys.argv[2])
        pid = os.fork()
        if pid == 0:
            consumer.close()
            del consumer
            nc.close()
            os._exit(0)
        os.waitpid(pid, 0)
        print(consumer.info().name == consumer.name)
        nc.close()
    """
    with Child(script, server.url, stream.name) as child:
        assert child.finish() == (0, "True\n", "")


# While it is held ---------------------------------------------------------------------


def test_next_and_fetch_keep_consumers_for_later_reads(
    nc: jsync.Connection, stream: jsync.Stream
) -> None:
    fill(nc, stream, 40)
    with stream.ordered_consumer() as consumer:
        name = consumer.name
        assert name is not None
        assert consumers(nc, stream) == [name]
        assert [int(consumer.next().data) for _ in range(10)] == list(range(10))
        assert numbers(consumer.fetch(10)) == list(range(10, 20))
        for msg in consumer.fetch(1):
            assert int(msg.data) == 20
            break
        assert consumer.info().name == consumer.name == name
        assert consumer.info().delivered.stream_seq == 21
        with consumer.messages() as messages:
            assert take(messages, 1) == [21]
            assert consumer.name == name
        # Messages that no reader got are read again with another consumer.
        assert not consumer.name
        with pytest.raises(errors.ConsumerNotFoundError, match="next read creates one"):
            consumer.info()
        assert int(consumer.next().data) == 22
        assert consumers(nc, stream) == [consumer.name]
    assert not consumer.name
    wait_for(lambda: not consumers(nc, stream))


def test_unused_ordered_consumers_are_recreated_without_warning(
    nc: jsync.Connection, stream: jsync.Stream, told: Recorder
) -> None:
    fill(nc, stream, 20)
    consumer = stream.ordered_consumer(inactive_threshold=0.5)
    for expected in (0, 1):
        wait_for(lambda: not consumers(nc, stream))
        with consumer.fetch(1, timeout=SOON, on_error=told) as batch:
            assert numbers(batch) == [expected]
    with consumer.messages(max_messages=4, on_error=told) as messages:
        wait_for(lambda: messages.pending == 4)
        wait_for(lambda: not consumers(nc, stream))
        assert take(messages, 18) == list(range(2, 20))
    nc._session.callbacks.submit(told, "end")
    assert told.get() == "end"


@pytest.mark.parametrize("fetches", [True, False])
def test_unused_consumers_on_slow_lines_are_silently_recreated(
    nc: jsync.Connection,
    stream: jsync.Stream,
    told: Recorder,
    proxy: FaultProxy,
    fetches: bool,
) -> None:
    """The server counts from the pull, and the messages come later."""
    fill(nc, stream, 8)
    with connect(proxy.url, Events()) as far:
        there = far.jetstream().stream(stream.name)
        consumer = there.ordered_consumer(inactive_threshold=1)
        proxy.delay(0.4, "client")
        if fetches:
            first = consumer.fetch(4, timeout=SOON, on_error=told)
            assert numbers(first) == list(range(4))
            wait_for(lambda: not consumers(nc, stream))
            second = consumer.fetch(4, timeout=SOON, on_error=told)
            assert numbers(second) == list(range(4, 8))
        else:
            with consumer.messages(max_messages=4, on_error=told) as messages:
                wait_for(lambda: messages.pending == 4)
                wait_for(lambda: not consumers(nc, stream))
                assert take(messages, 8) == list(range(8))
        far._session.callbacks.submit(told, "end")
        assert told.get() == "end"


def test_a_slowly_read_fetch_causes_no_later_warning(
    nc: jsync.Connection, stream: jsync.Stream, told: Recorder
) -> None:
    fill(nc, stream, 6)
    consumer = stream.ordered_consumer(inactive_threshold=0.5)
    for first in (0, 3):
        batch = consumer.fetch(3, timeout=LONG, on_error=told)
        assert [int(next(batch).data), int(next(batch).data)] == [first, first + 1]
        wait_for(lambda: not consumers(nc, stream))  # before the third one is read
        assert numbers(batch) == [first + 2]
    nc._session.callbacks.submit(told, "end")
    assert told.get() == "end"


def test_closing_ends_a_read_on_another_thread(
    nc: jsync.Connection, stream: jsync.Stream
) -> None:
    reads: dict[str, Callable[[jsync.OrderedConsumer], object]] = {
        "next": lambda c: c.next(LONG),
        "fetch": lambda c: numbers(c.fetch(5, timeout=LONG)),
        "messages": lambda c: numbers(c.messages(**QUICK)),
        "consume": lambda c: c.consume(lambda m: None, **QUICK).wait(LONG),
    }
    ends = {}
    for name, read in reads.items():
        consumer = stream.ordered_consumer()
        reading = Thread(read, consumer)
        reading.wait_until_blocked()
        consumer.close()
        consumer.close()
        error = reading.error()
        ends[name] = reading.result() if error is None else type(error)
        wait_for(lambda: not consumers(nc, stream))
    assert ends == {
        "next": errors.SubscriptionClosedError,
        "fetch": [],
        "messages": [],
        "consume": True,
    }


def test_a_closed_iteration_reads_no_more(
    nc: jsync.Connection, stream: jsync.Stream
) -> None:
    fill(nc, stream, 5)
    with stream.ordered_consumer() as consumer:
        assert int(consumer.next().data) == 0
    for call in (
        consumer.next,
        consumer.messages,
        consumer.info,
        lambda: consumer.fetch(1),
        lambda: consumer.consume(lambda m: None),
    ):
        with pytest.raises(errors.SubscriptionClosedError, match="create another one"):
            call()
    assert "closed" in repr(consumer)
    wait_for(lambda: not consumers(nc, stream))


def test_a_handler_may_close_it(nc: jsync.Connection, stream: jsync.Stream) -> None:
    fill(nc, stream, 20)
    consumer = stream.ordered_consumer()
    got: list[int] = []
    ready = threading.Event()

    def handle(msg: jsync.JetStreamMsg) -> None:
        assert ready.wait(SOON)
        got.append(int(msg.data))
        if len(got) == 3:
            consumer.close()

    work = consumer.consume(handle)
    ready.set()
    assert work.wait(SOON)
    assert got == [0, 1, 2]
    wait_for(lambda: not consumers(nc, stream))
