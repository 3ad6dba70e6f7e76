"""Tests of live copies, mappings that stay equal to the bucket."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import jsync
from jsync import errors

from ...servers import wait_for
from ..support import LONG, SOON, Recorder, Thread
from .support import fill

if TYPE_CHECKING:
    from ...proxy import FaultProxy

pytestmark = pytest.mark.server


def test_a_live_copy_is_complete_from_the_start(
    nc: jsync.Connection, bucket: jsync.KeyValue
) -> None:
    keys = [f"k.{number}" for number in range(3000)]
    fill(nc, bucket, keys)
    bucket.delete("k.0")
    with bucket.live() as view:
        assert dict(view) == {key: key.encode() for key in keys[1:]}
        assert len(view) == 2999
        assert list(view) == keys[1:]
        assert "k.1" in view
        assert "k.0" not in view
        assert view.get("k.0") is None
        with pytest.raises(KeyError):
            view["k.0"]
        assert view.is_current


def test_reading_a_live_copy_sends_no_request(
    nc: jsync.Connection, bucket: jsync.KeyValue
) -> None:
    bucket.put("a", b"1")
    with bucket.live() as view:
        nc.flush()
        before = nc.stats().out_messages
        for _ in range(1000):
            assert view["a"] == b"1"
        assert view.entry("a").revision == 1
        assert nc.stats().out_messages == before


def test_a_live_copy_follows_changes_of_the_keys_it_is_for(
    bucket: jsync.KeyValue,
) -> None:
    with bucket.live("db.>", "web") as view:
        assert len(view) == 0
        bucket.put("db.host", b"1")
        bucket.put("other", b"2")
        view.wait_for(bucket.put("web", b"3"))
        assert dict(view) == {"db.host": b"1", "web": b"3"}
        bucket.delete("web")
        view.wait_for(bucket.purge("db.host"))
        assert dict(view) == {}
        assert view.revision == 5


def test_a_revision_is_waited_for(bucket: jsync.KeyValue) -> None:
    with bucket.live() as view:
        waiting = Thread(view.wait_for, 2, LONG)
        waiting.wait_until_blocked()
        bucket.put("a")
        assert not waiting.ended
        bucket.put("a")
        waiting.result()
        with pytest.raises(errors.TimeoutError, match="revision 3"):
            view.wait_for(3, 0.05)
        waiting = Thread(view.wait_for, 4, LONG)
        waiting.wait_until_blocked()
        view.stop()
        assert isinstance(waiting.error(), errors.SubscriptionClosedError)
    assert list(view) == ["a"]


def test_a_live_copy_shows_when_it_is_not_current(
    proxy: FaultProxy,
    far: jsync.Connection,
    bucket: jsync.KeyValue,
    far_bucket: jsync.KeyValue,
) -> None:
    bucket.put("a", b"1")
    with far_bucket.live(on_error=Recorder()) as view:
        assert view.is_current
        assert view.age < SOON
        proxy.refuse()
        proxy.cut()
        wait_for(lambda: not view.is_current)
        age = view.age
        revision = bucket.put("a", b"2")
        wait_for(lambda: view.age > age + 0.2)
        assert view["a"] == b"1"
        proxy.accept()
        view.wait_for(revision, LONG)
        wait_for(lambda: view.is_current)
        assert view["a"] == b"2"
        assert view.age < age + SOON


def test_a_live_copy_is_current_again_though_nothing_has_changed(
    proxy: FaultProxy, far_bucket: jsync.KeyValue, bucket: jsync.KeyValue
) -> None:
    bucket.put("a", b"1")
    with far_bucket.live(on_error=Recorder()) as view:
        proxy.cut()
        wait_for(lambda: not view.is_current)
        wait_for(lambda: view.is_current)
        assert dict(view) == {"a": b"1"}


def test_a_live_copy_of_a_deleted_bucket_raises_its_error(
    js: jsync.JetStream, bucket: jsync.KeyValue
) -> None:
    with bucket.live(on_error=Recorder()) as view:
        js.delete_key_value(bucket.bucket)
        with pytest.raises(errors.BucketNotFoundError):
            view.wait_for(1, LONG)
        assert not view.is_current


def test_a_copy_that_cannot_be_complete_in_time_is_none(
    far: jsync.Connection, proxy: FaultProxy, far_bucket: jsync.KeyValue
) -> None:
    proxy.deaf("server")
    with pytest.raises(errors.TimeoutError):
        far_bucket.live(timeout=0.3)
    proxy.hear("server")
