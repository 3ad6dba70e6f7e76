"""Tests that jsync and nats-py, the official asyncio client, read each other's data."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import nats
import pytest
from nats.js.api import (
    ConsumerConfig as TheirConsumerConfig,
    StreamConfig as TheirConfig,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    import jsync
    from jsync.server import LocalServer

pytestmark = pytest.mark.server

PAYLOADS = [
    b"",
    b"x",
    "grün".encode(),
    bytes(range(256)),
    b"\r\nMSG a 1 1\r\n",
    b"x" * 70_000,
]


def theirs(server: LocalServer, work: Callable[[Any], Awaitable[Any]]) -> Any:
    """Run `work` with a nats-py connection, and return its result."""

    async def main() -> Any:
        nc = await nats.connect(server.url, connect_timeout=10)
        try:
            return await work(nc)
        finally:
            await nc.close()

    return asyncio.run(main())


async def sent(other: Any) -> None:
    """Block until the server has all that a nats-py connection was told to send.

    The PING of one `flush` goes out before the commands that nats-py has pending, so its answer
    does not tell that the server has those (nats-py 2.16).
    """
    await other.flush()
    await other.flush()


def test_nats_py_reads_messages_that_jsync_publishes(
    server: LocalServer, nc: jsync.Connection, unique: str
) -> None:
    async def read(other: Any) -> list[Any]:
        sub = await other.subscribe(f"{unique}.*")
        await sent(other)
        for i, payload in enumerate(PAYLOADS):
            nc.publish(f"{unique}.{i}", payload, reply="re.ply", headers={"N": str(i)})
        return [await sub.next_msg(timeout=10) for _ in PAYLOADS]

    got = theirs(server, read)
    assert [msg.data for msg in got] == PAYLOADS
    assert [msg.subject for msg in got] == [
        f"{unique}.{i}" for i in range(len(PAYLOADS))
    ]
    assert {msg.reply for msg in got} == {"re.ply"}
    assert [msg.headers["N"] for msg in got] == [str(i) for i in range(len(PAYLOADS))]


def test_jsync_reads_messages_that_nats_py_publishes(
    server: LocalServer, nc: jsync.Connection, unique: str
) -> None:
    sub = nc.subscribe(f"{unique}.*")
    nc.flush()

    async def write(other: Any) -> None:
        for i, payload in enumerate(PAYLOADS):
            await other.publish(
                f"{unique}.{i}", payload, reply="re.ply", headers={"N": f"ä{i}"}
            )
        await sent(other)

    theirs(server, write)
    got = [sub.next(10) for _ in PAYLOADS]
    assert [msg.data for msg in got] == PAYLOADS
    assert [msg.reply for msg in got] == ["re.ply"] * len(PAYLOADS)
    assert [msg.headers and msg.headers["N"] for msg in got] == [
        f"ä{i}" for i in range(len(PAYLOADS))
    ]


def test_requests_are_answered_both_ways(
    server: LocalServer, nc: jsync.Connection, unique: str
) -> None:
    with nc.subscribe(f"{unique}.ours", callback=lambda msg: msg.respond(msg.data * 2)):

        async def ask_and_answer(other: Any) -> tuple[bytes, bytes]:
            async def answer(msg: Any) -> None:
                await msg.respond(msg.data * 3)

            await other.subscribe(f"{unique}.theirs", cb=answer)
            await sent(other)
            ours = await other.request(f"{unique}.ours", b"ab", timeout=10)
            answered = await asyncio.to_thread(nc.request, f"{unique}.theirs", b"ab")
            return ours.data, answered.data

        assert theirs(server, ask_and_answer) == (b"abab", b"ababab")


def test_nats_py_consumes_stream_messages_published_by_jsync(
    server: LocalServer, nc: jsync.Connection, unique: str
) -> None:
    js = nc.jetstream()
    stream = js.create_stream(name=unique, subjects=[f"{unique}.>"])
    for i in range(10):
        js.publish(f"{unique}.{i}", str(i).encode(), msg_id=str(i))

    async def consume(other: Any) -> list[Any]:
        pull = await other.jetstream().pull_subscribe("", "theirs", stream=unique)
        msgs = await pull.fetch(10, timeout=10)
        for msg in msgs:
            await msg.ack_sync()
        return [
            (m.data, m.metadata.sequence.stream, m.headers["Nats-Msg-Id"]) for m in msgs
        ]

    got = theirs(server, consume)
    assert got == [(str(i).encode(), i + 1, str(i)) for i in range(10)]
    assert stream.consumer("theirs").info().num_ack_pending == 0
    stream.delete()


def test_jsync_reads_nats_py_messages_with_equal_metadata(
    server: LocalServer, nc: jsync.Connection, unique: str
) -> None:
    async def publish(other: Any) -> None:
        js = other.jetstream()
        await js.add_stream(name=unique, subjects=[f"{unique}.>"])
        for i in range(10):
            await js.publish(f"{unique}.{i}", str(i).encode(), headers={"A": "b"})

    theirs(server, publish)
    stream = nc.jetstream().stream(unique)
    ours = stream.create_consumer(durable_name="ours")
    with ours.fetch(10, timeout=10) as batch:
        mine = []
        for msg in batch:
            assert msg.headers == {"A": "b"}
            mine.append((msg.data, msg.metadata))
            msg.nak()

    async def again(other: Any) -> list[Any]:
        pull = await other.jetstream().pull_subscribe("", "ours", stream=unique)
        return list(await pull.fetch(10, timeout=10))

    for (data, metadata), msg in zip(mine, theirs(server, again), strict=True):
        assert data == msg.data
        assert metadata.stream == msg.metadata.stream
        assert metadata.consumer == msg.metadata.consumer
        assert metadata.stream_sequence == msg.metadata.sequence.stream
        assert metadata.num_delivered + 1 == msg.metadata.num_delivered
        difference = metadata.timestamp.timestamp() - msg.metadata.timestamp.timestamp()
        assert abs(difference) < 0.001
    stream.delete()


def test_their_configs_are_taken_where_ours_are(
    nc: jsync.Connection, unique: str
) -> None:
    js = nc.jetstream()
    stream = js.create_stream(
        TheirConfig(name=unique, subjects=[f"{unique}.>"], max_age=3600)
    )
    assert stream.config.max_age == 3600
    consumer = stream.create_consumer(
        TheirConsumerConfig(durable_name="worker", ack_wait=12)
    )
    assert consumer.config.ack_wait == 12
    stream.delete()


def test_both_get_the_same_stored_messages(
    server: LocalServer, nc: jsync.Connection, unique: str
) -> None:
    js = nc.jetstream()
    stream = js.create_stream(
        name=unique, subjects=[f"{unique}.*"], allow_direct=True, storage="memory"
    )
    for i, payload in enumerate(PAYLOADS):
        js.publish(f"{unique}.{i % 2}", payload, headers={"N": str(i)})

    async def get(other: Any) -> list[Any]:
        theirs = other.jetstream()
        found = []
        for direct in (True, False):
            found += [
                await theirs.get_msg(unique, seq=i + 1, direct=direct)
                for i in range(len(PAYLOADS))
            ]
        found.append(await theirs.get_last_msg(unique, f"{unique}.1"))
        return found

    got = theirs(server, get)
    ours = [stream.get_message(i + 1) for i in range(len(PAYLOADS))]
    assert list(stream.get_messages()) == ours
    ours += [stream.get_message(i + 1, direct=False) for i in range(len(PAYLOADS))]
    ours.append(stream.get_message(last_by_subject=f"{unique}.1"))
    for mine, other in zip(ours, got, strict=True):
        assert (mine.sequence, mine.subject) == (other.seq, other.subject)
        assert mine.data == (other.data or b"")
        assert mine.headers is not None
        assert mine.headers["N"] == other.headers["N"]
    stream.delete()


def test_both_read_the_same_infos(
    server: LocalServer, nc: jsync.Connection, unique: str
) -> None:
    js = nc.jetstream()
    stream = js.create_stream(name=unique, subjects=[f"{unique}.*"], max_age=3600)
    for i in range(5):
        js.publish(f"{unique}.{i % 2}")
    stream.delete_message(3)
    worker = stream.create_consumer(durable_name="worker", ack_wait=12)
    worker.next().ack_sync()

    async def ask(other: Any) -> tuple[Any, Any, Any]:
        theirs = other.jetstream()
        return (
            await theirs.stream_info(unique, subjects_filter=">"),
            await theirs.consumer_info(unique, "worker"),
            await theirs.find_stream_name_by_subject(f"{unique}.0"),
        )

    their_stream, their_consumer, name = theirs(server, ask)
    ours = stream.info(subjects_filter=">")
    assert ours.config.max_age == their_stream.config.max_age
    assert ours.state.messages == their_stream.state.messages == 4
    assert ours.state.subjects == their_stream.state.subjects
    assert ours.state.num_deleted == their_stream.state.num_deleted == 1
    info = worker.info()
    assert info.num_pending == their_consumer.num_pending == 3
    assert info.ack_floor.stream_seq == their_consumer.ack_floor.stream_seq == 1
    assert info.config.ack_wait == their_consumer.config.ack_wait
    assert js.stream_name_by_subject(f"{unique}.0") == name == unique
    stream.delete()


def test_their_configs_are_taken_in_updates_too(
    nc: jsync.Connection, unique: str
) -> None:
    js = nc.jetstream()
    config = TheirConfig(name=unique, subjects=[f"{unique}.>"])
    stream = js.create_or_update_stream(config)
    assert stream.update(config.evolve(max_msgs=7)).config.max_msgs == 7
    worker = TheirConsumerConfig(durable_name="worker")
    stream.create_or_update_consumer(worker)
    changed = js.update_consumer(unique, worker.evolve(ack_wait=12))
    assert changed.config.ack_wait == 12
    stream.delete()
