"""Tests that a record of any shape ends no reading, and hides no good record.

Each test stores or answers 200 records that were damaged in every way, with good ones between
them. A damaged one is read as far as it makes sense, is left out, or raises a typed error.
"""

from __future__ import annotations

import base64
import contextlib
import json
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

import jsync
from jsync import errors

from ..support.campaign import seeded
from ..support.connection_faults import FakeServer
from ..support.fake_jetstream import FakeReply, answer_requests
from ..support.json_mutation import VALUES, mutated as mutated_json
from ..support.servers import RawClient
from ..support.threads import LONG, SOON, Recorder
from ..unit.test_hostile_replies import CONSUMER, STREAM

if TYPE_CHECKING:
    import random
    from collections.abc import Iterable, Iterator

    from jsync.server import LocalServer

pytestmark = pytest.mark.server

COUNT = 100
GOOD = 20


def mutated(document: Any, rng: random.Random) -> bytes:
    """Give a damaged document, of a size that the server takes."""
    return mutated_json(document, rng)[: 1 << 19]


def publish_blocks(
    url: str, records: Iterable[tuple[str, list[tuple[bytes, bytes]], bytes]]
) -> None:
    """Publish messages with any header lines, and wait until the server has read all."""
    with RawClient(url) as client:
        client.connect(headers=True, no_responders=True)
        for subject, lines, data in records:
            inner = b"".join(b"%b:%b\r\n" % line for line in lines)
            block = b"NATS/1.0\r\n" + inner + b"\r\n"
            sizes = len(block), len(block) + len(data)
            client.send(b"HPUB %b %d %d\r\n" % (subject.encode(), *sizes))
            client.send(block + data + b"\r\n")
        client.send(b"PING\r\n")
        while client.read_line() != "PONG":
            pass


def damaged(
    headers: dict[str, str], rng: random.Random
) -> Iterator[tuple[bytes, bytes]]:
    """Give header lines with up to three mutations: left out, doubled, of another value."""
    lines = [(name.encode(), b" " + value.encode()) for name, value in headers.items()]
    for _ in range(rng.randrange(4)):
        at = rng.randrange(len(lines)) if lines else 0
        match rng.randrange(6):
            case 0 if lines:
                del lines[at]
            case 1 if lines:
                lines.append(lines[at])
            case 2 if lines:
                lines[at] = (lines[at][0].swapcase(), lines[at][1])
            case 3:
                lines.insert(at, (b"X-Unknown", b" \xff\xfe {nested: [1]}"))
            case _ if lines:
                value = str(rng.choice([*VALUES, "null", "{}", "DEL,PURGE", "del"]))
                text = value.encode(errors="surrogateescape").replace(b"\x00", b"")
                lines[at] = (lines[at][0], b" " + text.replace(b"\r", b"")[:5000])
    yield from lines


# Key-value ----------------------------------------------------------------------------


class User(msgspec.Struct):
    name: str
    age: int
    tags: list[str] = []


@pytest.fixture
def kv(js: jsync.JetStream, unique: str) -> Iterator[jsync.KeyValue]:
    yield js.create_key_value(
        bucket=unique, history=3, limit_marker_ttl=60, storage="memory"
    )
    js.delete_key_value(unique)


MARKERS = [
    {"KV-Operation": "DEL"},
    {"KV-Operation": "PURGE", "Nats-Rollup": "sub"},
    {"KV-Operation": "PUT"},
    {"Nats-Marker-Reason": "MaxAge", "Nats-TTL": "60s"},
    {"Nats-Marker-Reason": "Remove"},
    {"KV-Operation": "DEL", "Nats-Marker-Reason": "Purge"},
]


