"""Tests of failed messages: redelivery with delays, and dead letters after the last attempt."""

from __future__ import annotations

import contextlib
import functools
import re
import threading
from typing import TYPE_CHECKING, Any

import pytest

import jsync
from jsync import Retry, errors
from jsync.jetstream.retries import driver

from ....support.connection_faults import Events, connect
from ....support.processes import Child
from ....support.proxy import frame_changer
from ....support.servers import publish_block, wait_for
from ....support.threads import SOON, Recorder
from .support import fill, settled

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from jsync.server import LocalServer

    from ....support.proxy import FaultProxy, Side


@pytest.fixture
def dead(js: jsync.JetStream, unique: str) -> Iterator[jsync.Stream]:
    """The stream of the dead letters."""
    name = f"{unique}DEAD"
    stream = js.create_stream(name=name, subjects=[f"dead.{unique}"], storage="memory")
    yield stream
    stream.delete()


@pytest.fixture
def quick(unique: str) -> Retry:
    return Retry(delays=[0.01], attempts=3, dead_letter=f"dead.{unique}")


class Failing:
    """A handler that raises for each message, and records the attempts."""

    def __init__(self, error: Callable[[], BaseException] = LookupError) -> None:
        self.attempts: list[int] = []
        self._error = error

    def __call__(self, msg: jsync.JetStreamMsg) -> None:
        self.attempts.append(msg.metadata.num_delivered)
        raise self._error()


def of_kind(told: Recorder, kind: type[Exception]) -> Any:
    """Return the next error of this type."""
    while not isinstance(error := told.get(), kind):
        assert isinstance(error, errors.CallbackError), error
    return error


def count(stream: jsync.Stream) -> int:
    return stream.info().state.messages


def test_a_message_always_failing_becomes_a_dead_letter(
    js: jsync.JetStream,
    stream: jsync.Stream,
    dead: jsync.Stream,
    worker: jsync.Consumer,
    quick: Retry,
) -> None:
    js.publish(f"{stream.name}.a", b"bill 7", headers={"Trace": "x", "Nats-Other": "y"})
    handler, told = Failing(lambda: LookupError("no such customer")), Recorder()
    with worker.consume(handler, retry=quick, on_error=told):
        error = of_kind(told, errors.RetriesExhaustedError)
    assert handler.attempts == [1, 2, 3]
    assert (error.sequence, error.attempts, error.dead_letter) == (
        *(1, 3, quick.dead_letter),
    )
    assert isinstance(error.__cause__, LookupError)
    letter = dead.get_message(1)
    headers = letter.headers
    assert headers is not None
    assert letter.data == b"bill 7"
    assert headers["Trace"] == "x"
    assert headers["Dead-Letter-Reason"] == "LookupError: no such customer"
    assert headers["Dead-Letter-Subject"] == f"{stream.name}.a"
    assert headers["Dead-Letter-Attempts"] == "3"
    assert "no such customer" in headers["Dead-Letter-Traceback"]
    wait_for(lambda: settled(worker))
    assert worker.info().ack_floor.stream_seq == 1


def test_a_push_consumer_retries_as_well(
    nc: jsync.Connection, stream: jsync.Stream, dead: jsync.Stream, quick: Retry
) -> None:
    fill(nc, stream, 1)
    pushed = stream.create_push_consumer(
        durable_name="pushed",
        deliver_subject=f"{stream.name}-deliver",
        max_ack_pending=1,
    )
    handler, told = Failing(), Recorder()
    with pushed.consume(handler, retry=quick, on_error=told):
        of_kind(told, errors.RetriesExhaustedError)
    assert handler.attempts == [1, 2, 3]
    assert count(dead) == 1


def test_the_server_keeps_the_delay(
    nc: jsync.Connection, stream: jsync.Stream, worker: jsync.Consumer
) -> None:
    fill(nc, stream, 1)
    retry = Retry(delays=[0.02, 0.03], attempts=3)
    with nc.subscribe(f"$JS.ACK.{stream.name}.worker.>") as acks:
        with worker.consume(Failing(), retry=retry, on_error=lambda _: None):
            sent = [acks.next(SOON).data for _ in range(3)]
    assert sent == [
        b'-NAK {"delay": 20000000}',
        b'-NAK {"delay": 30000000}',
        b"+TERM given up",
    ]


