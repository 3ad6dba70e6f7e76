"""Tests of buckets and their keys against a real server."""

from __future__ import annotations

import socket
from datetime import UTC, datetime, timedelta, tzinfo
from typing import TYPE_CHECKING, Any

import pytest

import jsync
from jsync import errors
from jsync.jetstream.keyvalue import purge_deletes

from ....support.servers import wait_for
from ....support.threads import LONG, Thread
from .support import fill

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Self

    from jsync.server import LocalServer

    from ....conftest import StartServer

pytestmark = pytest.mark.server


# Buckets ------------------------------------------------------------------------------


def test_keywords_or_a_configuration_create_a_bucket(
    js: jsync.JetStream, unique: str
) -> None:
    config = jsync.KeyValueConfig(bucket=unique, history=3, storage="memory")
    assert js.create_key_value(config).status().config.history == 3
    again = js.create_key_value(bucket=unique, history=3, storage="memory")
    assert again.bucket == unique
    js.delete_key_value(unique)


def test_a_bucket_that_exists_otherwise_is_not_changed(
    js: jsync.JetStream, bucket: jsync.KeyValue
) -> None:
    with pytest.raises(errors.BucketExistsError, match="update_key_value") as caught:
        js.create_key_value(bucket=bucket.bucket, history=6, storage="memory")
    assert isinstance(caught.value, errors.StreamNameInUseError)
    assert bucket.status().history == 5


def test_keywords_update_one_field_and_configurations_all_fields(
    js: jsync.JetStream, bucket: jsync.KeyValue
) -> None:
    name = bucket.bucket
    js.update_key_value(bucket=name, ttl=60, description="words")
    status = js.update_key_value(bucket=name, description=None).status()
    assert (status.history, status.ttl, status.config.description) == (5, 60, None)
    config = jsync.KeyValueConfig(bucket=name, history=2, storage="memory")
    status = js.update_key_value(config).status()
    assert (status.history, status.ttl) == (2, None)


def test_an_update_by_keywords_leaves_other_stream_fields(
    js: jsync.JetStream, bucket: jsync.KeyValue
) -> None:
    js.update_stream(name=f"KV_{bucket.bucket}", allow_direct=False, no_ack=False)
    js.update_key_value(bucket=bucket.bucket, history=7)
    config = js.stream(f"KV_{bucket.bucket}").cached_info.config
    assert (config.max_msgs_per_subject, config.allow_direct) == (7, False)


@pytest.fixture
def of_nats_py(js: jsync.JetStream, unique: str) -> Iterator[jsync.KeyValue]:
    """A bucket as nats-py creates it: no direct gets, and `allow_msg_ttl`."""
    js.create_stream(
        name=f"KV_{unique}",
        subjects=[f"$KV.{unique}.>"],
        storage="memory",
        discard="new",
        max_msgs_per_subject=1,
        allow_rollup_hdrs=True,
        allow_msg_ttl=True,
        allow_atomic=True,
        deny_delete=True,
    )
    yield js.key_value(unique)
    js.delete_key_value(unique)


def test_the_advice_for_an_existing_bucket_repairs_it(
    js: jsync.JetStream, of_nats_py: jsync.KeyValue
) -> None:
    config: dict[str, Any] = {"bucket": of_nats_py.bucket, "storage": "memory"}
    with pytest.raises(
        errors.BucketExistsError,
        match=r"in .*allow_direct.*; .* create_or_update_key_value",
    ):
        js.create_key_value(**config)
    js.create_or_update_key_value(**config)
    stream = js.stream(f"KV_{of_nats_py.bucket}").cached_info.config
    assert stream.allow_direct
    assert (stream.allow_msg_ttl, stream.allow_atomic) == (True, True)
    js.update_key_value(jsync.KeyValueConfig(**config))


def test_many_keys_are_read_without_direct_gets(
    of_nats_py: jsync.KeyValue,
) -> None:
    of_nats_py.put("a", b"1")
    of_nats_py.put("b", b"2")
    of_nats_py.delete("b")
    found = of_nats_py.get_many(["a", "b", "c"])
    assert {key: entry.value for key, entry in found.items()} == {"a": b"1"}


