"""Tests of buckets on each release line."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import pytest

import jsync
from jsync import errors

from ..support.threads import LONG

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from jsync.models.server_version import ServerVersion


@pytest.fixture
def bucket(js: jsync.JetStream, unique: str) -> Iterator[jsync.KeyValue]:
    yield js.create_key_value(bucket=unique, history=5)
    with contextlib.suppress(errors.BucketNotFoundError):
        js.delete_key_value(unique)


def test_values_are_put_got_and_removed(bucket: jsync.KeyValue) -> None:
    first = bucket.create("a.b", b"1")
    second = bucket.update("a.b", b"2", last=first)
    assert bucket.get("a.b").value == b"2"
    assert bucket.get("a.b", revision=first).value == b"1"
    calls: list[Callable[[], int]] = [
        lambda: bucket.create("a.b", b"3"),
        lambda: bucket.update("a.b", b"3", last=first),
        lambda: bucket.delete("a.b", last=first),
    ]
    for call in calls:
        with pytest.raises(errors.WrongRevisionError) as caught:
            call()
        assert caught.value.revision == second
    bucket.delete("a.b")
    with pytest.raises(errors.KeyDeletedError):
        bucket.get("a.b")
    assert [entry.operation for entry in bucket.history("a.b")] == ["PUT", "PUT", "DEL"]
    created = bucket.create("a.b", b"4")
    assert list(bucket.keys("a.*")) == ["a.b"]
    bucket.purge("a.b", last=created)
    assert [entry.operation for entry in bucket.history("a.b")] == ["PURGE"]
    assert bucket.purge_deletes(older_than=0) == 1
    assert bucket.status().values == 0
    with pytest.raises(errors.KeyNotFoundError):
        bucket.get("a.b")


def test_keys_are_watched(bucket: jsync.KeyValue) -> None:
    bucket.put("a.x", b"1")
    bucket.put("b", b"2")
    with bucket.watch("a.*", "c") as watch, bucket.live("a.>") as view:
        assert [entry.key for entry in watch.initial()] == ["a.x"]
        bucket.put("b", b"3")
        bucket.put("c", b"4")
        view.wait_for(bucket.delete("a.x"), LONG)
        assert [watch.next(LONG).key, watch.next(LONG).operation] == ["c", "DEL"]
        assert dict(view) == {}
        assert view.is_current


def test_the_end_is_reached_despite_a_bucket_purge(
    js: jsync.JetStream, bucket: jsync.KeyValue
) -> None:
    with js.publisher() as publisher:
        for number in range(3000):
            publisher.publish(f"$KV.{bucket.bucket}.{number}", b"")
    with bucket.watch(on_error=lambda error: None) as watch:
        watch.next(LONG)
        js.stream(f"KV_{bucket.bucket}").purge()
        assert len(list(watch.initial())) < 3000
        revision = bucket.put("new")
        assert watch.next(LONG).revision == revision


def test_many_are_got_where_the_server_can(
    bucket: jsync.KeyValue, line: ServerVersion
) -> None:
    bucket.put("a", b"1")
    bucket.put("b", b"2")
    if line < (2, 11):
        with pytest.raises(errors.UnsupportedFeatureError, match="batched direct get"):
            bucket.get_many(["a", "b"])
    else:
        assert set(bucket.get_many(["a", "b", "c"])) == {"a", "b"}


def test_keys_expire_where_the_server_can(
    js: jsync.JetStream, unique: str, line: ServerVersion
) -> None:
    if line < (2, 11):
        with pytest.raises(errors.UnsupportedFeatureError, match="nothing was sent"):
            js.create_key_value(bucket=unique, limit_marker_ttl=60)
        bucket = js.create_key_value(bucket=unique)
        with pytest.raises(errors.UnsupportedFeatureError, match="nothing was sent"):
            bucket.create("a", ttl=1)
        with pytest.raises(errors.UnsupportedFeatureError, match="nothing was sent"):
            bucket.purge("a", ttl=1)
        assert bucket.status().values == 0
    else:
        bucket = js.create_key_value(bucket=unique, limit_marker_ttl=60)
        with bucket.watch() as watch:
            bucket.create("a", ttl=3)
            assert watch.next(LONG).operation == "PUT"
            assert watch.next(LONG).operation == "PURGE"
        assert bucket.create("a", b"again") == 3
    js.delete_key_value(unique)


def test_keys_are_locked_where_the_server_can(
    js: jsync.JetStream, unique: str, line: ServerVersion
) -> None:
    if line < (2, 11):
        bucket = js.create_key_value(bucket=unique)
        with pytest.raises(errors.UnsupportedFeatureError, match="nothing was sent"):
            bucket.lock("a").acquire()
        with pytest.raises(errors.UnsupportedFeatureError, match="nothing was sent"):
            bucket.elect("a")
    else:
        bucket = js.create_key_value(bucket=unique, limit_marker_ttl=60)
        with bucket.lock("a", ttl=4) as lock:
            token, first = lock.token, bucket.get("a").revision
            with bucket.watch("a", updates_only=True) as watch:
                assert watch.next(LONG).revision > first  # jsync renews the lock
            assert lock.held
        with bucket.lock("a", ttl=4, timeout=LONG) as lock:
            assert lock.token > token
    js.delete_key_value(unique)
