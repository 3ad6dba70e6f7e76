"""Tests of the publisher: futures, the window, and the errors of failed messages."""

from __future__ import annotations

import builtins
import pickle
import sys
import time
from typing import TYPE_CHECKING, Any

import pytest

import jsync
from jsync import errors

from ....support.accounts import Permissions, password_config
from ....support.proxy import frame_filter
from ....support.servers import RawClient, wait_for
from ....support.threads import LONG, SOON, Recorder, Thread

if TYPE_CHECKING:
    from collections.abc import Iterator

    from jsync.server import LocalServer

    from ....conftest import StartServer
    from ....support.proxy import FaultProxy

pytestmark = pytest.mark.server


@pytest.fixture
def far(proxy: FaultProxy) -> Iterator[jsync.JetStream]:
    """JetStream through the proxy, with fast reconnects."""
    with jsync.connect(proxy.url, reconnect_wait=0.02) as connection:
        yield connection.jetstream()


def stored(js: jsync.JetStream, stream: jsync.Stream) -> list[bytes]:
    """Return the payloads of the stream."""
    reader = js.create_consumer(stream.name, ack_policy="none")
    count = stream.info().state.messages
    return [msg.data for msg in reader.fetch(count, timeout=LONG)] if count else []


# Futures ------------------------------------------------------------------------------


def test_a_future_has_the_ack_of_its_message(
    js: jsync.JetStream, stream: jsync.Stream
) -> None:
    with js.publisher() as publisher:
        first = publisher.publish(f"{stream.name}.a", b"1")
        second = publisher.publish(f"{stream.name}.b", b"2")
        assert second.result(LONG) == jsync.PubAck(stream=stream.name, seq=2)
        assert first.result() is first.result()
        assert first.result().seq == 1
        assert first.exception() is None
        assert (first.done(), first.running()) == (True, False)
        assert (first.cancel(), first.cancelled()) == (False, False)
        assert publisher.pending == 0
    assert stored(js, stream) == [b"1", b"2"]


def test_an_ack_with_more_fields_is_read_whole(
    own_server: StartServer, unique: str
) -> None:
    server = own_server(config='jetstream { domain: "hub" }')
    with jsync.connect(server.url) as nc:
        js = nc.jetstream()
        js.create_stream(name="S", subjects=["s.>"])
        js.create_stream(name="C", subjects=["c.>"], allow_msg_counter=True)
        with js.publisher() as publisher:
            one = publisher.publish("s.a", b"1", msg_id="x")
            again = publisher.publish("s.a", b"1", msg_id="x")
            counter = publisher.publish("c.a", incr=7)
            assert one.result() == jsync.PubAck(stream="S", seq=1, domain="hub")
            assert again.result().duplicate
            assert counter.result().value == 7


def test_a_message_keeps_its_headers_and_options(
    js: jsync.JetStream, stream: jsync.Stream
) -> None:
    with js.publisher() as publisher:
        publisher.publish(
            f"{stream.name}.a", bytearray(b"1"), headers={"A": ["1", "2"]}, msg_id="x"
        )
    (msg,) = js.create_consumer(stream.name, ack_policy="none").fetch(1)
    assert msg.headers is not None
    assert msg.headers.get_all("A") == ["1", "2"]
    assert msg.headers["Nats-Msg-Id"] == "x"


def test_parts_of_large_bytes_are_sent_without_copies(
    js: jsync.JetStream, unique: str
) -> None:
    data = bytes(range(256)) * 400
    before = sys.getrefcount(data)
    with js.publisher(retry_attempts=1000, retry_wait=0.02) as publisher:
        view = memoryview(data)[7:90_007]
        future = publisher.publish(unique, view)  # no stream accepts the subject yet
        view.release()
        assert sys.getrefcount(data) == before + 1
        assert future.data == data[7:90_007]
        stream = js.create_stream(name=unique, subjects=[unique])
        future.result(LONG)
        assert sys.getrefcount(data) == before
        assert stored(js, stream) == [data[7:90_007]]


