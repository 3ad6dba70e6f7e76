"""Tests of requests with one reply and with many."""

from __future__ import annotations

import gc
import sys
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest

import jsync
from jsync import errors
from jsync.core.requests import open_request

from ...support.servers import monitor, wait_for
from ...support.threads import LONG, SOON, Recorder, Thread

if TYPE_CHECKING:
    from collections.abc import Iterator

    from jsync.server import LocalServer

pytestmark = [pytest.mark.server, pytest.mark.quick]


@pytest.fixture
def service(server: LocalServer, unique: str) -> Iterator[str]:
    """The subject of a service on another connection that echoes its requests."""
    with jsync.connect(server.url) as other:

        def echo(msg: jsync.Msg) -> None:
            msg.respond(msg.data, headers=msg.headers)

        other.subscribe(unique, callback=echo)
        other.flush()
        yield unique


@pytest.fixture
def often_switched() -> Iterator[None]:
    """Let threads switch after every few instructions, so that races show."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def answering(nc: jsync.Connection, subject: str, count: int) -> None:
    """Answer each request to `subject` `count` times: 0, 1, 2, ..."""

    def answer(msg: jsync.Msg) -> None:
        for i in range(count):
            msg.respond(b"%d" % i)

    nc.subscribe(subject, callback=answer)


def numbers(replies: Iterator[jsync.Msg]) -> list[int]:
    return [int(msg.data) for msg in replies]


# One reply ----------------------------------------------------------------------------


def test_a_request_returns_the_reply(nc: jsync.Connection, service: str) -> None:
    reply = nc.request(service, b"question", headers={"Name": ["a", "ä"]})
    assert reply.data == b"question"
    assert reply.headers is not None
    assert reply.headers.get_all("Name") == ["a", "ä"]
    assert reply.status is None


def test_an_empty_reply_is_a_reply(nc: jsync.Connection, service: str) -> None:
    assert nc.request(service).data == b""


@pytest.mark.parametrize("size", [100_000, 1 << 20])
def test_a_large_request_and_its_reply_arrive_whole(
    nc: jsync.Connection, service: str, size: int
) -> None:
    question = bytes(range(256)) * (size // 256)
    assert nc.request(service, question).data == question


def test_a_request_without_responders_raises_at_once(
    nc: jsync.Connection, unique: str
) -> None:
    with pytest.raises(errors.NoRespondersError, match=unique):
        nc.request(unique, b"anybody?", timeout=LONG)


def test_no_reply_in_time_is_a_timeout(nc: jsync.Connection, unique: str) -> None:
    nc.subscribe(unique)
    with pytest.raises(errors.TimeoutError, match=unique) as caught:
        nc.request(unique, b"anybody?", timeout=0.05)
    assert isinstance(caught.value, TimeoutError)


def test_timeouts_that_were_computed_read_well(
    nc: jsync.Connection, unique: str
) -> None:
    sub = nc.subscribe(unique)
    with pytest.raises(errors.TimeoutError, match=r"within 0\.3 s$"):
        nc.request(unique, timeout=0.1 + 0.2)
    sub.next(0)
    with pytest.raises(errors.TimeoutError, match=r"within 0\.3 s$"):
        sub.next(0.1 + 0.2)


def test_a_late_reply_is_not_taken_for_another(
    nc: jsync.Connection, unique: str
) -> None:
    asked = nc.subscribe(unique)
    with pytest.raises(errors.TimeoutError):
        nc.request(unique, b"slow", timeout=0.02)
    late = asked.next()
    asking = Thread(nc.request, unique, b"quick")
    question = asked.next()
    late.respond(b"late")
    question.respond(b"in time")
    assert asking.result().data == b"in time"


def test_of_several_replies_the_first_counts(nc: jsync.Connection, unique: str) -> None:
    answering(nc, unique, 3)
    for _ in range(20):
        assert nc.request(unique).data == b"0"


def test_requests_of_32_threads_get_their_own_replies(
    nc: jsync.Connection, service: str
) -> None:
    barrier = threading.Barrier(32)

    def ask(number: int) -> bool:
        barrier.wait()
        questions = [b"%d %d" % (number, i) for i in range(60)]
        return all(
            nc.request(service, question, timeout=LONG).data == question
            for question in questions
        )

    asking = [Thread(ask, number) for number in range(32)]
    assert all(thread.result() for thread in asking)


def test_requests_of_many_threads_share_one_subscription(
    server: LocalServer, service: str, often_switched: None
) -> None:
    for _ in range(10):
        with jsync.connect(server.url) as nc:
            barrier = threading.Barrier(8)

            def ask(
                nc: jsync.Connection = nc, barrier: threading.Barrier = barrier
            ) -> list[jsync.Msg]:
                barrier.wait()
                return list(nc.request_many(service, b"?", timeout=SOON, stall=0.02))

            asking = [Thread(ask) for _ in range(8)]
            # If the inbox had two subscriptions, each reply would come twice.
            assert [len(thread.result()) for thread in asking] == [1] * 8
            page = monitor(server, f"connz?cid={nc.client_id}")
            assert page["connections"][0]["subscriptions"] == 1


def test_no_request_leaves_a_subscription_on_the_server(
    server: LocalServer, nc: jsync.Connection, service: str, unique: str
) -> None:
    nc.request(service)
    before = monitor(server, f"connz?cid={nc.client_id}")["connections"][0]
    for _ in range(100):
        nc.request(service)
        list(nc.request_many(service, max_messages=1))
        with pytest.raises(errors.NoRespondersError):
            nc.request(f"{unique}.nobody")
    after = monitor(server, f"connz?cid={nc.client_id}")["connections"][0]
    assert after["subscriptions"] == before["subscriptions"] == 1


def test_no_request_leaves_a_waiter_in_the_connection(
    nc: jsync.Connection, service: str, unique: str
) -> None:
    nc.subscribe(f"{unique}.mute")
    waiting = nc._session.reply_mux
    nc.request(service)
    list(nc.request_many(service, max_messages=1))
    with pytest.raises(errors.NoRespondersError):
        nc.request(f"{unique}.nobody")
    with pytest.raises(errors.TimeoutError):
        nc.request(f"{unique}.mute", timeout=0.02)
    with pytest.raises(errors.MaxPayloadError):
        nc.request(service, bytes(nc.max_payload + 1))
    assert list(nc.request_many(f"{unique}.mute", timeout=0.02)) == []
    for _ in nc.request_many(service):
        break
    gc.collect()
    assert len(waiting) == 0


def test_requests_do_not_wait_for_a_stuck_callback(
    nc: jsync.Connection, service: str, unique: str
) -> None:
    released = threading.Event()
    stuck = Recorder()

    def wait(msg: jsync.Msg) -> None:
        stuck()
        released.wait(LONG)

    nc.subscribe(f"{unique}.stuck", callback=wait)
    nc.publish(f"{unique}.stuck")
    stuck.get()
    try:
        assert nc.request(service, b"quick").data == b"quick"
    finally:
        released.set()


def test_respond_answers_where_the_message_asks_for_it(
    nc: jsync.Connection, unique: str
) -> None:
    sub, inbox = nc.subscribe(unique), nc.subscribe(f"{unique}.inbox")
    nc.publish(unique, reply=f"{unique}.inbox")
    sub.next().respond(b"answer", headers={"A": "b"})
    answer = inbox.next()
    assert answer.data == b"answer"
    assert dict(answer.headers or {}) == {"A": "b"}
    nc.publish(unique)
    with pytest.raises(errors.NoReplySubjectError):
        sub.next().respond(b"to whom?")


# Many replies -------------------------------------------------------------------------


def test_request_many_ends_after_max_messages(
    nc: jsync.Connection, unique: str
) -> None:
    answering(nc, unique, 10)
    replies = nc.request_many(unique, timeout=LONG, max_messages=4)
    assert numbers(replies) == [0, 1, 2, 3]


def test_request_many_ends_when_replies_stop(nc: jsync.Connection, unique: str) -> None:
    answering(nc, unique, 10)
    begin = time.monotonic()
    assert numbers(nc.request_many(unique, timeout=LONG, stall=0.5)) == list(range(10))
    assert time.monotonic() - begin < SOON


def test_the_first_reply_may_outlast_the_stall(
    nc: jsync.Connection, unique: str
) -> None:
    asked = nc.subscribe(unique)
    replies = nc.request_many(unique, timeout=LONG, stall=0.05)
    reading = Thread(numbers, replies)
    question = asked.next()
    reading.wait_until_blocked()
    deadline = time.monotonic() + 0.15
    wait_for(lambda: time.monotonic() > deadline)
    assert not reading.ended
    question.respond(b"1")
    assert reading.result() == [1]


def test_request_many_ends_without_giving_the_sentinel(
    nc: jsync.Connection, unique: str
) -> None:
    answering(nc, unique, 10)
    replies = nc.request_many(
        unique, timeout=LONG, sentinel=lambda msg: msg.data == b"5"
    )
    assert numbers(replies) == [0, 1, 2, 3, 4]


def test_request_many_ends_after_the_timeout_in_all(
    nc: jsync.Connection, unique: str
) -> None:
    stop = threading.Event()

    def answer_for_ever(msg: jsync.Msg) -> None:
        while not stop.wait(0.01):
            msg.respond(b"1")

    nc.subscribe(unique, callback=answer_for_ever)
    try:
        begin = time.monotonic()
        replies = numbers(nc.request_many(unique, timeout=1.5))
        assert 1.4 < time.monotonic() - begin < SOON
        assert replies
    finally:
        stop.set()


def test_request_many_may_wait_without_a_limit(
    nc: jsync.Connection, unique: str
) -> None:
    answering(nc, unique, 3)
    replies = nc.request_many(unique, timeout=float("inf"), max_messages=3)
    assert numbers(replies) == [0, 1, 2]


def test_request_many_without_replies_just_ends(
    nc: jsync.Connection, unique: str
) -> None:
    nc.subscribe(unique)
    assert list(nc.request_many(unique, timeout=0.05)) == []


def test_request_many_without_responders_raises_at_once(
    nc: jsync.Connection, unique: str
) -> None:
    with pytest.raises(errors.NoRespondersError):
        list(nc.request_many(unique, timeout=LONG))


def test_request_many_sends_at_the_call(nc: jsync.Connection, unique: str) -> None:
    asked = nc.subscribe(unique)
    replies = nc.request_many(unique, b"now", timeout=LONG, max_messages=1)
    question = asked.next()
    assert question.data == b"now"
    question.respond(b"1")
    assert numbers(replies) == [1]


def test_a_thread_waiting_for_many_replies_reads_them(
    nc: jsync.Connection, unique: str
) -> None:
    deadline = time.monotonic() + LONG
    mailbox, token = open_request(nc._session, unique, b"", deadline)
    nc._session.reply_mux.discard(token)
    assert mailbox.alone


def test_request_many_may_be_left_early(nc: jsync.Connection, unique: str) -> None:
    answering(nc, unique, 1000)
    for _ in range(10):
        for msg in nc.request_many(unique, timeout=LONG):
            assert msg.data == b"0"
            break
    assert numbers(nc.request_many(unique, timeout=LONG, max_messages=5)) == [
        0,
        1,
        2,
        3,
        4,
    ]


def test_closing_request_many_drops_replies_and_ends_it(
    nc: jsync.Connection, unique: str
) -> None:
    answering(nc, unique, 10)
    replies: Any = nc.request_many(unique, timeout=LONG)
    assert next(replies).data == b"0"
    replies.close()
    replies.close()
    assert len(nc._session.reply_mux) == 0
    assert list(replies) == []


def test_request_many_closed_by_another_thread_ends_immediately(
    nc: jsync.Connection, unique: str
) -> None:
    nc.subscribe(unique)
    replies: Any = nc.request_many(unique, timeout=float("inf"))
    reading: Thread[list[jsync.Msg]] = Thread(list, replies)
    reading.wait_until_blocked()
    with pytest.raises(errors.ConcurrentUseError):
        next(replies)
    replies.close()
    assert reading.result() == []


def test_the_error_of_a_sentinel_ends_request_many(
    nc: jsync.Connection, service: str
) -> None:
    def fail(msg: jsync.Msg) -> bool:
        raise LookupError

    replies = nc.request_many(service, timeout=LONG, sentinel=fail)
    with pytest.raises(LookupError):
        next(replies)
    assert list(replies) == []
    assert len(nc._session.reply_mux) == 0


# The reading thread -------------------------------------------------------------------


@pytest.mark.threads_only(reason="the hub waits for a greenlet")
def test_a_thread_that_waits_alone_reads_by_itself(nc: jsync.Connection) -> None:
    nc.request("$JS.API.INFO")
    held, release = threading.Event(), threading.Event()

    def hold_the_io_thread() -> None:
        held.set()
        release.wait(LONG)

    nc._session.call_later(0, hold_the_io_thread)
    assert held.wait(SOON)
    try:
        for _ in range(100):
            assert nc.request("$JS.API.INFO", timeout=LONG).data
        nc.flush(LONG)
        assert not release.is_set()
    finally:
        release.set()


def test_a_reader_beside_a_request_does_not_wait(
    nc: jsync.Connection, server: LocalServer, unique: str
) -> None:
    # The requesting thread reads its reply and the messages of the others. After its end the I/O
    # thread must read again.
    called = Recorder()
    nc.subscribe(f"{unique}.called", callback=called)
    waiting = nc.subscribe(f"{unique}.waiting")
    nc.subscribe(f"{unique}.mute")
    nc.flush()
    asking = Thread(lambda: nc.request(f"{unique}.mute", timeout=LONG))
    asking.wait_until_blocked()
    with jsync.connect(server.url) as other:
        for number in range(50):
            nc.request("$JS.API.INFO")
            other.publish(f"{unique}.called", b"%d" % number)
            assert called.get().data == b"%d" % number
            other.publish(f"{unique}.waiting", b"%d" % number)
            assert waiting.next(SOON).data == b"%d" % number
    nc.close()
    assert isinstance(asking.error(), errors.ConnectionClosedError)
