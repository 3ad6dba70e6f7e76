"""Tests of messages whose header blocks other clients have written, whatever is in them."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import pytest

import jsync
from jsync import errors

from ...support.servers import publish_block
from ...support.threads import SOON, Recorder

if TYPE_CHECKING:
    from collections.abc import Callable

    from jsync.server import LocalServer

FOREIGN = "the header block does not begin with NATS/1.0"
BLOCKS = {
    b"HTTP/1.1 200\r\n\r\n": (None, FOREIGN),
    b"FOO\r\nbar: x\r\n\r\n": (None, FOREIGN),
    # A block of one byte ends nats-server 2.15.1 itself, in a consumer of headers only.
    b"XYZ": (None, FOREIGN),
    b"NATS/1.0\r\nA: 1\r\n\r\nB: 2\r\n\r\n": (
        {"A": "1"},
        "the header block has a blank line before its end",
    ),
    b"NATS/1.0\r\nA: 1\r\nnothing\r\n\r\n": (
        {"A": "1"},
        "a line of the header block has no name and colon",
    ),
    # These are readable, however odd.
    b"NATS/1.0\r\nA: 1\r\n": ({"A": "1"}, None),
    b"NATS/1.0 404 No Messages\r\nA: 1\r\n\r\n": ({"A": "1"}, None),
    b"NATS/1.0\r\nNats-Stream: other\r\nNats-Sequence: 9\r\n\r\n": (
        {"Nats-Stream": "other", "Nats-Sequence": "9"},
        None,
    ),
}
"""Header blocks, the headers that are readable, and the error."""
UNREADABLE = sum(error is not None for _, error in BLOCKS.values())
NAMES = [f"{number}" for number in range(2 * len(BLOCKS) + 1)]
Seen = list[tuple[bytes, dict[str, str], str | None]]


@pytest.fixture
def seen(server: LocalServer, js: jsync.JetStream, stream: jsync.Stream) -> Seen:
    """Publish good messages, with odd ones between them; what is to be seen of all."""
    if not stream.config.allow_direct:
        stream.update(allow_direct=True)
    expected: Seen = []
    names = iter(NAMES)
    for block, (headers, error) in BLOCKS.items():
        name = next(names)
        js.publish(f"{stream.name}.{name}", name.encode(), headers={"Good": "yes"})
        expected.append((name.encode(), {"Good": "yes"}, None))
        name = next(names)
        publish_block(server.url, f"{stream.name}.{name}", block, name.encode())
        expected.append((name.encode(), headers or {}, error))
    js.publish(f"{stream.name}.{(name := next(names))}", name.encode())
    expected.append((name.encode(), {}, None))
    return expected


def shown(messages: object) -> Seen:
    return [
        (each.data, dict(each.headers or {}), each.headers_error)
        for each in messages  # type: ignore[attr-defined]
    ]


def consumed(stream: jsync.Stream) -> list[jsync.JetStreamMsg]:
    told: Recorder = Recorder()
    with stream.create_consumer(durable_name="c").consume(told):
        return [told.get() for _ in NAMES]


def iterated(stream: jsync.Stream) -> list[jsync.JetStreamMsg]:
    with stream.create_consumer(durable_name="i").messages() as messages:
        return list(itertools.islice(messages, len(NAMES)))


def one_by_one(stream: jsync.Stream) -> list[jsync.JetStreamMsg]:
    consumer = stream.create_consumer(durable_name="n")
    return [consumer.next(timeout=SOON) for _ in NAMES]


def got(stream: jsync.Stream, *, direct: bool) -> list[jsync.StoredMessage]:
    return [stream.get_message(n + 1, direct=direct) for n in range(len(NAMES))]


WAYS: dict[str, Callable[[jsync.Stream], object]] = {
    "fetch": lambda s: s.create_consumer(durable_name="f").fetch(len(NAMES)),
    "next": one_by_one,
    "messages": iterated,
    "consume": consumed,
    "ordered": lambda s: s.ordered_consumer().fetch(len(NAMES)),
    "until_end": lambda s: s.ordered_consumer().messages(until_end=True),
    "get_message": lambda s: got(s, direct=False),
    "direct get": lambda s: got(s, direct=True),
    "get_messages": lambda s: s.get_messages(),
    "get_last_messages": lambda s: s.get_last_messages(f"{s.name}.>"),
}


@pytest.mark.parametrize("way", WAYS)
def test_unreadable_headers_hide_no_message(
    way: str, seen: Seen, stream: jsync.Stream
) -> None:
    assert shown(WAYS[way](stream)) == seen


def test_a_batch_of_columns_counts_unreadable_headers(
    seen: Seen, stream: jsync.Stream
) -> None:
    (batch,) = stream.read_arrow()
    assert (len(batch), batch.unreadable_headers) == (len(seen), UNREADABLE)
    (batch,) = stream.read_arrow(columns=["data"])
    assert (len(batch), batch.unreadable_headers) == (len(seen), 0)


def test_a_subscription_shows_messages_with_unreadable_headers(
    server: LocalServer, unique: str
) -> None:
    told: Recorder = Recorder()
    with (
        jsync.connect(server.url, on_error=told) as nc,
        nc.subscribe(unique) as sub,
    ):
        nc.flush()
        for block in BLOCKS:
            publish_block(server.url, unique, block, b"odd")
        messages = [sub.next(SOON) for _ in BLOCKS]
        assert shown(messages) == [
            (b"odd", headers or {}, error) for headers, error in BLOCKS.values()
        ]
        assert [msg.raw_headers for msg in messages] == list(BLOCKS)
        for _, error in BLOCKS.values():
            if error is not None:
                found = told.get()
                assert isinstance(found, errors.UnreadableHeadersError)
                assert found.subject == unique
                assert error in str(found)
        assert shown(messages)  # a second reading reports nothing
        assert told.waiting == 0


def test_the_stored_bytes_of_odd_headers_are_kept(
    server: LocalServer, seen: Seen, stream: jsync.Stream
) -> None:
    blocks = [
        block for block in BLOCKS if block.endswith(b"\r\n") and b" 404" not in block
    ]
    stored = [m.raw_headers for m in stream.get_messages()]
    assert [block for block in stored if block in BLOCKS] == blocks
    assert stream.get_message(2).raw_headers == stored[1]


def test_an_odd_header_block_hides_no_other_entry(
    server: LocalServer, js: jsync.JetStream, unique: str
) -> None:
    bucket = js.create_key_value(bucket=unique)
    keys = []
    for number, block in enumerate(BLOCKS):
        keys += [f"good{number}", f"odd{number}"]
        bucket.put(f"good{number}", b"good")
        publish_block(server.url, f"$KV.{unique}.odd{number}", block, b"odd")
    assert sorted(bucket.keys()) == sorted(keys)
    found = bucket.get_many(keys)
    assert sorted(found) == sorted(keys)
    for key in keys:
        value = b"good" if key.startswith("good") else b"odd"
        assert bucket.get(key).value == found[key].value == value
        assert [entry.value for entry in bucket.history(key)] == [value]
