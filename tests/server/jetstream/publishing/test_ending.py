"""Tests of waiting for the acks of a publisher, of its end, and of columns of messages."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import pytest

import jsync
from jsync import errors

from ....support.threads import LONG, Recorder, Thread

if TYPE_CHECKING:
    from jsync.server import LocalServer

    from ....support.proxy import FaultProxy
from .test_publisher import far as far, stored

pytestmark = pytest.mark.server


def test_a_flush_waits_for_the_earlier_messages(
    stream: jsync.Stream, far: jsync.JetStream, proxy: FaultProxy
) -> None:
    with far.publisher() as publisher:
        publisher.publish(f"{stream.name}.a", b"0").result(LONG)
        proxy.deaf("server")
        before = publisher.publish(f"{stream.name}.a", b"1")
        with pytest.raises(errors.TimeoutError, match="1 messages had no ack"):
            publisher.flush(0.05)
        flush = Thread(publisher.flush)
        flush.wait_until_blocked()
        proxy.hear("server")
        assert flush.result() is None
        assert before.done()


def test_a_flush_does_not_wait_for_later_messages(
    js: jsync.JetStream, stream: jsync.Stream
) -> None:
    stop = threading.Event()

    def publish() -> None:
        while not stop.is_set():
            publisher.publish(f"{stream.name}.a", b"1")

    with js.publisher() as publisher:
        busy = Thread(publish)
        for _ in range(20):
            future = publisher.publish(f"{stream.name}.b", b"1")
            publisher.flush(LONG)
            assert future.done()
        stop.set()
        busy.result()


def test_a_closed_publisher_rejects_messages(
    js: jsync.JetStream, stream: jsync.Stream
) -> None:
    publisher = js.publisher()
    future = publisher.publish(f"{stream.name}.a", b"1")
    publisher.close()
    assert future.done()
    with pytest.raises(errors.PublisherClosedError, match="was not sent"):
        publisher.publish(f"{stream.name}.a", b"2")
    with pytest.raises(errors.PublisherClosedError):
        publisher.publish_many(f"{stream.name}.a", [b"2"])
    publisher.close()
    publisher.flush()
    assert stored(js, stream) == [b"1"]


def test_closing_without_waiting_fails_the_pending_messages(
    stream: jsync.Stream, far: jsync.JetStream, proxy: FaultProxy
) -> None:
    publisher = far.publisher(window=1)
    publisher.publish(f"{stream.name}.a", b"0").result(LONG)
    proxy.deaf("server")
    pending = publisher.publish(f"{stream.name}.a", b"1")
    stalled = Thread(publisher.publish, f"{stream.name}.a", b"2")
    stalled.wait_until_blocked()
    flush = Thread(publisher.flush)
    flush.wait_until_blocked()
    close = Thread(publisher.close, 0)
    # Either of the two reports the message. Both run at the same time.
    nothing, error = sorted(
        (close.error(), flush.error()), key=lambda one: one is not None
    )
    assert nothing is None
    assert isinstance(error, errors.PublisherError)
    assert isinstance(pending.exception(), errors.PublisherClosedError)
    assert isinstance(stalled.error(), errors.PublisherClosedError)
    proxy.hear("server")


def test_closing_the_connection_wakes_all_that_wait(
    stream: jsync.Stream, server: LocalServer, proxy: FaultProxy
) -> None:
    nc = jsync.connect(proxy.url)
    publisher = nc.jetstream().publisher(window=1)
    publisher.publish(f"{stream.name}.a", b"0").result(LONG)
    proxy.deaf("server")
    future = publisher.publish(f"{stream.name}.a", b"1")
    waiting: list[Thread[Any]] = [
        Thread(publisher.publish, f"{stream.name}.a", b"2"),
        Thread(future.result),
        Thread(publisher.flush),
        Thread(publisher.close),
    ]
    for thread in waiting:
        thread.wait_until_blocked()
    nc.close()
    stalled, result, flush, close = [thread.error() for thread in waiting]
    assert isinstance(stalled, errors.ConnectionClosedError)
    assert isinstance(result, errors.ConnectionClosedError)
    for error in (flush, close):
        assert error is None or isinstance(error, errors.PublisherError)
    with pytest.raises(errors.ConnectionClosedError):
        publisher.publish(f"{stream.name}.a", b"3")


def test_a_publisher_may_be_closed_in_a_callback(
    js: jsync.JetStream, stream: jsync.Stream
) -> None:
    closed = Recorder()
    publisher = js.publisher()

    def close(future: jsync.PubAckFuture) -> None:
        publisher.close()
        nc_thread = threading.current_thread()
        closed(nc_thread)

    publisher.publish(f"{stream.name}.a", b"1").add_done_callback(close)
    assert closed.get().name.endswith("-callbacks")
    with pytest.raises(errors.PublisherClosedError):
        publisher.publish(f"{stream.name}.a", b"2")


def test_columns_are_published_in_order(
    js: jsync.JetStream, stream: jsync.Stream
) -> None:
    name = stream.name
    with js.publisher(window=10) as publisher:
        futures = publisher.publish_many(f"{name}.a", [b"%d" % i for i in range(100)])
        assert [future.result(LONG).seq for future in futures] == list(range(1, 101))
        publisher.publish_many(
            (f"{name}.{i}" for i in range(3)),  # type: ignore[arg-type]
            (b"x", bytearray(b"y"), memoryview(b"z")),
            msg_ids=["1", "2", "1"],
            headers={"A": "b"},
        )
        assert publisher.publish_many(f"{name}.a", []) == []
    msgs = list(js.create_consumer(name, ack_policy="none").fetch(102, timeout=LONG))
    assert [msg.data for msg in msgs] == [*(b"%d" % i for i in range(100)), b"x", b"y"]
    assert msgs[-1].subject == f"{name}.1"
    assert msgs[-1].headers == {"A": "b", "Nats-Msg-Id": "2"}


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        (("a", b"abc"), "payloads: a sequence of values, not one bytes"),
        ((["a"], [b"1", b"2"]), "subjects: 1 values for 2 payloads"),
        (("a", [b"1"], {"msg_ids": "x"}), "msg_ids: a sequence of values, not one str"),
        (("a", [b"1"], {"msg_ids": []}), "msg_ids: 0 values for 1 payloads"),
        (("a", [b"1"], {"msg_ids": [""]}), "msg_id: empty"),
        (("a", [b"1"], {"msg_ids": ["x "]}), "msg_id: .* blanks"),
        (("a", [b"1"], {"msg_ids": ["x\r\nTo: y"]}), "msg_id: .* control character"),
        (("a", [b"1"], {"msg_ids": [7]}), "msg_id: a str, not int"),
        (("a", [b"1"], {"msg_id": "x"}), "msg_ids, one for each message"),
        (("a", [b"", b"1"], {"incr": 1}), "incr: .* has no payload"),
        (("a", iter([b"", b"1"]), {"incr": 1}), "incr: .* has no payload"),
        (("a", b"abc", {"incr": 1}), "payloads: a sequence of values, not one bytes"),
    ],
)
def test_invalid_columns_are_rejected(
    js: jsync.JetStream, columns: tuple[Any, ...], words: str
) -> None:
    subjects, payloads, options = (*columns, {})[:3]
    with js.publisher() as publisher:
        with pytest.raises(errors.ConfigError, match=words):
            publisher.publish_many(subjects, payloads, **options)


def test_nothing_of_a_partly_bad_column_is_sent(
    js: jsync.JetStream, stream: jsync.Stream
) -> None:
    name = stream.name
    with js.publisher() as publisher:
        with pytest.raises(errors.InvalidSubjectError):
            publisher.publish_many([f"{name}.a", f"{name}. b"], [b"1", b"2"])
        with pytest.raises(TypeError, match="encode it first"):
            publisher.publish_many(f"{name}.a", [b"1", "2"])  # type: ignore[list-item]
        with pytest.raises(errors.MaxPayloadError):
            publisher.publish_many(f"{name}.a", [b"1", bytes(2 << 20)])
    assert stream.info().state.messages == 0


def test_an_interrupted_column_reports_the_published_rows(
    js: jsync.JetStream, stream: jsync.Stream, far: jsync.JetStream, proxy: FaultProxy
) -> None:
    with far.publisher(window=5, stall_timeout=0.1) as publisher:
        publisher.publish(f"{stream.name}.a", b"0").result(LONG)
        proxy.deaf("server")
        with pytest.raises(errors.StallTimeoutError) as caught:
            publisher.publish_many(f"{stream.name}.a", [b"1"] * 9)
        assert vars(caught.value)["published"] == 5
        assert caught.value.__notes__ == ["5 of 9 messages had been published before"]
        proxy.hear("server")
    assert stream.info().state.messages == 6