@pytest.mark.parametrize("kind", ["bytearray", "view of bytearray", "every other byte"])
def test_mutable_or_gapped_data_is_stored_unchanged(
    js: jsync.JetStream, unique: str, kind: str
) -> None:
    data = bytearray(range(256)) * 400
    given: bytearray | memoryview = data
    if kind == "view of bytearray":
        given = memoryview(data)[:90_000]
    elif kind == "every other byte":
        given = memoryview(bytes(data))[::2]
    expected = bytes(given)
    with js.publisher(retry_attempts=1000, retry_wait=0.02) as publisher:
        future = publisher.publish(unique, given)
        data[:] = bytes(len(data))
        stream = js.create_stream(name=unique, subjects=[unique])
        future.result(LONG)
    assert stored(js, stream) == [expected]


def test_a_failed_message_keeps_only_its_own_bytes(
    js: jsync.JetStream, unique: str
) -> None:
    data = bytes(range(256)) * 400
    before = sys.getrefcount(data)
    publisher = js.publisher(retry_attempts=0)
    future = publisher.publish(unique, memoryview(data)[7:90_007])
    assert isinstance(future.exception(LONG), errors.NoStreamResponseError)
    assert future.data == data[7:90_007]
    assert sys.getrefcount(data) == before


def test_a_refused_message_has_its_own_error_class(
    js: jsync.JetStream, stream: jsync.Stream
) -> None:
    publisher = js.publisher()
    good = publisher.publish(f"{stream.name}.a", b"1")
    bad = publisher.publish(
        f"{stream.name}.b", b"data", headers={"A": "b"}, expected_last_sequence=7
    )
    for _ in range(2):
        with pytest.raises(errors.WrongLastSequenceError):
            bad.result(LONG)
    assert isinstance(bad.exception(), errors.WrongLastSequenceError)
    assert (bad.subject, bad.data) == (f"{stream.name}.b", b"data")
    assert bad.headers == {"A": "b", "Nats-Expected-Last-Sequence": "7"}
    assert good.result().seq == 1
    publisher.close()


def test_a_message_without_a_stream_fails_at_once(
    js: jsync.JetStream, unique: str
) -> None:
    with js.publisher() as publisher:
        future = publisher.publish(unique, b"1")
        with pytest.raises(errors.NoStreamResponseError, match=unique):
            future.result(SOON)


def test_a_message_without_stream_is_resent_as_asked(
    nc: jsync.Connection, js: jsync.JetStream, unique: str
) -> None:
    before = nc.stats().out_messages
    with js.publisher(retry_attempts=3, retry_wait=0.01) as publisher:
        future = publisher.publish(unique, b"1")
        assert isinstance(future.exception(LONG), errors.NoStreamResponseError)
        assert nc.stats().out_messages - before == 4
    with js.publisher(retry_attempts=-1) as publisher:
        future = publisher.publish(f"{unique}.a", b"1")
        stream = js.create_stream(name=unique, subjects=[f"{unique}.>"])
        assert future.result(LONG).seq == 1
    stream.delete()


def test_a_future_not_done_in_time_stays_pending(
    stream: jsync.Stream, far: jsync.JetStream, proxy: FaultProxy
) -> None:
    with far.publisher() as publisher:
        publisher.publish(f"{stream.name}.a", b"0").result(LONG)
        proxy.deaf("server")
        future = publisher.publish(f"{stream.name}.a", b"1")
        with pytest.raises(builtins.TimeoutError, match="still pending"):
            future.result(0.05)
        with pytest.raises(errors.TimeoutError):
            future.exception(0)
        assert (future.done(), future.running()) == (False, True)
        assert "pending" in repr(future)
        proxy.hear("server")
        assert future.result(LONG).seq == 2
        assert "seq=2" in repr(future)


def test_many_threads_may_wait_for_one_future(
    stream: jsync.Stream, far: jsync.JetStream, proxy: FaultProxy
) -> None:
    with far.publisher() as publisher:
        publisher.publish(f"{stream.name}.a", b"0").result(LONG)
        proxy.deaf("server")
        future = publisher.publish(f"{stream.name}.a", b"1")
        waiting = [Thread(future.result, LONG) for _ in range(5)]
        for thread in waiting:
            thread.wait_until_blocked()
        proxy.hear("server")
        assert [thread.result().seq for thread in waiting] == [2] * 5