def test_a_bucket_is_created_or_updated(js: jsync.JetStream, unique: str) -> None:
    for history in (1, 4):
        kv = js.create_or_update_key_value(
            bucket=unique, history=history, storage="memory"
        )
        assert kv.status().history == history
    js.delete_key_value(unique)


@pytest.mark.parametrize(
    "call",
    [
        lambda js, name: js.key_value(name),
        lambda js, name: js.delete_key_value(name),
        lambda js, name: js.update_key_value(bucket=name, history=2),
        lambda js, name: js.update_key_value(jsync.KeyValueConfig(bucket=name)),
    ],
    ids=["key_value", "delete", "update by keywords", "update"],
)
def test_a_missing_bucket_raises_and_nothing_is_created(
    js: jsync.JetStream, unique: str, call: Callable[[jsync.JetStream, str], object]
) -> None:
    with pytest.raises(errors.BucketNotFoundError, match=unique):
        call(js, unique)
    assert unique not in set(js.key_value_names())
    assert f"KV_{unique}" not in set(js.stream_names())


@pytest.mark.parametrize(
    "call",
    [
        lambda kv: kv.get("a"),
        lambda kv: kv.get("a", revision=1),
        lambda kv: kv.get_many(["a"]),
        lambda kv: kv.history("a"),
        lambda kv: list(kv.keys()),
        lambda kv: kv.watch(),
        lambda kv: kv.live(),
        lambda kv: kv.status(),
        lambda kv: kv.purge_deletes(),
    ],
    ids=[
        "get",
        "revision",
        "many",
        "history",
        "keys",
        "watch",
        "live",
        "status",
        "deletes",
    ],
)
def test_a_deleted_bucket_is_missing_for_each_reader(
    js: jsync.JetStream,
    bucket: jsync.KeyValue,
    call: Callable[[jsync.KeyValue], object],
) -> None:
    js.delete_key_value(bucket.bucket)
    with pytest.raises(errors.BucketNotFoundError, match=bucket.bucket):
        call(bucket)
    assert f"KV_{bucket.bucket}" not in set(js.stream_names())


def test_a_stream_that_is_no_bucket_is_refused(
    js: jsync.JetStream, unique: str
) -> None:
    stream = js.create_stream(name=f"KV_{unique}", subjects=[unique], storage="memory")
    with pytest.raises(errors.InvalidBucketError, match="max_msgs_per_subject"):
        js.key_value(unique)
    stream.delete()


def test_buckets_are_listed_and_other_streams_are_not(
    js: jsync.JetStream, bucket: jsync.KeyValue, unique: str
) -> None:
    other = js.create_stream(name=f"S{unique}", subjects=[unique], storage="memory")
    bucket.put("a", b"12")
    names = set(js.key_value_names())
    assert bucket.bucket in names
    assert other.name not in names
    other.delete()
    (status,) = (s for s in js.key_value_statuses() if s.bucket == bucket.bucket)
    assert (status.values, status.history) == (1, 5)
    assert status.bytes > 0
    assert status.backing_store == "JetStream"
    assert not status.is_compressed


# Values -------------------------------------------------------------------------------


def test_a_value_is_got_as_it_was_put(bucket: jsync.KeyValue) -> None:
    before = datetime.now(UTC) - timedelta(seconds=5)
    for number, value in enumerate([b"", b"x", bytes(range(256)), b"x" * 100_000]):
        revision = bucket.put("a.b", value)
        entry = bucket.get("a.b")
        assert entry.value == value
        assert entry.revision == revision == number + 1
        assert (entry.bucket, entry.key) == (bucket.bucket, "a.b")
        assert (entry.operation, entry.delta) == ("PUT", 0)
        assert before < entry.created < datetime.now(UTC) + timedelta(seconds=5)


def test_missing_and_deleted_keys_raise_different_errors(
    bucket: jsync.KeyValue,
) -> None:
    with pytest.raises(errors.KeyNotFoundError, match="no such key: 'a'") as missing:
        bucket.get("a")
    assert not isinstance(missing.value, errors.KeyDeletedError)
    assert isinstance(missing.value, KeyError)
    bucket.put("a")
    deleted = bucket.delete("a")
    with pytest.raises(errors.KeyDeletedError) as caught:
        bucket.get("a")
    assert (caught.value.revision, caught.value.operation) == (deleted, "DEL")
    purged = bucket.purge("a")
    with pytest.raises(errors.KeyNotFoundError) as again:
        bucket.get("a")
    assert isinstance(again.value, errors.KeyDeletedError)
    assert (again.value.revision, again.value.operation) == (purged, "PURGE")


