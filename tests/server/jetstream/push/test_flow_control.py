"""Tests of ADR-15, Flow Control: jsync replies in order and once, and recovers lost replies."""

from __future__ import annotations

import functools
import queue
from typing import TYPE_CHECKING

import jsync

from ....support.push_traffic import FLOW, IDLE, Traffic, publish, say, sequences, take
from ....support.servers import wait_for
from ....support.threads import LONG, SOON, Recorder, Thread

if TYPE_CHECKING:
    from ....support.proxy import FaultProxy

LARGE = 8192
ENOUGH = 400
"""A server sends fewer large messages than this without a reply."""


def stored(nc: jsync.Connection, subject: str) -> None:
    publish(nc, subject, ENOUGH, LARGE)


def subscribed(
    js: jsync.JetStream, subject: str, idle_heartbeat: float = 0.5
) -> jsync.PushSubscription:
    return js.subscribe(subject, flow_control=True, idle_heartbeat=idle_heartbeat)


def has_arrived(sub: jsync.PushSubscription, before: float) -> bool:
    return sub._mailbox.last_arrival > before


def test_flow_control_is_answered_in_its_place(
    nc: jsync.Connection, proxy: FaultProxy, subject: str
) -> None:
    stored(nc, subject)
    traffic = Traffic(proxy)
    with jsync.connect(proxy.url) as far:
        # A heartbeat of a busy server must not repeat a request that jsync has replied to.
        sub = subscribed(far.jetstream(), subject, idle_heartbeat=30)
        wait_for(lambda: bool(traffic.requests))
        (request,), (place,) = traffic.requests, traffic.places
        assert sub.next(SOON).metadata.stream_sequence == 1
        first = take(sub, place - 1)
        far.flush()  # everything sent so far has passed the proxy
        assert sequences(first) == list(range(2, place + 1))
        assert traffic.answers == []
        assert sub.next(SOON).metadata.stream_sequence == place + 1
        wait_for(lambda: traffic.answers == [request])
        rest = take(sub, ENOUGH - place - 1)
        assert sequences(rest) == list(range(place + 2, ENOUGH + 1))

        def all_is_answered() -> bool:
            assert sub._mailbox.get(0) is None  # the last frame can be a request
            return traffic.answers == traffic.requests

        wait_for(all_is_answered)


def test_flow_control_is_answered_after_handling_earlier_messages(
    nc: jsync.Connection, js: jsync.JetStream, subject: str, unique: str
) -> None:
    begun: queue.SimpleQueue[bool] = queue.SimpleQueue()
    release: queue.SimpleQueue[bool] = queue.SimpleQueue()

    def handle(msg: jsync.JetStreamMsg) -> None:
        begun.put(True)
        release.get(timeout=LONG)

    answers = nc.subscribe(f"fc.{unique}")
    with (
        jsync.connect(nc.connected_url or "") as other,
        js.subscribe(subject, callback=handle) as sub,
    ):
        publish(nc, subject, 2)
        assert begun.get(timeout=SOON)
        wait_for(lambda: sub.pending == 1)
        say(other, sub.subject, 100, FLOW, reply=answers.subject)
        wait_for(lambda: sub._delivery.mailbox.holds_control)
        release.put(True)
        assert begun.get(timeout=SOON)  # the handler works on the second message
        nc.flush()
        assert not answers.pending
        release.put(True)
        answer = answers.next(SOON)
        assert (answer.data, answer.headers, answer.reply) == (b"", None, None)


def test_flow_control_alone_begins_a_callback(
    nc: jsync.Connection, js: jsync.JetStream, subject: str, unique: str
) -> None:
    answers = nc.subscribe(f"fc.{unique}")
    with js.subscribe(subject, callback=Recorder()) as sub:
        say(nc, sub.subject, 100, FLOW, reply=answers.subject)
        assert answers.next(SOON).data == b""


def test_next_skips_flow_control_within_its_timeout(
    nc: jsync.Connection, js: jsync.JetStream, subject: str, unique: str
) -> None:
    answers = nc.subscribe(f"fc.{unique}")
    with js.subscribe(subject) as sub:
        waiting = Thread(sub.next, LONG)
        waiting.wait_until_blocked()
        say(nc, sub.subject, 100, FLOW, reply=answers.subject)
        assert answers.next(SOON).data == b""
        assert not waiting.ended
        js.publish(subject, b"after it")
        assert waiting.result().data == b"after it"