def test_attempts_continue_where_another_program_stopped(
    nc: jsync.Connection,
    stream: jsync.Stream,
    dead: jsync.Stream,
    worker: jsync.Consumer,
    quick: Retry,
) -> None:
    fill(nc, stream, 1)
    worker.next(SOON).nak()
    worker.next(SOON).nak()
    handler, told = Failing(), Recorder()
    with worker.consume(handler, retry=quick, on_error=told):
        of_kind(told, errors.RetriesExhaustedError)
    assert handler.attempts == [3]
    assert count(dead) == 1


def test_a_message_delivered_too_often_is_not_handled(
    nc: jsync.Connection,
    stream: jsync.Stream,
    dead: jsync.Stream,
    worker: jsync.Consumer,
    unique: str,
) -> None:
    fill(nc, stream, 1)
    for _ in range(2):
        worker.next(SOON).nak()
    retry = Retry(attempts=1, dead_letter=f"dead.{unique}")
    handler, told = Failing(), Recorder()
    with worker.consume(handler, retry=retry, on_error=told):
        error = told.get()
    assert isinstance(error, errors.RetriesExhaustedError)
    assert handler.attempts == []
    headers = dead.get_message(1).headers or jsync.Headers()
    assert headers["Dead-Letter-Reason"].startswith("delivered 3 times")


def test_a_message_acked_before_the_exception_is_done(
    nc: jsync.Connection,
    stream: jsync.Stream,
    dead: jsync.Stream,
    worker: jsync.Consumer,
    quick: Retry,
) -> None:
    fill(nc, stream, 1)

    def handle(msg: jsync.JetStreamMsg) -> None:
        msg.ack()
        raise LookupError

    told = Recorder()
    with worker.consume(handle, retry=quick, on_error=told):
        assert isinstance(told.get(), errors.CallbackError)
        wait_for(lambda: settled(worker))
    assert told.waiting == 0
    assert count(dead) == 0


def test_messages_stay_until_their_dead_letter_is_stored(
    js: jsync.JetStream,
    nc: jsync.Connection,
    stream: jsync.Stream,
    worker: jsync.Consumer,
    unique: str,
) -> None:
    fill(nc, stream, 1)
    subject = f"late.{unique}"
    retry = Retry(delays=[0.01], attempts=1, deliveries=100, dead_letter=subject)
    told = Recorder()
    with worker.consume(Failing(), retry=retry, on_error=told):
        error = of_kind(told, errors.DeadLetterError)
        assert isinstance(error.__cause__, errors.NoStreamResponseError)
        assert not settled(worker)
        late = js.create_stream(name=f"{unique}LATE", subjects=[subject])
        while not isinstance(told.get(), errors.RetriesExhaustedError):
            pass
    assert count(late) == 1
    wait_for(lambda: settled(worker))
    late.delete()


def test_dead_letters_are_stored_before_messages_are_terminated(
    proxy: FaultProxy, stream: jsync.Stream, dead: jsync.Stream, quick: Retry
) -> None:
    stream.create_consumer(durable_name="worker")
    seen: list[str] = []

    def look(frame: bytes, to: Side) -> bytes:
        if to == "server" and b"dead." in frame:
            seen.append("published")
        if to == "client" and b'"stream":"%b"' % dead.name.encode() in frame:
            seen.append("stored")
        if to == "server" and b"+TERM" in frame:
            seen.append("terminated")
        return frame

    proxy.rewrite(frame_changer(look))
    with connect(proxy.url, Events()) as nc:
        nc.publish(f"{stream.name}.a")
        told = Recorder()
        worker = nc.jetstream().consumer(stream.name, "worker")
        with worker.consume(Failing(), retry=quick, on_error=told):
            of_kind(told, errors.RetriesExhaustedError)
    assert seen == ["published", "stored", "terminated"]


