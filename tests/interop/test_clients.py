"""Tests that jsync and the other clients share records: each reads, lists and changes the other's.

One file of cases holds for all clients. `clients.py` builds a small program for each.
"""

from __future__ import annotations

import functools
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

import jsync
from jsync import errors

from ..support.servers import wait_for
from .clients import CLIENTS, Peer, PeerError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from _pytest.mark.structures import ParameterSet

    from jsync.server import LocalServer

pytestmark = pytest.mark.server

LONG = 60.0
KEYS = ["a", "a.b.c", "with/slash", "x=1", "under_score-dash", "9"]
VALUES = [b"", b"x", bytes(range(256)), b"\r\nMSG a 1 1\r\n", b"x" * 70_000]
LINKS = ["natsio", "nats.go", "async-nats", "jnats", "nats.js"]
GROUPS = ["natsio", "nats.go"]
AT_HAND = ["nats-py", "nats.go"]
"""The programs that every run has. `make interop` builds the others."""
DATA = bytes(range(256)) * 5


def programs(names: Iterable[str]) -> list[ParameterSet]:
    return [
        pytest.param(n, marks=() if n in AT_HAND else pytest.mark.clients)
        for n in names
    ]


@pytest.fixture(scope="module")
def peers(server: LocalServer) -> Iterator[dict[str, Peer]]:
    """The programs of the other clients, each started when a test needs it."""
    running: dict[str, Peer] = {}
    yield running
    for peer in running.values():
        with peer:
            pass


@pytest.fixture(params=programs(CLIENTS))
def peer(
    request: pytest.FixtureRequest, server: LocalServer, peers: dict[str, Peer]
) -> Peer:
    name: str = request.param
    if name not in peers:
        peers[name] = Peer(name, server.url)
    return peers[name]


@pytest.fixture
def js(nc: jsync.Connection) -> jsync.JetStream:
    return nc.jetstream()


class Bucket(NamedTuple):
    """A bucket as both see it."""

    kv: jsync.KeyValue
    peer: Peer

    def ask(self, op: str, key: str = "", **request: Any) -> dict[str, Any]:
        return self.peer(f"kv_{op}", bucket=self.kv.bucket, key=key, **request)


@pytest.fixture(params=["theirs", "ours"])
def bucket(
    request: pytest.FixtureRequest, js: jsync.JetStream, peer: Peer, unique: str
) -> Iterator[Bucket]:
    """A bucket that the other client created, or that jsync did."""
    if request.param == "ours":
        kv = js.create_key_value(
            bucket=unique, history=5, limit_marker_ttl=1, storage="memory"
        )
    else:
        config = {"history": 5, "marker_ttl": 1, "description": "of a client"}
        peer("kv_create", bucket=unique, metadata={}, **config)
        kv = js.key_value(unique)
    yield Bucket(kv, peer)
    js.delete_key_value(unique)


# Buckets of keys ----------------------------------------------------------------------


def shown(entries: list[jsync.Entry]) -> list[tuple[Any, ...]]:
    return [(e.key, e.value, e.revision, e.operation) for e in entries]