def test_callbacks_run_on_the_connections_callback_thread(
    js: jsync.JetStream, stream: jsync.Stream
) -> None:
    told = Recorder()
    with js.publisher() as publisher:
        future = publisher.publish(f"{stream.name}.a", b"1")
        future.add_done_callback(told)
        assert told.get() is future
        assert future.done()
        future.add_done_callback(told)
        assert told.thread().name.endswith("-callbacks")


def test_each_of_many_callbacks_runs_once_in_order(
    js: jsync.JetStream, stream: jsync.Stream
) -> None:
    count, seen = 50_000, []
    with js.publisher() as publisher:
        for _ in range(count):
            publisher.publish(f"{stream.name}.a", b"1").add_done_callback(
                lambda future: seen.append(future.result().seq)
            )
    wait_for(lambda: len(seen) == count)
    assert seen == list(range(1, count + 1))


def test_a_raising_callback_is_reported_and_others_run(
    server: LocalServer, stream: jsync.Stream
) -> None:
    reported, told = Recorder(), Recorder()
    with jsync.connect(server.url, on_error=reported) as nc:
        with nc.jetstream().publisher() as publisher:
            future = publisher.publish(f"{stream.name}.a", b"1")
            future.add_done_callback(lambda _: 1 // 0)
            future.add_done_callback(told)
            assert told.get() is future
        error = reported.get()
        assert isinstance(error, errors.CallbackError)
        assert isinstance(error.__cause__, ZeroDivisionError)


def test_an_interrupt_in_a_callback_reaches_its_caller(
    server: LocalServer, stream: jsync.Stream
) -> None:
    nc = jsync.connect(server.url)
    publisher = nc.jetstream().publisher()
    future = publisher.publish(f"{stream.name}.a", b"1")
    future.result(LONG)
    nc.close()

    def interrupt(_: object) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        future.add_done_callback(interrupt)
    publisher.close()


def test_a_callback_runs_even_on_a_closed_connection(
    server: LocalServer, stream: jsync.Stream
) -> None:
    nc = jsync.connect(server.url)
    publisher = nc.jetstream().publisher()
    future = publisher.publish(f"{stream.name}.a", b"1")
    future.result(LONG)
    nc.close()
    told = Recorder()
    future.add_done_callback(told)
    assert told.get() is future
    assert future.result().seq == 1


def test_futures_and_publishers_reject_pickling_and_wrong_use(
    js: jsync.JetStream, stream: jsync.Stream
) -> None:
    with js.publisher() as publisher:
        future = publisher.publish(f"{stream.name}.a", b"1")
        with pytest.raises(errors.ConfigError, match="callable"):
            future.add_done_callback(None)  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="pickle its result"):
            pickle.dumps(future)
        with pytest.raises(TypeError, match="you cannot make a future"):
            jsync.PubAckFuture()
        assert pickle.loads(pickle.dumps(future.result(LONG))) == future.result()
        assert repr(publisher).startswith("<Publisher <AckWindow open, ")


# The window ---------------------------------------------------------------------------


def test_a_full_window_blocks_until_an_ack_comes(
    js: jsync.JetStream, stream: jsync.Stream, far: jsync.JetStream, proxy: FaultProxy
) -> None:
    with far.publisher(window=3) as publisher:
        publisher.publish(f"{stream.name}.a", b"0").result(LONG)
        proxy.deaf("server")
        for i in range(1, 4):
            publisher.publish(f"{stream.name}.a", b"%d" % i)
        fourth = Thread(publisher.publish, f"{stream.name}.a", b"4")
        fourth.wait_until_blocked()
        assert publisher.pending == 3
        proxy.hear("server")
        assert fourth.result().result(LONG).seq == 5
    assert stored(js, stream) == [b"%d" % i for i in range(5)]


