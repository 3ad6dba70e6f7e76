"""Tests that jsync, nats-py and nats.go share buckets."""

from __future__ import annotations

import asyncio
import contextlib
import json
from typing import TYPE_CHECKING, Any

import nats
import pytest

import jsync
from jsync import errors

from .go_program import GoClient

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from jsync.server import LocalServer

    from ..conftest import StartServer

pytestmark = pytest.mark.server

KEYS = ["a", "a.b.c", "with/slash", "x=1", "under_score-dash", "9"]
VALUES = [b"", b"x", bytes(range(256)), b"\r\nMSG a 1 1\r\n", b"x" * 70_000]

CONFIGS: dict[str, dict[str, Any]] = {
    "bare": {},
    "description": {"description": "of the tests"},
    "history of 1": {"history": 1},
    "history of 64": {"history": 64},
    "long ttl": {"ttl": 3600},
    "short ttl": {"ttl": 30},
    "ttl of two minutes": {"ttl": 120},
    "limit markers": {"limit_marker_ttl": 900},
    "limit markers and ttl": {"limit_marker_ttl": 1, "ttl": 60},
    "memory": {"storage": "memory"},
    "file": {"storage": "file"},
    "replicas": {"replicas": 3},
    "placement": {"placement": {"cluster": "clstr", "tags": ["a", "b"]}},
    "republish": {"republish": {"src": "r.>", "dest": "d.>", "headers_only": True}},
    "republish of all": {"republish": {"src": ">", "dest": "d.>"}},
    "compression": {"compression": True},
    "no compression": {"compression": False},
    "metadata": {"metadata": {"encoding": "base64"}},
    "max value size": {"max_value_size": 1024},
    "max bytes": {"max_bytes": 1 << 20},
    "no limits": {"max_bytes": -1, "max_value_size": -1},
    "mirror": {"mirror": {"name": "ORIGIN"}},
    "mirror by its stream": {"mirror": {"name": "KV_ORIGIN"}},
    "mirror of a domain": {
        "mirror": {"name": "ORIGIN", "external": {"api": "$JS.hub.API", "deliver": ""}}
    },
    "mirror of some keys": {
        "mirror": {"name": "ORIGIN", "filter_subject": "$KV.ORIGIN.a.>"}
    },
    "sources": {"sources": [{"name": "ONE"}, {"name": "KV_TWO"}]},
    "source from a sequence": {"sources": [{"name": "ONE", "opt_start_seq": 7}]},
    "source with transforms": {
        "sources": [
            {
                "name": "EVENTS",
                "subject_transforms": [{"src": "events.>", "dest": "$KV.B.>"}],
            }
        ]
    },
    "source of its own name elsewhere": {
        "sources": [{"name": "B", "external": {"api": "$JS.hub.API", "deliver": ""}}]
    },
    "source of another name elsewhere": {
        "sources": [{"name": "C", "external": {"api": "$JS.hub.API", "deliver": ""}}]
    },
    "all at once": {
        "description": "all",
        "history": 5,
        "ttl": 0.5,
        "storage": "memory",
        "max_bytes": 4096,
        "max_value_size": 100,
        "compression": True,
        "limit_marker_ttl": 2,
        "metadata": {"a": "1", "b": "2"},
        "republish": {"src": ">", "dest": "d.>"},
    },
}


@pytest.fixture(scope="module")
def go(server: LocalServer) -> Iterator[GoClient]:
    with GoClient(server.url) as client:
        yield client


@pytest.fixture
def bucket(nc: jsync.Connection, unique: str) -> Iterator[jsync.KeyValue]:
    js = nc.jetstream()
    yield js.create_key_value(bucket=unique, history=5, storage="memory")
    js.delete_key_value(unique)


def as_go_has_it(fields: dict[str, Any]) -> dict[str, Any]:
    """Return a configuration in the JSON of nats.go, which has other names and nanoseconds."""
    names = {"replicas": "num_replicas"}
    durations = {"ttl", "limit_marker_ttl"}
    return {
        names.get(name, name): int(value * 1e9) if name in durations else value
        for name, value in fields.items()
    }


@pytest.mark.parametrize("name", CONFIGS)
def test_buckets_are_the_same_streams_in_nats_go(
    own_server: StartServer, name: str
) -> None:
    server, fields = own_server(), {"bucket": "B", **CONFIGS[name]}
    with jsync.connect(server.url) as nc, GoClient(server.url) as go:
        asked = nc.subscribe("$JS.API.STREAM.CREATE.*")
        nc.flush()
        go.ask("create_bucket", config=as_go_has_it(fields))
        theirs = json.loads(asked.next().data)
        # The server may reject the request. The test compares only the request.
        with contextlib.suppress(errors.BucketNotFoundError):
            nc.jetstream().delete_key_value("B")
        with contextlib.suppress(errors.APIError):
            nc.jetstream().create_key_value(**fields)
        assert json.loads(asked.next().data) == theirs


def entries_of(entries: list[jsync.Entry]) -> list[dict[str, Any]]:
    return [
        {
            "key": entry.key,
            "value": entry.value,
            "revision": entry.revision,
            "delta": entry.delta,
            "created": round(entry.created.timestamp() * 1e6),
            "operation": entry.operation,
        }
        for entry in entries
    ]