def told(entries: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    return [(e["key"], e["value"], e["revision"], e["operation"]) for e in entries]


def test_each_reads_the_entries_of_the_other(bucket: Bucket) -> None:
    kv, ask = bucket.kv, bucket.ask
    assert (kv.status().history, kv.status().limit_marker_ttl) == (5, 1)
    for key in KEYS:
        for value in VALUES:
            revision = ask("put", key, value=value)["revision"]
            entry = kv.get(key)
            assert (entry.value, entry.revision) == (value, revision)
        for value in VALUES:
            revision = kv.put(key, value)
            entry = ask("get", key)["entry"]
            assert (entry["value"], entry["revision"]) == (value, revision)
    ask("delete", "a")
    kv.delete("9")
    ask("purge", "x=1", ttl=0)
    kv.purge("a.b.c")
    left = {"with/slash", "under_score-dash"}
    assert set(kv.keys()) == set(ask("keys")["keys"]) == left
    assert set(kv.get_many(KEYS)) == left
    with kv.live() as view:
        assert dict(view) == dict.fromkeys(left, VALUES[-1])
    for key in KEYS:
        assert told(ask("history", key)["entries"]) == shown(kv.history(key))
    for key in set(KEYS) - left:
        with pytest.raises(errors.KeyDeletedError):
            kv.get(key)
        with pytest.raises(PeerError):
            ask("get", key)
    status = ask("status")
    assert (status["history"], status["values"]) == (5, kv.status().values)


def test_each_changes_and_deletes_what_the_other_wrote(bucket: Bucket) -> None:
    kv, ask = bucket.kv, bucket.ask
    ours = kv.create("a", b"1")
    with pytest.raises(PeerError):
        ask("insert", "a", value=b"2", ttl=0)
    theirs = ask("update", "a", value=b"2", last=ours)["revision"]
    with pytest.raises(errors.WrongRevisionError) as caught:
        kv.update("a", b"3", last=ours)
    assert caught.value.revision == theirs
    ours = kv.update("a", b"3", last=theirs)
    with pytest.raises(PeerError):
        ask("update", "a", value=b"4", last=theirs)
    assert kv.delete("a", last=ours) == ours + 1
    assert ask("insert", "a", value=b"5", ttl=0)["revision"] == ours + 2
    with pytest.raises(errors.KeyExistsError):
        kv.create("a", b"6")
    ask("purge", "a", ttl=0)
    assert kv.create("a", b"7") == ours + 4
    ask("delete", "a")
    assert kv.purge_deletes(older_than=0) == 1
    assert kv.status().values == 0


@pytest.mark.parametrize("bucket", ["theirs"], indirect=True)
def test_time_to_live_ends_the_value_for_both(bucket: Bucket) -> None:
    kv, ask = bucket.kv, bucket.ask
    with kv.watch() as watch:
        ask("insert", "theirs", value=b"x", ttl=1)
        kv.create("ours", b"x", ttl=1)
        seen = [watch.next(LONG) for _ in range(4)]
    assert sorted((e.key, e.operation) for e in seen) == [
        *(("ours", "PURGE"), ("ours", "PUT")),
        *(("theirs", "PURGE"), ("theirs", "PUT")),
    ]
    assert list(kv.keys()) == []
    assert kv.create("theirs", b"again") > 0
    # The markers of purges go as well.
    ask("purge", "theirs", ttl=1)
    kv.put("a")
    kv.purge("a", ttl=1)
    wait_for(lambda: kv.status().values == 0, LONG)


@pytest.mark.parametrize("peer", programs(GROUPS), indirect=True)
@pytest.mark.parametrize("codec", ["path", "base64"])
def test_each_reads_the_encoded_keys_of_the_other(
    js: jsync.JetStream, peer: Peer, unique: str, codec: str
) -> None:
    kv = js.create_key_value(bucket=unique, storage="memory")
    forms: dict[str, tuple[jsync.KeyCodec, list[str], str]] = {
        "path": (jsync.PathKeys(), ["/", "/etc/hosts", "a/b", "a"], "/etc/*"),
        "base64": (jsync.Base64Keys(), ["Acme Inc.contact", "ä b", "*.>", "a"], "*.*"),
    }
    form, keys, pattern = forms[codec]
    coded = kv.with_codec(keys=form)
    ask = functools.partial(peer, bucket=unique, codec=codec)
    kv.put("_foreign/key!".replace("!", "="), b"of neither")
    for key in keys:
        ask("kv_put", key=key, value=key.encode())
        assert coded.get(key).value == key.encode()
        coded.put(key, b"ours")
        assert ask("kv_get", key=key)["entry"]["value"] == b"ours"
        coded.delete(key)
        ask("kv_insert", key=key, value=b"theirs", ttl=0)
    assert sorted(coded.keys()) == sorted(keys)
    assert {e.value for e in coded.get_many(keys).values()} == {b"theirs"}
    assert len(list(coded.keys(pattern))) == {"path": 1, "base64": 2}[codec]
    kv.purge("_foreign/key=")
    kv.purge_deletes(older_than=0)
    assert sorted(ask("kv_keys")["keys"]) == sorted(keys)
    js.delete_key_value(unique)


# Object stores ------------------------------------------------------------------------


class Store(NamedTuple):
    """An object store as both see it."""

    store: jsync.ObjectStore
    peer: Peer

    def ask(self, op: str, name: str = "", **request: Any) -> dict[str, Any]:
        bucket = self.store.bucket
        return self.peer(f"obj_{op}", bucket=bucket, name=name, **request)


@pytest.fixture(params=["theirs", "ours"])
def store(
    request: pytest.FixtureRequest, js: jsync.JetStream, peer: Peer, unique: str
) -> Iterator[Store]:
    if request.param == "ours":
        objects = js.create_object_store(bucket=unique, storage="memory")
    else:
        peer("obj_create", bucket=unique, description="of a client", metadata={})
        objects = js.object_store(unique)
    yield Store(objects, peer)
    js.delete_object_store(unique)


NAMES = ["a", "with/slash and blank", "ä.txt", "*.>", "??>>", "x" * 200]
META: dict[str, Any] = {
    "description": "words, ä",
    "headers": {"Kind": ["text"], "X-Two": ["1", "2"]},
    "metadata": {"a": "1", "ä": "ü"},
    "chunk_size": 500,
}


def kept(client: str, meta: dict[str, Any]) -> dict[str, Any]:
    """Return what the client can write of `meta`."""
    meta = dict(meta)
    if client == "nats-py":  # has no metadata, and one value for each header
        meta["metadata"] = {}
        meta["headers"] = {name: values[:1] for name, values in meta["headers"].items()}
    return meta


def test_each_reads_the_objects_of_the_other(store: Store) -> None:
    objects, ask = store.store, store.ask
    meta = kept(store.peer.name, META)
    for name in NAMES:
        ask("put", name, value=DATA, **META)
        info = objects.info(name)
        assert (info.size, info.chunks, info.chunk_size) == (1280, 3, 500)
        assert (info.description, info.metadata) == (
            META["description"],
            meta["metadata"],
        )
        assert {h: info.headers.get_all(h) for h in info.headers} == meta["headers"]
        assert objects.get(name) == DATA
    assert sorted(info.name for info in objects.list()) == sorted(NAMES)
    # jsync replaces each, and the other client reads that.
    for name in NAMES:
        objects.put(name, DATA[:700], **META)
        assert ask("get", name)["value"] == DATA[:700]
        info = ask("info", name)["info"]
        assert (info["size"], info["chunks"], info["deleted"]) == (700, 2, False)
        assert info["description"] == META["description"]
        assert info["headers"] == META["headers"]
        assert info["metadata"] == meta["metadata"]
    assert sorted(ask("list")["names"]) == sorted(NAMES)
    # Empty objects, without any field.
    bare: dict[str, Any] = {"description": "", "headers": {}, "metadata": {}}
    ask("put", "empty", value=b"", **bare, chunk_size=1000)
    assert objects.get("empty") == b""
    objects.put("empty", b"")
    assert ask("get", "empty")["value"] == b""
    check = objects.check(older_than=0)
    assert (check.orphans, check.incomplete) == ({}, [])


def test_each_changes_and_deletes_the_others_objects(store: Store) -> None:
    objects, ask = store.store, store.ask
    ask("put", "a", value=DATA, **META)
    objects.update_meta("a", description="ours")
    assert ask("info", "a")["info"]["description"] == "ours"
    ask("update", "a", description="theirs")
    assert objects.info("a").description == "theirs"
    assert objects.get("a") == ask("get", "a")["value"] == DATA
    objects.update_meta("a", new_name="b")
    assert ask("get", "b")["value"] == DATA
    assert ask("list")["names"] == ["b"]
    with pytest.raises(PeerError):
        ask("get", "a")
    objects.delete("b")
    with pytest.raises(PeerError):
        ask("get", "b")
    objects.put("b", b"again")
    ask("delete", "b")
    with pytest.raises(errors.ObjectNotFoundError):
        objects.get("b")
    assert [info.name for info in objects.list()] == []
    assert objects.info("b", include_deleted=True).deleted


@pytest.mark.parametrize("peer", programs(LINKS), indirect=True)
def test_each_follows_the_links_of_the_other(store: Store) -> None:
    objects, ask = store.store, store.ask
    objects.put("a", DATA)
    ask("link", "theirs", target="a")
    ask("link_store", "their store", target=objects.bucket)
    objects.add_link("ours", objects.info("a"))
    objects.add_bucket_link("our store", objects)
    for name in ("theirs", "ours"):
        assert objects.get(name) == DATA
        assert ask("get", name)["value"] == DATA
        link = objects.info(name).link
        assert link is not None
        assert [link.bucket, link.name] == [objects.bucket, "a"]
        assert ask("info", name)["info"]["link"] == [objects.bucket, "a"]
    for name in ("their store", "our store"):
        link = objects.info(name).link
        assert link is not None
        assert (link.bucket, link.name) == (objects.bucket, None)
        assert ask("info", name)["info"]["link"] == [objects.bucket, ""]
        with pytest.raises(errors.Error):
            objects.get(name)
    assert len(list(objects.list())) == len(ask("list")["names"]) == 5
    objects.delete("theirs")
    ask("delete", "ours")
    assert len(list(objects.list())) == len(ask("list")["names"]) == 3


# Services -----------------------------------------------------------------------------


def test_jsync_finds_and_calls_the_others_service(
    nc: jsync.Connection, peer: Peer, unique: str
) -> None:
    config = {"description": "of a client", "metadata": {"by": "them"}}
    peer("svc_start", name=unique, **config)
    finders = (nc.services.ping, nc.services.info, nc.services.stats)
    wait_for(lambda: all(find(unique) for find in finders), LONG)
    (ping,) = nc.services.ping(unique)
    (info,) = nc.services.info(unique)
    assert (info.name, info.version, info.id) == (unique, "1.2.3", ping.id)
    assert (info.description, info.metadata) == ("of a client", {"by": "them"})
    (endpoint,) = info.endpoints
    assert endpoint.metadata == {"of": "endpoint"}
    assert (endpoint.subject, endpoint.queue_group) == (f"{unique}.upper", "q")
    headers = {"X-Odd": "a: b"}
    reply = nc.services.call(endpoint.subject, b"text", headers=headers)
    assert reply.data == b"TEXT"
    assert dict(reply.headers or {}) == headers
    with pytest.raises(errors.ServiceError, match="bad input") as caught:
        nc.services.call(endpoint.subject, b"fail")
    assert caught.value.code == 422
    (stats,) = nc.services.stats(unique)
    assert stats.started is not None
    (figures,) = stats.endpoints
    # Some count what a handler raises, and not what it answers.
    count = 0 if peer.name in ("nats-py", "jnats", "nats.js") else 1
    assert (figures.num_requests, figures.num_errors) == (2, count)
    assert ("bad input" in (figures.last_error or "")) == bool(count)
    assert figures.processing_time >= figures.average_processing_time >= 0
    peer("svc_stop", name=unique)
    wait_for(lambda: not nc.services.ping(unique), LONG)


def test_the_other_finds_and_calls_a_jsync_service(
    nc: jsync.Connection, peer: Peer, unique: str
) -> None:
    with nc.service(
        name=unique, version="1.2.3", description="of jsync", metadata={"by": "us"}
    ) as service:

        @service.group(unique).endpoint("upper", metadata={"of": "endpoint"})
        def upper(payload: bytes) -> bytes:
            if payload == b"fail":
                raise errors.ServiceError(422, "bad input")
            return payload.upper()

        nc.flush()
        peer("svc_verbs", name=unique)  # before the first request
        subject = f"{unique}.upper"
        assert peer("svc_call", subject=subject, value=b"text")["value"] == b"TEXT"
        failed = peer("svc_call", subject=subject, value=b"fail")
        assert (failed["code"], failed["description"]) == ("422", "bad input")
        found = peer("svc_verbs", name=unique)
        for verb in ("PING", "INFO", "STATS"):
            assert (found[verb]["name"], found[verb]["version"]) == (unique, "1.2.3")
        info = found["INFO"]
        assert (info["description"], info["metadata"]) == ("of jsync", {"by": "us"})
        (endpoint,) = info["endpoints"]
        assert endpoint["subject"] == subject
        assert endpoint["metadata"] == {"of": "endpoint"}
        (figures,) = found["STATS"]["endpoints"]
        assert (figures["num_requests"], figures["num_errors"]) == (2, 1)
        assert "bad input" in figures["last_error"]


# Messages, schedules and groups -------------------------------------------------------

ODD = [
    ("X-Two", "1"),
    ("X-Two", "2"),
    ("x-two", "of another name"),
    ("X-Empty", ""),
    ("X-Colon", "a: b: c"),
    ("X-Tail", "ends with a colon:"),
    ("X!#$%&'*+-.^_`|~9", "a name of odd characters"),
    ("X-Long", "x" * 5000),
]


def single(client: str, pairs: list[tuple[str, str]]) -> dict[str, list[str]]:
    """Return the headers that the client can write and read of `pairs`."""
    grouped: dict[str, list[str]] = {}
    for name, value in pairs:
        if client == "nats-py" and name in grouped:
            grouped[name] = [value]
        else:
            grouped.setdefault(name, []).append(value)
    return grouped


def test_each_reads_the_odd_headers_of_the_other(
    js: jsync.JetStream, peer: Peer, unique: str
) -> None:
    stream = js.create_stream(name=unique, subjects=[unique], storage="memory")
    headers = single(peer.name, ODD)
    seq = peer("publish", subject=unique, value=DATA, headers=ODD)["seq"]
    stored = stream.get_message(seq)
    assert stored.data == DATA
    assert stored.headers is not None
    assert {h: stored.headers.get_all(h) for h in stored.headers} == headers
    (message,) = stream.ordered_consumer().fetch(1)
    assert message.headers is not None
    assert {h: message.headers.get_all(h) for h in message.headers} == headers
    ack = js.publish(unique, DATA, headers=single("", ODD))
    read = peer("get_msg", stream=unique, seq=ack.seq)
    assert (read["subject"], read["value"]) == (unique, DATA)
    if peer.name in ("nats-py", "async-nats"):  # reads the last of several values
        headers = {name: values[-1:] for name, values in single("", ODD).items()}
    assert read["headers"] == headers
    js.delete_stream(unique)


def test_each_reads_and_cancels_the_others_schedules(
    js: jsync.JetStream, peer: Peer, unique: str
) -> None:
    js.create_stream(
        name=unique,
        subjects=[f"{unique}.>"],
        storage="memory",
        allow_msg_schedules=True,
        allow_direct=True,
    )
    schedules = js.schedules(unique)
    at = datetime.now(UTC).replace(microsecond=0) + timedelta(hours=1)
    pattern = f"@at {at.isoformat().replace('+00:00', 'Z')}"
    where = {"subject": f"{unique}.s.a", "value": b"later"}
    if peer.name in ("nats.go", "nats.js"):
        seq = peer("schedule", **where, schedule=pattern, target=f"{unique}.t")["seq"]
    else:  # has no call for schedules
        pairs = [("Nats-Schedule", pattern), ("Nats-Schedule-Target", f"{unique}.t")]
        seq = peer("publish", **where, headers=pairs)["seq"]
    found = schedules.get(f"{unique}.s.a")
    assert (found.at, found.target, found.data) == (at, f"{unique}.t", b"later")
    assert (found.sequence, found.repeats) == (seq, False)
    ack = schedules.put(f"{unique}.s.b", b"ours", schedule=at, target=f"{unique}.t")
    read = peer("get_msg", stream=unique, seq=ack.seq)
    assert read["value"] == b"ours"
    assert read["headers"]["Nats-Schedule-Target"] == [f"{unique}.t"]
    (written,) = read["headers"]["Nats-Schedule"]
    assert datetime.fromisoformat(written.removeprefix("@at ")) == at
    assert len(list(schedules.list())) == 2
    # jsync replaces and cancels that of the other client.
    schedules.put(f"{unique}.s.a", b"now", schedule=at, target=f"{unique}.u")
    assert schedules.get(f"{unique}.s.a").target == f"{unique}.u"
    schedules.cancel(f"{unique}.s.a")
    assert [each.subject for each in schedules.list()] == [f"{unique}.s.b"]
    js.delete_stream(unique)


@pytest.mark.parametrize("peer", programs(GROUPS), indirect=True)
def test_each_reads_and_changes_the_others_groups(
    js: jsync.JetStream, peer: Peer, unique: str
) -> None:
    js.create_stream(name=unique, subjects=[f"{unique}.*"], storage="memory")
    filters = {f"{unique}.*": [1]}
    for creator in ("them", "us"):
        where = {"stream": unique, "name": creator}
        if creator == "them":
            peer("group_create", **where, partitions=4, filters=filters)
            group = js.consumer_group(unique, creator)
        else:
            form: Any = "0.1" if peer.name == "nats.go" else "0.2"
            group = js.create_consumer_group(
                unique, creator, partitions=4, filters=filters, format=form
            )
        assert group.config.partitions == 4
        assert group.config.filters == {f"{unique}.*": (1,)}
        peer("group_add", **where, members=["a", "b"])
        group = js.consumer_group(unique, creator)
        assert sorted(group.config.members) == ["a", "b"]
        members = group.add_members("c")
        assert sorted(members) == ["a", "b", "c"]
        config = peer("group_config", **where)
        assert (config["partitions"], config["members"]) == (4, list(members))
        peer("group_map", **where, mappings={"a": [0, 3], "b": [1, 2]})
        mappings = js.consumer_group(unique, creator).config.mappings
        assert mappings == {"a": (0, 3), "b": (1, 2)}
        group.set_mappings({"c": [0, 1, 2, 3]})
        assert peer("group_config", **where)["mappings"] == {"c": [0, 1, 2, 3]}
    assert sorted(peer("group_list", stream=unique)["names"]) == ["them", "us"]
    assert sorted(g.name for g in js.consumer_groups(unique)) == ["them", "us"]
    peer("group_delete", stream=unique, name="us")
    js.delete_consumer_group(unique, "them")
    assert list(js.consumer_groups(unique)) == []
    assert peer("group_list", stream=unique)["names"] in ([], None)
    js.delete_stream(unique)