def test_a_full_window_finally_raises_and_loses_nothing(
    js: jsync.JetStream, stream: jsync.Stream, far: jsync.JetStream, proxy: FaultProxy
) -> None:
    with far.publisher(window=2, stall_timeout=0.1) as publisher:
        publisher.publish(f"{stream.name}.a", b"0").result(LONG)
        proxy.deaf("server")
        publisher.publish(f"{stream.name}.a", b"1")
        publisher.publish(f"{stream.name}.a", b"2")
        with pytest.raises(errors.StallTimeoutError, match="no ack came for the 2"):
            publisher.publish(f"{stream.name}.a", b"3")
        proxy.hear("server")
        publisher.flush(LONG)
        publisher.publish(f"{stream.name}.a", b"4")
    assert stored(js, stream) == [b"0", b"1", b"2", b"4"]


def test_bytes_fill_windows_but_one_message_always_fits(
    js: jsync.JetStream, stream: jsync.Stream, far: jsync.JetStream, proxy: FaultProxy
) -> None:
    with far.publisher(window_bytes=1000, stall_timeout=0.1) as publisher:
        publisher.publish(f"{stream.name}.a", bytes(5000)).result(LONG)
        proxy.deaf("server")
        for _ in range(3):
            publisher.publish(f"{stream.name}.a", bytes(300))
        with pytest.raises(errors.StallTimeoutError):
            publisher.publish(f"{stream.name}.a", bytes(300))
        proxy.hear("server")
    assert stream.info().state.messages == 4


def test_threads_sharing_a_small_window_keep_their_order(
    js: jsync.JetStream, stream: jsync.Stream
) -> None:
    threads, count = 8, 2000

    def publish(number: int) -> None:
        for i in range(count):
            publisher.publish(f"{stream.name}.{number}", b"%d %d" % (number, i))

    with js.publisher(window=7) as publisher:
        for thread in [Thread(publish, number) for number in range(threads)]:
            thread.result()
    order: dict[int, list[int]] = {number: [] for number in range(threads)}
    for data in stored(js, stream):
        number, i = data.split()
        order[int(number)].append(int(i))
    assert order == {number: list(range(count)) for number in range(threads)}


def test_a_late_ack_is_not_taken_for_another(
    stream: jsync.Stream, far: jsync.JetStream, proxy: FaultProxy
) -> None:
    with far.publisher(window=1, ack_timeout=1.0) as publisher:
        publisher.publish(f"{stream.name}.a", b"0").result(LONG)
        proxy.deaf("server")
        late = publisher.publish(f"{stream.name}.a", b"1")
        assert isinstance(late.exception(LONG), errors.TimeoutError)
        second = publisher.publish(f"{stream.name}.a", b"2")
        proxy.hear("server")
        assert second.result(LONG).seq == 3


# Failures -----------------------------------------------------------------------------


def drop_acks(proxy: FaultProxy) -> None:
    proxy.rewrite(
        frame_filter(lambda frame, to: to != "client" or b'"seq"' not in frame)
    )


def test_a_missing_ack_is_a_timeout(
    js: jsync.JetStream, stream: jsync.Stream, far: jsync.JetStream, proxy: FaultProxy
) -> None:
    drop_acks(proxy)
    told: list[tuple[jsync.PubAckFuture, Exception]] = []
    publisher = far.publisher(
        ack_timeout=0.2, on_error=lambda future, error: told.append((future, error))
    )
    future = publisher.publish(f"{stream.name}.a", b"1")
    with pytest.raises(errors.PublisherError, match="may have been stored") as caught:
        publisher.flush(LONG)
    (failure,) = caught.value.failures
    assert (failure.subject, failure.data) == (f"{stream.name}.a", b"1")
    assert isinstance(failure.error, errors.TimeoutError)
    assert isinstance(future.exception(), errors.TimeoutError)
    wait_for(lambda: len(told) == 1)
    assert told[0][0] is future
    assert isinstance(told[0][1], errors.TimeoutError)
    publisher.close()
    assert stored(js, stream) == [b"1"]