def test_damaged_markers_hide_no_key(server: LocalServer, kv: jsync.KeyValue) -> None:
    rng = seeded("markers")
    records = []
    for number in range(COUNT):
        subject = f"$KV.{kv.bucket}.bad.{number}"
        lines = list(damaged(rng.choice(MARKERS), rng))
        records.append((subject, lines, b"value" * rng.randrange(2)))
    step = COUNT // GOOD
    for number in range(GOOD):
        kv.put(f"good.{number}", b"%d" % number)
        publish_blocks(server.url, records[number * step : (number + 1) * step])
    good = {f"good.{number}": b"%d" % number for number in range(GOOD)}
    assert good.keys() <= set(kv.keys())
    assert sorted(kv.keys("good.*")) == sorted(good)
    with kv.live(on_error=Recorder()) as view, kv.watch() as watch:
        assert good.items() <= dict(view).items()
        entries = {entry.key: entry for entry in watch.initial()}
        found = kv.get_many([*good, *(f"bad.{n}" for n in range(COUNT))])
        assert good.items() <= {k: e.value for k, e in found.items()}.items()
        for number in range(COUNT):
            key = f"bad.{number}"
            try:
                entry = kv.get(key)
            except errors.KeyNotFoundError:  # a marker, or refused by the server
                assert key not in view
            else:
                # All ways of reading agree on it.
                assert (entry.value, entry.operation) == (view[key], "PUT")
                assert entries[key].value == entry.value == found[key].value
            revision = kv.put(key, b"replaced")
            assert kv.history(key)[-1].revision == revision
            kv.delete(key, last=revision)
    assert sorted(kv.keys()) == sorted(good)
    assert kv.purge_deletes(older_than=0) == COUNT
    assert kv.status().values == GOOD


def test_damaged_values_hide_no_other_value(kv: jsync.KeyValue) -> None:
    rng = seeded("values")
    users, told = kv.with_codec(jsync.JSON(User)), Recorder()
    good: dict[str, User] = {}
    last = 0
    with users.watch(updates_only=True) as watch, users.live(on_error=told) as view:
        for number in range(COUNT):
            kv.put(
                f"bad.{number}", mutated({"name": "a", "age": 1, "tags": ["b"]}, rng)
            )
            good[f"good.{number}"] = User("a", number)
            last = users.put(f"good.{number}", good[f"good.{number}"])
        seen: dict[str, User] = {}
        failed: set[str] = set()
        while watch.revision < last:
            try:
                entry = watch.next(SOON)
            except errors.CodecError as error:
                failed.add(error.key)
            else:
                seen[entry.key] = entry.value
        view.wait_for(last, LONG)
        assert dict(view) == seen
        assert good.items() <= seen.items()
        assert {told.get().key for _ in failed} == failed
        assert failed
    assert set(users.keys()) == good.keys() | {f"bad.{n}" for n in range(COUNT)}
    keys = list(users.keys())
    with pytest.raises(errors.CodecError, match="cannot be decoded") as caught:
        users.get_many(keys)
    assert {e.key: e.value for e in caught.value.entries} == seen
    bad = caught.value.key
    assert bad in failed
    # In a history too: the good revisions are beside the error.
    users.put(bad, User("again", 1))
    with pytest.raises(errors.CodecError) as caught:
        users.history(bad)
    assert [entry.value for entry in caught.value.entries] == [User("again", 1)]
    assert users.get(bad).value == User("again", 1)


# Consumer groups ----------------------------------------------------------------------

ELASTIC = {
    "max_members": 4,
    "partitioning_filters": [{"filter": "o.*", "partitioning_wildcards": [1]}],
    "max_buffered_msg": 10,
    "members": ["a", "b"],
    "member_mappings": None,
}
STATIC = {
    "max_members": 2,
    "filters": ["a.>"],
    "member_mappings": [{"member": "a", "partitions": [0, 1]}],
}


@pytest.mark.parametrize("kind", ["elastic", "static"])
def test_damaged_groups_hide_no_group(
    js: jsync.JetStream, unique: str, kind: Any
) -> None:
    rng = seeded(f"groups {kind}")
    js.create_stream(name=unique, subjects=[f"{unique}.*"], storage="memory")
    filters = {f"{unique}.*": [1]} if kind == "elastic" else None
    good = js.create_consumer_group(
        unique, "m", kind=kind, partitions=2, filters=filters, members=["a"]
    )
    bucket = js.key_value(f"{kind}-consumer-groups")
    document = ELASTIC if kind == "elastic" else STATIC
    names = [f"{rng.choice('az')}{number}" for number in range(COUNT)]
    for name in names:
        bucket.put(f"{unique}.{name}", mutated(document, rng))
    bucket.put(unique, mutated(document, rng))  # a key of no group
    listed = {group.name: group for group in js.consumer_groups(unique)}
    assert listed["m"].config == good.config
    assert (
        js.consumer_group(unique, "m").add_members("b") == ("a", "b")
        if (kind == "elastic")
        else True
    )
    for name in names:
        try:
            group = js.consumer_group(unique, name)
        except errors.InvalidConsumerGroupError:
            assert name not in listed
        else:
            assert listed[name].config == group.config
            with contextlib.suppress(errors.Error):
                group.lag()
        # It can be deleted, and created anew.
        js.delete_consumer_group(unique, name)
    made = js.create_consumer_group(
        unique, names[0], kind=kind, partitions=2, filters=filters, members=["b"]
    )
    assert sorted(g.name for g in js.consumer_groups(unique)) == sorted(
        ["m", made.name]
    )
    for group in list(js.consumer_groups(unique)):
        js.delete_consumer_group(unique, group.name)
    bucket.purge(unique)
    js.delete_stream(unique)


