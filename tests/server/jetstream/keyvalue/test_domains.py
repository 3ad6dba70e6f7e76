"""Tests of buckets of other domains and accounts: over a leaf node, by mirrors and by sources."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import pytest

import jsync
from jsync import errors

from ....matrix.leaf import answers
from ....support.connection_faults import Events, connect
from ....support.servers import free_port, wait_for
from ....support.threads import LONG, Recorder

if TYPE_CHECKING:
    from collections.abc import Iterator

    from jsync.server import LocalServer

    from ....conftest import StartServer

pytestmark = pytest.mark.server


class Sites(NamedTuple):
    """A hub and a leaf node with different JetStream domains."""

    hub: LocalServer
    edge: LocalServer
    nc: jsync.Connection
    """A connection to the leaf node."""
    js: jsync.JetStream
    """JetStream of the leaf node."""
    far: jsync.JetStream
    """JetStream of the hub, through the leaf node."""


@pytest.fixture
def sites(own_server: StartServer) -> Iterator[Sites]:
    port = free_port()
    hub = own_server(
        config=f'jetstream {{ domain: hub }}\nleafnodes {{ listen: "127.0.0.1:{port}" }}'
    )
    edge = own_server(
        config=f"""jetstream {{ domain: edge }}
        leafnodes {{
            reconnect: 1
            remotes: [{{ url: "nats-leaf://127.0.0.1:{port}" }}]
        }}"""
    )
    with connect(edge.url, Events()) as nc:
        far = nc.jetstream(domain="hub", timeout=10.0)
        wait_for(lambda: answers(far))
        yield Sites(hub, edge, nc, nc.jetstream(timeout=10.0), far)


def test_every_call_works_over_a_leaf_node(sites: Sites) -> None:
    far = sites.far
    config = {"history": 5, "limit_marker_ttl": 60}
    kv = far.create_key_value(bucket="B", **config)
    assert list(far.key_value_names()) == ["B"]
    with kv.live() as view, kv.watch() as watch:
        first = kv.put("a", b"1")
        assert kv.update("a", b"2", last=first) == first + 1
        with pytest.raises(errors.WrongRevisionError) as caught:
            kv.update("a", b"3", last=first)
        assert caught.value.revision == first + 1
        kv.delete("a")
        kv.create("a", b"4")
        with pytest.raises(errors.KeyExistsError):
            kv.create("a", b"5")
        kv.purge("b", ttl=60)
        view.wait_for(kv.create("c", b"6", ttl=60), LONG)
        assert dict(view) == {"a": b"4", "c": b"6"}
        operations = [watch.next(LONG).operation for _ in range(6)]
        assert operations == ["PUT", "PUT", "DEL", "PUT", "PURGE", "PUT"]
    assert kv.get("a").value == b"4"
    assert kv.get("a", revision=first).value == b"1"
    assert {k: e.value for k, e in kv.get_many(["a", "b", "c"]).items()} == {
        "a": b"4",
        "c": b"6",
    }
    assert [entry.operation for entry in kv.history("a")] == [
        "PUT",
        "PUT",
        "DEL",
        "PUT",
    ]
    assert sorted(kv.keys()) == ["a", "c"]
    assert kv.purge_deletes(older_than=0) == 1
    with kv.lock("lock", ttl=60) as lock:
        assert lock.held
        assert not kv.lock("lock", ttl=60).acquire(0)
    assert kv.status().values == 6
    # The domain of the leaf node has no such bucket.
    assert list(sites.js.key_value_names()) == []
    with pytest.raises(errors.BucketNotFoundError):
        sites.js.key_value("B")
    with jsync.connect(sites.hub.url) as nc:
        assert nc.jetstream().key_value("B").get("c").value == b"6"
    far.delete_key_value("B")
    assert list(far.key_value_names()) == []


def test_reads_of_an_unreachable_domain_name_it(sites: Sites) -> None:
    kv = sites.far.create_key_value(bucket="B")
    kv.put("a", b"1")
    stream = sites.far.stream("KV_B")
    sites.hub.stop()
    wait_for(lambda: not answers(sites.far))
    for read in (
        lambda: kv.get_many(["a"]),
        lambda: list(stream.get_messages()),
        lambda: list(stream.get_last_messages(">")),
    ):
        with pytest.raises(errors.JetStreamNotEnabledError, match="hub"):
            read()


@pytest.mark.parametrize("name", ["B", "M"])
def test_another_domains_mirror_is_read_without_the_hub(
    sites: Sites, name: str
) -> None:
    origin = sites.far.create_key_value(bucket="B", history=5)
    origin.put("a", b"1")
    mirror = sites.js.create_key_value(
        bucket=name, history=5, mirror={"name": "B", "external": {"api": "$JS.hub.API"}}
    )
    assert mirror.is_read_only
    with mirror.live(on_error=Recorder()) as view:
        origin.delete("a")
        view.wait_for(origin.put("b", b"2"), LONG)
        assert dict(view) == {"b": b"2"}
        with pytest.raises(errors.ReadOnlyBucketError, match="write to bucket 'B'"):
            mirror.put("b", b"3")
        sites.hub.stop()
        bound = sites.js.key_value(name)
        assert bound.get("b").value == b"2"
        assert list(bound.keys()) == ["b"]
        assert [entry.operation for entry in bound.history("a")] == ["PUT", "DEL"]
        assert dict(view) == {"b": b"2"}


def test_another_domains_mirror_continues_after_the_hub_returns(
    sites: Sites,
) -> None:
    with connect(sites.hub.url, Events()) as nc:
        origin = nc.jetstream(timeout=10.0).create_key_value(bucket="B", history=5)
        mirror = sites.js.create_key_value(
            bucket="M", mirror={"name": "B", "external": {"api": "$JS.hub.API"}}
        )
        seen: list[int] = []
        with (
            mirror.watch(callback=lambda entry: seen.append(entry.revision)),
            mirror.live(on_error=Recorder()) as view,
        ):
            view.wait_for(origin.put("a", b"1"), LONG)
            sites.hub.kill()
            sites.hub.start()
            last = origin.put("a", b"2", timeout=LONG)
            view.wait_for(last, LONG)
            assert view["a"] == b"2"
            wait_for(lambda: seen == [1, 2], LONG)


@pytest.mark.parametrize("name", ["B", "COPY"])
def test_a_bucket_copies_the_keys_of_another_domain(sites: Sites, name: str) -> None:
    origin = sites.far.create_key_value(bucket="B", history=5)
    copy = sites.js.create_key_value(
        bucket=name, sources=[{"name": "B", "external": {"api": "$JS.hub.API"}}]
    )
    assert not copy.is_read_only
    with copy.live(on_error=Recorder()) as view:
        origin.put("a", b"1")
        wait_for(lambda: "a" in view, LONG)
        # The copy is a separate bucket, so its writes do not go back.
        view.wait_for(copy.put("a", b"own"), LONG)
        assert dict(view) == {"a": b"own"}
        assert origin.get("a").value == b"1"
        origin.put("b", b"2")
        wait_for(lambda: "b" in view, LONG)
    assert sorted(copy.keys()) == ["a", "b"]


ACCOUNTS = """accounts {
  HOME: {
    jetstream: enabled
    users: [{user: home, password: p}]
    exports: [
      {service: "$JS.API.>", response_type: stream}
      {service: "$KV.>"}
      {service: "$JS.ACK.>"}
      {stream: "deliver.>"}
    ]
  }
  AWAY: {
    users: [{user: away, password: p}]
    imports: [
      {service: {account: HOME, subject: "$JS.API.>"}, to: "home.>"}
      {service: {account: HOME, subject: "$KV.>"}, to: "home.$KV.>"}
      {service: {account: HOME, subject: "$JS.ACK.>"}}
    ]
  }
}"""


def test_another_accounts_bucket_is_used_over_a_prefix(
    own_server: StartServer,
) -> None:
    server = own_server(config=ACCOUNTS)
    with (
        jsync.connect(server.url, user="home", password="p") as home,
        jsync.connect(server.url, user="away", password="p") as away,
    ):
        ours = home.jetstream().create_key_value(bucket="B", history=5)
        kv = away.jetstream(prefix="home").key_value("B")
        with kv.live() as view:
            revision = kv.put("a", b"1")
            assert ours.get("a").revision == revision
            kv.update("a", b"2", last=revision)
            view.wait_for(ours.put("b", b"3"), LONG)
            assert dict(view) == {"a": b"2", "b": b"3"}
        assert kv.get("a").value == b"2"
        assert sorted(kv.keys()) == ["a", "b"]
        kv.purge("a")
        assert [entry.operation for entry in ours.history("a")] == ["PURGE"]