def test_get_finds_revisions_of_its_own_key_only(bucket: jsync.KeyValue) -> None:
    first = bucket.put("a", b"1")
    bucket.put("b", b"2")
    bucket.put("a", b"3")
    deleted = bucket.delete("a")
    assert bucket.get("a", revision=first).value == b"1"
    for key, revision in (("b", first), ("a", first + 1), ("a", 1000)):
        with pytest.raises(errors.KeyNotFoundError, match=f"revision {revision}"):
            bucket.get(key, revision=revision)
    with pytest.raises(errors.KeyDeletedError):
        bucket.get("a", revision=deleted)
    with pytest.raises(errors.ConfigError):
        bucket.get("a", revision=0)


@pytest.mark.parametrize("remove", ["delete", "purge"])
def test_a_key_is_created_again_only_once_gone(
    bucket: jsync.KeyValue, remove: str
) -> None:
    first = bucket.create("a", b"1")
    with pytest.raises(errors.KeyExistsError, match="update it") as caught:
        bucket.create("a", b"2")
    assert caught.value.revision == first
    assert isinstance(caught.value, errors.WrongRevisionError)
    getattr(bucket, remove)("a")
    assert bucket.create("a", b"3") == first + 2
    assert bucket.get("a").value == b"3"


def test_create_reports_a_key_stored_under_another_subject(
    js: jsync.JetStream, unique: str
) -> None:
    js.create_stream(
        name=f"KV_{unique}",
        subjects=[f"$KV.{unique}.>"],
        max_msgs_per_subject=1,
        subject_transform={"src": f"$KV.{unique}.>", "dest": f"$KV.{unique}.moved.>"},
    )
    bucket = js.key_value(unique)
    bucket.create("a", b"1")
    with pytest.raises(errors.JetStreamError, match=r"moved\.a' instead of"):
        bucket.create("a", b"2")


def test_of_many_that_create_a_key_one_does(
    bucket: jsync.KeyValue,
) -> None:
    bucket.put("a")
    bucket.delete("a")

    threads = [Thread(bucket.create, "a", b"%d" % number) for number in range(8)]
    failures = [error for thread in threads if (error := thread.error())]
    assert len(failures) == 7
    there = bucket.get("a").revision
    assert {(type(error), error.revision) for error in failures} == {  # type: ignore[attr-defined]
        (errors.KeyExistsError, there)
    }


def test_an_update_needs_the_current_revision(bucket: jsync.KeyValue) -> None:
    first = bucket.update("a", b"1", last=0)
    second = bucket.update("a", b"2", last=first)
    for last in (0, first, second + 5):
        with pytest.raises(errors.WrongRevisionError, match=f"not {last}") as caught:
            bucket.update("a", b"3", last=last)
        assert caught.value.revision == second
        assert not isinstance(caught.value, errors.KeyExistsError)
    assert bucket.get("a").value == b"2"


@pytest.mark.parametrize("last", [None, -1, True, 1.0, "1"])
def test_an_update_without_a_revision_is_rejected(
    bucket: jsync.KeyValue, last: Any
) -> None:
    bucket.put("a", b"1")
    with pytest.raises(errors.ConfigError, match="last has to be"):
        bucket.update("a", b"2", last=last)
    assert bucket.get("a").value == b"1"


@pytest.mark.parametrize("remove", ["delete", "purge"])
def test_a_removal_may_need_a_revision(bucket: jsync.KeyValue, remove: str) -> None:
    first = bucket.put("a", b"1")
    second = bucket.put("a", b"2")
    with pytest.raises(errors.WrongRevisionError) as caught:
        getattr(bucket, remove)("a", last=first)
    assert caught.value.revision == second
    assert bucket.get("a").value == b"2"
    getattr(bucket, remove)("a", last=second)
    with pytest.raises(errors.KeyDeletedError):
        bucket.get("a")