@pytest.mark.parametrize("lost", [rb'"stream":"\w+DEAD"', rb"\+TERM"])
def test_lost_acks_or_terms_duplicate_no_dead_letter(
    proxy: FaultProxy,
    stream: jsync.Stream,
    dead: jsync.Stream,
    unique: str,
    lost: bytes,
) -> None:
    """The connection is lost at that frame, so the server delivers the message again."""
    worker = stream.create_consumer(durable_name="worker", ack_wait=3)
    retry = Retry(attempts=1, deliveries=100, dead_letter=f"dead.{unique}")
    cut = threading.Event()

    def look(frame: bytes, to: Side) -> bytes:
        if re.search(lost, frame) and not cut.is_set():
            cut.set()
            return b""
        return frame

    proxy.rewrite(frame_changer(look))
    handler, told = Failing(), Recorder()
    with connect(proxy.url, Events()) as nc:
        nc.publish(f"{stream.name}.a")
        there = nc.jetstream(timeout=1).consumer(stream.name, "worker")
        with there.consume(handler, retry=retry, on_error=told):
            wait_for(cut.is_set)
            proxy.rewrite(None)
            proxy.cut()
            wait_for(lambda: settled(worker), SOON)
    assert len(handler.attempts) == 2
    assert count(dead) == 1


def test_a_large_messages_dead_letter_has_no_traceback(
    js: jsync.JetStream,
    nc: jsync.Connection,
    stream: jsync.Stream,
    dead: jsync.Stream,
    worker: jsync.Consumer,
    unique: str,
) -> None:
    size = nc.server_info.max_payload - 1500
    js.publish(f"{stream.name}.a", bytes(size))
    retry = Retry(attempts=1, dead_letter=f"dead.{unique}")
    told = Recorder()
    handler = Failing(lambda: LookupError("x" * 2000))
    with worker.consume(handler, retry=retry, on_error=told):
        of_kind(told, errors.RetriesExhaustedError)
    letter = dead.get_message(1)
    assert len(letter.data) == size
    assert "Dead-Letter-Traceback" not in (letter.headers or {})


KILLER = """
    import os, queue, sys, jsync
    url, stream, subject = sys.argv[1:]
    retry = jsync.Retry(attempts=2, deliveries=3, dead_letter=subject)
    told = queue.SimpleQueue()
    def handle(msg):
        os._exit(9)
    with jsync.connect(url) as nc:
        worker = nc.jetstream().consumer(stream, "worker")
        with worker.consume(handle, retry=retry, on_error=told.put):
            print(type(told.get()).__name__, flush=True)
"""


def test_messages_that_kill_each_process_become_dead_letters(
    server: LocalServer,
    js: jsync.JetStream,
    stream: jsync.Stream,
    dead: jsync.Stream,
    unique: str,
) -> None:
    worker = stream.create_consumer(durable_name="worker", ack_wait=0.5)
    js.publish(f"{stream.name}.a", b"poison")
    arguments = server.url, stream.name, f"dead.{unique}"
    for _ in range(3):
        with Child(KILLER, *arguments) as child:
            assert child.finish()[0] == 9
    with Child(KILLER, *arguments) as child:
        assert child.finish()[:2] == (0, "RetriesExhaustedError\n")
    assert dead.get_message(1).data == b"poison"
    wait_for(lambda: settled(worker))


@pytest.mark.parametrize(
    "bad",
    [
        {"retry": 5},
        {"retry": Retry(), "on_exception": "nak"},
        {"retry": Retry(), "on_exception": "nak", "nak_delay": 1},
    ],
)
def test_options_that_contradict_retry_are_rejected(
    worker: jsync.Consumer, bad: Any
) -> None:
    with pytest.raises(errors.ConfigError, match="retry"):
        worker.consume(Failing(), **bad)


def test_a_consumer_that_would_strand_messages_is_rejected(
    stream: jsync.Stream,
) -> None:
    limited = stream.create_consumer(durable_name="limited", max_deliver=5)
    with pytest.raises(errors.ConfigError, match="max_deliver=5"):
        limited.consume(Failing(), retry=Retry(attempts=5))


class UnspeakableError(Exception):
    def __str__(self) -> str:
        raise OSError


def test_an_exception_without_text_is_an_ordinary_failure(
    nc: jsync.Connection,
    stream: jsync.Stream,
    dead: jsync.Stream,
    worker: jsync.Consumer,
    quick: Retry,
) -> None:
    fill(nc, stream, 2)
    handler, told = Failing(UnspeakableError), Recorder()
    with worker.consume(handler, retry=quick, on_error=told):
        of_kind(told, errors.RetriesExhaustedError)
        of_kind(told, errors.RetriesExhaustedError)
    assert count(dead) == 2