def test_ack_timeout_begins_after_the_previous_ack(
    nc: jsync.Connection, js: jsync.JetStream, unique: str
) -> None:
    """A slow line carries a window for longer than `ack_timeout`, and acks come all the time."""
    seconds = 4.0
    with nc.subscribe(unique) as line, js.publisher(ack_timeout=seconds) as publisher:
        first, second = (publisher.publish(unique, b"%d" % n) for n in range(2))
        for sequence, msg in enumerate([line.next(LONG), line.next(LONG)], 1):
            time.sleep(seconds * 0.6)
            msg.respond(b'{"stream":"S","seq":%d}' % sequence)
        assert (first.result(LONG).seq, second.result(LONG).seq) == (1, 2)


def test_the_end_of_the_block_raises_unseen_failures(
    js: jsync.JetStream, stream: jsync.Stream, unique: str
) -> None:
    def body() -> None:
        with js.publisher() as publisher:
            seen = publisher.publish(f"no.{unique}", b"seen")
            assert seen.exception(LONG) is not None
            publisher.publish(f"{stream.name}.a", b"stored")
            publisher.publish(f"no.{unique}", b"lost", headers={"A": "b"})

    with pytest.raises(
        errors.PublisherError, match=r"^1 message was not acknowledged: no stream"
    ) as caught:
        body()
    assert caught.value.count == 1
    (failure,) = caught.value.failures
    assert isinstance(failure.error, errors.NoStreamResponseError)
    assert (failure.subject, failure.data) == (f"no.{unique}", b"lost")
    assert failure.headers == {"A": "b"}
    again = pickle.loads(pickle.dumps(caught.value))
    assert (again.count, again.failures[0].data) == (1, b"lost")


def test_a_failure_seen_late_hides_no_new_one(js: jsync.JetStream, unique: str) -> None:
    publisher = js.publisher(window=1 << 16)
    old = [publisher.publish(unique) for _ in range(1500)]
    with pytest.raises(errors.PublisherError):
        publisher.flush()
    new = [publisher.publish(unique) for _ in range(1500)]
    wait_for(lambda: all(future.done() for future in new))
    for future in old[1000:] + new[:1000]:
        assert future.exception() is not None
    with pytest.raises(errors.PublisherError) as caught:
        publisher.close()
    assert caught.value.count == 500


def test_a_flush_raises_each_failure_once(js: jsync.JetStream, unique: str) -> None:
    with js.publisher() as publisher:
        publisher.publish(unique, b"1")
        with pytest.raises(errors.PublisherError):
            publisher.flush()
        publisher.flush()


def test_failures_past_the_first_thousand_are_counted(
    js: jsync.JetStream, unique: str
) -> None:
    with js.publisher() as publisher:
        futures = publisher.publish_many(unique, [b"1"] * 2500)
        with pytest.raises(errors.PublisherError, match=r"^2500 messages") as caught:
            publisher.flush()
        assert (caught.value.count, len(caught.value.failures)) == (2500, 1000)
        futures = publisher.publish_many(unique, [b"1"] * 2500)
        for future in futures:
            assert future.exception(LONG) is not None


def test_the_bodys_exception_stays_and_gets_a_note(
    js: jsync.JetStream, unique: str
) -> None:
    def body(count: int) -> None:
        with js.publisher() as publisher:
            for _ in range(count):
                publisher.publish(unique, b"1")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError) as caught:
        body(1)
    assert caught.value.__notes__[0].startswith("and 1 message was not acknowledged: ")
    with pytest.raises(ZeroDivisionError) as caught:
        body(0)
    assert not hasattr(caught.value, "__notes__")


def test_a_denied_subject_fails_its_messages_at_once(own_server: StartServer) -> None:
    permissions = Permissions(publish_deny=("s.secret",))
    config = password_config({"bob": "x"}, bob=permissions) + "\njetstream: enabled"
    server = own_server(config=config)
    with jsync.connect(server.url, user="bob", password="x") as nc:
        js = nc.jetstream()
        js.create_stream(name="S", subjects=["s.>"])
        with js.publisher() as publisher:
            denied = publisher.publish("s.secret", b"1")
            allowed = publisher.publish("s.public", b"1")
            assert isinstance(denied.exception(SOON), errors.PermissionsError)
            assert allowed.result(SOON).seq == 1