def test_history_has_the_kept_revisions_in_order(bucket: jsync.KeyValue) -> None:
    for number in range(7):
        bucket.put("a", b"%d" % number)
    bucket.put("b")
    bucket.delete("a")
    entries = bucket.history("a")
    assert [entry.value for entry in entries] == [b"3", b"4", b"5", b"6", b""]
    assert [entry.operation for entry in entries] == [*["PUT"] * 4, "DEL"]
    assert [entry.delta for entry in entries] == [4, 3, 2, 1, 0]
    bucket.purge("a")
    assert [entry.operation for entry in bucket.history("a")] == ["PURGE"]
    with pytest.raises(errors.KeyNotFoundError):
        bucket.history("c")


def test_many_keys_are_got_by_one_request(
    nc: jsync.Connection, bucket: jsync.KeyValue
) -> None:
    for number in range(50):
        bucket.put(f"k.{number}", b"%d" % number)
    bucket.delete("k.7")
    with nc.subscribe(f"$JS.API.DIRECT.GET.KV_{bucket.bucket}") as asked:
        nc.flush()
        wanted = ["k.1", "k.7", "k.49", "none", "k.1"]
        found = bucket.get_many(wanted)
        nc.flush()
        asked.next()
        assert asked.pending == 0
    assert {key: entry.value for key, entry in found.items()} == {
        "k.1": b"1",
        "k.49": b"49",
    }
    assert found["k.1"] == bucket.get("k.1")
    assert bucket.get_many([]) == {}


@pytest.mark.parametrize("keys", ["k.1", None, 5])
def test_one_key_in_place_of_many_is_rejected(
    bucket: jsync.KeyValue, keys: Any
) -> None:
    with pytest.raises(errors.ConfigError, match="use get for one key"):
        bucket.get_many(keys)


def test_more_keys_than_fit_one_request_are_got(
    nc: jsync.Connection, bucket: jsync.KeyValue
) -> None:
    keys = [f"k.{number}" for number in range(2500)]
    fill(nc, bucket, keys)
    found = bucket.get_many(keys, timeout=LONG)
    assert {key: entry.value.decode() for key, entry in found.items()} == {
        key: key for key in keys
    }


def test_keys_are_those_with_a_value_that_match(bucket: jsync.KeyValue) -> None:
    assert list(bucket.keys()) == []
    for key in ("a", "db.host", "db.port", "web.port", "db.x.y"):
        bucket.put(key)
        bucket.put(key)
    bucket.delete("a")
    bucket.purge("db.x.y")
    assert sorted(bucket.keys()) == ["db.host", "db.port", "web.port"]
    assert sorted(bucket.keys("db.>")) == ["db.host", "db.port"]
    assert sorted(bucket.keys("*.port")) == ["db.port", "web.port"]
    assert sorted(bucket.keys("db.host", "web.*")) == ["db.host", "web.port"]
    assert list(bucket.keys("none.>")) == []
    assert list(bucket.keys("a")) == []


def test_a_key_put_while_listing_is_listed(
    nc: jsync.Connection, js: jsync.JetStream, unique: str
) -> None:
    kv = js.create_key_value(bucket=unique, storage="memory")  # one value per key
    keys = [f"k.{number}" for number in range(20_000)]
    fill(nc, kv, keys)
    found = []
    for number, key in enumerate(kv.keys()):
        found.append(key)
        if number < 200:
            kv.put(f"k.{19_999 - number}")  # replaces keys that are still to come
    assert set(found) == set(keys)
    js.delete_key_value(unique)


class Fast(datetime):
    """The time of a machine whose clock is fast by an hour."""

    @classmethod
    def now(cls, tz: tzinfo | None = None) -> Self:
        return super().now(tz) + timedelta(hours=1)