@pytest.mark.parametrize("way", ["pull", "push"])
def test_messages_behind_a_slow_handler_are_kept_alive(
    nc: jsync.Connection,
    stream: jsync.Stream,
    dead: jsync.Stream,
    unique: str,
    way: str,
) -> None:
    """Otherwise the server counts attempts of messages that no handler has had."""
    consumer: jsync.Consumer | jsync.PushConsumer
    warned: contextlib.AbstractContextManager[object] = contextlib.nullcontext()
    if way == "pull":
        consumer = stream.create_consumer(durable_name="slow", ack_wait=1)
        consume = functools.partial(consumer.consume, max_messages=3)
    else:
        consumer = stream.create_push_consumer(
            durable_name="slow", ack_wait=1, deliver_subject=f"{unique}-deliver"
        )
        consume = functools.partial(consumer.consume)
        # A process that dies would use up an attempt of each of them.
        warned = pytest.warns(
            RuntimeWarning, match="max_ack_pending of the consumer to 1,"
        )
    attempts: list[int] = []
    go = threading.Event()

    def handle(msg: jsync.JetStreamMsg) -> None:
        attempts.append(msg.metadata.num_delivered)
        assert go.wait(SOON)
        msg.ack()

    retry = Retry(attempts=1, dead_letter=f"dead.{unique}")
    fill(nc, stream, 3)
    with nc.subscribe(f"$JS.ACK.{stream.name}.slow.>") as acks:
        with warned:
            running = consume(handle, retry=retry)
        with running:
            # Three requests for each message take longer than its `ack_wait`.
            extended: dict[str, int] = {}
            while len(extended) < 3 or min(extended.values()) < 4:
                msg = acks.next(SOON)
                assert msg.data == b"+WPI"
                extended[msg.subject] = extended.get(msg.subject, 0) + 1
            go.set()
            wait_for(lambda: len(attempts) == 3)
            wait_for(lambda: settled(consumer))
    assert attempts == [1, 1, 1]
    assert consumer.info().delivered.consumer_seq == 3


def test_only_the_last_failure_is_logged_with_traceback(
    nc: jsync.Connection,
    stream: jsync.Stream,
    dead: jsync.Stream,
    worker: jsync.Consumer,
    quick: Retry,
    caplog: pytest.LogCaptureFixture,
) -> None:
    fill(nc, stream, 1)
    told = Recorder()
    with worker.consume(Failing(), retry=quick, on_error=told):
        of_kind(told, errors.RetriesExhaustedError)
    failures = [each for each in caplog.records if "CallbackError" in each.getMessage()]
    assert [each.levelname for each in failures] == ["WARNING", "WARNING", "ERROR"]
    assert "the next attempt follows in 0.01 s" in failures[0].getMessage()
    assert failures[0].exc_info is None
    assert failures[2].exc_info
    trace = failures[2].exc_info[2]
    assert trace is not None
    assert trace.tb_frame.f_code.co_filename == __file__
    letter = dead.get_message(1).headers
    assert letter is not None
    assert "jsync/jetstream" not in letter["Dead-Letter-Traceback"]


def test_a_dead_letter_keeps_the_sendable_headers(
    server: LocalServer,
    stream: jsync.Stream,
    dead: jsync.Stream,
    worker: jsync.Consumer,
    quick: Retry,
) -> None:
    publish_block(
        server.url,
        f"{stream.name}.a",
        b"NATS/1.0\r\nTrace: x\r\nbad name: y\r\nOther: z\r\n\r\n",
    )
    told = Recorder()
    with worker.consume(Failing(), retry=quick, on_error=told):
        of_kind(told, errors.RetriesExhaustedError)
    headers = dead.get_message(1).headers
    assert headers is not None
    assert (headers["Trace"], headers["Other"]) == ("x", "z")
    assert headers["Dead-Letter-Lost-Headers"] == "'bad name'"


