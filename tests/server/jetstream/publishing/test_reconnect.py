"""Tests of a publisher whose connection is lost, made again, or closed."""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING

import pytest

import jsync
from jsync import errors

from ....support.processes import run_child
from ....support.proxy import frame_filter
from ....support.servers import wait_for
from ....support.threads import LONG, SOON, Recorder, Thread

if TYPE_CHECKING:
    from collections.abc import Iterator

    from jsync.server import LocalServer

    from ....conftest import StartServer
    from ....support.certificates import Certificates
    from ....support.proxy import FaultProxy, Side

pytestmark = pytest.mark.server


@pytest.fixture
def js(server: LocalServer) -> Iterator[jsync.JetStream]:
    with jsync.connect(server.url) as connection:
        yield connection.jetstream()


@pytest.fixture
def stream(js: jsync.JetStream, unique: str) -> Iterator[jsync.Stream]:
    stream = js.create_stream(name=unique, subjects=[f"{unique}.>"])
    yield stream
    stream.delete()


@pytest.fixture
def nc(proxy: FaultProxy) -> Iterator[jsync.Connection]:
    """A connection through the proxy with fast reconnects."""
    with jsync.connect(proxy.url, reconnect_wait=0.02) as connection:
        yield connection
        connection.close()  # no drain: the test may have cut it a moment ago


@pytest.fixture
def far(nc: jsync.Connection) -> jsync.JetStream:
    return nc.jetstream()


def stored(js: jsync.JetStream, stream: jsync.Stream) -> list[bytes]:
    """Return the payloads of the stream."""
    reader = js.create_consumer(stream.name, ack_policy="none")
    count = stream.info().state.messages
    return [msg.data for msg in reader.fetch(count, timeout=LONG)] if count else []


def hold_acks(proxy: FaultProxy) -> list[bytes]:
    """Drop the acks and forward everything else. The returned list collects the acks so far."""
    held: list[bytes] = []

    def keeps(frame: bytes, to: Side) -> bool:
        if to != "client" or b'"seq"' not in frame:
            return True
        held.append(frame)
        return False

    proxy.rewrite(frame_filter(keeps))
    return held


def reconnected(nc: jsync.Connection, times: int = 1) -> bool:
    return nc.is_connected and nc.stats().reconnects >= times


def test_a_lost_connection_fails_pending_messages_at_once(
    js: jsync.JetStream,
    stream: jsync.Stream,
    far: jsync.JetStream,
    proxy: FaultProxy,
) -> None:
    held = hold_acks(proxy)
    publisher = far.publisher()
    futures = publisher.publish_many(f"{stream.name}.a", [b"1"] * 10)
    wait_for(lambda: len(held) >= 10)
    proxy.rewrite(None)
    proxy.cut()
    for future in futures:
        assert isinstance(future.exception(SOON), errors.ConnectionLostError)
    assert publisher.publish(f"{stream.name}.a", b"2").result(LONG).seq == 11
    publisher.close()


def test_a_message_is_sent_once_the_connection_returns(
    js: jsync.JetStream,
    stream: jsync.Stream,
    nc: jsync.Connection,
    far: jsync.JetStream,
    proxy: FaultProxy,
) -> None:
    with far.publisher() as publisher:
        proxy.refuse()
        proxy.cut()
        wait_for(lambda: not nc.is_connected)
        waiting = Thread(publisher.publish, f"{stream.name}.a", b"1")
        waiting.wait_until_blocked()
        proxy.accept()
        assert waiting.result().result(LONG).seq == 1


def test_a_message_waiting_too_long_is_never_sent(
    js: jsync.JetStream,
    stream: jsync.Stream,
    nc: jsync.Connection,
    far: jsync.JetStream,
    proxy: FaultProxy,
) -> None:
    with far.publisher(stall_timeout=0.1) as publisher:
        proxy.refuse()
        proxy.cut()
        wait_for(lambda: not nc.is_connected)
        with pytest.raises(errors.StallTimeoutError, match="there was no connection"):
            publisher.publish(f"{stream.name}.a", b"1")
        proxy.accept()
        wait_for(lambda: reconnected(nc))
        assert publisher.publish(f"{stream.name}.a", b"2").result(LONG).seq == 1
    assert stored(js, stream) == [b"2"]