def test_nats_go_reads_our_bucket(go: GoClient, bucket: jsync.KeyValue) -> None:
    for key in KEYS:
        for value in VALUES:
            bucket.put(key, value)
    bucket.delete("a")
    bucket.purge("9")
    with bucket.watch(include_history=True) as watch:
        ours = entries_of(list(watch.initial()))
    theirs = go.ask("history", bucket=bucket.bucket, key=">")["entries"]
    assert theirs == ours
    assert {entry["operation"] for entry in theirs} == {"PUT", "DEL", "PURGE"}
    assert "key not found" in go.ask("get", bucket=bucket.bucket, key="a")["error"]


def test_we_read_a_bucket_of_nats_go(
    nc: jsync.Connection, go: GoClient, unique: str
) -> None:
    config: dict[str, Any] = {"bucket": unique, "history": 5, "storage": "memory"}
    assert "error" not in go.ask("create_bucket", config=config)
    bucket = nc.jetstream().key_value(unique)
    for key in KEYS:
        for value in VALUES:
            answer = go.ask("put", bucket=unique, key=key, value=value)
            entry = bucket.get(key)
            assert (entry.value, entry.revision) == (value, answer["revision"])
    go.ask("delete", bucket=unique, key="a")
    go.ask("purge", bucket=unique, key="9")
    assert sorted(bucket.keys()) == sorted(set(KEYS) - {"a", "9"})
    theirs = go.ask("history", bucket=unique, key="a")["entries"]
    assert entries_of(bucket.history("a")) == theirs
    # the same configuration changes nothing
    again = nc.jetstream().create_key_value(**config)
    revision = again.create("a", b"again")
    answer = go.ask("update", bucket=unique, key="a", value=b"more", last=revision)
    assert bucket.get("a").revision == answer["revision"]
    with pytest.raises(errors.WrongRevisionError):
        bucket.update("a", b"late", last=revision)
    nc.jetstream().delete_key_value(unique)


def test_each_creates_a_key_the_other_deleted(
    go: GoClient, bucket: jsync.KeyValue
) -> None:
    bucket.put("k")
    bucket.delete("k")
    assert "revision" in go.ask("create", bucket=bucket.bucket, key="k", value=b"1")
    with pytest.raises(errors.KeyExistsError):
        bucket.create("k", b"2")
    go.ask("purge", bucket=bucket.bucket, key="k")
    bucket.create("k", b"3")
    assert (
        "exists" in go.ask("create", bucket=bucket.bucket, key="k", value=b"")["error"]
    )


def theirs(server: LocalServer, work: Callable[[Any], Awaitable[Any]]) -> Any:
    """Run `work` with the JetStream context of nats-py, and return its result."""

    async def main() -> Any:
        nc = await nats.connect(server.url, connect_timeout=10)
        try:
            return await work(nc.jetstream())
        finally:
            await nc.close()

    return asyncio.run(main())


def test_nats_py_reads_our_bucket(server: LocalServer, bucket: jsync.KeyValue) -> None:
    for key in KEYS:
        for value in VALUES:
            bucket.put(key, value)
    bucket.delete("a")

    async def read(js: Any) -> Any:
        kv = await js.key_value(bucket.bucket)
        got = [await kv.get(key) for key in KEYS if key != "a"]
        return got, await kv.history("a"), await kv.keys()

    got, history, keys = theirs(server, read)
    assert [(entry.key, entry.value) for entry in got] == [
        (key, VALUES[-1]) for key in KEYS if key != "a"
    ]
    assert [entry.revision for entry in history] == [
        entry.revision for entry in bucket.history("a")
    ]
    assert history[-1].operation == "DEL"
    assert sorted(keys) == sorted(bucket.keys())


def test_we_read_a_bucket_of_nats_py(
    server: LocalServer, nc: jsync.Connection, unique: str
) -> None:
    async def write(js: Any) -> Any:
        kv = await js.create_key_value(bucket=unique, history=5)
        revisions = [await kv.put(key, value) for key in KEYS for value in VALUES]
        await kv.delete("a")
        await kv.purge("9")
        return revisions

    revisions = theirs(server, write)
    bucket = nc.jetstream().key_value(unique)
    with bucket.live() as view:
        assert dict(view) == {key: VALUES[-1] for key in KEYS if key not in ("a", "9")}
        assert view.revision == max(revisions) + 2
    assert bucket.history("a")[-1].operation == "DEL"
    assert [entry.operation for entry in bucket.history("9")] == ["PURGE"]
    nc.jetstream().delete_key_value(unique)


def test_nats_py_configuration_is_taken_as_it_is(
    nc: jsync.Connection, unique: str
) -> None:
    config = nats.js.api.KeyValueConfig(
        bucket=unique, history=3, ttl=60, limit_marker_ttl=5, direct=True
    )
    status = nc.jetstream().create_key_value(config).status()
    assert (status.history, status.ttl, status.limit_marker_ttl) == (3, 60, 5)
    nc.jetstream().delete_key_value(unique)