def test_unstored_dead_letters_are_retried_within_duplicate_window(
    nc: jsync.Connection, stream: jsync.Stream, worker: jsync.Consumer, unique: str
) -> None:
    """It may be stored all the same, if its ack was lost."""
    fill(nc, stream, 1)
    retry = Retry(delays=[600], attempts=1, dead_letter=f"nobody.{unique}")
    told = Recorder()
    with nc.subscribe(f"$JS.ACK.{stream.name}.worker.>") as acks:
        with worker.consume(Failing(), retry=retry, on_error=told):
            of_kind(told, errors.DeadLetterError)
            said = [acks.next(SOON).data for _ in range(2)]
    assert said == [b"+WPI", b'-NAK {"delay": 30000000000}']


def test_too_large_dead_letters_lose_their_largest_header(
    js: jsync.JetStream,
    stream: jsync.Stream,
    dead: jsync.Stream,
    worker: jsync.Consumer,
    quick: Retry,
) -> None:
    given = {"Small": "y", "Large": "x" * 65_400}
    js.publish(f"{stream.name}.a", b"data", headers=given)
    told = Recorder()
    with worker.consume(Failing(), retry=quick, on_error=told):
        of_kind(told, errors.RetriesExhaustedError)
    headers = dead.get_message(1).headers
    assert headers is not None
    assert headers["Small"] == "y"
    assert headers["Dead-Letter-Exception"] == "builtins.LookupError"
    assert headers["Dead-Letter-Lost-Headers"] == "'Large'"


def test_a_dead_letter_fits_its_streams_limit(
    js: jsync.JetStream,
    stream: jsync.Stream,
    dead: jsync.Stream,
    worker: jsync.Consumer,
    quick: Retry,
) -> None:
    dead.update(max_msg_size=1500)
    js.publish(f"{stream.name}.a", b"x" * 600, headers={"Large": "y" * 600})
    handler, told = Failing(), Recorder()
    with worker.consume(handler, retry=quick, on_error=told):
        of_kind(told, errors.RetriesExhaustedError)
    assert handler.attempts == [1, 2, 3]
    letter = dead.get_message(1)
    assert letter.data == b"x" * 600
    assert letter.headers is not None
    assert letter.headers["Dead-Letter-Lost-Headers"] == "'Large'"


def test_too_large_dead_letters_have_a_short_reason(
    js: jsync.JetStream,
    stream: jsync.Stream,
    dead: jsync.Stream,
    worker: jsync.Consumer,
    quick: Retry,
) -> None:
    dead.update(max_msg_size=1500)
    js.publish(f"{stream.name}.a", b"x" * 900, headers={"Trace": "y"})
    told = Recorder()
    handler = Failing(lambda: LookupError("no customer " * 100))
    with worker.consume(handler, retry=quick, on_error=told):
        error = of_kind(told, errors.RetriesExhaustedError)
    assert str(error).endswith("no customer ")
    letter = dead.get_message(1)
    assert letter.data == b"x" * 900
    assert letter.headers is not None
    assert letter.headers["Dead-Letter-Reason"].startswith("LookupError: no customer")
    assert letter.headers["Trace"] == "y"