@pytest.mark.parametrize(
    "answer",
    [
        b"hello",
        b"",
        b"{}",
        b'{"stream":"S","seq":"1"}',
        b'{"stream":"","seq":1}',
        b'{"stream":"S","seq":1',
        b'{"stream":"S","seq":12',
        b'{"stream":"S","seq":1}}',
        b'{"stream":"S","seq":-1x}',
        b'{"stream":"S\\","seq":1}',
        b'{"stream":"\xff","seq":1}',
    ],
)
def test_an_answer_that_is_no_ack_leaves_doubt(
    server: LocalServer, js: jsync.JetStream, unique: str, answer: bytes
) -> None:
    with RawClient(server.url) as other, js.publisher(ack_timeout=0.3) as publisher:
        other.connect()
        other.send(f"SUB {unique} 1\r\nPING\r\n".encode())
        while other.read_line() != "PONG":
            pass
        future = publisher.publish(unique, b"")
        reply = other.read_line().split()[3]
        other.send(f"PUB {reply} {len(answer)}\r\n".encode() + answer + b"\r\n")
        error = future.exception(LONG)
        assert isinstance(error, errors.TimeoutError)
        assert "may have been stored; the last answer: " in str(error)


def test_answers_without_a_waiting_message_are_ignored(
    server: LocalServer, nc: jsync.Connection, js: jsync.JetStream, unique: str
) -> None:
    with RawClient(server.url) as other, js.publisher(window=2) as publisher:
        other.connect()
        other.send(f"SUB {unique} 1\r\nPING\r\n".encode())
        while other.read_line() != "PONG":
            pass
        future = publisher.publish(unique, b"")
        reply = other.read_line().split()[3]
        inbox, _, token = reply.rpartition(".")
        ack = b'{"stream":"S","seq":9}'
        for wrong in ("0", "1", str(int(token) + 2), "99999999999999999999", "x", "-1"):
            other.send(f"PUB {inbox}.{wrong} {len(ack)}\r\n".encode() + ack + b"\r\n")
        other.send(b"PING\r\n")
        while other.read_line() != "PONG":
            pass
        nc.flush()
        assert not future.done()
        other.send(f"PUB {reply} {len(ack)}\r\n".encode() + ack + b"\r\n")
        assert future.result(LONG) == jsync.PubAck(stream="S", seq=9)


# Bad input ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options",
    [
        {"window": 0},
        {"window": (1 << 20) + 1},
        {"window": 1.5},
        {"window": True},
        {"window_bytes": 0},
        {"ack_timeout": 0},
        {"ack_timeout": float("nan")},
        {"ack_timeout": float("inf")},
        {"stall_timeout": -1},
        {"stall_timeout": "1"},
        {"on_error": 7},
    ],
)
def test_an_invalid_publisher_is_rejected(
    js: jsync.JetStream, options: dict[str, Any]
) -> None:
    with pytest.raises(errors.ConfigError, match=next(iter(options))):
        js.publisher(**options)


def test_an_invalid_message_is_rejected_before_taking_room(
    js: jsync.JetStream, stream: jsync.Stream
) -> None:
    subject = f"{stream.name}.a"
    with js.publisher(window=1) as publisher:
        with pytest.raises(errors.InvalidSubjectError):
            publisher.publish(f"{subject}.*", b"1")
        with pytest.raises(errors.InvalidHeaderError):
            publisher.publish(subject, b"1", headers={"A": "b\r\nC: d"})
        with pytest.raises(errors.ConfigError):
            publisher.publish(subject, b"1", ttl=0)
        with pytest.raises(TypeError):
            publisher.publish(subject, "text")  # type: ignore[arg-type]
        with pytest.raises(errors.MaxPayloadError):
            publisher.publish(subject, bytes(2 << 20))
        assert publisher.publish(subject, b"1").result(SOON).seq == 1
