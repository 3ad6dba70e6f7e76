"""Tests that jsync and nats-py share the consumers of the subscribe workflow."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from ..support.servers import wait_for
from ..support.threads import SOON
from .test_nats_py import sent, theirs

if TYPE_CHECKING:
    from collections.abc import Iterator

    import jsync
    from jsync.server import LocalServer

pytestmark = pytest.mark.server


@pytest.fixture
def stream(nc: jsync.Connection, unique: str) -> Iterator[jsync.Stream]:
    js = nc.jetstream()
    stream = js.create_stream(name=unique, subjects=[f"{unique}.>"], storage="memory")
    yield stream
    stream.delete()


@pytest.mark.parametrize("first", ["jsync", "nats-py"])
def test_a_queue_group_has_members_of_both_clients(
    server: LocalServer, nc: jsync.Connection, stream: jsync.Stream, first: str
) -> None:
    subject, js = f"{stream.name}.a", nc.jetstream()
    ours: list[bytes] = []
    members: list[jsync.PushSubscription] = []

    def join() -> None:
        members.append(js.subscribe(subject, "q", lambda msg: ours.append(msg.data)))

    async def work(other: Any) -> list[bytes]:
        handled: list[bytes] = []

        async def handle(msg: Any) -> None:
            handled.append(msg.data)

        if first == "jsync":
            join()
        await other.jetstream().subscribe(subject, "q", handle)
        await sent(other)
        if first != "jsync":
            join()
        for number in range(60):
            js.publish(subject, b"%d" % number)
        deadline = asyncio.get_running_loop().time() + SOON
        while len(handled) + len(ours) < 60:
            assert asyncio.get_running_loop().time() < deadline
            await asyncio.sleep(0.005)
        await sent(other)  # including the last acks
        return handled

    handled = theirs(server, work)
    assert sorted(handled + ours, key=int) == [b"%d" % number for number in range(60)]
    assert handled
    assert ours
    wait_for(lambda: stream.consumer("q").cached_info.num_ack_pending == 0)
    members[0].unsubscribe()
    # Only the client that created a consumer deletes it, and nats-py never does.
    assert list(stream.consumer_names()) == ([] if first == "jsync" else ["q"])


def test_a_durable_consumer_continues_with_the_other_client(
    server: LocalServer, nc: jsync.Connection, stream: jsync.Stream
) -> None:
    subject, js = f"{stream.name}.a", nc.jetstream()
    for number in range(4):
        js.publish(subject, b"%d" % number)

    async def begin(other: Any) -> list[bytes]:
        sub = await other.jetstream().pull_subscribe(subject, "worker")
        msgs = await sub.fetch(2, timeout=SOON)
        for msg in msgs:
            await msg.ack_sync(timeout=SOON)
        return [msg.data for msg in msgs]

    assert theirs(server, begin) == [b"0", b"1"]
    with js.pull_subscribe(subject, "worker") as sub:
        assert not sub.created
        assert [msg.data for msg in sub.fetch(9, timeout=SOON)] == [b"2", b"3"]
    assert list(stream.consumer_names()) == ["worker"]
