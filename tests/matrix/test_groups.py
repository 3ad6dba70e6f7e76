"""Tests of consumer groups on each release line."""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING

import pytest

import jsync
from jsync import errors

from ..support.servers import wait_for
from ..support.threads import LONG, Thread

if TYPE_CHECKING:
    from collections.abc import Iterator

    from jsync.models.server_version import ServerVersion


@pytest.fixture
def orders(js: jsync.JetStream, unique: str) -> Iterator[str]:
    js.create_stream(name=unique, subjects=[f"{unique}.*"], storage="memory")
    yield unique
    for group in list(js.consumer_groups(unique)):
        js.delete_consumer_group(unique, group.name)
    js.delete_stream(unique)


def test_members_share_a_group_since_2_11(
    js: jsync.JetStream, orders: str, line: ServerVersion
) -> None:
    filters = {f"{orders}.*": [1]}
    if line < (2, 11):
        with pytest.raises(errors.UnsupportedFeatureError, match=r"2\.11"):
            js.create_consumer_group(orders, "g", partitions=4, filters=filters)
        return
    group = js.create_consumer_group(
        orders, "g", partitions=4, filters=filters, members=["a"]
    )
    for number in range(40):
        js.publish(f"{orders}.{number % 10}", b"%d" % (number // 10))
    seen: dict[str, list[int]] = {}

    def handle(msg: jsync.JetStreamMsg) -> None:
        seen.setdefault(msg.subject, []).append(int(msg.data))
        msg.ack()

    with group.join("a") as a, group.join("b") as b:
        with a.consume(handle), b.consume(handle):
            group.add_members("b")
            wait_for(lambda: sum(map(len, seen.copy().values())) == 40, LONG)
            assert (a.partitions, b.partitions) == ((0, 1), (2, 3))
    assert all(numbers == [0, 1, 2, 3] for numbers in seen.values())


def test_long_handlers_keep_their_message_since_2_11(
    js: jsync.JetStream, orders: str, line: ServerVersion
) -> None:
    if line < (2, 11):
        with pytest.raises(errors.ConsumerGroupNotFoundError):
            js.consumer_group(orders, "g")
        return
    filters = {f"{orders}.*": [1]}
    group = js.create_consumer_group(
        orders, "g", partitions=1, filters=filters, members=["a"]
    )
    js.publish(f"{orders}.k")
    with group.join("a", ack_wait=1) as first, group.join("a", ack_wait=1) as standby:
        msg = first.next(LONG)
        waiting = Thread(standby.next, 3.0)
        begun = time.monotonic()
        with contextlib.suppress(errors.TimeoutError):
            pytest.fail(f"got {waiting.result()} after {time.monotonic() - begun} s")
        msg.ack()
        js.publish(f"{orders}.k", b"2")
        assert standby.next(LONG).data == b"2"


def test_whole_subjects_are_the_key_since_2_12(
    js: jsync.JetStream, orders: str, line: ServerVersion
) -> None:
    if line < (2, 12):
        with pytest.raises(errors.UnsupportedFeatureError):
            js.create_consumer_group(orders, "g", partitions=4)
        assert list(js.consumer_groups(orders)) == []
        return
    group = js.create_consumer_group(orders, "g", partitions=4, members=["a"])
    for number in range(40):
        js.publish(f"{orders}.{number}")
    wait_for(lambda: sum(group.lag().values()) == 40, LONG)
    assert all(group.lag().values())