def test_flow_control_keeps_a_slow_readers_backlog_small(
    nc: jsync.Connection, proxy: FaultProxy, subject: str
) -> None:
    publish(nc, subject, 1000, LARGE)
    traffic = Traffic(proxy)
    with jsync.connect(proxy.url) as far:
        sub = far.jetstream().subscribe(
            subject, flow_control=True, idle_heartbeat=0.2, ack_policy="none"
        )
        # Each heartbeat repeats the request, which is still behind messages in the backlog.
        wait_for(lambda: traffic.heartbeats >= 3)
        assert traffic.answers == []
        assert sub.pending < 500
        assert sequences(take(sub, 1000)) == list(range(1, 1001))
        assert sub.dropped == 0


def test_a_heartbeat_makes_up_for_lost_flow_control(
    nc: jsync.Connection, proxy: FaultProxy, subject: str
) -> None:
    stored(nc, subject)
    traffic = Traffic(proxy)
    traffic.lose(FLOW.encode(), "client")
    with jsync.connect(proxy.url) as far:
        sub = subscribed(far.jetstream(), subject)
        assert sequences(take(sub, ENOUGH)) == list(range(1, ENOUGH + 1))
        assert traffic.requests[0] in traffic.answers


def test_a_lost_flow_control_answer_is_given_again(
    nc: jsync.Connection, proxy: FaultProxy, subject: str
) -> None:
    stored(nc, subject)
    traffic = Traffic(proxy)
    traffic.lose(b"PUB $JS.FC.", "server")
    with jsync.connect(proxy.url) as far:
        sub = subscribed(far.jetstream(), subject)
        assert sequences(take(sub, ENOUGH)) == list(range(1, ENOUGH + 1))
        assert traffic.answers.count(traffic.requests[0]) > 1


def test_a_stalled_consumer_is_answered_at_its_heartbeat(
    nc: jsync.Connection, js: jsync.JetStream, subject: str, unique: str
) -> None:
    answers = nc.subscribe(f"fc.{unique}")
    publish(nc, subject, 5)
    with js.subscribe(subject) as sub:
        wait_for(lambda: sub.pending == 5)
        say(nc, sub.subject, 100, IDLE, f"Nats-Consumer-Stalled: {answers.subject}")
        assert answers.next(SOON).data == b""
        assert sub.pending == 5


def test_a_stalled_consumer_is_answered_in_the_backlog(
    nc: jsync.Connection, js: jsync.JetStream, subject: str, unique: str
) -> None:
    answers = nc.subscribe(f"fc.{unique}")
    publish(nc, subject, 2)
    with js.subscribe(subject) as sub:
        wait_for(lambda: sub.pending == 2)
        say(nc, sub.subject, 100, FLOW, reply=answers.subject)
        for _ in range(3):
            arrived = sub._mailbox.last_arrival
            say(nc, sub.subject, 100, IDLE, f"Nats-Consumer-Stalled: {answers.subject}")
            wait_for(functools.partial(has_arrived, sub, arrived))
        js.publish(subject, b"3")
        nc.flush()
        assert not answers.pending
        take(sub, 3)
        assert answers.next(SOON).data == b""


def test_the_same_flow_control_is_answered_once(
    nc: jsync.Connection, js: jsync.JetStream, subject: str, unique: str
) -> None:
    answers = nc.subscribe(f"fc.{unique}.*")
    with js.subscribe(subject) as sub:
        stalled = f"Nats-Consumer-Stalled: fc.{unique}.1"
        say(nc, sub.subject, 100, IDLE, stalled)
        assert answers.next(SOON).subject == f"fc.{unique}.1"
        say(nc, sub.subject, 100, FLOW, reply=f"fc.{unique}.1")
        say(nc, sub.subject, 100, IDLE, stalled)
        js.publish(subject, b"")
        sub.next(SOON)
        say(nc, sub.subject, 100, IDLE, f"Nats-Consumer-Stalled: fc.{unique}.2")
        assert answers.next(SOON).subject == f"fc.{unique}.2"


def test_flow_control_with_an_invalid_subject_is_reported(
    nc: jsync.Connection, js: jsync.JetStream, subject: str
) -> None:
    problems = Recorder()
    with js.subscribe(subject, on_error=problems) as sub:
        say(nc, sub.subject, 100, IDLE, "Nats-Consumer-Stalled: not a subject")
        assert isinstance(problems.get(), jsync.errors.InvalidSubjectError)
        js.publish(subject, b"goes on")
        assert sub.next(SOON).data == b"goes on"