def test_leftover_bytes_do_not_reach_the_next_connection(
    js: jsync.JetStream, stream: jsync.Stream, nc: jsync.Connection, proxy: FaultProxy
) -> None:
    publisher = nc.jetstream().publisher()
    proxy.deaf("client")
    futures = publisher.publish_many(f"{stream.name}.a", [bytes(500_000)] * 12)
    proxy.cut()
    proxy.hear("client")
    assert {type(future.exception(SOON)) for future in futures} == {
        errors.ConnectionLostError
    }
    publisher.publish(f"{stream.name}.a", b"2").result(LONG)
    publisher.close()
    assert stored(js, stream) == [b"2"]


def test_a_publisher_without_reconnects_ends_with_its_connection(
    stream: jsync.Stream, proxy: FaultProxy
) -> None:
    nc = jsync.connect(proxy.url, allow_reconnect=False)
    publisher = nc.jetstream().publisher()
    publisher.publish(f"{stream.name}.a", b"1").result(LONG)
    proxy.deaf("server")
    future = publisher.publish(f"{stream.name}.a", b"2")
    proxy.cut()
    assert isinstance(future.exception(SOON), errors.ConnectionError)
    wait_for(lambda: nc.is_closed)
    with pytest.raises(errors.ConnectionClosedError):
        publisher.publish(f"{stream.name}.a", b"3")


# Resending ----------------------------------------------------------------------------


def test_resending_needs_an_id_for_each_message(far: jsync.JetStream) -> None:
    with far.publisher(resend=True) as publisher:
        with pytest.raises(errors.ConfigError, match="needs a msg_id"):
            publisher.publish("a", b"1")
        with pytest.raises(errors.ConfigError, match="needs a msg_id"):
            publisher.publish("a", b"1", headers={"A": "b"})
        with pytest.raises(errors.ConfigError, match="needs a msg_id"):
            publisher.publish_many("a", [b"1"])


def test_lost_messages_are_resent_but_not_stored_twice(
    js: jsync.JetStream,
    stream: jsync.Stream,
    nc: jsync.Connection,
    far: jsync.JetStream,
    proxy: FaultProxy,
) -> None:
    held = hold_acks(proxy)
    with far.publisher(resend=True) as publisher:
        futures = [
            publisher.publish(f"{stream.name}.a", b"%d" % i, msg_id=str(i))
            for i in range(100)
        ]
        wait_for(lambda: len(held) >= 100)
        proxy.rewrite(None)
        proxy.cut()
        acks = [future.result(LONG) for future in futures]
        assert all(ack.duplicate for ack in acks)
        assert [ack.seq for ack in acks] == list(range(1, 101))
    assert reconnected(nc)
    assert stored(js, stream) == [b"%d" % i for i in range(100)]


def test_new_messages_wait_until_lost_ones_are_resent(
    js: jsync.JetStream,
    stream: jsync.Stream,
    nc: jsync.Connection,
    far: jsync.JetStream,
    proxy: FaultProxy,
) -> None:
    with far.publisher(resend=True) as publisher:
        proxy.deaf("client")
        for i in range(50):
            publisher.publish(f"{stream.name}.a", b"%d" % i, msg_id=str(i))
        proxy.refuse()
        proxy.cut()
        wait_for(lambda: not nc.is_connected)
        proxy.hear("client")

        def publish() -> None:
            for i in range(50, 100):
                publisher.publish(f"{stream.name}.a", b"%d" % i, msg_id=str(i))

        rest = Thread(publish)
        rest.wait_until_blocked()
        proxy.accept()
        rest.result()
    assert stored(js, stream) == [b"%d" % i for i in range(100)]


def test_new_messages_wait_for_the_last_lost_one(
    js: jsync.JetStream, stream: jsync.Stream, proxy: FaultProxy
) -> None:
    with (
        jsync.connect(proxy.url, reconnect_wait=0.02, write_buffer_size=1 << 18) as nc,
        nc.jetstream().publisher(resend=True, window_bytes=1 << 26) as publisher,
    ):
        proxy.rewrite(frame_filter(lambda frame, _: not frame.startswith(b"HPUB ")))
        for i in range(200):
            publisher.publish(f"{stream.name}.a", bytes(100_000), msg_id=str(i))
        proxy.rewrite(None)
        proxy.cut()
        wait_for(lambda: reconnected(nc))
        assert (
            publisher.publish(f"{stream.name}.a", msg_id="new").result(LONG).seq == 201
        )