# Schedules ----------------------------------------------------------------------------


def test_damaged_schedules_hide_no_schedule() -> None:
    # nats-server refuses most of them, so that only an older one can have stored them.
    rng = seeded("schedules")
    at = datetime.now(UTC).replace(microsecond=0) + timedelta(hours=1)
    headers = {
        "Nats-Schedule": f"@at {at.isoformat().replace('+00:00', 'Z')}",
        "Nats-Schedule-Target": "s.t",
        "Nats-Schedule-TTL": "60s",
        "Nats-Schedule-Time-Zone": "Europe/Prague",
        "Nats-Schedule-Rollup": "sub",
        "X-Own": "1",
    }
    good = {name: b" " + value.encode() for name, value in headers.items()}
    blocks: list[tuple[str, list[tuple[bytes, bytes]]]] = []
    for number in range(COUNT):
        blocks.append((f"s.bad.{number}", list(damaged(headers, rng))))
        lines = [(name.encode(), value) for name, value in good.items()]
        blocks.append((f"s.good.{number}", lines))
    block_of = {
        subject: b"".join(b"%b:%b\r\n" % line for line in lines)
        for subject, lines in blocks
    }

    def stored(sequence: int, subject: str, pending: int) -> FakeReply:
        added = (  # by the server, behind the message's own headers
            f"Nats-Stream: S\r\nNats-Subject: {subject}\r\n"
            f"Nats-Sequence: {sequence}\r\nNats-Last-Sequence: {sequence - 1}\r\n"
            f"Nats-Num-Pending: {pending}\r\n"
            "Nats-Time-Stamp: 2026-01-01T00:00:00Z\r\n\r\n"
        )
        return FakeReply(b"x", b"NATS/1.0\r\n" + block_of[subject] + added.encode())

    def answer(subject: str, payload: bytes) -> list[FakeReply]:
        match subject.removeprefix("$JS.API.").split("."):
            case ["STREAM", "INFO", _]:
                config = {
                    "name": "S",
                    "allow_msg_schedules": True,
                    "allow_direct": True,
                }
                info = {"config": config, "state": {"last_seq": len(blocks)}}
                return [FakeReply(json.dumps(info).encode())]
            case ["DIRECT", "GET", "S"]:
                first = json.loads(payload).get("seq", 1)
                said = [
                    stored(number, subject, len(blocks) - number)
                    for number, (subject, _) in enumerate(blocks, 1)
                    if number >= first
                ]
                end = b"NATS/1.0 204 EOB\r\nNats-Num-Pending: 0\r\n"
                last = b"Nats-Last-Sequence: %d\r\n\r\n" % len(blocks)
                return [*said, FakeReply(b"", end + last)]
            case ["STREAM", "MSG", "GET", "S"]:
                subject = json.loads(payload)["last_by_subj"]
                block = b"NATS/1.0\r\n" + block_of[subject] + b"\r\n"
                message = {
                    "subject": subject,
                    "seq": 1,
                    "hdrs": base64.b64encode(block).decode(),
                    "time": "2026-01-01T00:00:00Z",
                }
                return [FakeReply(json.dumps({"message": message}).encode())]
        return []

    with FakeServer(answer_requests(answer)) as fake, jsync.connect(fake.url) as nc:
        schedules = nc.jetstream().schedules("S")
        listed = {each.subject: each for each in schedules.list()}
        assert {f"s.good.{number}" for number in range(COUNT)} <= listed.keys()
        for subject, _ in blocks:
            try:
                found = schedules.get(subject)
            except errors.ScheduleNotFoundError:
                assert subject not in listed
            else:
                assert listed[subject].target == found.target
                assert found.at is None or found.at.tzinfo is not None
                assert repr(found)