def test_a_fast_clock_removes_no_young_marker(
    bucket: jsync.KeyValue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(purge_deletes, "datetime", Fast)
    bucket.put("a", b"1")
    bucket.delete("a")
    assert bucket.purge_deletes() == 0


def test_delete_markers_are_removed_and_new_values_stay(
    nc: jsync.Connection, bucket: jsync.KeyValue
) -> None:
    for key in ("a", "b", "c"):
        bucket.put(key, b"1")
    bucket.delete("a")
    bucket.purge("b")
    with nc.subscribe(f"$JS.API.STREAM.PURGE.KV_{bucket.bucket}") as asked:
        # the markers are young, so only history is removed
        assert bucket.purge_deletes() == 0
        assert bucket.status().values == 3
        assert asked.next().data
    assert bucket.purge_deletes(older_than=0) == 2
    assert bucket.status().values == 1
    assert bucket.get("c").value == b"1"


def test_the_removal_of_a_marker_spares_later_puts(
    js: jsync.JetStream, bucket: jsync.KeyValue
) -> None:
    bucket.put("a", b"old")
    marker = bucket.delete("a")
    new = bucket.put("a", b"new")
    # purge_deletes sends this request if it read the marker before the new value came.
    subject = f"$KV.{bucket.bucket}.a"
    js.stream(f"KV_{bucket.bucket}").purge(subject=subject, sequence=marker + 1)
    assert bucket.get("a").revision == new


@pytest.mark.parametrize(
    "call",
    [
        lambda kv: kv.put("a b"),
        lambda kv: kv.create("*"),
        lambda kv: kv.update("a.", last=0),
        lambda kv: kv.delete(">"),
        lambda kv: kv.purge(""),
        lambda kv: kv.get("a.*"),
        lambda kv: kv.get_many(["a", "b..c"]),
        lambda kv: kv.history("*"),
        lambda kv: kv.keys("a b"),
        lambda kv: kv.watch("a.>.b"),
        lambda kv: kv.live(".a"),
    ],
    ids=[
        *("put", "create", "update", "delete", "purge", "get", "get_many", "history"),
        *("keys", "watch", "live"),
    ],
)
def test_an_invalid_key_is_rejected_before_sending(
    nc: jsync.Connection,
    bucket: jsync.KeyValue,
    call: Callable[[jsync.KeyValue], object],
) -> None:
    nc.flush()
    sent = nc.stats().out_messages
    with pytest.raises(errors.InvalidKeyError):
        call(bucket)
    assert nc.stats().out_messages == sent


# Lifetimes ----------------------------------------------------------------------------


def test_keys_with_a_ttl_expire_leaving_a_marker(
    js: jsync.JetStream, unique: str
) -> None:
    kv = js.create_key_value(bucket=unique, limit_marker_ttl=60, storage="memory")
    kv.create("a", b"1", ttl=3)
    with kv.watch("a") as watch:
        assert watch.next().operation == "PUT"
        marker = watch.next(LONG)
        assert (marker.operation, marker.value) == ("PURGE", b"")
    with pytest.raises(errors.KeyDeletedError, match="expired") as caught:
        kv.get("a")
    assert caught.value.revision == marker.revision
    assert kv.create("a", b"2") == marker.revision + 1
    assert list(kv.keys()) == ["a"]
    js.delete_key_value(unique)


def test_the_marker_of_a_purge_may_expire(js: jsync.JetStream, unique: str) -> None:
    kv = js.create_key_value(bucket=unique, limit_marker_ttl=60, storage="memory")
    kv.put("a", b"1")
    with kv.watch("a", updates_only=True) as watch:
        marker = kv.purge("a", ttl=3)
        assert watch.next().revision == marker
        headers = js.stream(f"KV_{unique}").get_message(sequence=marker).headers
        assert headers is not None
        assert headers["Nats-TTL"] == "3s"
    js.delete_key_value(unique)


def test_a_ttl_needs_a_bucket_with_limit_markers(bucket: jsync.KeyValue) -> None:
    with pytest.raises(errors.MessageTTLDisabledError):
        bucket.create("a", ttl=5)
    with pytest.raises(errors.ConfigError, match="whole seconds"):
        bucket.create("a", ttl=0.5)


# Mirrors, sources, domains ------------------------------------------------------------


def test_a_mirror_is_read_and_refuses_writes(
    js: jsync.JetStream, bucket: jsync.KeyValue, unique: str
) -> None:
    name = f"M{unique}"
    bucket.put("a", b"1")
    mirror = js.create_key_value(
        bucket=name, mirror={"name": unique}, history=5, storage="memory"
    )
    revision = bucket.put("b", b"2")
    with mirror.live() as view:
        view.wait_for(revision)
        assert dict(view) == {"a": b"1", "b": b"2"}
    for kv in (mirror, js.key_value(name)):
        assert kv.is_read_only
        assert kv.get("a").value == b"1"
        assert sorted(kv.keys()) == ["a", "b"]
        assert kv.history("b")[0].revision == revision
        writes: list[Callable[[jsync.KeyValue], object]] = [
            lambda kv: kv.put("a"),
            lambda kv: kv.create("a"),
            lambda kv: kv.update("a", last=1),
            lambda kv: kv.delete("a"),
            lambda kv: kv.purge("a"),
            lambda kv: kv.purge_deletes(),
        ]
        for write in writes:
            with pytest.raises(errors.ReadOnlyBucketError, match=f"write to.*{unique}"):
                write(kv)
    assert bucket.get("a").revision == 1
    js.delete_key_value(name)


def test_a_bucket_has_the_keys_of_its_sources(
    js: jsync.JetStream, bucket: jsync.KeyValue, stream: jsync.Stream, unique: str
) -> None:
    name = f"S{unique}"
    both = js.create_key_value(
        bucket=name,
        storage="memory",
        sources=[
            {"name": unique},
            {
                "name": stream.name,
                "subject_transforms": [
                    {"src": f"{stream.name}.>", "dest": f"$KV.{name}.events.>"}
                ],
            },
        ],
    )
    with both.watch() as watch:
        bucket.put("from.bucket", b"1")
        assert (entry := watch.next(LONG)).key == "from.bucket"
        assert entry.value == b"1"
        js.publish(f"{stream.name}.x", b"2")
        assert watch.next(LONG).key == "events.x"
    both.put("own", b"3")
    assert sorted(both.keys()) == ["events.x", "from.bucket", "own"]
    js.delete_key_value(name)


def test_a_domains_bucket_is_reached_over_its_prefix(
    own_server: StartServer,
) -> None:
    server = own_server(config="jetstream { domain: hub }")
    with jsync.connect(server.url) as nc:
        for js in (
            nc.jetstream(domain="hub"),
            nc.jetstream(prefix="$JS.hub.API"),
        ):
            kv = js.create_or_update_key_value(bucket="B", history=5)
            revision = kv.put("a", b"1")
            assert kv.get("a").revision == revision
            kv.update("a", b"2", last=revision)
            kv.delete("a")
            kv.create("a", b"3")
            assert list(kv.keys()) == ["a"]
            with kv.live() as view:
                view.wait_for(kv.put("b", b"4"))
                assert dict(view) == {"a": b"3", "b": b"4"}
            kv.purge("a")
            kv.purge("b")
            assert kv.purge_deletes(older_than=0) == 2
            assert list(js.key_value_names()) == ["B"]


def test_get_many_returns_the_keys_of_other_clients(
    js: jsync.JetStream, bucket: jsync.KeyValue
) -> None:
    bucket.put("a", b"1")
    for key in ("b:1", "ä"):
        js.publish(f"$KV.{bucket.bucket}.{key}", b"2")
    found = bucket.get_many(bucket.keys())
    assert {key: entry.value for key, entry in found.items()} == {
        "a": b"1",
        "b:1": b"2",
        "ä": b"2",
    }
    for key in ("a.*", ">", "", "a..b", "a b", "\ud800"):
        with pytest.raises(errors.InvalidKeyError):
            bucket.get_many(["a", key])


def test_markers_on_strange_keys_stop_no_removal(
    server: LocalServer, bucket: jsync.KeyValue
) -> None:
    for key in ("a.1", "a.2", "b", "gone"):
        bucket.put(key, b"1")
    bucket.delete("gone")
    header = b"NATS/1.0\r\nKV-Operation: DEL\r\n\r\n"
    sizes = b"%d %d" % (len(header), len(header))
    with socket.create_connection(("127.0.0.1", server.port)) as raw:
        raw.sendall(b'CONNECT {"headers":true,"verbose":false}\r\n')
        for strange in (b"a.*", b">", b"\xff", b"a\x01"):
            subject = f"$KV.{bucket.bucket}.".encode() + strange
            raw.sendall(b"HPUB %s %s\r\n%s\r\n" % (subject, sizes, header))
        wait_for(lambda: bucket.status().values == 9)
    bucket.put("last", b"1")
    bucket.delete("last")
    bucket.purge_deletes()
    assert bucket.purge_deletes(older_than=0) == 2
    assert sorted(bucket.keys()) == ["a.1", "a.2", "b"]
