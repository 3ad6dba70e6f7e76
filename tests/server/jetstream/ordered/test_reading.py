"""Tests of reading with an ordered consumer, by every method and from every start."""

from __future__ import annotations

from time import monotonic
from typing import TYPE_CHECKING, Any

import pytest

from jsync import errors

from ....support.servers import wait_for
from ....support.threads import LONG, SOON
from .support import (
    by_fetch,
    by_messages,
    consumers,
    delete_consumers,
    delete_consumers_behind_pulls,
    every_face,
    fill,
    numbers,
    take,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    import jsync

    from ....support.threads import Recorder

pytestmark = [pytest.mark.server, pytest.mark.quick]


@every_face
def test_every_way_to_read_keeps_the_order(
    nc: jsync.Connection, stream: jsync.Stream, face: Callable[..., list[int]]
) -> None:
    fill(nc, stream, 40)
    assert face(stream.ordered_consumer(), 40) == list(range(40))


@every_face
def test_every_way_to_read_continues_where_another_stopped(
    nc: jsync.Connection, stream: jsync.Stream, face: Callable[..., list[int]]
) -> None:
    fill(nc, stream, 90)
    consumer = stream.ordered_consumer()
    for start in range(0, 90, 30):
        assert by_fetch(consumer, 10) == list(range(start, start + 10))
        assert face(consumer, 15) == list(range(start + 10, start + 25))
        assert by_messages(consumer, 5) == list(range(start + 25, start + 30))


def test_the_context_creates_ordered_consumers_by_stream_name(
    nc: jsync.Connection, stream: jsync.Stream
) -> None:
    fill(nc, stream, 9)
    js = nc.jetstream()
    consumer = js.ordered_consumer(stream.name, filter_subjects=f"{stream.name}.b")
    assert numbers(consumer.messages(until_end=True)) == [1, 4, 7]
    assert consumer.stream_name == stream.name


def test_ordered_consumers_are_ackless_in_one_servers_memory(
    nc: jsync.Connection, stream: jsync.Stream
) -> None:
    consumer = stream.ordered_consumer(
        name_prefix="watch", metadata={"owner": "me"}, inactive_threshold=60
    )
    (name,) = consumers(nc, stream)
    assert name == consumer.name
    assert name.startswith("watch_")
    config = consumer.info().config
    assert config.ack_policy == "none"
    assert config.max_deliver == 1
    assert config.mem_storage is True
    assert config.num_replicas == 1
    assert config.inactive_threshold == 60
    assert (config.metadata or {})["owner"] == "me"


def test_consumers_with_one_prefix_do_not_share_messages(
    nc: jsync.Connection, stream: jsync.Stream
) -> None:
    fill(nc, stream, 20)
    first = stream.ordered_consumer(name_prefix="same")
    second = stream.ordered_consumer(name_prefix="same")
    with first.messages() as one, second.messages() as two:
        assert take(one, 20) == take(two, 20) == list(range(20))


def test_headers_only_brings_no_payload(
    nc: jsync.Connection, stream: jsync.Stream
) -> None:
    fill(nc, stream, 1)
    msg = stream.ordered_consumer(headers_only=True).next()
    assert msg.data == b""
    assert msg.headers is not None
    assert msg.headers["Nats-Msg-Size"] == "1"


@pytest.mark.parametrize(
    ("options", "first"),
    [
        ({}, 0),
        ({"deliver_policy": "all"}, 0),
        ({"opt_start_seq": 6}, 5),
        ({"deliver_policy": "last"}, 9),
        ({"deliver_policy": "new"}, 10),
    ],
)
@pytest.mark.parametrize("lost", ["never", "before it begins", "on the way"])
def test_each_policy_stays_exact_when_consumers_are_lost(
    nc: jsync.Connection,
    stream: jsync.Stream,
    options: dict[str, Any],
    first: int,
    lost: str,
) -> None:
    fill(nc, stream, 10)
    consumer = stream.ordered_consumer(**options)
    fill(nc, stream, 5)
    if lost == "before it begins":
        delete_consumers(nc, stream)
    with consumer.messages(max_messages=2) as messages:
        got = take(messages, 3)
        if lost == "on the way":
            delete_consumers_behind_pulls(nc, stream, messages)
        fill(nc, stream, 5)
        got += take(messages, 20 - first - 3)
    assert got == list(range(first, 20))


def test_start_times_stay_exact_when_consumers_are_lost(
    nc: jsync.Connection, stream: jsync.Stream
) -> None:
    # one at a time, so that each message has a different microsecond
    for number in range(10):
        nc.jetstream().publish(f"{stream.name}.a", b"%d" % number)
    start = stream.ordered_consumer(opt_start_seq=6).next().metadata.timestamp
    consumer = stream.ordered_consumer(opt_start_time=start)
    delete_consumers(nc, stream)
    assert numbers(consumer.messages(until_end=True)) == [5, 6, 7, 8, 9]


def fill_in_pairs(nc: jsync.Connection, stream: jsync.Stream, count: int) -> None:
    """Store numbers, two on each subject. The odd numbers are the last of their subjects."""
    for number in range(count):
        nc.publish(f"{stream.name}.{number // 2}", b"%d" % number)
    nc.flush()
    wait_for(lambda: stream.info().state.last_seq == count)


def test_last_per_subject_comes_once_despite_lost_consumers(
    nc: jsync.Connection, stream: jsync.Stream, told: Recorder
) -> None:
    fill_in_pairs(nc, stream, 20)
    consumer = stream.ordered_consumer(deliver_policy="last_per_subject")
    with consumer.messages(max_messages=2, on_error=told) as messages:
        assert take(messages, 4) == [1, 3, 5, 7]
        delete_consumers_behind_pulls(nc, stream, messages)
        # 20 replaces 15, which may not arrive. 21 and 22 are both new, and both arrive.
        for number, subject in ((20, "7"), (21, "1"), (22, "1")):
            nc.jetstream().publish(f"{stream.name}.{subject}", b"%d" % number)
        got: list[int] = []
        while not got or got[-1] != 22:
            got += take(messages, 1)
    assert [n for n in got if n != 15] == [9, 11, 13, 17, 19, 20, 21, 22]
    assert isinstance(told.get(), errors.OrderedConsumerResetError)


@pytest.mark.parametrize("face", ["messages", "fetch"])
@pytest.mark.parametrize("what", ["all", "all but three", "some"])
def test_purging_the_last_per_subject_ends_no_read(
    nc: jsync.Connection, stream: jsync.Stream, told: Recorder, face: str, what: str
) -> None:
    """The server alone would send the next message some seconds late for each purged one."""
    fill_in_pairs(nc, stream, 100)
    consumer = stream.ordered_consumer(deliver_policy="last_per_subject")
    got: list[int] = []

    def purge() -> None:
        if what == "some":
            for number in range(10, 30):
                stream.purge(subject=f"{stream.name}.{number}")
        else:
            stream.purge(keep=3 if "three" in what else None)
        for number in range(100, 103):
            nc.jetstream().publish(f"{stream.name}.new", b"%d" % number)

    if face == "messages":
        with consumer.messages(max_messages=2, on_error=told) as messages:
            got += take(messages, 2)
            purge()
            while got[-1] != 102:
                got += take(messages, 1)
    else:
        got += by_fetch(consumer, 2)
        purge()
        deadline = monotonic() + LONG
        while got[-1] != 102 and monotonic() < deadline:
            with consumer.fetch(50, timeout=0.5) as batch:
                got += numbers(batch)
    left = {"all": 100, "all but three": 98, "some": 60}[what]
    assert got == sorted(set(got))
    assert [n for n in got if n >= left and (n % 2 or n >= 100)] == [
        *(n for n in range(left, 100) if n % 2),
        *range(100, 103),
    ]


def test_a_fetch_skips_messages_read_ahead(
    nc: jsync.Connection, stream: jsync.Stream
) -> None:
    fill_in_pairs(nc, stream, 20)
    consumer = stream.ordered_consumer(deliver_policy="last_per_subject")
    assert by_fetch(consumer, 6) == [1, 3, 5, 7, 9, 11]
    delete_consumers(nc, stream)
    begun = monotonic()
    assert numbers(consumer.fetch(3, timeout=LONG)) == [13, 15, 17]
    assert numbers(consumer.fetch_nowait(3)) == [19]
    assert monotonic() - begun < SOON