def test_closing_a_publisher_stops_messages_awaiting_the_buffer(
    stream: jsync.Stream, proxy: FaultProxy
) -> None:
    with jsync.connect(proxy.url, write_buffer_size=1 << 18, write_timeout=LONG) as nc:
        publisher = nc.jetstream().publisher()
        proxy.deaf("client")
        sent: list[jsync.PubAckFuture] = []

        def publish() -> None:
            while True:
                sent.append(publisher.publish(f"{stream.name}.a", bytes(100_000)))

        writer = Thread(publish)
        writer.wait_until_blocked()
        with pytest.raises(errors.PublisherError):
            publisher.close(0)
        proxy.hear("client")
        assert isinstance(writer.error(), errors.PublisherClosedError)
        assert publisher.pending == 0
        nc.flush(LONG)
    # The server may store messages after it has sent the PONG.
    wait_for(lambda: stream.info().state.messages >= len(sent))
    assert stream.info().state.messages == len(sent)


def test_more_than_the_buffer_holds_can_be_resent(
    js: jsync.JetStream,
    stream: jsync.Stream,
    proxy: FaultProxy,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("jsync.jetstream.publishing.ack_tracker.RESEND_AFTER", LONG)
    with (
        jsync.connect(
            proxy.url,
            reconnect_wait=0.02,
            write_buffer_size=1 << 18,
            write_timeout=0.1,
        ) as nc,
        nc.jetstream().publisher(resend=True, window_bytes=1 << 26) as publisher,
    ):
        hold_acks(proxy)
        while publisher.pending < 200:
            with contextlib.suppress(errors.WriteTimeoutError):
                number = str(publisher.pending)
                publisher.publish(f"{stream.name}.a", bytes(100_000), msg_id=number)
        proxy.rewrite(None)
        proxy.cut()
        wait_for(lambda: reconnected(nc))
        # The proxy stays deaf for longer than the buffer may stay full.
        proxy.deaf("client")
        time.sleep(0.5)
        proxy.hear("client")
        publisher.flush(SOON)
        publisher.publish(f"{stream.name}.a", msg_id="new").result(SOON)
    assert stream.info().state.messages == 201


def test_connections_that_break_while_sending_again_lose_nothing(
    js: jsync.JetStream,
    stream: jsync.Stream,
    nc: jsync.Connection,
    far: jsync.JetStream,
    proxy: FaultProxy,
) -> None:
    count = 300
    with far.publisher(resend=True) as publisher:
        hold_acks(proxy)
        for i in range(count):
            publisher.publish(f"{stream.name}.a", b"%d" % i, msg_id=str(i))
        for turn in range(10):
            proxy.rewrite(None)
            proxy.cut_after(400 + 1700 * turn, "server")
            proxy.cut()
            wait_for(lambda turn=turn: reconnected(nc, turn + 1))  # type: ignore[misc]
        publisher.flush(LONG)
    assert stored(js, stream) == [b"%d" % i for i in range(count)]


def test_messages_too_large_for_the_next_server_fail(
    own_server: StartServer,
) -> None:
    server = own_server()
    with jsync.connect(server.url, reconnect_wait=0.02) as nc:
        js = nc.jetstream()
        stream = js.create_stream(name="S", subjects=["s.>"])
        nc.subscribe("mute")
        publisher = js.publisher(resend=True)
        large = publisher.publish("mute", bytes(2000), msg_id="1")
        small = publisher.publish("s.a", bytes(1000), msg_id="2")
        small.result(LONG)
        server.reload("max_payload: 1500")
        server.kill()
        server.start()
        # jsync cannot know whether the first server has given this message to a stream.
        error = large.exception(SOON)
        assert isinstance(error, errors.TimeoutError)
        assert isinstance(error.__cause__, errors.MaxPayloadError)
        publisher.publish("s.a", bytes(1000), msg_id="3").result(LONG)
        publisher.close()
        assert (stream.info().state.messages, nc.stats().reconnects) == (2, 1)


def test_a_message_without_stream_is_resent_until_taken(
    js: jsync.JetStream, unique: str
) -> None:
    with js.publisher(resend=True) as publisher:
        futures = publisher.publish_many(
            f"{unique}.a", [b"1", b"2", b"3"], msg_ids=["1", "2", "3"]
        )
        publisher.publish_many(f"{unique}.a", [b"4"], msg_ids=["4"])
        with pytest.raises(errors.TimeoutError):
            futures[0].result(0.3)
        stream = js.create_stream(name=unique, subjects=[f"{unique}.>"])
        publisher.flush(LONG)
    assert sorted(stored(js, stream)) == [b"1", b"2", b"3", b"4"]
    stream.delete()


def test_a_message_not_taken_in_time_fails(js: jsync.JetStream, unique: str) -> None:
    with js.publisher(resend=True, ack_timeout=3.0, retry_wait=LONG) as publisher:
        future = publisher.publish(unique, b"1", msg_id="1")
        assert isinstance(future.exception(LONG), errors.NoStreamResponseError)


def test_an_unanswered_resent_message_names_the_last_answer(
    far: jsync.JetStream, proxy: FaultProxy, unique: str
) -> None:
    answers: list[bytes] = []

    def first_answer_only(frame: bytes, to: Side) -> bool:
        if b"503" not in frame:
            return True
        answers.append(frame)
        return len(answers) == 1

    proxy.rewrite(frame_filter(first_answer_only))
    with far.publisher(resend=True, ack_timeout=3.0) as publisher:
        error = publisher.publish(unique, b"1", msg_id="1").exception(LONG)
    assert isinstance(error, errors.TimeoutError)
    assert f"; the last answer: {error.__cause__}" in str(error)
    assert isinstance(error.__cause__, errors.NoStreamResponseError)
    assert len(answers) > 1


def test_a_resent_message_without_stream_may_be_stored(
    js: jsync.JetStream,
    stream: jsync.Stream,
    nc: jsync.Connection,
    far: jsync.JetStream,
    proxy: FaultProxy,
) -> None:
    held = hold_acks(proxy)
    publisher = far.publisher(resend=True, ack_timeout=8.0, retry_attempts=0)
    future = publisher.publish(f"{stream.name}.a", b"1", msg_id="1")
    wait_for(lambda: len(held) >= 1)
    proxy.rewrite(None)
    stream.update(subjects=["elsewhere"])
    proxy.cut()
    error = future.exception(SOON)
    assert isinstance(error, errors.TimeoutError)
    assert "may have been stored" in str(error)
    assert isinstance(error.__cause__, errors.NoStreamResponseError)
    assert stream.info().state.messages == 1
    first = publisher.publish(f"{stream.name}.a", b"2", msg_id="2")
    assert isinstance(first.exception(SOON), errors.NoStreamResponseError)
    publisher.close()


def test_a_returning_stream_acknowledges_its_stored_messages(
    js: jsync.JetStream,
    stream: jsync.Stream,
    nc: jsync.Connection,
    far: jsync.JetStream,
    proxy: FaultProxy,
) -> None:
    held = hold_acks(proxy)
    with far.publisher(resend=True) as publisher:
        future = publisher.publish(f"{stream.name}.a", b"1", msg_id="1")
        wait_for(lambda: len(held) >= 1)
        proxy.rewrite(None)
        stream.update(subjects=["elsewhere"])
        before = nc.stats().out_messages
        proxy.cut()
        wait_for(lambda: nc.stats().out_messages >= before + 2)
        assert not future.done()
        stream.update(subjects=[f"{stream.name}.>"])
        assert future.result(SOON).duplicate


def test_a_rejected_resent_message_may_have_been_stored(
    js: jsync.JetStream,
    stream: jsync.Stream,
    far: jsync.JetStream,
    proxy: FaultProxy,
) -> None:
    held = hold_acks(proxy)
    publisher = far.publisher(resend=True)
    future = publisher.publish(f"{stream.name}.a", b"1", msg_id="1")
    wait_for(lambda: len(held) >= 1)
    proxy.rewrite(None)
    stream.update(sealed=True)
    proxy.cut()
    error = future.exception(SOON)
    assert isinstance(error, errors.TimeoutError)
    assert "may have been stored" in str(error)
    assert isinstance(error.__cause__, errors.StreamSealedError)
    refused = publisher.publish(f"{stream.name}.a", b"2", msg_id="2")
    assert isinstance(refused.exception(SOON), errors.StreamSealedError)
    publisher.close()


def test_a_message_without_an_answer_is_sent_again(
    js: jsync.JetStream,
    stream: jsync.Stream,
    nc: jsync.Connection,
    far: jsync.JetStream,
    proxy: FaultProxy,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("jsync.jetstream.publishing.ack_tracker.RESEND_AFTER", 0.2)
    with far.publisher(resend=True) as publisher:
        held = hold_acks(proxy)
        lost = publisher.publish(f"{stream.name}.a", b"1", msg_id="1")
        wait_for(lambda: len(held) >= 1)
        proxy.rewrite(None)
        assert lost.result(SOON).duplicate
        publisher.publish(f"{stream.name}.a", b"2", msg_id="2").result(SOON)
    assert stored(js, stream) == [b"1", b"2"]
    assert nc.stats().reconnects == 0


def test_a_message_overtaken_by_later_acks_is_resent(
    js: jsync.JetStream,
    stream: jsync.Stream,
    far: jsync.JetStream,
    proxy: FaultProxy,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("jsync.jetstream.publishing.ack_tracker.RESEND_AFTER", 0.3)
    with far.publisher(resend=True) as publisher:
        held = hold_acks(proxy)
        lost = publisher.publish(f"{stream.name}.a", b"lost", msg_id="lost")
        wait_for(lambda: len(held) >= 1)
        proxy.rewrite(None)
        for number in range(1000):
            if lost.done():
                break
            # Acks keep arriving, so there is never silence.
            publisher.publish(f"{stream.name}.a", b"", msg_id=str(number)).result(SOON)
            time.sleep(0.01)
        assert lost.result(0).duplicate


def test_a_slow_line_is_not_sent_everything_twice(
    js: jsync.JetStream,
    stream: jsync.Stream,
    nc: jsync.Connection,
    far: jsync.JetStream,
    proxy: FaultProxy,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("jsync.jetstream.publishing.ack_tracker.RESEND_AFTER", 0.1)
    with far.publisher(resend=True) as publisher:
        publisher.publish(f"{stream.name}.a", b"", msg_id="first").result(LONG)
        proxy.deaf("client")
        before = nc.stats().out_messages
        for number in range(31):
            publisher.publish(f"{stream.name}.a", bytes(200_000), msg_id=str(number))
        time.sleep(1.0)
        assert nc.stats().out_messages - before == 31
        proxy.hear("client")


def test_an_ack_can_be_late_during_an_outage(
    stream: jsync.Stream, nc: jsync.Connection, far: jsync.JetStream, proxy: FaultProxy
) -> None:
    with far.publisher(resend=True, ack_timeout=0.3) as publisher:
        hold_acks(proxy)
        waited = publisher.publish(f"{stream.name}.a", b"1", msg_id="1")
        proxy.refuse()
        proxy.cut()
        assert isinstance(waited.exception(LONG), errors.TimeoutError)
        proxy.accept()
        proxy.rewrite(None)
        wait_for(lambda: reconnected(nc))
        proxy.refuse()
        hold_acks(proxy)
        publisher.publish(f"{stream.name}.a", b"2", msg_id="2")
        proxy.cut()
        with pytest.raises(errors.PublisherError):
            publisher.flush(LONG)
        proxy.accept()


def test_an_ack_timeout_is_told_in_an_outage(
    stream: jsync.Stream, far: jsync.JetStream, proxy: FaultProxy
) -> None:
    failed, called = Recorder(), Recorder()
    publisher = far.publisher(resend=True, ack_timeout=0.3, on_error=failed)
    hold_acks(proxy)
    future = publisher.publish(f"{stream.name}.a", b"1", msg_id="1")
    future.add_done_callback(called)
    proxy.refuse()
    proxy.cut()
    # Nothing waits for the message but these two.
    assert failed.get() is future
    assert called.get() is future
    assert future.done()
    assert isinstance(future.exception(0), errors.TimeoutError)
    assert not publisher.pending


# Other lines and processes ------------------------------------------------------------


def test_a_publisher_works_over_tls(
    tls_server: LocalServer, certificates: Certificates, unique: str
) -> None:
    with jsync.connect(tls_server.url, tls_ca=certificates.ca.cert) as nc:
        js = nc.jetstream()
        stream = js.create_stream(name=unique, subjects=[f"{unique}.>"])
        with js.publisher(window=100) as publisher:
            publisher.publish_many(f"{unique}.a", [bytes(1000)] * 5000)
        assert stream.info().state.messages == 5000
        stream.delete()


def test_a_publisher_survives_its_server(own_server: StartServer) -> None:
    server = own_server()
    with jsync.connect(server.url, reconnect_wait=0.02) as nc:
        js = nc.jetstream()
        stream = js.create_stream(name="S", subjects=["s.>"])
        with js.publisher(resend=True) as publisher:
            for i in range(20_000):
                publisher.publish("s.a", b"%d" % i, msg_id=str(i))
                if i % 5000 == 2500:
                    server.kill()
                    server.start()
        assert stored(js, stream) == [b"%d" % i for i in range(20_000)]


def test_a_publisher_belongs_to_its_creating_process(
    server: LocalServer, unique: str
) -> None:
    script = """
        import logging, os, sys
        logging.disable()  # which says of `pending` that it has no ack
        import jsync
        from jsync import errors

        nc = jsync.connect(sys.argv[1])
        js = nc.jetstream()
        stream = js.create_stream(name=sys.argv[2], subjects=[sys.argv[2] + ".>"])
        subject = sys.argv[2] + ".a"
        publisher = js.publisher()
        done = publisher.publish(subject, b"1")
        done.result(10)
        pending = publisher.publish("silent." + sys.argv[2], b"")
        nc.subscribe("silent." + sys.argv[2])
        read, write = os.pipe()
        if os.fork() == 0:
            calls = [
                lambda: publisher.publish(subject, b"2"),
                lambda: publisher.publish_many(subject, [b"2"]),
                lambda: publisher.flush(),
                lambda: publisher.close(),
                lambda: publisher.__exit__(None, None, None),
                lambda: js.publisher(),
            ]
            for call in calls:
                try:
                    call()
                    os.write(write, b"returned ")
                except errors.ForkedProcessError:
                    os.write(write, b"forked ")
            assert publisher.__exit__(ValueError, ValueError(), None) is None
            assert done.result().seq == 1
            os._exit(0)
        os.close(write)
        os.wait()
        assert os.read(read, 1000) == b"forked " * 6
        assert publisher.publish(subject, b"3").result(10).seq == 2
        stream.delete()
        nc.close()
    """
    run_child(script, server.url, unique)


@pytest.mark.parametrize("call", ["publish", "publish_many", "flush", "result", "exit"])
def test_ctrl_c_ends_every_wait_of_a_publisher(
    server: LocalServer, unique: str, call: str
) -> None:
    script = """
        import logging, os, signal, sys, threading, time
        logging.disable()  # which says that two messages have no ack
        import jsync

        url, name, call = sys.argv[1:]
        nc = jsync.connect(url)
        js = nc.jetstream()
        mute = nc.subscribe(name)  # takes what is published, and never acks
        publisher = js.publisher(window=2)
        future = publisher.publish(name, b"1")
        publisher.publish(name, b"2")
        calls = {
            "publish": lambda: publisher.publish(name, b"3"),
            "publish_many": lambda: publisher.publish_many(name, [b"3"] * 5),
            "flush": publisher.flush,
            "result": future.result,
            "exit": lambda: publisher.__exit__(None, None, None),
        }

        def interrupt():
            time.sleep(0.3)
            os.kill(os.getpid(), signal.SIGINT)

        threading.Thread(target=interrupt, daemon=True).start()
        begin = time.monotonic()
        try:
            calls[call]()
        except KeyboardInterrupt:
            print("interrupted", publisher.pending)
        assert time.monotonic() - begin < 10
        stream = js.create_stream(name=name + "S", subjects=[name + "S.>"])
        with js.publisher() as other:
            assert other.publish(name + "S.a", b"usable").result(10).seq == 1
        stream.delete()
        nc.close()
    """
    pending = 0 if call == "exit" else 2
    assert run_child(script, server.url, unique, call) == f"interrupted {pending}\n"
