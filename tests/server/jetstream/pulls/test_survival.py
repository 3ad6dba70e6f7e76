"""Tests that every way of pulling reports a lost consumer soon, and none hangs."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest

import jsync
from jsync import errors

from ....support.connection_faults import Events, connect
from ....support.servers import wait_for
from ....support.threads import LONG, SOON, Recorder, Thread
from .support import CALM, QUICK, Handler, at_work, both_faces, fill

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from jsync.server import LocalServer

    from ....conftest import StartServer

pytestmark = pytest.mark.server

ACCOUNT = """
accounts {
  APP {
    jetstream: %s
    users: [{user: app, password: app}]
  }
  SYS { users: [{user: sys, password: sys}] }
}
system_account: SYS
"""


@dataclass
class Place:
    """A server with a consumer, and a connection that reconnects."""

    start: StartServer
    server: LocalServer
    nc: jsync.Connection
    stream: jsync.Stream
    consumer: jsync.Consumer
    told: Recorder = field(default_factory=Recorder)


@pytest.fixture
def place(own_server: StartServer) -> Iterator[Place]:
    server = own_server(config=ACCOUNT % "enabled")
    with connect(server.url, Events(), user="app", password="app") as nc:
        stream = nc.jetstream().create_stream(name="S", subjects=["S.>"])
        consumer = stream.create_consumer(durable_name="worker")
        yield Place(own_server, server, nc, stream, consumer)


def delete_the_consumer(place: Place) -> None:
    place.consumer.delete()


def delete_the_stream(place: Place) -> None:
    place.stream.delete()


def restart_without_jetstream(place: Place) -> None:
    port = place.server.port
    place.server.kill()
    config = ACCOUNT.replace("jetstream: %s", "")
    place.start(jetstream=False, port=port, config=config)


def take_jetstream_from_the_account(place: Place) -> None:
    place.server.reload(ACCOUNT % "disabled")


def one_by_next(place: Place) -> object:
    return place.consumer.next(LONG, idle_heartbeat=0.5)


def many_by_fetch(place: Place) -> object:
    return list(place.consumer.fetch(10, timeout=LONG, idle_heartbeat=0.5))


def messages(place: Place) -> object:
    with place.consumer.messages(**QUICK, on_error=place.told) as reading:
        return list(reading)


def consume(place: Place) -> object:
    with place.consumer.consume(print, **QUICK, on_error=place.told) as consuming:
        return consuming.wait(LONG)


once = pytest.mark.parametrize("pull", [one_by_next, many_by_fetch])
for_ever = pytest.mark.parametrize("pull", [messages, consume])
every_way = pytest.mark.parametrize(
    "pull", [one_by_next, many_by_fetch, messages, consume]
)


def waiting(place: Place, pull: Any) -> Thread[object]:
    work: Thread[object] = Thread(pull, place)
    wait_for(lambda: place.consumer.info().num_waiting == 1)
    return work


@every_way
@pytest.mark.parametrize("trouble", [delete_the_consumer, delete_the_stream])
def test_a_deletion_wakes_every_waiting_thread(
    place: Place, pull: Any, trouble: Callable[[Place], None]
) -> None:
    work = waiting(place, pull)
    trouble(place)
    assert isinstance(work.error(), errors.ConsumerDeletedError)
    assert place.told.waiting == 0


@once
@pytest.mark.parametrize(
    ("trouble", "kind"),
    [
        (restart_without_jetstream, errors.ConnectionLostError),
        # The server sends nothing, so heartbeats are missing.
        (take_jetstream_from_the_account, errors.PullError),
    ],
)
def test_a_single_pull_ends_when_jetstream_is_lost(
    place: Place, pull: Any, trouble: Callable[[Place], None], kind: type[Exception]
) -> None:
    work = waiting(place, pull)
    trouble(place)
    assert isinstance(work.error(), kind)
    # The next pull fails at once.
    with pytest.raises(errors.NoRespondersError):
        pull(place)


@for_ever
@pytest.mark.parametrize(
    ("trouble", "kinds"),
    [
        (restart_without_jetstream, [errors.NoRespondersError]),
        (
            take_jetstream_from_the_account,
            [errors.MissedHeartbeatError, errors.NoRespondersError],
        ),
    ],
)
def test_a_continuous_pull_reports_lost_jetstream_and_retries(
    place: Place,
    pull: Any,
    trouble: Callable[[Place], None],
    kinds: list[type[Exception]],
) -> None:
    work = waiting(place, pull)
    trouble(place)
    for kind in [*kinds, errors.NoRespondersError]:
        assert isinstance(place.told.get(), kind)
    assert not work.ended
    place.nc.close()
    assert isinstance(work.error(), errors.ConnectionClosedError)


def test_a_pull_continues_when_jetstream_is_enabled_again(
    place: Place,
) -> None:
    handler = Handler()
    with place.consumer.consume(handler, **QUICK, on_error=place.told):
        fill(place.nc, place.stream, 3)
        wait_for(lambda: handler.numbers == [0, 1, 2])
        take_jetstream_from_the_account(place)
        while not isinstance(place.told.get(), errors.NoRespondersError):
            pass
        place.server.reload(ACCOUNT % "enabled")

        def stored() -> bool:
            with contextlib.suppress(errors.JetStreamError, errors.NoRespondersError):
                place.nc.jetstream().publish("S.a", b"3")
                return True
            return False

        wait_for(stored)
        wait_for(lambda: 3 in handler.numbers, LONG)


# Limits -------------------------------------------------------------------------------

LIMITS: list[tuple[dict[str, Any], dict[str, Any], str]] = [
    ({"max_batch": 5}, {"max_messages": 10}, "MaxRequestBatch of 5"),
    ({"max_expires": 1}, {"max_messages": 1}, "MaxRequestExpires of 1s"),
    ({"max_bytes": 100}, {"max_bytes": 1000}, "MaxRequestMaxBytes of 100"),
]


@pytest.mark.parametrize(("limits", "asked", "words"), LIMITS)
def test_a_fetch_beyond_consumer_limits_is_refused(
    stream: jsync.Stream, limits: dict[str, Any], asked: dict[str, Any], words: str
) -> None:
    limited = stream.create_consumer(durable_name="limited", **limits)
    with pytest.raises(errors.PullError, match=f"{words}: .*of the consumer"):
        list(limited.fetch(timeout=LONG, **asked))


@pytest.mark.parametrize(("limits", "asked", "words"), LIMITS)
@pytest.mark.parametrize("way", ["messages", "consume", "arrow"])
def test_pulls_adapt_to_consumer_limits(
    nc: jsync.Connection,
    stream: jsync.Stream,
    limits: dict[str, Any],
    asked: dict[str, Any],
    words: str,
    way: str,
) -> None:
    fill(nc, stream, 20)
    limited = stream.create_consumer(durable_name="limited", **limits)
    told = Recorder()
    if way == "messages":
        with limited.messages(**asked, stop_after=20, on_error=told) as messages:
            for msg in messages:
                msg.ack()
    elif way == "consume":
        handle = jsync.JetStreamMsg.ack
        with limited.consume(handle, **asked, stop_after=20, on_error=told) as run:
            assert run.wait(LONG)
    else:
        with limited.arrow_batches(**asked, stop_after=20, on_error=told) as batches:
            for batch in batches:
                batch.ack()
    wait_for(lambda: limited.info().num_ack_pending == 0)
    assert limited.info().num_pending == 0
    error = told.get()
    assert isinstance(error, errors.PullError)
    assert words in str(error)
    assert told.waiting == 0


def test_a_lower_limit_is_kept_while_consuming(
    nc: jsync.Connection, stream: jsync.Stream
) -> None:
    limited = stream.create_consumer(durable_name="limited")
    handler = Handler()
    told = Recorder()
    with limited.consume(handler, max_messages=10, on_error=told):
        fill(nc, stream, 10)
        wait_for(lambda: len(handler.numbers) == 10)
        stream.update_consumer(durable_name="limited", max_batch=2)
        fill(nc, stream, 30)
        wait_for(lambda: handler.numbers == list(range(40)))
    assert "MaxRequestBatch of 2" in str(told.get())


def test_next_is_rejected_beyond_the_consumers_limits(
    stream: jsync.Stream,
) -> None:
    limited = stream.create_consumer(durable_name="limited", max_expires=1)
    with pytest.raises(errors.PullError, match="MaxRequestExpires of 1s"):
        limited.next(LONG)


READS: dict[str, Callable[[jsync.JetStream], int]] = {
    "ordered": lambda js: len(
        list(js.bind_stream("S").ordered_consumer().messages(until_end=True))
    ),
    "arrow": lambda js: sum(
        batch.num_rows for batch in js.bind_stream("S").read_arrow()
    ),
    "keys": lambda js: len(list(js.key_value("B").keys())),
    "history": lambda js: len(js.key_value("B").history("1")) + 19,
    "list": lambda js: len(list(js.object_store("B").list())) + 19,
}


@pytest.mark.parametrize("read", READS.values(), ids=READS)
def test_reads_adapt_to_limits_of_the_server(
    own_server: StartServer, read: Callable[[jsync.JetStream], int]
) -> None:
    config = "jetstream { limits { max_request_batch: 5 } }"
    told = Recorder()
    with jsync.connect(own_server(config=config).url, on_error=told) as nc:
        js = nc.jetstream()
        js.create_stream(name="S", subjects=["S"])
        values = js.create_key_value(bucket="B")
        js.create_object_store(bucket="B").put("a", b"a")
        for number in range(20):
            js.publish("S", b"")
            values.put(str(number), b"")
        assert read(js) == 20
        assert told.waiting == 0


def test_a_limit_of_the_server_is_reported(own_server: StartServer) -> None:
    config = "jetstream { limits { max_request_batch: 5 } }"
    with jsync.connect(own_server(config=config).url) as nc:
        stream = nc.jetstream().create_stream(name="S", subjects=["S"])
        worker = stream.create_consumer(durable_name="worker")
        with pytest.raises(errors.PullError, match="MaxRequestBatch of 5"):
            list(worker.fetch(10, timeout=LONG))
        told = Recorder()
        with worker.messages(on_error=told), worker.consume(print, on_error=told):
            for _ in range(2):
                assert "MaxRequestBatch of 5" in str(told.get())


def test_pulls_beyond_max_waiting_are_refused_or_unanswered(
    stream: jsync.Stream,
) -> None:
    narrow = stream.create_consumer(durable_name="narrow", max_waiting=1)
    told = Recorder()
    with narrow.fetch(1, timeout=LONG):
        wait_for(lambda: narrow.info().num_waiting == 1)
        for pull in (lambda: narrow.next(5), lambda: list(narrow.fetch(1, timeout=5))):
            with pytest.raises(errors.PullError, match="MaxWaiting"):
                pull()
        # A pull with heartbeats gets no reply, and fails because of the missing heartbeats.
        with pytest.raises(errors.PullError, match="no heartbeat"):
            narrow.next(LONG, idle_heartbeat=0.5)
        with (
            narrow.messages(**QUICK, on_error=told),
            narrow.consume(print, **QUICK, on_error=told),
        ):
            for _ in range(2):
                assert isinstance(told.get(), errors.MissedHeartbeatError)


@both_faces
def test_pulls_wait_at_max_ack_pending_then_continue(
    nc: jsync.Connection, stream: jsync.Stream, face: str
) -> None:
    strict = stream.create_consumer(durable_name="strict", max_ack_pending=3)
    fill(nc, stream, 9)
    unacked = list(strict.fetch(3, timeout=SOON))
    with pytest.raises(errors.TimeoutError):
        strict.next(0.2)
    with strict.fetch(1, timeout=0.2) as batch:
        assert list(batch) == []
    told, handler = Recorder(), Handler()
    with at_work(face, strict, handler, **CALM, on_error=told):
        with pytest.raises(TimeoutError):  # no error is reported
            wait_for(lambda: bool(handler.numbers or told.waiting), 3.5)
        for msg in unacked:
            msg.ack()
        wait_for(lambda: handler.numbers == list(range(3, 9)))
    assert told.waiting == 0


def test_a_consumer_beyond_max_consumers_is_rejected(
    nc: jsync.Connection, unique: str
) -> None:
    js = nc.jetstream()
    stream = js.create_stream(name=unique, subjects=[unique], max_consumers=1)
    stream.create_consumer(durable_name="one")
    with pytest.raises(errors.MaximumConsumersError):
        stream.create_consumer(durable_name="two")
    stream.delete()