def test_a_too_large_dead_letter_is_reported_once(
    js: jsync.JetStream,
    stream: jsync.Stream,
    dead: jsync.Stream,
    worker: jsync.Consumer,
    quick: Retry,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(driver, "MAX_DEAD_LETTER_DELAY", 0.01)
    dead.update(max_msg_size=1000)
    js.publish(f"{stream.name}.a", b"x" * 900)
    told = Recorder()
    with worker.consume(Failing(), retry=quick, on_error=told):
        error = of_kind(told, errors.DeadLetterError)
        assert "raise the max_payload" in str(error)
        assert isinstance(error.__cause__, errors.MessageTooLargeError)
        wait_for(lambda: worker.info().delivered.consumer_seq >= 10)
        dead.update(max_msg_size=-1)
        of_kind(told, errors.RetriesExhaustedError)
    letter = dead.get_message(1)
    assert letter.data == b"x" * 900
    assert letter.headers is not None
    assert letter.headers["Dead-Letter-Reason"] == "LookupError"


def test_messages_are_kept_alive_while_becoming_dead_letters(
    nc: jsync.Connection, stream: jsync.Stream, unique: str
) -> None:
    fill(nc, stream, 1)
    stream.create_consumer(durable_name="brief", ack_wait=1)
    consumer = nc.jetstream(timeout=3).consumer(stream.name, "brief")
    subject = f"silent.{unique}"
    handler, told = Failing(), Recorder()
    retry = Retry(delays=[600], attempts=1, dead_letter=subject)
    with nc.subscribe(subject, callback=lambda _: None):  # nothing stores the letter
        nc.flush()
        with consumer.consume(handler, retry=retry, workers=2, on_error=told):
            of_kind(told, errors.DeadLetterError)
            assert consumer.info().delivered.consumer_seq == 1
    assert handler.attempts == [1]


def test_retry_looks_at_the_configuration_of_a_consumer(
    js: jsync.JetStream, stream: jsync.Stream
) -> None:
    """Without it, neither the `ack_wait` nor the `max_deliver` would be known."""
    stream.create_consumer(durable_name="limited", max_deliver=3)
    unseen = js.consumer(stream.name, "limited")
    with pytest.raises(errors.ConfigError, match="max_deliver"):
        unseen.consume(Failing(), retry=Retry(attempts=3))
    with pytest.raises(errors.ConsumerNotFoundError):
        js.consumer(stream.name, "nobody").consume(Failing(), retry=Retry(attempts=3))


@pytest.fixture(params=["pull", "push"])
def kind(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The kind of a consumer, whose configuration is looked at often."""
    monkeypatch.setattr(driver, "CONFIRM_SECONDS", 0.1)
    return str(request.param)


def retried(
    stream: jsync.Stream, kind: str
) -> tuple[jsync.Consumer | jsync.PushConsumer, Callable[..., object]]:
    """Create a consumer. Return it, and a call by which others change it."""
    fields: dict[str, Any] = {"durable_name": "retried", "max_ack_pending": 1}
    if kind == "pull":
        return stream.create_consumer(**fields), functools.partial(
            stream.update_consumer, **fields
        )
    fields["deliver_subject"] = f"{stream.name}-deliver"
    return stream.create_push_consumer(**fields), functools.partial(
        stream.update_push_consumer, **fields
    )


def test_a_lowered_max_deliver_strands_no_retried_message(
    nc: jsync.Connection, stream: jsync.Stream, dead: jsync.Stream, kind: str
) -> None:
    consumer, change = retried(stream, kind)
    handler, told = Failing(), Recorder()
    retry = Retry(delays=[0.01], attempts=5, dead_letter=f"dead.{stream.name}")
    with consumer.consume(handler, retry=retry, on_error=told):
        change(max_deliver=3)
        assert isinstance(told.get(), errors.ConfigError)
        fill(nc, stream, 1)
        of_kind(told, errors.RetriesExhaustedError)
    assert handler.attempts == [1, 2]
    assert count(dead) == 1


def test_retried_messages_outlive_a_shortened_ack_wait(
    nc: jsync.Connection, stream: jsync.Stream, kind: str
) -> None:
    consumer, change = retried(stream, kind)
    go, attempts = threading.Event(), list[int]()

    def handle(msg: jsync.JetStreamMsg) -> None:
        attempts.append(msg.metadata.num_delivered)
        assert go.wait(SOON)
        msg.ack()

    fill(nc, stream, 1)
    with consumer.consume(handler=handle, retry=Retry(attempts=3)):
        wait_for(lambda: len(attempts) == 1)
        with nc.subscribe(f"$JS.ACK.{stream.name}.retried.>") as acks:
            change(ack_wait=1)
            for _ in range(6):
                acks.next(5)  # by the former `ack_wait`, one comes after 10 s
        go.set()
        wait_for(lambda: settled(consumer))
    assert attempts == [1]


def test_retry_leaves_waiting_messages_with_the_server(
    nc: jsync.Connection, stream: jsync.Stream, worker: jsync.Consumer
) -> None:
    """Those that are given back at the end have used up an attempt."""
    fill(nc, stream, 10)
    called, release = threading.Semaphore(0), threading.Event()

    def handle(msg: jsync.JetStreamMsg) -> None:
        called.release()
        assert release.wait(SOON)
        msg.ack()

    with worker.consume(handle, retry=Retry(attempts=3), workers=2) as consuming:
        for _ in range(2):
            assert called.acquire(timeout=SOON)
        info = worker.info()
        assert (info.num_pending, info.num_ack_pending) == (8, 2)
        release.set()
        wait_for(lambda: settled(worker))
        consuming.stop()
    assert worker.info().num_redelivered == 0
