"""Shared parts of the tests of ordered consumers: streams of numbers, and ways to read them."""

from __future__ import annotations

import json
from itertools import islice
from typing import TYPE_CHECKING, Any

import pytest

from ....support.servers import wait_for
from ....support.threads import SOON

if TYPE_CHECKING:
    import jsync


QUICK: dict[str, Any] = {"expires": 1.0, "idle_heartbeat": 0.5}


def fill(nc: jsync.Connection, stream: jsync.Stream, count: int) -> None:
    """Store the next `count` numbers, on three subjects in turn."""
    first = stream.info().state.last_seq
    for number in range(first, first + count):
        nc.publish(f"{stream.name}.{'abc'[number % 3]}", b"%d" % number)
    nc.flush()
    wait_for(lambda: stream.info().state.last_seq == first + count)


def numbers(messages: Any) -> list[int]:
    return [int(msg.data) for msg in messages]


def take(messages: jsync.MessagesContext, count: int) -> list[int]:
    return [int(messages.next(SOON).data) for _ in range(count)]


def consumers(nc: jsync.Connection, stream: jsync.Stream) -> list[str]:
    """Return the names of the consumers on the server, as another client sees them."""
    reply = nc.request(f"$JS.API.CONSUMER.NAMES.{stream.name}", b"{}")
    return json.loads(reply.data).get("consumers") or []


def delete_consumers(nc: jsync.Connection, stream: jsync.Stream) -> None:
    for name in consumers(nc, stream):
        nc.request(f"$JS.API.CONSUMER.DELETE.{stream.name}.{name}")


def delete_consumers_behind_pulls(
    nc: jsync.Connection, stream: jsync.Stream, messages: jsync.MessagesContext
) -> None:
    """Delete the consumers once all messages pulled two at a time have arrived.

    The server can ignore a pull that crosses the deletion. jsync then notices only by late
    heartbeats.
    """
    wait_for(lambda: messages.pending == 2)
    delete_consumers(nc, stream)


def by_messages(consumer: jsync.OrderedConsumer, count: int) -> list[int]:
    with consumer.messages(stop_after=count) as messages:
        return numbers(messages)


def by_consume(consumer: jsync.OrderedConsumer, count: int) -> list[int]:
    got: list[int] = []
    with consumer.consume(lambda m: got.append(int(m.data)), stop_after=count) as work:
        assert work.wait(SOON)
    return got


def by_fetch(consumer: jsync.OrderedConsumer, count: int) -> list[int]:
    got: list[int] = []
    while len(got) < count:
        with consumer.fetch(min(7, count - len(got)), timeout=SOON) as batch:
            got += numbers(batch)
    return got


def by_fetching_bytes(consumer: jsync.OrderedConsumer, count: int) -> list[int]:
    got: list[int] = []
    while len(got) < count:
        with consumer.fetch(max_bytes=1000, timeout=0.5) as batch:
            got += numbers(islice(batch, count - len(got)))
    return got


def by_fetching_at_once(consumer: jsync.OrderedConsumer, count: int) -> list[int]:
    return numbers(consumer.fetch_nowait(count))


def by_next(consumer: jsync.OrderedConsumer, count: int) -> list[int]:
    return [int(consumer.next(SOON).data) for _ in range(count)]


FACES = [
    *(by_messages, by_consume, by_fetch, by_fetching_bytes, by_fetching_at_once),
    by_next,
]


every_face = pytest.mark.parametrize("face", FACES, ids=lambda f: f.__name__)