# Services -----------------------------------------------------------------------------

IDENTITY = {"name": "S", "id": "x", "version": "1.0.0", "metadata": {"a": "b"}}
ENDPOINT = {
    "name": "e",
    "subject": "s.e",
    "queue_group": "q",
    "metadata": {"a": "b"},
    "num_requests": 1,
    "num_errors": 1,
    "last_error": "400:bad",
    "processing_time": 1,
    "average_processing_time": 1,
    "data": {"a": [1]},
}
ANSWERS = {
    "PING": {"type": "io.nats.micro.v1.ping_response", **IDENTITY},
    "INFO": {
        "type": "io.nats.micro.v1.info_response",
        **IDENTITY,
        "description": "words",
        "endpoints": [ENDPOINT],
    },
    "STATS": {
        "type": "io.nats.micro.v1.stats_response",
        **IDENTITY,
        "started": "2026-01-01T00:00:00.1Z",
        "endpoints": [ENDPOINT, ENDPOINT],
    },
}


@pytest.mark.parametrize("verb", ANSWERS)
def test_damaged_answers_hide_no_service(
    server: LocalServer, unique: str, verb: str
) -> None:
    rng, told = seeded(verb), Recorder()
    with (
        jsync.connect(server.url) as other,
        jsync.connect(server.url, on_error=told) as nc,
        nc.service(name=unique, version="1.0.0"),
    ):

        def answer(msg: jsync.Msg) -> None:
            for _ in range(COUNT):
                msg.respond(mutated(ANSWERS[verb], rng))

        other.subscribe(f"$SRV.{verb}.{unique}", callback=answer)
        other.flush()
        find = getattr(nc.services, verb.lower())
        found = find(unique, timeout=SOON, stall=1.0)
        assert unique in {each.name for each in found}
        assert len(found) + told.waiting == COUNT + 1
        for each in found:
            assert isinstance(each.name, str)
            assert repr(each)
        assert told.waiting
        while told.waiting:
            assert isinstance(told.get(), errors.ServiceReplyError)


# Streams and consumers ----------------------------------------------------------------


def test_damaged_configurations_hide_no_stream_or_consumer() -> None:
    rng = seeded("configurations")

    def page(document: Any, name_of: str) -> bytes:
        """Give a page in which each second item is damaged."""
        items = []
        for number in range(COUNT):
            good = json.loads(json.dumps(document))
            if name_of == "config":
                good["config"]["name"] = f"G{number:03}"
            else:
                good["name"] = f"G{number:03}"
            items.append(json.dumps(good).encode())
            bad = mutated(document, rng)
            try:
                msgspec.json.decode(bad)
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                continue  # JSON that is broken breaks the whole page
            if b"[" * 99 in bad or b'{"a":' * 99 in bad:
                continue  # and so does JSON that is too deep
            items.append(bad)
        what = b"streams" if name_of == "config" else b"consumers"
        head = b'{"total":%d,"offset":0,"limit":10000,"%b":[' % (len(items), what)
        return head + b",".join(items) + b"]}"

    def answer(subject: str, payload: bytes) -> list[FakeReply]:
        match subject.removeprefix("$JS.API.").split("."):
            case ["STREAM", "LIST"]:
                return [FakeReply(page(STREAM, "config"))]
            case ["CONSUMER", "LIST", _]:
                return [FakeReply(page(CONSUMER, "name"))]
            case ["STREAM", "INFO", _]:
                return [FakeReply(json.dumps(STREAM).encode())]
        return []

    good = {f"G{number:03}" for number in range(COUNT)}
    with (
        FakeServer(answer_requests(answer)) as fake,
        jsync.connect(fake.url, on_error=Recorder()) as nc,
    ):
        js = nc.jetstream()
        streams = [stream.cached_info.config.name for stream in js.streams()]
        assert good <= set(streams)
        consumers = [info.name for info in js.consumers("S")]
        assert good <= set(consumers)
