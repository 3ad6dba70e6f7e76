"""Tests of queue groups: members share a consumer, and one that dies loses no message."""

from __future__ import annotations

import contextlib
from collections import Counter
from typing import TYPE_CHECKING

from ....support.processes import Child
from ....support.push_traffic import publish
from ....support.servers import wait_for
from ....support.threads import LONG, Recorder

if TYPE_CHECKING:
    import jsync
    from jsync.server import LocalServer


def test_each_message_reaches_one_member(
    nc: jsync.Connection, js: jsync.JetStream, subject: str
) -> None:
    handlers = [Recorder() for _ in range(3)]
    with contextlib.ExitStack() as members:
        for handler in handlers:
            members.enter_context(js.subscribe(subject, "group", callback=handler))
        publish(nc, subject, 300)
        wait_for(lambda: sum(handler.waiting for handler in handlers) >= 300)
        shares = [handler.waiting for handler in handlers]
        seen = [
            handler.get().metadata.stream_sequence
            for handler, share in zip(handlers, shares, strict=True)
            for _ in range(share)
        ]
    assert sorted(seen) == list(range(1, 301))
    assert all(shares)


def test_a_member_leaves_a_consumer_of_others_alone(
    js: jsync.JetStream, stream: jsync.Stream, subject: str
) -> None:
    first = js.subscribe(subject, "group")
    second = js.subscribe(subject, "group")
    third = js.subscribe(subject, "group", callback=Recorder())
    second.unsubscribe()
    third.drain()
    assert list(stream.consumer_names()) == ["group"]
    # As ADR-15 says and notes as a problem, the client that created the consumer deletes it.
    first.unsubscribe()
    assert list(stream.consumer_names()) == []


def test_a_member_continues_after_another_has_left(
    nc: jsync.Connection, js: jsync.JetStream, stream: jsync.Stream, subject: str
) -> None:
    stream.create_push_consumer(
        durable_name="group",
        deliver_group="group",
        deliver_subject=f"to.{stream.name}",
        ack_wait=1,
    )
    stays, goes = Recorder(), js.subscribe(subject, "group")
    with js.subscribe(subject, "group", callback=stays):
        publish(nc, subject, 100)
        wait_for(lambda: goes.pending + stays.waiting >= 100)
        assert goes.pending
        goes.unsubscribe()  # the server delivers its messages to the other member again
        seen: set[int] = set()
        while seen != set(range(1, 101)):
            seen.add(stays.get().metadata.stream_sequence)


MEMBER = """
    import sys, time
    import jsync

    most = int(sys.argv[3])
    handled = 0

    with jsync.connect(sys.argv[1]) as nc:
        def handle(msg):
            global handled
            if handled == most:
                time.sleep(60)  # it is killed by then
            handled += 1
            metadata = msg.metadata
            print(metadata.stream_sequence, metadata.num_delivered, flush=True)

        nc.jetstream().subscribe(sys.argv[2], "group", callback=handle)
        nc.flush()
        print("ready", flush=True)
        sys.stdin.readline()
    """


def test_a_killed_process_leaves_its_work_to_others(
    server: LocalServer,
    nc: jsync.Connection,
    js: jsync.JetStream,
    stream: jsync.Stream,
    subject: str,
) -> None:
    stream.create_push_consumer(
        durable_name="group",
        deliver_group="group",
        deliver_subject=f"to.{stream.name}",
        ack_wait=1,
        max_ack_pending=200,
    )
    total = 1000
    with contextlib.ExitStack() as running:
        members = [
            running.enter_context(Child(MEMBER, server.url, subject, most))
            for most in (10, total, total, total)
        ]
        for member in members:
            assert member.line() == "ready"
        publish(nc, subject, total)
        killed = members[0]
        handled = [parse(killed.line()) for _ in range(10)]
        killed.process.kill()
        rest, _ = killed.process.communicate(timeout=LONG)
        assert rest == ""
        wait_for(lambda: is_done(stream, total), timeout=LONG)
        for member in members[1:]:
            output, errors = member.process.communicate("\n", timeout=LONG)
            assert (member.process.returncode, errors) == (0, "")
            shares = [parse(line) for line in output.splitlines()]
            assert shares
            handled += shares
    deliveries = Counter(sequence for sequence, _ in handled)
    assert set(deliveries) == set(range(1, total + 1))
    # The server redelivered the messages of the killed member. All others were handled once.
    again = {sequence for sequence, number in handled if number > 1}
    assert again
    assert {sequence for sequence, times in deliveries.items() if times > 1} <= again
    assert stream.consumer("group").info().name == "group"


def parse(line: str) -> tuple[int, int]:
    sequence, number = line.split()
    return int(sequence), int(number)


def is_done(stream: jsync.Stream, total: int) -> bool:
    info = stream.consumer("group").info()
    return info.ack_floor.stream_seq == total and not info.num_ack_pending
